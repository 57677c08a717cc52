"""Streaming: every operand passes once, in the order in which it lies in memory: ``out[i] = Σ_j A[i, j] x[j]``."""

from feinsum.skeletons.streaming.plan import Stream, TurnedTiles
from feinsum.skeletons.streaming.write import write

__all__ = ["Stream", "TurnedTiles", "write"]
