"""What comes before and after a contraction in blocks: copies of operands in another order of axes, and sums of parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_letters

from feinsum.contraction import ContractionSchedule, Step
from feinsum.cost import Work, nest_work
from feinsum.einsum import Array, BatchedEinsum
from feinsum.rewrites.fusion import fused, side_by_side
from feinsum.space import Problem
from feinsum.subscripts import Subscripts

ITEMS = 256
"""Work-items of a group of a copy or a sum, at most."""


@dataclass(frozen=True)
class Prepared:
    """A pairwise contraction with what comes before and after it.

    :ivar schedule: copies of operands in another order of axes, the contraction, and the sum of its parts.
    :ivar step: which step is the contraction.
    :ivar problem: the contraction by itself.
    """

    schedule: ContractionSchedule
    step: int
    problem: Problem


def prepared(p: Problem, split: str, packed: str) -> Prepared:
    """The steps of a contraction whose sum is split into parts, and of which some operands are packed first.

    :param split: ``"k 64"`` for parts of 64, or ``"none"``; an index before k counts them, as
        :func:`feinsum.rewrites.split_index` makes it.
    :param packed: the operands that are copied such that what is summed is the quickest: ``"none"``, ``"0"``, ``"01"``.
    """
    indexing, sizes = p.einsum.indexing, dict(p.sizes)
    terms, output = list(indexing.inputs), indexing.output
    if split != "none":
        letter, length = split.split()
        chunk = next(x for x in ascii_letters if x not in indexing.indices)
        sizes |= {chunk: sizes[letter] // int(length), letter: int(length)}
        terms, output = [term.replace(letter, chunk + letter) for term in terms], chunk + output
    steps: list[Step] = []
    operands = [0, 1]
    for k in map(int, packed.replace("none", "")):
        other = terms[1 - k][::-1]
        sums = sorted((x for x in terms[k] if x not in output), key=other.index, reverse=True)
        order = "".join([*(x for x in output if x in terms[k]), *sums])
        steps.append(Step((k,), Subscripts((terms[k],), order)))
        operands[k], terms[k] = 1 + len(steps), order
    steps.append(Step(tuple(operands), Subscripts(tuple(terms), output)))
    number = len(steps) - 1
    if split != "none":
        steps.append(Step((1 + len(steps),), Subscripts((output,), indexing.output)))
    return Prepared(ContractionSchedule(tuple(steps)), number, alone(p, terms, output, sizes))


def alone(p: Problem, terms: Sequence[str], output: str, sizes: Mapping[str, int]) -> Problem:
    """A contraction of arrays that lie in memory as `terms` say."""
    axes = {x: p.einsum.index_sizes[x] if p.sizes.get(x) == n else n for x, n in sizes.items()}
    dtype = p.einsum.dtypes[0]
    row = tuple((Array(f"operand{k}", tuple(axes[x] for x in term), dtype),) for k, term in enumerate(terms))
    return Problem(BatchedEinsum(Subscripts(tuple(terms), output), (row,)), sizes, p.device)


def joined(p: Problem) -> Problem:
    """A contraction with one index for those that are side by side in every array."""
    e, sizes = p.einsum, dict(p.sizes)
    for letters in side_by_side(e):
        e, sizes[letters[-1]] = fused(e, letters), p.count(letters)
    return Problem(e, {x: sizes[x] for x in e.indexing.indices}, p.device)


def lanes(length: int) -> int:
    """Work-items along an axis, up to :data:`ITEMS`, of which few have nothing to do."""
    return -(-length // -(-length // ITEMS))


def plain_work(indexing: Subscripts, sizes: Mapping[str, int], itemsize: int) -> Work:
    """The work of such a copy or sum, lanes along the rows of its output."""
    lane = indexing.output[-1:] or None
    return nest_work(indexing, sizes, itemsize, lane, lanes(sizes[lane]) if lane else ITEMS)
