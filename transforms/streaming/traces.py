"""Traces and diagonals: ``out = Σ_i A[i,i]``, ``out[e,i] = A[e,i,i]``, alone or times other operands."""

from __future__ import annotations

from loopy import TranslationUnit

from feinsum.cost import Work
from feinsum.einsum import BatchedEinsum
from feinsum.match import Match
from feinsum.skeletons.streaming import Stream, write
from feinsum.space import Configuration, Problem, space

from .choices import trace_choices
from .plans import trace_plan
from .stream_operands import is_distinct, longest_operand
from .work import stream_work


def has_diagonal(e: BatchedEinsum) -> bool:
    """Whether an operand has an index twice; if something is summed over, one operand has all indices."""
    if is_distinct(e):
        return False
    return longest_operand(e) is not None if e.indexing.summed else bool(e.indexing.output)


def estimate(p: Problem, c: Configuration) -> Work:
    return stream_work(p, trace_plan(p, c))


@space(
    pattern=has_diagonal,
    version=1,
    rank=4,
    parameters=trace_choices,
    implied={"strips": 1, "vector": 1},
    plan=trace_plan,
    estimate=estimate,
    epilogues=True,
    ruled=("strips", "vector"),
)
def trace(t_unit: TranslationUnit, m: Match, p: Problem, plan: Stream) -> TranslationUnit:
    """As sums and copies of one operand, element by element along an index that occurs twice."""
    return write(t_unit, m, plan)
