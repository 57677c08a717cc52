"""Validation: every variant is proved before it is timed, and the timed runs are compared, too.

Outputs are poisoned, inputs and outputs lie between guard bands, inputs are random and of mixed sign, the result is
compared with a reference in higher precision on the same inputs, at the lengths to be timed, at lengths that divide
nothing, and at lengths drawn for this run.  Uneven numbers, zeros and an infinity are tried at all but the lengths to be
timed.  Where sums are so long that a missing term could hide in the bound of roundoff, whole numbers are tried, too: with
them any order of evaluation is exact, and nothing is allowed.

An output that is updated holds other numbers before every run.  The scalars of an epilogue are random, and once zero; then
the entries of the output that they multiply are NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from feinsum.einsum import BatchedEinsum
from feinsum.validate.draws import ZERO
from feinsum.validate.proof_lengths import drawn_lengths, length_values, odd_lengths
from feinsum.validate.reference import hides_terms
from feinsum.validate.rotation import Rotation
from feinsum.validate.verdict import Verdict
from feinsum.validate.workload import Workload

__all__ = ["Rotation", "Verdict", "Workload", "length_values", "odd_lengths", "proof", "short_proof"]

_MOST_BYTES = 1 << 30
"""The most bytes of a set of inputs and outputs that is tried with several draws where no axis is long."""


def short_proof(e: BatchedEinsum, lengths: Mapping[str, int], queue: Any) -> list[Workload]:
    """The cases for which a kernel that was proved elsewhere, or at other lengths, has to be right before it is used."""
    found = []
    for at in odd_lengths(e, lengths)[-2:] or [dict(lengths)]:
        found += [Workload(e, at, queue), *([Workload(e, at, queue, draw="whole")] if hides_terms(e, at) else [])]
        found += [Workload(e, at, queue, draw=ZERO)] if e.scalars else []
    return found


def proof(e: BatchedEinsum, lengths: Mapping[str, int], queue: Any, seed: int) -> list[Workload]:
    """The cases for which a kernel for `e` has to be right, the fastest to try first; the last one is to be timed.

    :param lengths: the length of every index in use.
    :param seed: of the inputs, and of the lengths that are drawn.
    """
    others = [*odd_lengths(e, lengths), *drawn_lengths(e, lengths, seed)]
    draws = ("even", "uneven", "infinite")
    found = [Workload(e, at, queue, seed, draw) for at in others for draw in draws]
    if not others and e.array_bytes(e.sizes_from(lengths)) <= _MOST_BYTES:
        found += [Workload(e, lengths, queue, seed, draw) for draw in draws[1:]]
    found += [Workload(e, at, queue, seed, ZERO) for at in others[-1:] or [dict(lengths)] if e.scalars]
    found += [Workload(e, at, queue, seed, "whole") for at in (*others, lengths) if hides_terms(e, at)]
    return [*found, Workload(e, lengths, queue, seed)]
