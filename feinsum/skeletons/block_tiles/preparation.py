"""Launches before and after a contraction by block tiles: copies of operands in another order of axes, and sums of parts.

C = Σ_k A[k, i] B[k, j]   ->   A'[i, k] = A[k, i];  P[c, i, j] = Σ_k A'[i, c, k] B[c, k, j];  C = Σ_c P[c, i, j]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from string import ascii_letters

import loopy as lp

from feinsum.contraction import ContractionSchedule, ContractionStep
from feinsum.match import Match
from feinsum.rewrites import spread, spread_sum, spread_tiles
from feinsum.skeletons.block_tiles.plan_notation import Packing, SumSplit
from feinsum.subscripts import Subscripts

ITEMS = 256
"""Work-items of a group of a copy or a sum, at most; chosen by hand."""


@dataclass(frozen=True)
class Preparation:
    """A pairwise contraction with the launches before and after it.

    :ivar schedule: copies of operands in another order of axes, the contraction, and the sum of its parts.
    :ivar number: which step is the contraction.
    :ivar sizes: the length of every index of the steps.
    """

    schedule: ContractionSchedule
    number: int
    sizes: Mapping[str, int]

    @property
    def contraction(self) -> Subscripts:
        """The contraction by itself."""
        return self.schedule.steps[self.number].indexing


def prepared(indexing: Subscripts, lengths: Mapping[str, int], split: SumSplit, packing: Packing) -> Preparation:
    """The steps of a contraction whose sum is split into parts, and of which some operands are packed first.

    A packed operand is copied such that the summed index is the fastest in memory.  An index before the one that is split
    counts its parts, as :func:`feinsum.rewrites.split_index` makes it.
    """
    sizes = dict(lengths)
    terms, output = list(indexing.inputs), indexing.output
    if split.letter:
        chunk = next(x for x in ascii_letters if x not in indexing.indices)
        sizes |= {chunk: sizes[split.letter] // split.length, split.letter: split.length}
        terms, output = [term.replace(split.letter, chunk + split.letter) for term in terms], chunk + output
    steps: list[ContractionStep] = []
    operands = [0, 1]
    for k in packing.operands:
        other = terms[1 - k][::-1]
        sums = sorted((x for x in terms[k] if x not in output), key=other.index, reverse=True)
        order = "".join([*(x for x in output if x in terms[k]), *sums])
        steps.append(ContractionStep((k,), Subscripts((terms[k],), order)))
        operands[k], terms[k] = 1 + len(steps), order
    steps.append(ContractionStep(tuple(operands), Subscripts(tuple(terms), output)))
    number = len(steps) - 1
    if split.letter:
        steps.append(ContractionStep((1 + len(steps),), Subscripts((output,), indexing.output)))
    return Preparation(ContractionSchedule(tuple(steps)), number, sizes)


ACROSS = 8
"""Work-items of a group, at most, along the quickest axis of what is copied to another order: others are along that of the
copy, so that a sub-group reads and writes sectors of memory in whole; chosen by hand."""


def axis_lanes(length: int) -> int:
    """Work-items along an axis, up to :data:`ITEMS`, few of which are idle."""
    return -(-length // -(-length // ITEMS))


def write_entry_by_entry(t_unit: lp.TranslationUnit, step: Match, sizes: Mapping[str, int]) -> lp.TranslationUnit:
    """Write a step that is no product in blocks: a work-item for each entry of its result, or a group for the only one.

    A copy whose quickest axis is another is written in tiles of both.
    """
    inputs, output = step.einsum.indexing.inputs, step.einsum.indexing.output
    if len(inputs) == 1 and len(inputs[0]) == len(output) and inputs[0][-1:] != output[-1:]:
        across = min(ACROSS, 1 << (sizes[inputs[0][-1]] - 1).bit_length())
        return spread_tiles(t_unit, step, {inputs[0][-1]: across, output[-1]: ITEMS // across}, sizes)
    return (
        spread(t_unit, step, output[-1], axis_lanes(sizes[output[-1]]), sizes)
        if output
        else spread_sum(t_unit, step, ITEMS, sizes)
    )
