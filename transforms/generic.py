"""Every batched einsum, on every device: ``out[...] = Σ Π ...`` with a work-item for each entry of the output.

Three or more operands are contracted in pairs where that saves work, and an index of one operand alone is summed over
before the product: ``Σ_ij A[i,j] B[j,k]`` is ``Σ_j a[j] B[j,k]``.  Outputs too small to occupy the device are summed by
whole work-groups.
"""

from __future__ import annotations

from dataclasses import replace

from loopy import TranslationUnit

from feinsum.contraction import ContractionSchedule, ContractionStep, fused_schedule, pairwise_schedule
from feinsum.cost import Work, in_turn, nest_work
from feinsum.einsum import BatchedEinsum
from feinsum.match import Match
from feinsum.rewrites import contract_in_steps, spread, spread_sum
from feinsum.space import Choices, Configuration, Problem, space
from feinsum.subscripts import Subscripts

_WORTHWHILE = 2.0
"""The reduction of operations from which steps are the better first guess, despite the traffic of partial results."""


def parameters(p: Problem) -> Choices:
    schedules: tuple[str, ...] = ("fused",)
    if p.einsum.n >= 3:
        ratio = p.einsum.flops(p.lengths, "naive") / max(1, p.einsum.flops(p.lengths))
        schedules = ("pairwise", "fused") if ratio > _WORTHWHILE else ("fused", "pairwise")
    if p.einsum.n >= 2 and any(own_sums(p.einsum)):
        schedules = ("sums first", *schedules)
    return {"schedule": schedules, "lane": ("last", "longest"), "items": (64, 16, 32, 128, 256)}


def own_sums(e: BatchedEinsum) -> list[str]:
    """For each operand the summed indices that no other one has."""
    others = [set("".join((*e.indexing.inputs[:k], *e.indexing.inputs[k + 1 :]))) for k in range(e.n)]
    return [
        "".join(dict.fromkeys(x for x in letters if x in e.indexing.summed and x not in rest))
        for letters, rest in zip(e.indexing.inputs, others, strict=True)
    ]


def sums_first(e: BatchedEinsum) -> ContractionSchedule:
    """Every operand summed over the indices that it alone has, then their product."""
    steps: list[ContractionStep] = []
    operands, terms = list(range(e.n)), list(e.indexing.inputs)
    for k, own in enumerate(own_sums(e)):
        if own:
            kept = "".join(dict.fromkeys(x for x in terms[k] if x not in own))
            steps.append(ContractionStep((k,), Subscripts((terms[k],), kept)))
            operands[k], terms[k] = e.n + len(steps) - 1, kept
    return ContractionSchedule((*steps, ContractionStep(tuple(operands), Subscripts(tuple(terms), e.indexing.output))))


def schedule_of(p: Problem, name: str) -> ContractionSchedule:
    """The schedule that a choice means."""
    if name == "sums first":
        return sums_first(p.einsum)
    return pairwise_schedule(p.einsum, p.lengths) if name == "pairwise" else fused_schedule(p.einsum)


def constraint(p: Problem, c: Configuration) -> str | None:
    return p.exceeds(work_items=c["items"])


def estimate(p: Problem, c: Configuration) -> Work:
    return in_turn([_step_work(p, step.indexing, c) for step in schedule_of(p, c["schedule"]).steps])


def _step_work(p: Problem, indexing: Subscripts, c: Configuration) -> Work:
    grouped = p.count(indexing.output) < c["items"]
    lane = None if grouped else _lane(p, indexing.output, c["lane"])
    # As spread_sum shares it.
    shared = max(indexing.summed, key=lambda x: p.sizes[x], default="") if grouped else ""
    nest = nest_work(indexing, p.sizes, p.itemsize, lane, c["items"], times=p.einsum.b, shared=shared)
    work = p.work_of_numbers(nest)
    # Compilers for CPUs make no vectors of work-items that wait for each other.
    return replace(work, lanes=1) if grouped and p.device.simd_bytes else work


def divide_by_items(p: Problem, c: Configuration) -> dict[str, str]:
    """Work-items of a group lie along one index; each does one entry, and sums term by term."""
    found: dict[str, str] = {}
    for step in schedule_of(p, c["schedule"]).steps:
        output, summed = step.indexing.output, step.indexing.summed
        if p.count(output) < c["items"] and summed:
            found[max(summed, key=lambda x: p.sizes[x])] = "the work-items of a group share its sum"
        elif output:
            found[_lane(p, output, c["lane"])] = "the work-items of a group lie along it"
    return found


def _lane(p: Problem, output: str, lane: str) -> str:
    return output[-1] if lane == "last" else max(output, key=lambda index: p.sizes[index])


@space(
    pattern=lambda e: True,
    version=1,
    rank=0,
    parameters=parameters,
    constraint=constraint,
    estimate=estimate,
    epilogues=True,
    divides=divide_by_items,
    combines=True,
)
def generic(t_unit: TranslationUnit, match: Match, p: Problem, *, schedule: str, lane: str, items: int) -> TranslationUnit:
    """One work-item for each entry of the output, along the last or the longest output axis."""
    t_unit, steps = contract_in_steps(t_unit, match, schedule_of(p, schedule))
    for step in steps:
        output = step.einsum.indexing.output
        if p.count(output) < items and step.einsum.indexing.summed:
            t_unit = spread_sum(t_unit, step, items, p.sizes)
        elif output:
            t_unit = spread(t_unit, step, _lane(p, output, lane), items, p.sizes)
    return t_unit
