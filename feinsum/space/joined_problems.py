"""A problem with fewer indices: those that lie side by side in every array are one.

The spaces import this module by its name: rewriting einsums needs loopy, and importing :mod:`feinsum` must not.
"""

from __future__ import annotations

from feinsum.rewrites import fused, side_by_side
from feinsum.space.problem import Problem


def joined_problem(p: Problem) -> Problem:
    """A problem with one index for those that lie side by side in every array (:func:`feinsum.rewrites.side_by_side`)."""
    e, sizes = p.einsum, dict(p.sizes)
    for letters in side_by_side(e):
        e, sizes[letters[-1]] = fused(e, letters), p.count(letters)
    return Problem(e, {x: sizes[x] for x in e.indexing.indices}, p.device)
