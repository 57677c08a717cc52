"""Streaming: every operand passes once, in the order in which it lies in memory: ``out[i] = Σ_j A[i, j] x[j]``.

``plan`` describes the lanes and the share of a work-group; ``strips`` has the loops, ``body`` the terms and stores of all
streams, ``flights`` the copies of several loads at a time, ``sums`` the two kinds of sum, ``item_sums`` those by grids of
work-items, and ``partial_sums`` the launch that adds up the sums of several groups; ``write`` puts these parts together.
"""

from feinsum.skeletons.streaming.plan import CrossedTiles, Flight, ItemGrid, Stream, TurnedTiles
from feinsum.skeletons.streaming.write import write

__all__ = ["CrossedTiles", "Flight", "ItemGrid", "Stream", "TurnedTiles", "write"]
