"""Contractions one after the other on CPUs, each a launch in vectors: ``out = ((A B) C) D``, and long sums in parts.

A step is an einsum of two operands, planned like one that stands alone (see :mod:`feinsum.transforms.vector_panels`).  Or
it is one that stands alone: a chain gives every step a configuration of its own, of whichever space is best at it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from feinsum.chain import read_chain, schedule_of
from feinsum.contraction import ContractionSchedule, pairwise_schedule
from feinsum.cost import Work
from feinsum.einsum import BatchedEinsum
from feinsum.rewrites import contract_in_steps, split_index, spread, spread_sum
from feinsum.space import Choices, Configuration, Problem, space

from .block_contraction import block_contraction
from .elementwise import elementwise_product
from .generic import generic
from .matrix_products import matrix_product
from .panel_limits import accumulators, fill, lane_width, widths
from .panel_plans import is_vectorizable
from .permutations import permutation
from .reductions import reduction
from .step_plans import aligned, in_parts, lengths_of, splits
from .traces import trace
from .vector_panels import vector_panels

if TYPE_CHECKING:
    import loopy as lp

    from feinsum.match import Match

ITEMS = 64
"""Work-items of a group, in steps without vectors."""
STEP_SPACES = (
    vector_panels,
    block_contraction,
    matrix_product,
    elementwise_product,
    reduction,
    permutation,
    trace,
    generic,
)
"""The spaces that make kernels of steps."""


def has_steps(e: BatchedEinsum) -> bool:
    """Whether vectors can do it in one step, a sum of which may be divided, or there are several steps."""
    plain = all(len(set(letters)) == len(letters) for letters in e.indexing.inputs)
    real = all(a.dtype in ("float32", "float64") for a in e.arrays)
    return is_vectorizable(e) or (plain and real and e.n > 2)


def parameters(p: Problem) -> Choices:
    return {
        "split": splits(p),
        "vectors": (4, 2, 3, 6),
        "together": (4, 2, 6, 8, 5),
        "accumulators": accumulators(p)[::2],
    }


def constraint(p: Problem, c: Configuration) -> str | None:
    if not p.device.simd_bytes:
        return "the device has no vector registers"
    return "there is one step" if p.einsum.n == 2 and c["split"] == "none" else None


def estimate(p: Problem, c: Configuration) -> Work:
    """Steps at the rate of vectors along the rows of their results, and the traffic of these."""
    schedule = aligned(pairwise_schedule(p.einsum, p.lengths), p.einsum.indexing)
    kept = [step.indexing.output for step in schedule.steps[:-1]]
    traffic = sum(map(p.count, kept))
    lengths = lengths_of(c["split"])
    for step in schedule.steps:
        count = math.prod(p.sizes[x] // lengths[x] for x in step.indexing.summed if x in lengths)
        traffic += count * p.count(step.indexing.output) if count > 1 else 0
    return Work(
        flops=p.einsum.flops(p.lengths) / _filled(p, schedule),
        bytes=p.einsum.min_bytes(p.lengths) + 2 * p.itemsize * p.einsum.b * traffic,
        launches=len(schedule.steps) + len(lengths),
        sums=c["accumulators"],
    )


def _filled(p: Problem, schedule: ContractionSchedule) -> float:
    """Which part of the lanes of the device steps use, weighted with their operations."""
    points = [p.count(step.indexing.indices) for step in schedule.steps]
    rows = [p.sizes[step.indexing.output[-1]] if step.indexing.output else lane_width(p) for step in schedule.steps]
    widened = (
        n * (lane_width(p) / widths(p, row)[0]) / fill(row, widths(p, row)[0]) for n, row in zip(points, rows, strict=True)
    )
    return sum(points) / max(1.0, sum(widened))


def schedules(p: Problem) -> list[ContractionSchedule]:
    """Steps that may have kernels of their own, partial results ordered as suits lanes, or as somebody would write them."""
    cheapest = pairwise_schedule(p.einsum, p.lengths)
    return list(dict.fromkeys((aligned(cheapest, p.einsum.indexing), cheapest))) if p.einsum.n > 2 else []


@space(
    pattern=has_steps,
    version=3,
    parameters=parameters,
    constraint=constraint,
    estimate=estimate,
    schedules=schedules,
    step_spaces=STEP_SPACES,
)
def contraction_steps(t_unit, match, p, *, split="none", steps="", **wanted):  # type: ignore[no-untyped-def]
    """A launch of vector panels for each pairwise contraction, or for the parts of a sum and their sum.

    A chain has the kernel that its text says for each step.
    """
    if steps:
        return _transform_chain(t_unit, match, p, steps)
    sizes, chunks = dict(p.sizes), {}
    schedule = aligned(pairwise_schedule(p.einsum, p.lengths), p.einsum.indexing)
    for letter, part in lengths_of(split).items():
        t_unit, match, chunks[letter] = split_index(t_unit, match, letter, part)
        sizes |= {chunks[letter]: sizes[letter] // part, letter: part}
    schedule = in_parts(schedule, match.einsum.indexing, chunks)
    t_unit, matches = contract_in_steps(t_unit, match, schedule)
    for step in matches:
        t_unit = _transform_step(t_unit, step, {x: sizes[x] for x in step.einsum.indexing.indices}, p, wanted)
    return t_unit


def _transform_chain(t_unit: lp.TranslationUnit, match: Match, p: Problem, text: str) -> lp.TranslationUnit:
    schedule = schedule_of(read_chain(text), match.einsum.indexing)
    t_unit, matches = contract_in_steps(t_unit, match, schedule)
    for step, part in zip(matches, contraction_steps.parts(p, {"steps": text}), strict=True):
        own = part.space.problem(step.einsum, step.einsum.sizes_from(p.sizes), p.device)
        t_unit = part.space.transform(t_unit, step, part.configuration, own)
    return t_unit


def _transform_step(
    t_unit: lp.TranslationUnit, step: Match, sizes: dict[str, int], whole: Problem, wanted: Configuration
) -> lp.TranslationUnit:
    """Vectors, or where they cannot be a work-item for each result, or a work-group where results are few.

    What only streams an operand by has spaces of its own.
    """
    e = step.einsum
    for s in (reduction, elementwise_product):
        if s.roles(e) is not None:
            problem = s.problem(e, e.sizes_from(sizes), whole.device)
            return s.transform(t_unit, step, s.default(problem), problem)
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
