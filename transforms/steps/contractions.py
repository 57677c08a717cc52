"""Contractions one after the other on CPUs, each a launch in vectors: ``out = ((A B) C) D``, and long sums in parts.

A step is an einsum of two operands, planned as :mod:`feinsum.transforms.vector_panels.contractions` plans one that stands
alone; or a chain gives every step a configuration of its own, of whichever space is best at it.
"""

from __future__ import annotations

import math
from itertools import combinations, islice, product

from loopy import TranslationUnit

from feinsum.contraction import ContractionSchedule, with_aligned_axes, with_results
from feinsum.einsum import BatchedEinsum
from feinsum.match import Match
from feinsum.rewrites import contract_in_steps, spread, spread_sum
from feinsum.skeletons.vector_panels import accumulator_counts, is_vectorizable
from feinsum.space import ChainSpace, Choices, Configuration, Problem, space

from ..block_tiles.contractions import block_contraction
from ..generic import generic
from ..matrix_products import matrix_product
from ..packed_blocks.contractions import packed_product
from ..streaming.elementwise_streams import elementwise_product
from ..streaming.permutations import permutation
from ..streaming.reductions import reduction
from ..streaming.traces import trace
from ..vector_panels.contractions import vector_panels
from .choices import step_splits
from .plans import OWN, ContractionSteps, steps_plan
from .step_schedules import cheapest_pairs, schedule_of_steps, split_sums
from .work import steps_work, work_of_steps

ITEMS = 64
"""Work-items of a group, in steps without vectors."""
STEP_SPACES = (
    vector_panels,
    block_contraction,
    packed_product,
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
    found = step_splits(p)
    turns: tuple[bool, ...] = (False,)
    if schedule_of_steps(p, turn=True) != schedule_of_steps(p):
        turns = tuple(sorted((False, True), key=lambda turn: _step_seconds(p, turn=turn)))
        found = ["none", *found] if turns[0] else [*found, "none"]
    return {
        "split": list(dict.fromkeys(found)),
        "vectors": (OWN, 4, 2, 3, 6),
        "together": (OWN, 4, 2, 6, 8, 5),
        "accumulators": (OWN, *accumulator_counts(p.device)[::2]),
        "turn": turns,
    }


def _step_seconds(p: Problem, *, turn: bool) -> float:
    """The time expected of steps that are not divided, with the last result turned round or not."""
    return work_of_steps(p, schedule_of_steps(p, turn=turn), {}).seconds(p.device, p.itemsize)


CLEARLY_QUICKER = 0.5
"""The time of a step along another index, in that along the first one, from which it is taken; chosen by hand."""
MOST_ORDERS = 8
"""Orders of the axes of partial results that are looked at."""


def step_orders(p: Problem) -> list[ContractionSchedule]:
    """Steps that may have kernels of their own, each partial result ordered to suit lanes, or in the natural order."""
    if p.einsum.n <= 2:
        return []
    cheapest = cheapest_pairs(p)
    ways = zip(with_aligned_axes(cheapest, p.einsum.indexing).steps, cheapest.steps, strict=True)
    results = product(*(dict.fromkeys(step.indexing.output for step in each) for each in ways))
    found = [with_results(cheapest, p.einsum.indexing, outputs) for outputs in islice(results, MOST_ORDERS)]
    return found if cheapest in found else [*found[:-1], cheapest]


@space(
    pattern=has_steps,
    version=3,
    parameters=parameters,
    plan=steps_plan,
    estimate=steps_work,
    implied={"turn": False},
    kind=ChainSpace,
    orders=step_orders,
    step_spaces=STEP_SPACES,
    epilogues=True,
)
def contraction_steps(t_unit: TranslationUnit, match: Match, p: Problem, plan: ContractionSteps) -> TranslationUnit:
    """A launch of vector panels for each pairwise contraction, or for the parts of a sum and their sum.

    `turn` writes the last product as its operands lie in memory, and has a launch more to turn it round."""
    t_unit, match, schedule, sizes = split_sums(t_unit, match, plan.order, plan.split.parts, p.sizes)
    t_unit, matches = contract_in_steps(t_unit, match, schedule)
    for step in matches:
        t_unit = transform_step(t_unit, step, {x: sizes[x] for x in step.einsum.indexing.indices}, p, plan.wanted)
    return t_unit


def transform_step(
    t_unit: TranslationUnit, step: Match, sizes: dict[str, int], whole: Problem, wanted: Configuration
) -> TranslationUnit:
    """Vectors, or where they cannot be a work-item for each result, or a work-group where results are few.

    Steps that only stream an operand have spaces of their own.
    """
    e = step.einsum
    for s in (reduction, elementwise_product, *((permutation,) if e.n == 1 else ())):
        if s.roles(e) is not None:
            problem = s.problem(e, e.sizes_from(sizes), whole.device)
            return s.transform(t_unit, step, s.default(problem), problem)
    own = vector_panels.problem(e, e.sizes_from(sizes), whole.device) if is_vectorizable(e) else None
    c = own and nearest_step(own, wanted)
    if own and c:
        return vector_panels.transform(t_unit, step, c, own)
    if e.indexing.summed and math.prod(sizes[x] for x in e.indexing.output) < ITEMS:
        return spread_sum(t_unit, step, ITEMS, sizes)
    return spread(t_unit, step, e.indexing.output[-1], ITEMS, sizes) if e.indexing.output else t_unit


def nearest_step(p: Problem, wanted: Configuration) -> Configuration | None:
    """The first accepted configuration of a step that agrees best with the values wanted; None if none is accepted.

    The first long index is guessed with the best tile of each, and the tile wanted may suit another better: rows may be
    loaded again for every product.  So what is expected to be clearly quicker along another index takes its place.

    Whether any has all the values wanted is asked before those with fewer are looked at: registers often refuse a tile for
    every choice of the other parameters, and to find that out among all configurations takes half a minute.
    """
    choices = vector_panels.parameters(p)
    own = {name: value for name, value in wanted.items() if value != OWN}
    for agreed in range(len(own), -1, -1):
        first = [
            next(vector_panels.configurations(p, {name: own[name] for name in names}), None)
            for names in combinations(own, agreed)
        ]
        if found := [c for c in first if c is not None]:
            best = min(found, key=lambda c: [values.index(c[name]) for name, values in choices.items()])
            return _along_another(p, best, choices)
    return None


def _along_another(p: Problem, c: Configuration, choices: Choices) -> Configuration:
    """The configuration along another long index, with panels as that allows, if it is expected to be clearly quicker."""
    others = [{**c, "long": x, "panel": share} for x in choices["long"] if x != c["long"] for share in choices["panel"]]
    accepted = [c, *(other for other in others if vector_panels.refusal(p, other) is None)]
    times_s = [vector_panels.work(p, each).seconds(p.device, p.itemsize) for each in accepted]
    least = min(times_s)
    return accepted[times_s.index(least)] if least < CLEARLY_QUICKER * times_s[0] else c
