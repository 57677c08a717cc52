"""Contractions one after the other on CPUs, each a launch in vectors: ``out = ((A B) C) D``, and long sums in parts.

A step is an einsum of two operands, planned like one that stands alone (see :mod:`feinsum.transforms.vector_panels`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from feinsum.contraction import ContractionSchedule, Step, pairwise_schedule
from feinsum.cost import Work
from feinsum.rewrites import contract_in_steps, split_index, spread, spread_sum
from feinsum.space import Choices, Configuration, Problem, space
from feinsum.subscripts import Subscripts

from .panel_plans import is_vectorizable
from .vector_panels import vector_panels

if TYPE_CHECKING:
    import loopy as lp

    from feinsum.match import Match

ITEMS = 64
"""Work-items of a group, in steps without vectors."""


def parameters(p: Problem) -> Choices:
    return {
        "split": splits(p),
        "vectors": (4, 2, 3, 6),
        "together": (4, 2, 6, 8, 5),
        "accumulators": (24, 16),
    }


def splits(p: Problem) -> list[str]:
    """Summed indices and the lengths of their parts, where there are two operands: ``"k 64"``."""
    if p.einsum.n > 2:
        return ["none"]
    found = []
    for x in p.einsum.indexing.summed:
        if not p.is_long(x):
            found += [f"{x} {part}" for part in range(2, p.sizes[x] // 2 + 1) if p.sizes[x] % part == 0]
    return found or ["none"]


def constraint(p: Problem, c: Configuration) -> str | None:
    if not p.device.simd_bytes:
        return "the device has no vector registers"
    return "there is one step" if p.einsum.n == 2 and c["split"] == "none" else None


def aligned(schedule: ContractionSchedule, indexing: Subscripts) -> ContractionSchedule:
    """The same steps, the axes of partial results in the order of the output, so that lanes run through all of them."""
    terms = dict(enumerate(indexing.inputs))
    steps = []
    for step in schedule.steps[:-1]:
        result = "".join(sorted(step.indexing.output, key=lambda x: (x in indexing.output, indexing.output.find(x))))
        steps.append(Step(step.operands, Subscripts(tuple(terms[k] for k in step.operands), result)))
        terms[len(terms)] = result
    last = schedule.steps[-1].operands
    steps.append(Step(last, Subscripts(tuple(terms[k] for k in last), indexing.output)))
    return ContractionSchedule(tuple(steps))


def in_parts(indexing: Subscripts, chunk: str) -> ContractionSchedule:
    """Everything but the sum over an index, then that sum."""
    parts = Subscripts(indexing.inputs, chunk + indexing.output)
    operands = tuple(range(len(indexing.inputs)))
    return ContractionSchedule(
        (Step(operands, parts), Step((len(operands),), Subscripts((parts.output,), indexing.output)))
    )


def estimate(p: Problem, c: Configuration) -> Work:
    """Steps at the rate of panels, and the traffic of their results."""
    steps = pairwise_schedule(p.einsum, p.lengths).steps
    parts = [step.indexing.output for step in steps[:-1]]
    if c["split"] != "none":
        letter, part = c["split"].split()
        parts = [p.einsum.indexing.output] * (p.sizes[letter] // int(part))
    return Work(
        flops=p.einsum.flops(p.lengths),
        bytes=p.einsum.min_bytes(p.lengths) + 2 * p.itemsize * p.einsum.b * sum(map(p.count, parts)),
        launches=len(steps) + (c["split"] != "none"),
        sums=c["accumulators"],
    )


@space(pattern=is_vectorizable, version=2, parameters=parameters, constraint=constraint, estimate=estimate)
def contraction_steps(t_unit, match, p, *, split, **wanted):  # type: ignore[no-untyped-def]
    """A launch of vector panels for each pairwise contraction, or for the parts of a sum and their sum."""
    sizes = dict(p.sizes)
    if split == "none":
        schedule = aligned(pairwise_schedule(p.einsum, p.lengths), p.einsum.indexing)
    else:
        letter, part = split.split()
        t_unit, match, chunk = split_index(t_unit, match, letter, int(part))
        sizes |= {chunk: sizes[letter] // int(part), letter: int(part)}
        schedule = in_parts(match.einsum.indexing, chunk)
    t_unit, steps = contract_in_steps(t_unit, match, schedule)
    for step in steps:
        t_unit = _transform_step(t_unit, step, {x: sizes[x] for x in step.einsum.indexing.indices}, p, wanted)
    return t_unit


def _transform_step(
    t_unit: lp.TranslationUnit, step: Match, sizes: dict[str, int], whole: Problem, wanted: Configuration
) -> lp.TranslationUnit:
    """Vectors, or where they cannot be a work-item for each result, or a work-group where results are few."""
    e = step.einsum
    own = vector_panels.problem(e, e.sizes_from(sizes), whole.device) if is_vectorizable(e) else None
    c = own and nearest(own, wanted)
    if own and c:
        return vector_panels.transform(t_unit, step, c, own)
    if e.indexing.summed and math.prod(sizes[x] for x in e.indexing.output) < ITEMS:
        return spread_sum(t_unit, step, ITEMS, sizes)
    return spread(t_unit, step, e.indexing.output[-1], ITEMS, sizes) if e.indexing.output else t_unit


def nearest(p: Problem, wanted: Configuration) -> Configuration | None:
    """The first accepted configuration of a step that agrees best with the values wanted; None if none is accepted."""
    best, most = None, -1
    for c in vector_panels.configurations(p):
        agreed = sum(c[name] == value for name, value in wanted.items())
        if agreed > most:
            best, most = c, agreed
        if agreed == len(wanted):
            break
    return best
