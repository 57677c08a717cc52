"""Streaming: every operand passes once, in the order in which it lies in memory: ``out[i] = Σ_j A[i, j] x[j]``.

``plan`` says what runs along lanes and what a work-group takes; ``strips`` has the loops, ``body`` the terms and stores of
all streams, ``sums`` the two kinds of sum, and ``partial_sums`` what adds up the sums of several groups;
``write`` does all in order.
"""

from feinsum.skeletons.streaming.plan import Stream, TurnedTiles
from feinsum.skeletons.streaming.write import write

__all__ = ["Stream", "TurnedTiles", "write"]
