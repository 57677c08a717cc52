"""Matching: recognising batched einsums in loopy kernels, or saying why there is none.

:mod:`feinsum.match.einsum_grammar` defines the grammar; the matcher is the inverse of :mod:`feinsum.lower`.
"""

from __future__ import annotations

from feinsum.match.compare import match_t_unit_to_einsum
from feinsum.match.convert import convert_operands
from feinsum.match.enclose import add_loop
from feinsum.match.epilogues import match_einsum
from feinsum.match.extract import extract_operands
from feinsum.match.fence import fence
from feinsum.match.find import find_einsums
from feinsum.match.finished_sums import match_finished
from feinsum.match.isolate import isolate, without_others
from feinsum.match.match import Match
from feinsum.match.parting import leave_together, part_match
from feinsum.match.returned import why_another
from feinsum.match.signed import sign_lengths
from feinsum.match.spread import spread_loops
from feinsum.match.stored_functions import Finishing, set_aside

__all__ = [
    "Finishing",
    "Match",
    "add_loop",
    "convert_operands",
    "extract_operands",
    "fence",
    "find_einsums",
    "isolate",
    "leave_together",
    "match_einsum",
    "match_finished",
    "match_t_unit_to_einsum",
    "part_match",
    "set_aside",
    "sign_lengths",
    "spread_loops",
    "why_another",
    "without_others",
]
