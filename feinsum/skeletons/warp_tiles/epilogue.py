"""Results of tiles: what instructions make of products, written lane by lane or through local memory in whole rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import loopy as lp
from loopy.symbolic import TypeCast
from pymbolic.primitives import Comparison, FloorDiv, If, LogicalAnd, Min, Remainder, Variable

from feinsum.devices.ptx import SUB_GROUP
from feinsum.errors import TransformError
from feinsum.skeletons.common.digits import VECTOR_BYTES, position
from feinsum.skeletons.common.products import substituted
from feinsum.skeletons.nvidia.matrix_units import COLUMNS, ROWS, row_of
from feinsum.skeletons.warp_tiles.operands import Held, TileOperands
from feinsum.skeletons.warp_tiles.wide_stores import Rows, rows_in_memory, wide_store

_PAIR = 2
"""Numbers that a lane has of each row of a block."""


@dataclass(frozen=True)
class Staging:
    """The array through which results of some rows pass, and where in it those of one row are."""

    name: str
    row: int


class TileResults(TileOperands):
    """Tiles with accumulators, and the instructions that store what is made of these."""

    def __post_init__(self) -> None:
        super().__post_init__()
        kept = (self.blocks,) if self.tiling.slices > 1 else ()
        self.accumulated = (*kept, *self.batch.values(), 2, 2)
        self.accumulators = self.draft.array("acc", self.accumulated, dtype=self.number)
        apart = self.tiling.sums == "apart"
        self.corrections = "" if apart else self.draft.array("rest", self.accumulated, dtype=self.number)
        self._staged = ""
        self._temporaries: dict[str, str] = {}
        self._written: tuple[str, ...] = ()

    def store(self, rows: list[int], block: str, after: str) -> tuple[str, ...]:
        """Store what the instructions of some rows make of the products in `after`; the ids of the last instructions."""
        if not self.tiling.staged:
            stored = tuple(self._store(row, block, after, None) for row in rows)
            if len(self.shares) > 1:
                self.draft.alone.update(stored)  # every share has columns of its own
            return stored
        staged = self._staged_array(rows)
        gathered = tuple(self._store(row, block, after, Staging(staged, number)) for number, row in enumerate(rows))
        ready = self.synchronize(gathered)
        written = tuple(self._write(row, Staging(staged, number), ready) for number, row in enumerate(rows))
        return (self.synchronize(written),)

    def _store(self, row: int, block: str, after: str, staging: Staging | None) -> str:
        """What an instruction makes of the accumulators, to its output or to where results are staged."""
        insn, loops = self.rows[row], self.match.loops[row]
        half, number = self.draft.unrolled(("upper", "number"), (2, _PAIR))
        copies = self._copies(row)
        column = COLUMNS * (Variable(block) + self.first_block) + self.column_of(Variable(number))
        there = row_of(self.lane, Variable(half))
        place = ROWS * self.tile + there
        at = {loops[self.m]: place, loops[self.n]: column, **copies}
        value = substituted(_Results(self, row, block, (Variable(half), Variable(number)))(insn.expression), at)
        inside = self.inside | {block, half, number, *(copy.name for copy in copies.values())}
        predicates = [Comparison(column, "<", self.columns)] if self._passes_columns else []
        if staging is not None:
            index = (self.sub_group, staging.row, *copies.values(), there, column)
            return self.draft.assign(
                Variable(staging.name)[index], value, inside, (after,), predicates=predicates, alone=True
            )
        predicates.append(Comparison(place, "<", self.rows_m))
        if not self.tiling.wide:
            return self.draft.assign(
                substituted(insn.assignee, at), value, inside, (after,), predicates=predicates, insn_id=self._id_of(insn)
            )
        return self._write_pair(row, number, at, value, inside, after)

    def _id_of(self, insn: Any) -> str:
        """That of an instruction of the match for what stores its last results, which others may wait for."""
        return str(insn.id if self.share == self.shares[-1] else self.draft.fresh_id(insn.id))

    @property
    def _passes_columns(self) -> bool:
        """Whether blocks go beyond the last column: the last one, or, with sums of all of them, whole blocks of a part."""
        padded = COLUMNS * self.blocks * self.tiling.parts > self.columns and not self.tiling.weighted
        return bool(self.columns % COLUMNS) or (self.tiling.slices > 1 and padded)

    def _write_pair(
        self, row: int, number: str, at: Mapping[str, Any], value: Any, inside: frozenset[str], after: str
    ) -> str:
        """Write two neighbours in a row, which has an even length.

        :param number: the loop over both.
        """
        insn, loops, rows = self.rows[row], self.match.loops[row], self._rows_of(row)
        if self.columns % _PAIR or not rows.are_aligned(_PAIR):
            raise TransformError(f"rows of {self.columns} numbers do not begin where pairs can be written")
        first = {name: substituted(x, {number: 0}) for name, x in at.items()}
        m, n = first[loops[self.m]], first[loops[self.n]]
        # The same on both instructions, so that one branch goes around them.
        predicates = [Comparison(m, "<", self.rows_m)]
        predicates += [Comparison(n, "<", self.columns)] if self._passes_columns else []
        pair = self._temporary("pair", (_PAIR,), self.dtype)
        # All rows keep their pairs in one place, so each begins after the one before.
        ready = (after, *self._written)
        kept = self.draft.assign(Variable(pair)[Variable(number)], value, inside, ready, predicates=predicates)
        store = wide_store(
            rows,
            substituted(insn.assignee, first),
            substituted(rows.begin, first) + self.columns * m + n,
            _PAIR,
            f"({rows.scalar}{_PAIR}) ({pair}[0], {pair}[1])",
            id=self._id_of(insn),
            read_variables=frozenset([pair]),
            within_inames=inside - {number},
            within_inames_is_final=True,
            predicates=frozenset(predicates),
            depends_on=frozenset([kept]),
            depends_on_is_final=True,
        )
        self.draft.instructions.append(store)
        self._written = (str(store.id),)
        return str(store.id)

    def _write(self, row: int, staging: Staging, after: str) -> str:
        """Write what is staged of a row, the last axis quickest."""
        insn, loops, copies = self.rows[row], self.match.loops[row], self._copies(row)
        numbers = ROWS * self.columns
        (piece,) = self.draft.unrolled(("piece",), (-(-numbers // SUB_GROUP),))
        inside = self.inside | {piece, *(copy.name for copy in copies.values())}
        number = Variable(piece) * SUB_GROUP + self.lane
        # In a temporary, as loopy would take the division apart into one of numbers that may be negative.
        quotient = Variable(self._temporary("quotient"))
        # The rows share what is written here, so each begins after the one before.
        begin = (after, *self._written)
        limit, limited = self._limit(numbers, begin)
        # On all instructions of the loop, so that it is skipped as a whole.
        narrow: list[Any] = []
        if self.tiling.wide:
            limited, left = self._write_whole_rows(row, staging, limit, limited)
            begin, narrow = (limited,), [left]
        divided = self.draft.assign(
            quotient, FloorDiv(number, self.columns), self.inside | {piece}, begin, predicates=narrow
        )
        place = (quotient, number - self.columns * quotient)
        predicates = [*narrow, Comparison(number, "<", Variable(limit))]
        at = {loops[self.m]: ROWS * self.tile + place[0], loops[self.n]: place[1], **copies}
        value = Variable(staging.name)[(self.sub_group, staging.row, *copies.values(), *place)]
        assignee = substituted(insn.assignee, at)
        written = self.draft.assign(
            assignee, value, inside, (divided, limited), predicates=predicates, alone=True, insn_id=self._id_of(insn)
        )
        self._written = (written,)
        return written

    def _limit(self, numbers: int, after: tuple[str, ...]) -> tuple[str, str]:
        """A temporary for the numbers of a tile that are there, and the id of what hides it.

        One limit for both ends, and hidden: else the conditions of all pieces would be kept, from one row to the next.
        """
        limit = self._temporary("limit")
        left = (self.rows_m - ROWS * self.tile) * self.columns
        limited = self.draft.assign(Variable(limit), If(Comparison(left, "<", numbers), left, numbers), self.inside, after)
        return limit, self.draft.hide(limit, self.inside, (limited,))

    def _write_whole_rows(self, row: int, staging: Staging, limit: str, after: str) -> tuple[str, Any]:
        """Write what is staged of a row in wide pieces, if all rows of the tile are there and begin where these can.

        :return: the id of the instruction, and the condition under which all is left to be written.
        """
        insn, loops, rows, copies = self.rows[row], self.match.loops[row], self._rows_of(row), self._copies(row)
        wide, numbers = VECTOR_BYTES // self.dtype.itemsize, ROWS * self.columns
        (piece,) = self.draft.unrolled(("piece",), (-(-numbers // (SUB_GROUP * wide)),))
        whole = self._temporary("whole")
        conditions = (Comparison(Variable(limit), "==", numbers), *rows.alignment(wide))
        known = self.draft.assign(Variable(whole), If(LogicalAnd(conditions), 1, 0), self.inside, (after, *self._written))
        number = wide * (Variable(piece) * SUB_GROUP + self.lane)
        # All rows are there, which loopy cannot know.
        m = Min((ROWS * self.tile + FloorDiv(number, self.columns), self.rows_m - 1))
        at = {loops[self.m]: m, loops[self.n]: Remainder(number, self.columns), **copies}
        origin = self.sub_group * self.draft.temporaries[staging.name].shape[1] + staging.row
        origin = position(copies.values(), self.other_loops(row)[1], origin)
        store = wide_store(
            rows,
            substituted(insn.assignee, at),
            substituted(rows.begin, copies) + numbers * self.tile + number,
            wide,
            f"*(__local {rows.scalar}{wide} const *) ({staging.name} + from)",
            origin=origin * numbers + number,
            id=self.draft.fresh_id("write_whole_rows"),
            read_variables=frozenset([staging.name]),
            within_inames=self.inside | {piece, *(copy.name for copy in copies.values())},
            within_inames_is_final=True,
            predicates=frozenset([Comparison(Variable(whole), "==", 1), Comparison(number, "<", numbers)]),
            depends_on=frozenset([known]),
            depends_on_is_final=True,
        )
        self.draft.instructions.append(store)
        self.draft.alone.add(store.id)
        return str(store.id), Comparison(Variable(whole), "==", 0)

    def _copies(self, row: int) -> dict[str, Variable]:
        """New loops in place of those of an instruction besides m and n."""
        others, lengths = self.other_loops(row)
        return dict(zip(others, map(Variable, self.draft.unrolled(others, lengths)), strict=True))

    def _rows_of(self, row: int) -> Rows:
        loops = self.match.loops[row]
        others = self.other_loops(row)[0]
        return rows_in_memory(self.kernel, self.rows[row].assignee, loops[self.m], loops[self.n], self.columns, others)

    def _temporary(self, name: str, shape: tuple[int, ...] = (), dtype: Any = None) -> str:
        """Registers that all rows share, by default for a whole number."""
        if name not in self._temporaries:
            dtype = self.kernel.index_dtype.numpy_dtype if dtype is None else dtype
            self._temporaries[name] = self.draft.array(name, shape, dtype=dtype)
        return self._temporaries[name]

    def _staged_array(self, rows: list[int]) -> str:
        _, lengths = self.other_loops(rows[0])
        if not self._staged:
            most = max(sum(p == q for q in self.products) for p in self.products)
            shape = (self.tiling.sub_groups, most, *lengths, ROWS, self.columns)
            alignment = VECTOR_BYTES if self.tiling.wide else None
            self._staged = self.draft.array("staged", shape, lp.AddressSpace.LOCAL, self.dtype, alignment)
        return self._staged


class _Results(Held):
    """Reads products from accumulators too."""

    def __init__(self, tiles: TileResults, row: int, block: str, register: tuple[Any, Any]) -> None:
        super().__init__(tiles.held, register[0])
        self.kept = (Variable(block),) if tiles.tiling.slices > 1 else ()
        self.tiles, self.product, self.register = tiles, tiles.products[row], register

    def map_reduction(self, expr: Any) -> Any:
        return self._accumulator(()) if self.product.rule is None else super().map_reduction(expr)

    def map_call(self, expr: Any) -> Any:
        if expr.function.name != self.product.rule:
            return super().map_call(expr)
        at = dict(zip(self.product.names, expr.parameters, strict=True))
        return self._accumulator(at[letter] for letter in self.tiles.batch)

    def _accumulator(self, batch: Iterable[Any]) -> Any:
        tiles = self.tiles
        value = Variable(tiles.accumulators)[(*self.kept, *batch, *self.register)]
        return value if tiles.number == tiles.dtype else TypeCast(tiles.dtype, value)
