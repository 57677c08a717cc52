"""Schedules of steps: pairs of operands, orders of the axes of partial results, and sums in parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from feinsum.contraction import ContractionSchedule, ContractionStep, pairwise_schedule, with_aligned_axes
from feinsum.einsum import BatchedEinsum
from feinsum.rewrites import split_index
from feinsum.space import Problem
from feinsum.subscripts import Subscripts

if TYPE_CHECKING:
    import loopy as lp

    from feinsum.match import Match


def cheapest_pairs(p: Problem) -> ContractionSchedule:
    """The pairwise steps with the fewest operations, partial results as a person would write them."""
    return _cheapest_pairs(p.einsum, tuple(p.lengths.items()))


def schedule_of_steps(p: Problem, *, turn: bool = False) -> ContractionSchedule:
    """The pairwise steps of a problem, partial results in the order that suits their readers.

    :param turn: whether to write the last result as its operands lie in memory, and to copy it.
    """
    return _schedule_of_steps(p.einsum, tuple(p.lengths.items()), turn)


@lru_cache(maxsize=256)
def _cheapest_pairs(e: BatchedEinsum, lengths: tuple[tuple[str, int], ...]) -> ContractionSchedule:
    return pairwise_schedule(e, dict(lengths))


@lru_cache(maxsize=256)
def _schedule_of_steps(e: BatchedEinsum, lengths: tuple[tuple[str, int], ...], turn: bool) -> ContractionSchedule:
    """Asked for with every configuration."""
    schedule = with_aligned_axes(_cheapest_pairs(e, lengths), e.indexing)
    return with_transposed_result(schedule) if turn else schedule


def with_transposed_result(schedule: ContractionSchedule) -> ContractionSchedule:
    """The same steps, but the last result is first written as its operands lie in memory, then copied to where it belongs.

    A step of one operand, or whose result is written so anyway, stays as it is.
    """
    last = schedule.steps[-1]
    order = natural(last.indexing)
    if len(last.operands) != 2 or order == last.indexing.output:
        return schedule
    product = replace(last, indexing=Subscripts(last.indexing.inputs, order))
    result = sum(len(step.operands) - 1 for step in schedule.steps) + len(schedule.steps)
    copy = ContractionStep((result,), Subscripts((order,), last.indexing.output))
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
    """The same steps on indices that were split; a step keeps the sums of chunks apart, and the next one adds them up.

    :param indexing: after splitting.
    :param chunks: summed index -> the index that numbers its parts.
    """
    terms = dict(enumerate(indexing.inputs))
    names = {k: k for k in terms}
    steps: list[ContractionStep] = []

    def add(operands: tuple[int, ...], output: str) -> int:
        steps.append(ContractionStep(operands, Subscripts(tuple(terms[k] for k in operands), output)))
        terms[len(indexing.inputs) + len(steps) - 1] = output
        return len(terms) - 1

    for number, step in enumerate(schedule.steps):
        output = "".join(chunks.get(x, "") + x for x in step.indexing.output)
        parts = "".join(chunks[x] for x in step.indexing.summed if x in chunks)
        result = add(tuple(names[k] for k in step.operands), parts + output)
        names[len(indexing.inputs) + number] = add((result,), output) if parts else result
    return ContractionSchedule(tuple(steps))


def split_sums(
    t_unit: lp.TranslationUnit,
    match: Match,
    schedule: ContractionSchedule,
    parts: Mapping[str, int],
    sizes: Mapping[str, int],
) -> tuple[lp.TranslationUnit, Match, ContractionSchedule, dict[str, int]]:
    """Split the summed indices of a match.

    :param parts: summed index -> the length of its parts.
    :returns: the kernel, its match, and the steps and the lengths of the indices that it has now.
    """
    chunks, sizes = {}, dict(sizes)
    for letter, length in parts.items():
        t_unit, match, chunks[letter] = split_index(t_unit, match, letter, length)
        sizes |= {chunks[letter]: sizes[letter] // length, letter: length}
    return t_unit, match, in_parts(schedule, match.einsum.indexing, chunks), sizes
