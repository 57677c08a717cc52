"""Rewrites: the moves with which transform spaces and skeletons are written.

A move takes a loopy translation unit and a :class:`~feinsum.match.Match` whose index letters name its loops, checks its
preconditions, and returns the changed unit (and the changed match where operands change).
"""

from feinsum.rewrites.algebra import contract_first, contract_in_steps, separate_rows, split, split_index
from feinsum.rewrites.epilogue_launch import finish_apart, finish_together, launch_rest
from feinsum.rewrites.finishing import finish, finished
from feinsum.rewrites.fusion import fuse, fused, last_together, neighbours
from feinsum.rewrites.joining import join, side_by_side
from feinsum.rewrites.launch_order import launch_in_turn
from feinsum.rewrites.loops import divide, iname_of, nest, place, spread, spread_sum, spread_tiles
from feinsum.rewrites.operand_memory import Kept, materialize
from feinsum.rewrites.prefetching import prefetch_ahead
from feinsum.rewrites.sum_moves import expand_sum, register_tile
from feinsum.rewrites.vectors import vectorize

__all__ = [
    "Kept",
    "contract_first",
    "contract_in_steps",
    "divide",
    "expand_sum",
    "finish",
    "finish_apart",
    "finish_together",
    "finished",
    "fuse",
    "fused",
    "iname_of",
    "join",
    "last_together",
    "launch_in_turn",
    "launch_rest",
    "materialize",
    "neighbours",
    "nest",
    "place",
    "prefetch_ahead",
    "register_tile",
    "separate_rows",
    "side_by_side",
    "split",
    "split_index",
    "spread",
    "spread_sum",
    "spread_tiles",
    "vectorize",
]
