"""Contractions one after the other on CPUs, each a launch in vectors: ``out = ((A B) C) D``, and long sums in parts.

A step is an einsum of two operands, planned like one that stands alone (see :mod:`feinsum.transforms.vector_panels`).  Or
it is one that stands alone: a chain gives every step a configuration of its own, of whichever space is best at it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from feinsum.chain import read_chain, schedule_of
from feinsum.contraction import ContractionSchedule, Step, pairwise_schedule
from feinsum.cost import Work
from feinsum.rewrites import contract_in_steps, split_index, spread, spread_sum
from feinsum.space import Choices, Configuration, Problem, space
from feinsum.subscripts import Subscripts

from .block_contraction import block_contraction
from .elementwise import elementwise_product
from .generic import generic
from .matrix_products import matrix_product
from .panel_limits import PANEL_SHARES, accumulators, lane_width, panel_bytes
from .panel_plans import MOST_VECTORS_IN_ROW, is_vectorizable
from .permutations import permutation
from .reductions import reduction
from .traces import trace
from .vector_panels import vector_panels

if TYPE_CHECKING:
    import loopy as lp

    from feinsum.match import Match

WIDEST_ROW = 4
"""Vectors of a panel, where a row is longer."""
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


def parameters(p: Problem) -> Choices:
    return {
        "split": splits(p),
        "vectors": (4, 2, 3, 6),
        "together": (4, 2, 6, 8, 5),
        "accumulators": accumulators(p)[::2],
    }


def splits(p: Problem) -> list[str]:
    """Into parts of which lengths summed indices may be divided: ``"c 1 d 64"``, or ``"none"``."""
    most = panel_bytes(p, PANEL_SHARES[0])
    found = [parts_that_fit(p, nbytes) for nbytes in (most, most // 2, most // 4, 2 * most, most // 16)]
    if p.einsum.n == 2:
        # One step is the business of vector panels; two parts of a sum at least occupy two cores.
        x = max(p.einsum.indexing.summed, key=lambda x: p.sizes[x], default="")
        halves = [f"{x} {part}" for part in _divisors(p, x) if part < p.sizes[x]] if x else []
        found = [split for split in found if split] + halves[-1:]
    return list(dict.fromkeys(split or "none" for split in found)) or ["none"]


def parts_that_fit(p: Problem, nbytes: int) -> str:
    """Lengths of parts with which the vectors that a step copies take so many bytes; empty if they do without."""
    parts = {}
    for step in pairwise_schedule(p.einsum, p.lengths).steps:
        summed = [x for x in step.indexing.summed if not p.is_long(x)]
        output = step.indexing.output
        row = p.sizes[output[-1]] if output else 1
        if row > MOST_VECTORS_IN_ROW * lane_width(p):
            row = WIDEST_ROW * lane_width(p)
        length = p.count("".join(summed)) * row * p.itemsize
        # The slowest axes first of what is not copied, which is then read along its rows.
        read = [term for term in step.indexing.inputs if output[-1:] not in term] or step.indexing.inputs
        for x in sorted(summed, key=lambda x: -max((len(term) - term.find(x) for term in read if x in term), default=0)):
            if length <= nbytes:
                break
            length //= p.sizes[x]
            parts[x] = max((n for n in _divisors(p, x) if n * length <= nbytes), default=1)
            length *= parts[x]
    return " ".join(f"{x} {part}" for x, part in parts.items() if part < p.sizes[x])


def _divisors(p: Problem, letter: str) -> list[int]:
    if p.is_long(letter):
        return []
    return [n for n in range(1, p.sizes[letter] + 1) if p.sizes[letter] % n == 0]


def constraint(p: Problem, c: Configuration) -> str | None:
    if not p.device.simd_bytes:
        return "the device has no vector registers"
    return "there is one step" if p.einsum.n == 2 and c["split"] == "none" else None


def aligned(schedule: ContractionSchedule, indexing: Subscripts) -> ContractionSchedule:
    """The same steps, the axes of partial results ordered for those who read them, so that lanes run through them all.

    First what they have in common with the output and other operands, then what is summed, then the rest of the output.
    """
    terms = dict(enumerate(indexing.inputs))
    steps = []
    for step in schedule.steps[:-1]:
        inputs = tuple(terms.pop(k) for k in step.operands)
        others = set[str]().union(*terms.values())
        order = sorted(
            step.indexing.output,
            key=lambda x: (x in indexing.output and x not in others, x not in indexing.output, indexing.output.find(x)),
        )
        steps.append(Step(step.operands, Subscripts(inputs, "".join(order))))
        terms[len(indexing.inputs) + len(steps) - 1] = steps[-1].indexing.output
    last = schedule.steps[-1].operands
    steps.append(Step(last, Subscripts(tuple(terms[k] for k in last), indexing.output)))
    return ContractionSchedule(tuple(steps))


def in_parts(schedule: ContractionSchedule, indexing: Subscripts, chunks: Mapping[str, str]) -> ContractionSchedule:
    """The same steps on indices that were split; what a step sums over chunks is kept apart, and summed by the next one.

    :param indexing: after splitting.
    :param chunks: summed index -> the index that numbers its parts.
    """
    terms = dict(enumerate(indexing.inputs))
    names = {k: k for k in terms}
    steps: list[Step] = []

    def add(operands: tuple[int, ...], output: str) -> int:
        steps.append(Step(operands, Subscripts(tuple(terms[k] for k in operands), output)))
        terms[len(indexing.inputs) + len(steps) - 1] = output
        return len(terms) - 1

    for number, step in enumerate(schedule.steps):
        output = "".join(chunks.get(x, "") + x for x in step.indexing.output)
        parts = "".join(chunks[x] for x in step.indexing.summed if x in chunks)
        result = add(tuple(names[k] for k in step.operands), parts + output)
        names[len(indexing.inputs) + number] = add((result,), output) if parts else result
    return ContractionSchedule(tuple(steps))


def estimate(p: Problem, c: Configuration) -> Work:
    """Steps at the rate of panels, and the traffic of their results."""
    schedule = pairwise_schedule(p.einsum, p.lengths)
    kept = [step.indexing.output for step in schedule.steps[:-1]]
    traffic = sum(map(p.count, kept))
    lengths = _lengths(c["split"])
    for step in schedule.steps:
        count = math.prod(p.sizes[x] // lengths[x] for x in step.indexing.summed if x in lengths)
        traffic += count * p.count(step.indexing.output) if count > 1 else 0
    return Work(
        flops=p.einsum.flops(p.lengths),
        bytes=p.einsum.min_bytes(p.lengths) + 2 * p.itemsize * p.einsum.b * traffic,
        launches=len(schedule.steps) + len(lengths),
        sums=c["accumulators"],
    )


def _lengths(split: str) -> dict[str, int]:
    words = [] if split == "none" else split.split()
    return {x: int(part) for x, part in zip(words[::2], words[1::2], strict=True)}


def schedules(p: Problem) -> list[ContractionSchedule]:
    """The steps that may have kernels of their own: partial results ordered as suits us, or as somebody would write them."""
    cheapest = pairwise_schedule(p.einsum, p.lengths)
    return list(dict.fromkeys((aligned(cheapest, p.einsum.indexing), cheapest))) if p.einsum.n > 2 else []


@space(
    pattern=is_vectorizable,
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
    for letter, part in _lengths(split).items():
        t_unit, match, chunks[letter] = split_index(t_unit, match, letter, part)
        sizes |= {chunks[letter]: sizes[letter] // part, letter: part}
    schedule = in_parts(schedule, match.einsum.indexing, chunks)
    t_unit, steps = contract_in_steps(t_unit, match, schedule)
    for step in steps:
        t_unit = _transform_step(t_unit, step, {x: sizes[x] for x in step.einsum.indexing.indices}, p, wanted)
    return t_unit


def _transform_chain(t_unit: lp.TranslationUnit, match: Match, p: Problem, text: str) -> lp.TranslationUnit:
    schedule = schedule_of(read_chain(text), match.einsum.indexing)
    t_unit, steps = contract_in_steps(t_unit, match, schedule)
    for step, part in zip(steps, contraction_steps.parts(p, {"steps": text}), strict=True):
        own = part.space.problem(step.einsum, step.einsum.sizes_from(p.sizes), p.device)
        t_unit = part.space.transform(t_unit, step, part.configuration, own)
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
