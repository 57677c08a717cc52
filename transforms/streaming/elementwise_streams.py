"""Products without a sum: Hadamard products, outer products, scaled rows and columns, ``out[i,j] = A[i,j] B[i,j] x[j]``."""

from __future__ import annotations

from loopy import TranslationUnit

from feinsum.cost import Work
from feinsum.einsum import BatchedEinsum
from feinsum.match import Match
from feinsum.skeletons.streaming import Stream, write
from feinsum.space import Configuration, Problem, space

from .choices import copy_choices
from .plans import copy_plan
from .stream_operands import crossing, is_distinct
from .work import stream_work


def is_product(e: BatchedEinsum) -> bool:
    """Whether nothing is summed over, and operands are read along the rows of the output."""
    return e.n > 1 and not e.indexing.summed and bool(e.indexing.output) and is_distinct(e) and not crossing(e)


def estimate(p: Problem, c: Configuration) -> Work:
    return stream_work(p, copy_plan(p, c))


@space(
    pattern=is_product,
    version=1,
    rank=4,
    parameters=copy_choices,
    implied={"strips": 1, "vector": 1},
    plan=copy_plan,
    estimate=estimate,
    epilogues=True,
    ruled=("strips", "vector"),
)
def elementwise_product(t_unit: TranslationUnit, m: Match, p: Problem, plan: Stream) -> TranslationUnit:
    """Lanes along the rows of the output; a group writes a part of it that is contiguous."""
    return write(t_unit, m, plan)
