"""Rewrites: the moves that transform spaces are written with.

A move takes a loopy translation unit and a :class:`~feinsum.match.Match` whose index letters name its loops, checks
what it presumes, and returns the changed unit (and the changed match where operands change).
"""

from feinsum.rewrites.loops import divide, iname_of, place
from feinsum.rewrites.memory import materialize
from feinsum.rewrites.registers import register_tile
from feinsum.rewrites.spreading import spread, spread_sum
from feinsum.rewrites.staging import contract_first, contract_in_steps

__all__ = [
    "contract_first",
    "contract_in_steps",
    "divide",
    "iname_of",
    "materialize",
    "place",
    "register_tile",
    "spread",
    "spread_sum",
]
