"""Contractions one after the other on CPUs, each a launch in vectors: ``out = ((A B) C) D``, and long sums in parts.

A step is an einsum of two operands, planned like one that stands alone (see :mod:`feinsum.transforms.vector_panels`).
"""

from __future__ import annotations

from feinsum.contraction import ContractionSchedule, Step, pairwise_schedule
from feinsum.rewrites import contract_in_steps, split_index, spread, vector_panel
from feinsum.space import Choices, Configuration, Problem, space
from feinsum.subscripts import Subscripts

from .panel_plans import is_vectorizable, panel_plan
from .vector_panels import vector_panels


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
    return found


def nearest(p: Problem, **wanted: int) -> Configuration | None:
    """The first accepted configuration of a step that agrees best with the values wanted."""
    if not is_vectorizable(p.einsum):
        return None
    best, most = None, -1
    for c in vector_panels.configurations(p):
        agreed = sum(c[name] == value for name, value in wanted.items())
        if agreed > most:
            best, most = c, agreed
        if agreed == len(wanted):
            break
    return best


def aligned(schedule: ContractionSchedule, output: str) -> ContractionSchedule:
    """The same steps, the axes of partial results in the order of the output, so that lanes run through all of them."""
    order: dict[str, str] = {}
    steps = []
    for step in schedule.steps:
        inputs = tuple(order.get(letters, letters) for letters in step.indexing.inputs)
        own = step.indexing.output
        result = output if own == output else "".join(sorted(own, key=lambda x: (x in output, output.find(x))))
        order[own] = result
        steps.append(Step(step.operands, Subscripts(inputs, result)))
    return ContractionSchedule(tuple(steps))


def constraint(p: Problem, c: Configuration) -> str | None:
    return None if p.device.simd_bytes else "the device has no vector registers"


@space(pattern=is_vectorizable, version=1, parameters=parameters, constraint=constraint)
def contraction_steps(t_unit, match, p, *, split, vectors, together, accumulators):  # type: ignore[no-untyped-def]
    """A launch of vector panels for each pairwise contraction, or for the parts of a sum and their sum."""
    sizes = dict(p.sizes)
    if split != "none":
        letter, part = split.split()
        t_unit, match, chunk = split_index(t_unit, match, letter, int(part))
        sizes |= {chunk: sizes[letter] // int(part), letter: int(part)}
        whole = match.einsum.indexing
        parts = Subscripts(whole.inputs, chunk + whole.output)
        last = Subscripts((parts.output,), whole.output)
        schedule = ContractionSchedule((Step((0, 1), parts), Step((2,), last)))
    else:
        schedule = aligned(pairwise_schedule(p.einsum, p.lengths), p.einsum.indexing.output)
    t_unit, steps = contract_in_steps(t_unit, match, schedule)
    for step in steps:
        own = Problem(step.einsum, {x: sizes[x] for x in step.einsum.indexing.indices}, p.device)
        c = nearest(own, vectors=vectors, together=together, accumulators=accumulators)
        if c is None:
            t_unit = spread(t_unit, step, step.einsum.indexing.output[-1], 64, own.sizes)
        else:
            t_unit = vector_panel(t_unit, step, panel_plan(own, c))
    return t_unit
