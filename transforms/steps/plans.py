"""Steps of a contraction: how long sums are divided into parts, and in which order the axes of partial results stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from feinsum.contraction import ContractionSchedule, Step, aligned, pairwise_schedule
from feinsum.skeletons.vector_panels import MOST_VECTORS_IN_ROW, PANEL_SHARES, panel_bytes
from feinsum.space import Problem
from feinsum.subscripts import Subscripts

WIDEST_ROW = 4
"""Vectors of a panel, where a row is longer."""


def splits(p: Problem) -> list[str]:
    """Into parts of which lengths summed indices may be divided: ``"c 1 d 64"``, or ``"none"``."""
    most = panel_bytes(p.device, PANEL_SHARES[0])
    found = [parts_that_fit(p, nbytes) for nbytes in (most, most // 2, most // 4, 2 * most, most // 16)]
    if p.einsum.n == 2:
        # One step is the business of vector panels; two parts of a sum at least occupy two cores.
        x = max(p.einsum.indexing.summed, key=lambda x: p.sizes[x], default="")
        halves = [f"{x} {part}" for part in p.divisors(x) if part < p.sizes[x]] if x else []
        found = [split for split in found if split] + halves[-1:]
    return list(dict.fromkeys(split or "none" for split in found)) or ["none"]


def parts_that_fit(p: Problem, nbytes: int) -> str:
    """Lengths of parts with which the vectors that a step copies take so many bytes; empty if they do without."""
    parts = {}
    for step in pairwise_schedule(p.einsum, p.lengths).steps:
        if any(set(term) == set(step.indexing.indices) for term in step.indexing.inputs):
            continue  # it streams by, and nothing is copied
        summed = [x for x in step.indexing.summed if not p.is_long(x)]
        output = step.indexing.output
        row = p.sizes[output[-1]] if output else 1
        if row > MOST_VECTORS_IN_ROW * p.lanes:
            row = WIDEST_ROW * p.lanes
        length = p.count("".join(summed)) * row * p.itemsize
        # The slowest axes first of what is not copied, which is then read along its rows.
        read = [term for term in step.indexing.inputs if output[-1:] not in term] or step.indexing.inputs
        for x in sorted(summed, key=lambda x: -max((len(term) - term.find(x) for term in read if x in term), default=0)):
            if length <= nbytes:
                break
            length //= p.sizes[x]
            parts[x] = max((n for n in p.divisors(x) if n * length <= nbytes), default=1)
            length *= parts[x]
    return " ".join(f"{x} {part}" for x, part in parts.items() if part < p.sizes[x])


def lengths_of(split: str) -> dict[str, int]:
    """The parts of indices that a choice of ``split`` names: ``"f 5 g 2"`` is ``{"f": 5, "g": 2}``."""
    words = [] if split == "none" else split.split()
    return {x: int(part) for x, part in zip(words[::2], words[1::2], strict=True)}


def schedule_of_steps(p: Problem, *, turn: bool = False) -> ContractionSchedule:
    """The pairwise steps of a problem, partial results in the order that suits their readers.

    :param turn: whether to write the last result as its operands lie in memory, and to copy it.
    """
    schedule = aligned(pairwise_schedule(p.einsum, p.lengths), p.einsum.indexing)
    return turned(schedule) if turn else schedule


def turned(schedule: ContractionSchedule) -> ContractionSchedule:
    """The same steps, but the last result is first written as its operands lie in memory, then copied to where it belongs.

    A step of one operand, or whose result is written so anyway, stays as it is.
    """
    last = schedule.steps[-1]
    order = natural(last.indexing)
    if len(last.operands) != 2 or order == last.indexing.output:
        return schedule
    product = replace(last, indexing=Subscripts(last.indexing.inputs, order))
    result = sum(len(step.operands) - 1 for step in schedule.steps) + len(schedule.steps)
    copy = Step((result,), Subscripts((order,), last.indexing.output))
    return ContractionSchedule((*schedule.steps[:-1], product, copy))


def natural(indexing: Subscripts) -> str:
    """The indices of a product of two operands in their order: what both have, then those of one, then of the other.

    The other one is read along its rows; if both are, it is the one with the last index of the result.

    >>> natural(Subscripts(("cad", "cdb"), "abc"))
    'cab'
    """
    first, second = ([x for x in term if x in indexing.output] for term in indexing.inputs)
    common = [x for x in first if x in second]
    rows = [term[-1:] in indexing.output and term[-1:] not in common for term in indexing.inputs]
    if rows[0] > rows[1] or (rows[0] == rows[1] and indexing.output[-1:] in first):
        first, second = second, first
    return "".join((*common, *(x for x in (*first, *second) if x not in common)))


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
