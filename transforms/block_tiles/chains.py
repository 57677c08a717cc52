"""Contractions of three and more tensors on GPUs, each step in blocks: ``out = ((A B) C) D``.

A product of two operands that sums nothing need not be stored: ``Σ_i,j W[o,i,j] x[b,i] y[b,j]`` is a contraction of W with
``x[b,i] y[b,j]``, which is multiplied as its tiles are loaded.
"""

from __future__ import annotations

from feinsum.contraction import aligned, pairwise_schedule
from feinsum.einsum import BatchedEinsum
from feinsum.rewrites import contract_first, contract_in_steps, separate_rows, spread, spread_sum
from feinsum.rewrites.launches import launch_in_turn
from feinsum.space import Choices, Configuration, Problem, space

from .chain_plans import TOGETHER, nearest, paths
from .chain_work import chain_work
from .contractions import block_contraction
from .limits import refusal_of_device
from .products import is_plain
from .steps import ITEMS, lanes


def is_chain(e: BatchedEinsum) -> bool:
    """Whether there are three or more operands."""
    return is_plain(e) and e.n >= 3 and bool(e.indexing.output)


def parameters(p: Problem) -> Choices:
    return {"path": paths(p), "shape": tuple(range(5)), "pipeline": ("async 3", "registers 2")}


def constraint(p: Problem, c: Configuration) -> str | None:
    computed = c["path"] != TOGETHER or any(len(entry) > 1 for row in p.einsum.args for entry in row)
    if computed and c["pipeline"].startswith("async"):
        return "what is computed while it is loaded passes through registers"
    return refusal_of_device(p)


@space(pattern=is_chain, version=1, rank=1, parameters=parameters, constraint=constraint, estimate=chain_work)
def block_contraction_chain(t_unit, match, p, *, path, shape, pipeline):  # type: ignore[no-untyped-def]
    """A launch in blocks for each pairwise contraction; or one, of products that are made as they are loaded."""
    t_unit, rows = separate_rows(t_unit, match)
    t_unit = launch_in_turn(t_unit, rows)
    schedule = aligned(pairwise_schedule(p.einsum, p.lengths), p.einsum.indexing)
    for m in rows:
        if path == TOGETHER:
            t_unit, steps = contract_in_steps(t_unit, m, schedule)
        else:
            t_unit, joint = contract_first(t_unit, m, tuple(map(int, path.split())))
            steps = (joint,)
        for step in steps:
            own = Problem(step.einsum, {x: p.sizes[x] for x in step.einsum.indexing.indices}, p.device)
            c = nearest(own, shape, pipeline)
            output = step.einsum.indexing.output
            if c is not None:
                t_unit = block_contraction.function(t_unit, step, own, **c)
            elif output:
                t_unit = spread(t_unit, step, output[-1], lanes(own.sizes[output[-1]]), own.sizes)
            else:
                t_unit = spread_sum(t_unit, step, ITEMS, own.sizes)
    return t_unit
