"""The choices of steps that are worth trying for a problem: the lengths of the parts of sums."""

from __future__ import annotations

from feinsum.skeletons.vector_panels import PANEL_SHARES, most_vectors_in_row, panel_bytes
from feinsum.space import Problem

from .plans import SplitSums
from .step_schedules import cheapest_pairs

_WIDEST_ROW = 4
"""Vectors of a panel, where a row is longer; chosen by hand."""


def step_splits(p: Problem) -> list[str]:
    """The sums to divide so that the panels of steps take a part of a core's cache, the best guess first."""
    most = panel_bytes(p.device, PANEL_SHARES[0])
    found = [parts_that_fit(p, nbytes) for nbytes in (most, most // 2, most // 4, 2 * most, most // 16)]
    if p.einsum.n == 2:
        # One step is the business of vector panels; two parts of a sum at least occupy two cores.
        x = max(p.einsum.indexing.summed, key=lambda x: p.sizes[x], default="")
        halves = [SplitSums({x: part}) for part in p.divisors(x) if part < p.sizes[x]] if x else []
        found = [split for split in found if split.parts] + halves[-1:]
    return list(dict.fromkeys(split.text for split in found)) or [SplitSums({}).text]


def splits_of_complex(p: Problem) -> list[str]:
    """Parts of which the matrices take a quarter of a core's cache; or not to divide the sums; or others.

    A number of a matrix takes two of the operand.
    """
    most = panel_bytes(p.device, PANEL_SHARES[0])
    found = [parts_that_fit(p, nbytes) for nbytes in (most // 2, most // 4, most // 8, most)]
    return list(dict.fromkeys(split.text for split in (*found, SplitSums({}))))


def parts_that_fit(p: Problem, nbytes: int) -> SplitSums:
    """Lengths of parts with which the vectors that a step copies take so many bytes at most."""
    parts = {}
    for step in cheapest_pairs(p).steps:
        if any(set(term) == set(step.indexing.indices) for term in step.indexing.inputs):
            continue  # it streams by, and nothing is copied
        summed = [x for x in step.indexing.summed if not p.is_long(x)]
        output = step.indexing.output
        row = p.sizes[output[-1]] if output else 1
        if row > most_vectors_in_row(p.device) * p.lanes:
            row = _WIDEST_ROW * p.lanes
        length = p.count("".join(summed)) * row * p.itemsize
        # The slowest axes of the operand that is not copied come first, so that it is read along its rows.
        read = [term for term in step.indexing.inputs if output[-1:] not in term] or step.indexing.inputs
        for x in sorted(summed, key=lambda x: -max((len(term) - term.find(x) for term in read if x in term), default=0)):
            if length <= nbytes:
                break
            length //= p.sizes[x]
            parts[x] = max((n for n in p.divisors(x) if n * length <= nbytes), default=1)
            length *= parts[x]
    return SplitSums({x: part for x, part in parts.items() if part < p.sizes[x]})
