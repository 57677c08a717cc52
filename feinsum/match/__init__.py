"""Matching: seeing batched einsums in loopy kernels, and saying why there is none.

The grammar stands in :mod:`feinsum.match.grammar`; the matcher is the inverse of :mod:`feinsum.lower`.
"""

from __future__ import annotations

from feinsum.match.compare import match_t_unit_to_einsum
from feinsum.match.extract import extract_operands
from feinsum.match.find import find_einsums
from feinsum.match.isolate import isolate
from feinsum.match.match import Match, match_einsum

__all__ = ["Match", "extract_operands", "find_einsums", "isolate", "match_einsum", "match_t_unit_to_einsum"]
