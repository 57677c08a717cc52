"""Results that pass through local memory, where a warp gathers its tile, to be stored in whole rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import loopy as lp
from pymbolic.primitives import Comparison, FloorDiv, If, LogicalAnd, Min, Remainder, Variable

from feinsum.skeletons.common.digits import VECTOR_BYTES, position
from feinsum.skeletons.common.matrix_product import substituted
from feinsum.skeletons.instructions.matrix_units import ROWS, SUB_GROUP
from feinsum.skeletons.warp_tiles.tile_epilogue import FinishedValues
from feinsum.skeletons.warp_tiles.tile_loops import TileLoops, TurnLoop
from feinsum.skeletons.warp_tiles.wide_stores import wide_store


@dataclass(frozen=True)
class StagedOutput:
    """An output, and its number among those that are staged at a time."""

    output: int
    place: int


class StagedStores:
    """Lanes put their numbers into local memory, and then store neighbours in a row together.

    With vector stores a lane stores 16 bytes at once where all rows of a tile are there and begin at such, which is known
    as the kernel runs; otherwise, and without, a number at a time::

        for x, h, c: staged[s, x, 8 h + g, column of c] = ...
        ... lanes wait for each other
        for piece: out[x, 16 tile + (32 piece + lane) / N, (32 piece + lane) mod N] = staged[s, x, ...]

    Where x comes behind n in the output, it is a part of the rows, which are staged as they lie there.

    CUTLASS calls it an epilogue through shared memory.
    """

    def __init__(self, loops: TileLoops, values: FinishedValues) -> None:
        self.loops, self.values, self.matched, self.plan = loops, values, loops.matched, loops.plan
        self.dtype, self.columns = self.plan.product.dtype, loops.matched.columns
        self.inner = tuple(loops.matched.inner_loops(0).values())
        self.length = self.columns * prod(self.inner)
        self.numbers = ROWS * self.length
        self.most = max(map(len, loops.matched.distinct_products().values()))
        shape = (self.plan.warps, self.most, *self._outer(0)[1], ROWS, self.columns, *self.inner)
        alignment = VECTOR_BYTES if self.plan.vector_stores else None
        self.name = loops.draft.array("staged", shape, lp.AddressSpace.LOCAL, self.dtype, alignment)
        # Whole numbers that all outputs share.
        self._quotients = [self._whole_number("quotient") for _ in (self.columns, *self.inner)]
        self._limit = self._whole_number("limit")
        self._whole = self._whole_number("whole") if self.plan.vector_stores else ""
        self._written: tuple[str, ...] = ()

    def _outer(self, output: int) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """The loops besides those of rows, and their lengths."""
        inner = self.matched.inner_loops(output)
        found = {x: n for x, n in zip(*self.matched.other_loops(output), strict=True) if x not in inner}
        return tuple(found), tuple(found.values())

    def _whole_number(self, name: str) -> str:
        return self.loops.draft.array(name, (), dtype=self.matched.index_dtype)

    def store(self, turn: TurnLoop, outputs: Sequence[int], block: str, after: str) -> tuple[str, ...]:
        """See :meth:`feinsum.skeletons.warp_tiles.tile_epilogue.TileStores.store`."""
        staged = [StagedOutput(output, place) for place, output in enumerate(outputs)]
        gathered = tuple(self._gather(turn, part, block, after) for part in staged)
        ready = self.loops.synchronize(gathered, turn.inside)
        written = tuple(self._write(turn, part, ready) for part in staged)
        return (self.loops.synchronize(written, turn.inside),)

    def _gather(self, turn: TurnLoop, part: StagedOutput, block: str, after: str) -> str:
        """Put the results of an instruction into local memory."""
        finished = self.values.of(turn, part.output, block)
        outer, inner = ([finished.others[x] for x in names] for names in (self._outer(part.output)[0], self._inner(part)))
        place = Variable(self.name)[(self.loops.warp, part.place, *outer, finished.row, finished.column, *inner)]
        predicates = list(finished.beyond)
        if self.matched.match.outputs[part.output] in self.matched.match.finishing:
            # What is made of sums reads arrays, which have no rows beyond the last.
            predicates.append(Comparison(finished.m, "<", self.matched.rows))
        return self.loops.draft.assign(place, finished.value, finished.inside, (after,), predicates=predicates, alone=True)

    def _inner(self, part: StagedOutput) -> tuple[str, ...]:
        return tuple(self.matched.inner_loops(part.output))

    def _unrolled_outer(self, part: StagedOutput) -> dict[str, Variable]:
        names, lengths = self._outer(part.output)
        return dict(zip(names, map(Variable, self.loops.draft.unrolled(names, lengths)), strict=True))

    def _write(self, turn: TurnLoop, part: StagedOutput, after: str) -> str:
        """Write the staged results of an output."""
        draft, others = self.loops.draft, self._unrolled_outer(part)
        insn, own = self.matched.instructions[part.output], self.matched.match.loops[part.output]
        (piece,) = draft.unrolled(("piece",), (-(-self.numbers // SUB_GROUP),))
        inside = turn.inside | {piece, *(other.name for other in others.values())}
        number = Variable(piece) * SUB_GROUP + self.loops.lane
        # The outputs share what is written here, so each begins after the one before.
        begin = (after, *self._written)
        limited = self._set_limit(turn, begin)
        # On all instructions of the loop, so that it is skipped as a whole.
        narrow: list[Any] = []
        if self.plan.vector_stores:
            limited, left = self._write_whole_rows(turn, part, limited)
            begin, narrow = (limited,), [left]
        divided, (row, *place) = self._take_apart(number, turn.inside | {piece}, begin, narrow)
        at = dict(zip((own[self.matched.n], *self._inner(part)), place, strict=True)) | others
        at[own[self.matched.m]] = ROWS * turn.tile + row
        written = draft.assign(
            substituted(insn.assignee, at),
            Variable(self.name)[(self.loops.warp, part.place, *others.values(), row, *place)],
            inside,
            (*divided, limited),
            predicates=[*narrow, Comparison(number, "<", Variable(self._limit))],
            alone=True,
            insn_id=self.loops.result_id(part.output, turn),
        )
        self._written = (written,)
        return written

    def _take_apart(
        self, number: Any, around: frozenset[str], after: tuple[str, ...], narrow: Sequence[Any]
    ) -> tuple[list[str], list[Any]]:
        """The row, the column and the indices behind it that a number of a tile stands for, and what finds them.

        Each is a quotient of the number, less the one before times the indices that this has.  Quotients are in
        temporaries, as loopy would take such a difference apart into one of numbers that may be negative.
        """
        counts, draft = (self.columns, *self.inner), self.loops.draft
        divided = []
        for k, name in enumerate(self._quotients):
            value = FloorDiv(number, prod(counts[k:]))
            divided.append(draft.assign(Variable(name), value, around, after, predicates=narrow))
        found = [*map(Variable, self._quotients), number]
        return divided, [found[0], *(here - n * above for above, here, n in zip(found, found[1:], counts, strict=False))]

    def _set_limit(self, turn: TurnLoop, after: tuple[str, ...]) -> str:
        """Find how many numbers of a tile exist; the id of the instruction that hides the limit.

        One limit for both ends, and hidden: else the conditions of all pieces would be kept, from one row to the next.
        """
        draft, numbers = self.loops.draft, self.numbers
        left = (self.matched.rows - ROWS * turn.tile) * self.length
        value = If(Comparison(left, "<", numbers), left, numbers)
        limited = draft.assign(Variable(self._limit), value, turn.inside, after)
        return draft.hide(self.plan.vendor, self._limit, turn.inside, (limited,))

    def _write_whole_rows(self, turn: TurnLoop, part: StagedOutput, after: str) -> tuple[str, Any]:
        """Write the staged results of an output in wide pieces, if all rows of the tile exist and are aligned for them.

        :return: the id of the instruction, and the condition under which nothing was written.
        """
        loops, draft, matched, numbers = self.loops, self.loops.draft, self.matched, self.numbers
        insn, own, rows = matched.instructions[part.output], matched.match.loops[part.output], matched.rows_of(part.output)
        others = self._unrolled_outer(part)
        wide = VECTOR_BYTES // self.dtype.itemsize
        (piece,) = draft.unrolled(("piece",), (-(-numbers // (SUB_GROUP * wide)),))
        conditions = (Comparison(Variable(self._limit), "==", numbers), *rows.alignment(wide))
        whole = If(LogicalAnd(conditions), 1, 0)
        known = draft.assign(Variable(self._whole), whole, turn.inside, (after, *self._written))
        number = wide * (Variable(piece) * SUB_GROUP + loops.lane)
        # All rows are there, which loopy cannot know.
        m = Min((ROWS * turn.tile + FloorDiv(number, self.length), matched.rows - 1))
        at = {own[matched.m]: m, own[matched.n]: Remainder(FloorDiv(number, prod(self.inner)), self.columns), **others}
        at |= {
            x: Remainder(FloorDiv(number, prod(self.inner[k + 1 :])), self.inner[k])
            for k, x in enumerate(self._inner(part))
        }
        origin = loops.warp * self.most + part.place
        origin = position(others.values(), self._outer(part.output)[1], origin)
        store = wide_store(
            rows,
            substituted(insn.assignee, at),
            substituted(rows.begin, others) + numbers * turn.tile + number,
            wide,
            f"*(__local {rows.scalar}{wide} const *) ({self.name} + from)",
            origin=origin * numbers + number,
            id=draft.fresh_id("write_whole_rows"),
            read_variables=frozenset([self.name]),
            within_inames=turn.inside | {piece, *(other.name for other in others.values())},
            within_inames_is_final=True,
            predicates=frozenset([Comparison(Variable(self._whole), "==", 1), Comparison(number, "<", numbers)]),
            depends_on=frozenset([known]),
            depends_on_is_final=True,
        )
        draft.instructions.append(store)
        draft.alone.add(store.id)
        return str(store.id), Comparison(Variable(self._whole), "==", 0)
