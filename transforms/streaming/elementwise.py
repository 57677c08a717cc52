"""Products without a sum: Hadamard products, outer products, scaled rows and columns, ``out[i,j] = A[i,j] B[i,j] x[j]``."""

from __future__ import annotations

from feinsum.cost import Work
from feinsum.einsum import BatchedEinsum
from feinsum.skeletons.streaming.write import stream
from feinsum.space import Configuration, Problem, space

from .plans import copy_parameters, copy_plan, crossing, is_distinct, refusal, stream_work


def is_product(e: BatchedEinsum) -> bool:
    """Whether nothing is summed over, and operands are read along the rows of the output."""
    return e.n > 1 and not e.indexing.summed and bool(e.indexing.output) and is_distinct(e) and not crossing(e)


def estimate(p: Problem, c: Configuration) -> Work:
    return stream_work(p, copy_plan(p, c))


@space(pattern=is_product, version=1, rank=4, parameters=copy_parameters, constraint=refusal, estimate=estimate)
def elementwise_product(t_unit, m, p, **configuration):  # type: ignore[no-untyped-def]
    """Lanes along the rows of the output; a group writes a part of it that is contiguous."""
    return stream(t_unit, m, copy_plan(p, configuration))
