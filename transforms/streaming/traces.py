"""Traces and diagonals: ``out = Σ_i A[i,i]``, ``out[e,i] = A[e,i,i]``, alone or times other operands."""

from __future__ import annotations

from feinsum.cost import Work
from feinsum.einsum import BatchedEinsum
from feinsum.skeletons.streaming.write import Stream, stream
from feinsum.space import Choices, Configuration, Problem, space

from .plans import (
    copy_parameters,
    copy_plan,
    is_distinct,
    longest_operand,
    refusal,
    stream_work,
    sum_parameters,
    sum_plan,
)


def has_diagonal(e: BatchedEinsum) -> bool:
    """Whether an operand has an index twice; if something is summed over, one operand has all indices."""
    if is_distinct(e):
        return False
    return longest_operand(e) is not None if e.indexing.summed else bool(e.indexing.output)


def parameters(p: Problem) -> Choices:
    return sum_parameters(p) if p.einsum.indexing.summed else {**copy_parameters(p), "tile": (64, 16)}


def plan(p: Problem, c: Configuration) -> Stream:
    return sum_plan(p, c) if p.einsum.indexing.summed else copy_plan(p, c)


def estimate(p: Problem, c: Configuration) -> Work:
    return stream_work(p, plan(p, c))


@space(pattern=has_diagonal, version=1, rank=4, parameters=parameters, constraint=refusal, estimate=estimate)
def trace(t_unit, m, p, **configuration):  # type: ignore[no-untyped-def]
    """As sums and copies of one operand, number by number along an index that stands twice."""
    return stream(t_unit, m, plan(p, configuration))
