"""The resident factor of tiles, B: in local memory for the whole kernel, in the order in which lanes read it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import loopy as lp
from loopy.symbolic import get_dependencies
from pymbolic.primitives import Comparison, FloorDiv, If, Min, Remainder, Variable

from feinsum.skeletons.common.digits import VECTOR_BYTES, position
from feinsum.skeletons.common.draft import all_of
from feinsum.skeletons.common.matrix_product import MatrixProduct, substituted
from feinsum.skeletons.instructions.async_copies import commit_copies, copy_asynchronously, wait_for_copies
from feinsum.skeletons.instructions.matrix_units import COLUMNS, DEPTH, SUB_GROUP
from feinsum.skeletons.instructions.summing_units import first_bits
from feinsum.skeletons.warp_tiles.lanes import guarded
from feinsum.skeletons.warp_tiles.tile_loops import TileLoops


class ResidentFactor:
    """B of a product in local memory, padded, once for all products of the batch that share it; the whole group copies it.

    Before: ``B(r, n, k)``; after, for blocks of 8 columns and steps of 4 along the sum::

        for block, r, step: matrix[block, r, step, lane] = B(r, 8 block + column of B, 4 step + t)

    A warp loads a burst of fragments, a number for each lane, before it stores any.
    """

    def __init__(self, loops: TileLoops, p: MatrixProduct) -> None:
        self.loops, self.plan, self.product = loops, loops.plan, p
        read = get_dependencies(p.b)
        self.batch = {letter: length for letter, length in loops.matched.batch.items() if p.names[letter] in read}
        self.count = prod(self.batch.values()) * loops.blocks.count * self.plan.steps
        self.parts = 2 if self.plan.accumulation == "split" else 1
        alignment = VECTOR_BYTES if self.plan.interleaved else None
        shape = (self.parts * self.count * SUB_GROUP,)
        self.name = loops.draft.array("matrix", shape, lp.AddressSpace.LOCAL, self.plan.number, alignment)
        self._fill()

    def fragment(self, block: str, step: Any, batch: Sequence[str]) -> tuple[Any, ...]:
        """The references to a lane's numbers of a block for an instruction of the unit.

        :param step: the number of the instruction along the whole sum.
        :param batch: the loops over the indices of the batch.
        """
        own = [Variable(i) for letter, i in zip(self.loops.matched.batch, batch, strict=True) if letter in self.batch]
        place = position(own, self.batch.values(), Variable(block))
        width = self.plan.unit.k // DEPTH
        if self.plan.interleaved:
            lane = (place * (self.plan.steps // width) + step) * SUB_GROUP + self.loops.lane
            return tuple(Variable(self.name)[lane * width * self.parts + i] for i in range(width * self.parts))
        place = place * self.plan.steps + step * width
        return tuple(Variable(self.name)[(place + i) * SUB_GROUP + self.loops.lane] for i in range(width))

    def _fill(self) -> None:
        """Add the instructions that bring B to local memory."""
        draft, warps, burst = self.loops.draft, self.plan.warps, self.plan.loads_in_flight
        copy = draft.fresh("fragment")
        begun = f"0 <= {copy} and {max(1, burst) * warps} * {copy} + {self.loops.warp} < {self.count}"
        draft.domain(str(self.loops.warp), [copy], begun)
        around = self.loops.around | {copy}
        place = Variable(copy) * warps + self.loops.warp
        if burst == 0:
            self._copy(place, around)
        elif burst == 1 and self.parts == 1:
            draft.assign(self._place(place, 0), self._entry(place), around, self.loops.matched.before)
        else:
            self._load_in_bursts(copy, around)

    def _copy(self, place: Any, around: frozenset[str]) -> None:
        """Copy fragments of B asynchronously, and wait for the last: numbers go to local memory as they are."""
        loops, dtype = self.loops, self.plan.product.dtype
        at, conditions = self._indices(place, inside=True)
        there = If(all_of(conditions), 1, 0) if conditions else 1
        copies, value = self.plan.copies, substituted(self.product.b, at)
        copy = partial(copy_asynchronously, copies, self._place(place, 0), value, there, dtype)
        copied = loops.draft.add(copy, "copy_matrix", around, loops.matched.before)
        committed = loops.draft.add(partial(commit_copies, copies), "commit", loops.around, (copied,))
        loops.draft.add(partial(wait_for_copies, copies, 0), "wait", loops.around, (committed,))

    def _load_in_bursts(self, copy: str, around: frozenset[str]) -> None:
        """Load several fragments into registers, then store them; split, if the unit takes them so."""
        draft, warps, burst = self.loops.draft, self.plan.warps, self.plan.loads_in_flight
        moved = Variable(draft.array("moved", (burst,), dtype=self.plan.product.dtype))

        def each(entry: Callable[[Any, Any], tuple[Any, Any]], after: frozenset[str], **kwargs: Any) -> frozenset[str]:
            (ahead,) = draft.unrolled(("ahead",), (burst,))
            # What is beyond the last fragment is the last again.
            place = (burst * Variable(copy) + Variable(ahead)) * warps + self.loops.warp
            place = If(Comparison(place, "<", self.count), place, self.count - 1)
            assignee, value = entry(moved[Variable(ahead)], place)
            return frozenset([draft.assign(assignee, value, around | {ahead}, after, **kwargs)])

        after = each(lambda number, place: (number, self._entry(place)), self.loops.matched.before)
        if self.parts == 1:
            each(lambda number, place: (self._place(place, 0), number), after, alone=True)
            return
        first = partial(first_bits, self.plan.unit)
        after = each(lambda number, place: (self._place(place, 0), first(number)), after, alone=True)
        each(lambda number, place: (self._place(place, 1), number - first(number)), after, alone=True)

    def _place(self, place: Any, part: int) -> Any:
        """Where a lane's number of a fragment lies, or its first bits and their rest, parts 0 and 1."""
        if not self.plan.interleaved:
            return Variable(self.name)[place * SUB_GROUP + self.loops.lane]
        width = self.plan.unit.k // DEPTH
        lane = FloorDiv(place, width) * SUB_GROUP + self.loops.lane
        return Variable(self.name)[lane * (self.parts * width) + part * width + Remainder(place, width)]

    def _entry(self, place: Any) -> Any:
        """The number of B that a lane has of a fragment, zero where there is none."""
        at, conditions = self._indices(place)
        return guarded(conditions, substituted(self.product.b, at))

    def _indices(self, place: Any, inside: bool = False) -> tuple[dict[str, Any], list[Any]]:
        """The indices of the number of B that a lane has of a fragment, and when there is one; with `inside`, of any."""
        loops, names, columns = self.loops, self.product.names, self.plan.product.columns
        step, rest = Remainder(place, self.plan.steps), FloorDiv(place, self.plan.steps)
        at, conditions = loops.lanes.sums(self.product, step, inside=inside)
        for letter, length in reversed(self.batch.items()):
            at[names[letter]], rest = Remainder(rest, length), FloorDiv(rest, length)
        n = names[loops.matched.n]
        at[n] = column = COLUMNS * (rest + loops.blocks.first) + loops.lanes.column_of_b
        if columns % COLUMNS or self.plan.n_split > 1:
            conditions.append(Comparison(column, "<", columns))
            at[n] = Min((column, columns - 1)) if inside else column
        return at, conditions
