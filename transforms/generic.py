"""Every batched einsum, on every device: ``out[...] = Σ Π ...`` with a work-item for each entry of the output.

Three or more operands are contracted in pairs where that saves work.  Outputs too small to occupy the device are summed
by whole work-groups.
"""

from __future__ import annotations

from feinsum.contraction import fused_schedule, pairwise_schedule
from feinsum.cost import Work, in_turn, nest_work
from feinsum.rewrites import contract_in_steps, spread, spread_sum
from feinsum.space import Choices, Configuration, Problem, space
from feinsum.subscripts import Subscripts

_WORTHWHILE = 2.0
"""How many times fewer operations make steps the better first guess, despite the traffic of partial results."""


def parameters(p: Problem) -> Choices:
    schedules: tuple[str, ...] = ("fused",)
    if p.einsum.n >= 3:
        ratio = p.einsum.flops(p.lengths, "naive") / max(1, p.einsum.flops(p.lengths))
        schedules = ("pairwise", "fused") if ratio > _WORTHWHILE else ("fused", "pairwise")
    return {"schedule": schedules, "lane": ("last", "longest"), "items": (64, 16, 32, 128, 256)}


def constraint(p: Problem, c: Configuration) -> str | None:
    return p.exceeds(work_items=c["items"])


def estimate(p: Problem, c: Configuration) -> Work:
    plan = pairwise_schedule(p.einsum, p.lengths) if c["schedule"] == "pairwise" else fused_schedule(p.einsum)
    return in_turn([_step_work(p, step.indexing, c) for step in plan.steps])


def _step_work(p: Problem, indexing: Subscripts, c: Configuration) -> Work:
    grouped = p.count(indexing.output) < c["items"]
    lane = None if grouped else _lane(p, indexing.output, c["lane"])
    return nest_work(indexing, p.sizes, p.itemsize, lane, c["items"], times=p.einsum.b)


def _lane(p: Problem, output: str, lane: str) -> str:
    return output[-1] if lane == "last" else max(output, key=lambda index: p.sizes[index])


@space(pattern=lambda e: True, version=1, rank=0, parameters=parameters, constraint=constraint, estimate=estimate)
def generic(t_unit, match, p, *, schedule, lane, items):  # type: ignore[no-untyped-def]
    """One work-item for each entry of the output, along the last or the longest output axis."""
    plan = pairwise_schedule(p.einsum, p.lengths) if schedule == "pairwise" else fused_schedule(p.einsum)
    t_unit, steps = contract_in_steps(t_unit, match, plan)
    for step in steps:
        output = step.einsum.indexing.output
        if p.count(output) < items and step.einsum.indexing.summed:
            t_unit = spread_sum(t_unit, step, items, p.sizes)
        elif output:
            t_unit = spread(t_unit, step, _lane(p, output, lane), items, p.sizes)
    return t_unit
