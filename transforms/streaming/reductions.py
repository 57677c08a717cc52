"""Sums of one operand, times smaller ones: ``out[i] = Σ_j A[i,j] x[j]``, along whichever axes.

Full and partial sums, weighted sums, inner products, of vectors and row by row, matrix-vector products in both layouts and
in batches: one operand has all indices, so that reading it takes the time.
"""

from __future__ import annotations

from loopy import TranslationUnit

from feinsum.cost import Work
from feinsum.einsum import BatchedEinsum
from feinsum.match import Match
from feinsum.rewrites import join
from feinsum.skeletons.streaming import Stream, write
from feinsum.space import Configuration, Problem, space
from feinsum.space.joined_problems import joined_problem

from .choices import sum_choices
from .grids import reduction_plan
from .stream_operands import is_distinct, longest_operand
from .work import stream_work


def is_sum_of_one(e: BatchedEinsum) -> bool:
    """Whether one operand has all indices, and some are summed over."""
    return bool(e.indexing.summed) and is_distinct(e) and longest_operand(e) is not None


def estimate(p: Problem, c: Configuration) -> Work:
    return stream_work(joined_problem(p) if c["joined"] else p, reduction_plan(p, c))


@space(
    pattern=is_sum_of_one,
    version=1,
    rank=4,
    parameters=sum_choices,
    implied={"across": 0, "tile": 0, "square": False, "joined": False, "lanes": 0, "loads": 1},
    plan=reduction_plan,
    estimate=estimate,
    epilogues=True,
)
def reduction(t_unit: TranslationUnit, m: Match, p: Problem, plan: Stream) -> TranslationUnit:
    """Lanes along the rows of the operand; groups take parts of the output or, where that is small, of a sum.

    Work-items of GPUs are lanes of several rows at a time, which short rows fill, too, with several terms on their way.

    Where another operand is read across its rows, groups take no more of the lane than a first cache has lines for, or
    CPUs turn squares of it round in registers.
    """
    for letters in plan.joined:
        t_unit, m = join(t_unit, m, letters)
    return write(t_unit, m, plan)
