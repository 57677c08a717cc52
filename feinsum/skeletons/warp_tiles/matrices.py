"""The smaller operand of tiles, B: in local memory for the whole kernel, in the order in which lanes read it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import loopy as lp
from pymbolic.primitives import Comparison, FloorDiv, If, Min, Remainder, Variable

from feinsum.devices.ptx import SUB_GROUP
from feinsum.errors import TransformError
from feinsum.skeletons.common.digits import VECTOR_BYTES, position
from feinsum.skeletons.common.draft import all_of
from feinsum.skeletons.common.products import MatrixProduct, substituted
from feinsum.skeletons.nvidia.async_copies import commit_copies, copy_asynchronously, wait_for_copies
from feinsum.skeletons.nvidia.matrix_units import COLUMNS, DEPTH, column_of, column_of_b
from feinsum.skeletons.nvidia.summing_units import first_bits
from feinsum.skeletons.warp_tiles.loops import TileLoops, guarded


class TileMatrices(TileLoops):
    """Loops of tiles with matrices in local memory, and the instructions that copy them there."""

    def matrix(self, p: MatrixProduct) -> str:
        """Keep B in local memory, padded, in the order in which lanes read it: the whole group copies it.

        A sub-group loads a burst of fragments, a number for each lane, before it stores any.
        """
        count = self.blocks * math.prod(self.batch.values()) * self.steps
        shared, burst, parts = self.tiling.sub_groups, self.tiling.burst, 2 if self.tiling.sums == "split" else 1
        alignment = VECTOR_BYTES if self._is_interleaved else None
        name = self.draft.array("matrix", (parts * count * SUB_GROUP,), lp.AddressSpace.LOCAL, self.number, alignment)
        copy = self.draft.fresh("fragment")
        begun = f"0 <= {copy} and {max(1, burst) * shared} * {copy} + {self.sub_group} < {count}"
        self.draft.domain(str(self.sub_group), [copy], begun)
        around = self.around | {copy}
        place = Variable(copy) * shared + self.sub_group
        if burst == 0:
            self._copy_matrix(name, p, place, around)
            return name
        if burst == 1 and parts == 1:
            self.draft.assign(self._place_of_b(name, place, 0), self._entry_of_b(p, place), around, self.before)
            return name
        moved = Variable(self.draft.array("moved", (burst,), dtype=self.dtype))

        def each(entry: Callable[[Any, Any], tuple[Any, Any]], after: frozenset[str], **kwargs: Any) -> frozenset[str]:
            (ahead,) = self.draft.unrolled(("ahead",), (burst,))
            # What is beyond the last fragment is the last again.
            place = (burst * Variable(copy) + Variable(ahead)) * shared + self.sub_group
            place = If(Comparison(place, "<", count), place, count - 1)
            assignee, value = entry(moved[Variable(ahead)], place)
            return frozenset([self.draft.assign(assignee, value, around | {ahead}, after, **kwargs)])

        after = each(lambda number, place: (number, self._entry_of_b(p, place)), self.before)
        if parts == 1:
            each(lambda number, place: (self._place_of_b(name, place, 0), number), after, alone=True)
            return name
        after = each(lambda number, place: (self._place_of_b(name, place, 0), first_bits(number)), after, alone=True)
        each(lambda number, place: (self._place_of_b(name, place, 1), number - first_bits(number)), after, alone=True)
        return name

    def _copy_matrix(self, name: str, p: MatrixProduct, place: Any, around: frozenset[str]) -> None:
        """Copy fragments of B asynchronously, and wait for the last: numbers go to local memory as they are."""
        if self.number != self.dtype or self.tiling.sums == "split":
            raise TransformError(f"copies do not turn {self.dtype} into what '{self.unit.name}' multiplies")
        at, conditions = self._place_of_entry(p, place, inside=True)
        there = If(all_of(conditions), 1, 0) if conditions else 1
        copy = partial(copy_asynchronously, self._place_of_b(name, place, 0), substituted(p.b, at), there, self.dtype)
        copied = self.draft.add(copy, "copy_matrix", around, self.before)
        committed = self.draft.add(commit_copies, "commit", self.around, (copied,))
        self.draft.add(partial(wait_for_copies, 0), "wait", self.around, (committed,))

    @property
    def _is_interleaved(self) -> bool:
        """Whether a lane's numbers of an instruction are neighbours, to be read at once."""
        return self.tiling.sums != "apart"

    def _place_of_b(self, matrix: str, place: Any, part: int) -> Any:
        """Where a lane's number of a fragment lies, or its first bits and their rest, parts 0 and 1."""
        if not self._is_interleaved:
            return Variable(matrix)[place * SUB_GROUP + self.lane]
        width, parts = self.unit.k // DEPTH, 2 if self.tiling.sums == "split" else 1
        lane = FloorDiv(place, width) * SUB_GROUP + self.lane
        return Variable(matrix)[lane * (parts * width) + part * width + Remainder(place, width)]

    def _entry_of_b(self, p: MatrixProduct, place: Any) -> Any:
        """The number of B that a lane holds of a fragment, zero where there is none."""
        at, conditions = self._place_of_entry(p, place)
        return guarded(conditions, substituted(p.b, at))

    def _place_of_entry(self, p: MatrixProduct, place: Any, inside: bool = False) -> tuple[dict[str, Any], list[Any]]:
        """The indices of the number of B that a lane holds of a fragment, and when there is one; with `inside`, of any."""
        step, rest = Remainder(place, self.steps), FloorDiv(place, self.steps)
        at, conditions = self.sums_at(p, step, inside=inside)
        for letter, length in reversed(self.batch.items()):
            at[p.names[letter]], rest = Remainder(rest, length), FloorDiv(rest, length)
        at[p.names[self.n]] = column = COLUMNS * (rest + self.first_block) + self.column_of_b
        if self.columns % COLUMNS or self.tiling.parts > 1:
            conditions.append(Comparison(column, "<", self.columns))
            at[p.names[self.n]] = Min((column, self.columns - 1)) if inside else column
        return at, conditions

    @property
    def column_of_b(self) -> Any:
        """The column of the matrix that a lane holds of B."""
        return FloorDiv(self.lane, DEPTH) if self._pairs else column_of_b(self.lane)

    def column_of(self, number: Any) -> Any:
        """The column of the matrix that number 0 or 1 of D in a lane belongs to; those of wide stores are neighbours."""
        return 2 * Remainder(self.lane, DEPTH) + number if self._pairs else column_of(self.lane, number)

    @property
    def _pairs(self) -> bool:
        return self.tiling.wide and not self.tiling.staged

    def registers_of_b(self, matrix: str, block: str, step: Any, batch: Sequence[str]) -> tuple[Any, ...]:
        place = position(map(Variable, batch), self.batch.values(), Variable(block))
        width = self.unit.k // DEPTH
        if self._is_interleaved:
            numbers = width * (2 if self.tiling.sums == "split" else 1)
            lane = (place * (self.steps // width) + step) * SUB_GROUP + self.lane
            return tuple(Variable(matrix)[lane * numbers + i] for i in range(numbers))
        place = place * self.steps + step * width
        return tuple(Variable(matrix)[(place + i) * SUB_GROUP + self.lane] for i in range(width))
