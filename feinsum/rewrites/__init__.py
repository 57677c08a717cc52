"""Rewrites: the moves that transform spaces are written with.

A move takes a loopy translation unit and a :class:`~feinsum.match.Match` whose index letters name its loops, checks
what it presumes, and returns the changed unit (and the changed match where operands change).
"""

from feinsum.rewrites.complex_parts import contract_in_parts
from feinsum.rewrites.fusion import fuse, fused, last_together, neighbours
from feinsum.rewrites.loops import divide, iname_of, nest, place
from feinsum.rewrites.memory import Kept, materialize
from feinsum.rewrites.panels import Panel, Stage, vector_panel
from feinsum.rewrites.spreading import spread, spread_sum
from feinsum.rewrites.staging import contract_first, contract_in_steps, separate_rows, split_index
from feinsum.rewrites.streams import Stream, stream
from feinsum.rewrites.sums import expand_sum, register_tile
from feinsum.rewrites.vectors import vectorize

__all__ = [
    "Kept",
    "Panel",
    "Stage",
    "Stream",
    "contract_first",
    "contract_in_parts",
    "contract_in_steps",
    "divide",
    "expand_sum",
    "fuse",
    "fused",
    "iname_of",
    "last_together",
    "materialize",
    "neighbours",
    "nest",
    "place",
    "register_tile",
    "separate_rows",
    "split_index",
    "spread",
    "spread_sum",
    "stream",
    "vector_panel",
    "vectorize",
]
