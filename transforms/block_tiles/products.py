"""Contractions of two tensors as products of matrices: the letters of rows, columns and sums, and their fused order.

Loads and stores should run along the fastest index of every array.  A group of letters begins with the fastest letters
of the output; where an operand has another fastest letter, a few neighbours along it come next, so that the joint loads of
lanes fill whole sectors of memory, and likewise for the fastest letters of both operands among the sums.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from feinsum.einsum import Array, BatchedEinsum
from feinsum.skeletons.instructions.async_copies import WIDEST_BYTES
from feinsum.space import Problem
from feinsum.subscripts import Subscripts

SECTOR_BYTES = 32
"""The least number of bytes that a GPU moves from or to memory."""
PIECE_BYTES = 64
"""The least that comes at once from memory behind the cache that all multiprocessors share: on an H100 products of a tensor
of 330 MB in float64 with 24 columns take 1.7 times as long with 4 neighbours in a tile as with 8 (2026-11-26)."""
DEPTHS = (16, 24, 8, 32, 64, 12, 4)
"""Depths of a tile, of which the first is the best guess; chosen by hand."""
DEPTHS_OF_TWO = (32, 16, 64, 24, 8, 12, 4)
"""The depths with two fastest letters among the sums, whose runs share the depth; chosen by hand."""
LONG_SUMS = 1500
"""Terms from which copies of several numbers make up for results that leave in short runs, as rows or columns begin with
another letter than the output: on an H200 such products of 3136 terms took 0.75 to 0.82 of the time so, and of 320 terms
1.5 to 1.6 (2026-11-25)."""
MOST_WHOLE = 64
"""Terms of a sum that one tile may hold at any depth: on an H200 sums of 64 terms in one tile were quicker than sums of 40
in five (2026-11-24)."""
WHOLE_STEPS = (4, 8)
"""Steps of units, of which such a depth is a multiple."""


@dataclass(frozen=True)
class FusedProduct:
    """A pairwise contraction as a product of matrices.

    :ivar operands: the operand with the rows and that with the columns.
    :ivar wide: whether operands are copied several numbers at a time along rows and columns, too, which they then follow.
    """

    problem: Problem
    operands: tuple[int, int]
    wide: bool = False

    @cached_property
    def letters(self) -> dict[str, str]:
        """The letters of each group, the fastest of the output first; a letter of unknown length last."""
        indexing = self.problem.einsum.indexing
        a, b = (set(indexing.inputs[k]) for k in self.operands)
        output = indexing.output[::-1]
        found = {
            "rows": [x for x in output if x in a - b],
            "columns": [x for x in output if x in b - a],
            "batch": [x for x in output if x in a & b],
            "sums": [x for x in indexing.inputs[self.operands[0]][::-1] if x not in output],
        }
        quick = [self.quickest(side) for side in (0, 1)]
        found["sums"].sort(key=lambda x: x not in quick)
        for side, name in enumerate(("rows", "columns")):
            if output[0] not in found[name] or self.together(side) > 1:
                found[name].sort(key=lambda x: x != quick[side])
        return {name: "".join(sorted(own, key=self.problem.is_long)) for name, own in found.items()}

    def count(self, name: str) -> int:
        """Length of a fused index."""
        return self.problem.count(self.letters[name])

    def quickest(self, side: int) -> str:
        """The letter along which an operand lies in memory."""
        return self.problem.einsum.indexing.inputs[self.operands[side]][-1]

    @property
    def sector(self) -> int:
        """Numbers in a sector."""
        return max(1, SECTOR_BYTES // self.problem.itemsize)

    def outer_runs(self, run: int) -> dict[str, int]:
        """Runs along letters of rows and columns: of an operand's fastest letter, where another is the output's fastest."""
        parts: dict[str, int] = {}
        last = self.problem.einsum.indexing.output[-1]
        for side, name in enumerate(("rows", "columns")):
            group, quick, together = self.letters[name], self.quickest(side), self.together(side)
            first = last if together > 1 and last in group and not self.problem.is_long(last) else group[0]
            if quick in group and quick != first:
                parts[quick] = part_of_letter(self.problem.sizes[quick], run, together)
                parts[first] = part_of_letter(self.problem.sizes[first], 8)
        return parts

    def together(self, side: int) -> int:
        """The elements of an operand to copy at once along its rows or columns, if they are copied so: as many as make 16
        bytes, or 8, where every row of the array begins at a multiple of them."""
        p, quick = self.problem, self.quickest(side)
        inputs, last = p.einsum.indexing.inputs, p.einsum.indexing.output[-1]
        other = inputs[self.operands[1 - side]]
        if not self.wide or p.is_long(quick) or quick in other:
            return 1
        apart = quick != last and last in inputs[self.operands[side]] and last not in other
        if apart and p.count(p.einsum.indexing.summed) < LONG_SUMS:
            return 1
        return next(n for n in self._widths if p.sizes[quick] % n == 0)

    @property
    def _widths(self) -> tuple[int, ...]:
        """The numbers that may be copied at once, the most first."""
        itemsize = self.problem.itemsize
        return *(nbytes // itemsize for nbytes in (WIDEST_BYTES, WIDEST_BYTES // 2) if nbytes > itemsize), 1

    @property
    def runs(self) -> list[int]:
        """Runs worth trying: of a sector, or of what memory gives at once; either is as good where there are none.

        The longer ones are the first guess of operands that no cache holds, if they divide the rows.
        """
        runs = [self.sector, PIECE_BYTES // SECTOR_BYTES * self.sector]
        short, long = self.outer_runs(runs[0]), self.outer_runs(runs[1])
        if not short:
            return runs[:1]
        ends = {x for side in (0, 1) if self.is_large(side) and (x := self.quickest(side)) in short}
        return runs[::-1] if any(long[x] == runs[1] and self.problem.sizes[x] % runs[1] == 0 for x in ends) else runs

    def is_large(self, side: int) -> bool:
        """Whether the shared cache does not hold an operand."""
        p = self.problem
        return p.count(p.einsum.indexing.inputs[self.operands[side]]) * p.itemsize > p.device.cache_bytes

    def sum_depths(self, depth: int) -> Mapping[str, int]:
        """The number of neighbours along each summed letter in a tile; their product is `depth`."""
        if depth not in self._depths_known:
            self._depths_known[depth] = self._divided(depth)
        return self._depths_known[depth]

    @cached_property
    def _depths_known(self) -> dict[int, Mapping[str, int]]:
        """The divisions found so far, by depth: thousands of configurations have few depths."""
        return {}

    def _divided(self, depth: int) -> Mapping[str, int]:
        """Runs along the first letter as long as they can be, or of a sector and more where those waste less."""
        longest = self._parts(depth, depth)
        first = next(iter(longest))
        shorter = (self._parts(depth, k) for k in range(longest[first] - 1, self.sector - 1, -1) if depth % k == 0)
        return min((longest, *shorter), key=self._waste) if self._waste(longest) > 1 < len(longest) else longest

    def _parts(self, depth: int, most_of_first: int) -> Mapping[str, int]:
        sums = self.letters["sums"]
        quick = [x for x in dict.fromkeys((self.quickest(0), self.quickest(1))) if x in sums]
        parts: dict[str, int] = {}
        left = depth
        for number, x in enumerate(dict.fromkeys([*quick, *sums])):
            wanted = left
            if number == 0 and len(quick) == 2:
                wanted = max(self.sector, 1 << (left.bit_length() // 2))
            length = self.problem.sizes[x]
            wanted = min(wanted, depth if parts else most_of_first)
            most = wanted if self.problem.is_long(x) else min(wanted, max(1, 1 << (length - 1).bit_length()))
            parts[x] = next(k for k in range(min(most, left), 0, -1) if left % k == 0)
            left //= parts[x]
        if left > 1:  # sums too short: the first sticks out
            first = next(iter(parts))
            parts[first] *= left
        return parts

    def waste(self, depth: int) -> float:
        """The terms that tiles of a depth have, zeros beyond the end of a sum included, for each term that there is."""
        return self._waste(self.sum_depths(depth))

    def _waste(self, parts: Mapping[str, int]) -> float:
        return prod(-(-self.problem.sizes[x] // k) * k / self.problem.sizes[x] for x, k in parts.items())

    @cached_property
    def wastes(self) -> Mapping[int, float]:
        """The terms that tiles of each of :data:`DEPTHS` have; see :meth:`waste`."""
        return {depth: self.waste(depth) for depth in DEPTHS}

    @property
    def depths(self) -> list[int]:
        """Depths of a tile: the whole sum if one tile holds it, then those that waste least."""
        preferred = DEPTHS_OF_TWO if set(self.quick) <= set(self.letters["sums"]) and len(set(self.quick)) == 2 else DEPTHS
        whole = self.count("sums")
        return sorted(DEPTHS, key=lambda k: (k != whole, round(8 * self.wastes[k]), preferred.index(k)))

    @property
    def whole_depths(self) -> list[int]:
        """Depths of the only tile of a short sum, where its length is none of :data:`DEPTHS`."""
        sums, whole = self.letters["sums"], self.count("sums")
        if not 1 < whole <= MOST_WHOLE or whole in DEPTHS or any(map(self.problem.is_long, sums)):
            return []
        rounded = sorted({-(-whole // step) * step for step in WHOLE_STEPS})
        lengths = self.problem.sizes
        return [k for k in rounded if all(self.sum_depths(k).get(x, 1) >= lengths[x] for x in sums)]

    @property
    def quick(self) -> tuple[str, str]:
        """The letters along which the operands lie in memory."""
        return self.quickest(0), self.quickest(1)

    def width(self, side: int, depth: int) -> int:
        """The elements of an operand to copy at once: 16 bytes where they lie side by side along the sums, or along
        rows or columns if that is wanted."""
        quick = self.quickest(side)
        if self.letters["sums"][:1] == quick:
            run = self.sum_depths(depth).get(quick, 1)
            widths = self._widths if self.wide else (self._widths[0], 1)
            return next(n for n in widths if run % n == 0 == self.problem.sizes[quick] % n)
        return self.together(side)


def fused_product(p: Problem, rows: str, *, wide: bool = False) -> FusedProduct:
    """The product whose rows belong to the operand with the fastest index of the output, or to the other."""
    last = p.einsum.indexing.output[-1]
    first = (last not in p.einsum.indexing.inputs[0]) ^ (rows == "slow")
    return FusedProduct(p, (int(first), 1 - int(first)), wide)


def plain_contraction(p: Problem, terms: Sequence[str], output: str, sizes: Mapping[str, int]) -> Problem:
    """A contraction of arrays that lie in memory as `terms` say."""
    axes = {x: p.einsum.index_sizes[x] if p.sizes.get(x) == n else n for x, n in sizes.items()}
    dtype = p.einsum.dtypes[0]
    row = tuple((Array(f"operand{k}", tuple(axes[x] for x in term), dtype),) for k, term in enumerate(terms))
    return Problem(BatchedEinsum(Subscripts(tuple(terms), output), (row,)), sizes, p.device)


def is_plain_real(e: BatchedEinsum) -> bool:
    """Whether an einsum is of real numbers, and no operand has an index twice."""
    distinct = all(len(set(term)) == len(term) for term in e.indexing.inputs)
    return distinct and all(dtype in ("float32", "float64") for dtype in e.dtypes)


def is_product(e: BatchedEinsum) -> bool:
    """Whether an einsum of real numbers is a product of matrices in fused indices, with rows, columns and sums."""
    if e.n != 2 or not is_plain_real(e):
        return False
    (a, b), output = (set(x) for x in e.indexing.inputs), set(e.indexing.output)
    return bool(a - b and b - a and a & b - output) and a ^ b <= output


def part_of_letter(length: int, wanted: int, multiple: int = 1) -> int:
    """The number of neighbours in a part of a letter: about as many as wanted, so that the last part sticks out little."""
    options = (k for k in range(max(1, wanted // 2), 2 * wanted + 1) if k % multiple == 0)
    return min(options, key=lambda k: (-(-length // k) * k / length - 1) + 0.1 * abs(math.log2(k / wanted)))
