"""Copies with the axes in another order, ``out[c,b,a] = A[a,b,c]``, and products with transposed operands."""

from __future__ import annotations

from loopy import TranslationUnit

from feinsum.cost import Work
from feinsum.einsum import BatchedEinsum
from feinsum.match import Match
from feinsum.skeletons.streaming import Stream, write
from feinsum.space import Configuration, Problem, space

from .choices import permutation_choices
from .plans import permutation_plan
from .stream_operands import crossing, is_distinct
from .work import stream_work


def is_permutation(e: BatchedEinsum) -> bool:
    """Whether nothing is summed over, and there is but one operand, or one is read across its rows."""
    return not e.indexing.summed and bool(e.indexing.output) and is_distinct(e) and (e.n == 1 or bool(crossing(e)))


def estimate(p: Problem, c: Configuration) -> Work:
    return stream_work(p, permutation_plan(p, c))


@space(
    pattern=is_permutation,
    version=1,
    rank=4,
    parameters=permutation_choices,
    implied={"spare": 0, "joined": False, "strips": 1, "vector": 1, "by_rows": False, "square": False},
    plan=permutation_plan,
    estimate=estimate,
    epilogues=True,
    ruled=("strips", "vector"),
)
def permutation(t_unit: TranslationUnit, m: Match, p: Problem, plan: Stream) -> TranslationUnit:
    """Lanes along the rows of the output; if rows of an operand run across them, work-groups take tiles.

    On GPUs tiles pass through local memory, so that operand and output are both read and written along rows.
    """
    return write(t_unit, m, plan)
