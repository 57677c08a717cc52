"""Contractions on matrix units, tile by tile: ``D[m, n] = Σ_k A[m, k] B[k, n]`` with a long m and small n and k.

A sub-group takes 16 rows m at a time and all columns n.  B lies in local memory for the whole kernel, in the order in
which lanes read it; what is loaded of A stays in registers; no work-group ever waits inside the loop over tiles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import loopy as lp
from loopy.symbolic import TypeCast
from pymbolic.primitives import Comparison, FloorDiv, If, Variable

from feinsum.devices.ptx import SUB_GROUP
from feinsum.match import Match
from feinsum.rewrites.matrix_units import (
    COLUMNS,
    DEPTH,
    ROWS,
    column_of,
    multiply_accumulate,
    register_matrix_unit,
    row_of,
    synchronize_sub_group,
)
from feinsum.rewrites.products import MatrixProduct, substituted
from feinsum.rewrites.tile_operands import Held, TileOperands
from feinsum.rewrites.tiling import Tiling


def multiply_in_tiles(
    t_unit: lp.TranslationUnit,
    match: Match,
    operand: int | None,
    m: str,
    n: str,
    tiling: Tiling,
    *,
    held: Mapping[str, str] | None = None,
) -> lp.TranslationUnit:
    """Compute a sum of products on matrix units, and what is made of it where its results lie.

    Before, with ``P(r, n, m) := sum(k, B(r, n, k) * A(m, k))``, for every row of the match::

        for x, m, n: out[x, m, n] = J(x, 0, m) * P(0, n, m) + J(x, 1, m) * P(1, n, m)

    After, for g, t = lane / 4, lane mod 4 and S sub-groups s of a group, everything over r, x, h, c unrolled::

        for block, r, step: b[block, r, step, lane] = B(r, 8 block + column of B, 4 step + t)
        ... lbarrier
        for tile in range(group * S + s, ceil(M / 16), groups * S):
            for step, h: a[step, h] = A(16 tile + 8 h + g, 4 step + t)
            for x, r, h: j[x, r, h] = J(x, r, 16 tile + 8 h + g)
            for block:
                for r, h, c: acc[r, h, c] = 0
                for step, r: acc[r, ...] = mma(acc[r, ...], a[step, ...], b[block, r, step, lane])
                for x, h, c: out[x, 16 tile + 8 h + g, 8 block + 4 c + t] = j[x, 0, h] * acc[0, h, c] + ...

    Numbers beyond an operand are zeros, and results beyond the output are not stored, so any m, n and k will do; of
    several indices k the last is padded to whole steps.  Rows with the same product share it.
    Registers of a lane: two for each step of A, four for each r, two for each entry of what is held.

    :param operand: the operand whose rule is the sum of products (see :func:`feinsum.rewrites.contract_first`); None
        if the instructions of the match are such sums themselves.
    :param m: the index letter of the long axis; factors of the products that have it are A, the others are B.
    :param n: the index letter that becomes columns.
    :param held: substitution rules whose values are loaded once for all columns and rows -> the index letters of their
        arguments, m among them and n not.
    :raises TransformError: if the instructions have no such form, or n or an index summed over has no fixed length.

    ``blockize`` and ``tensorize`` in TVM; what CUTLASS calls warp-level tiling, with the smaller operand persistent.
    """
    work = _Products(t_unit[match.kernel_name], match, operand, m, n, tiling)
    return register_matrix_unit(t_unit.with_kernel(work.result(held or {})), work.unit)


@dataclass(frozen=True)
class _Staging:
    """The array through which results of some rows pass, and where in it those of one row are."""

    name: str
    row: int


class _Products(TileOperands):
    """Tiles with their operands, the products of these, and what instructions make of the products."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.accumulators = self.draft.array("acc", (*self.batch.values(), 2, 2), dtype=self.number)
        self._staged = ""
        self._temporaries: dict[str, str] = {}
        self._written: tuple[str, ...] = ()

    def result(self, held: Mapping[str, str]) -> lp.LoopKernel:
        matrices: dict[Any, str] = {}
        for p in self.products:
            if p.b not in matrices:
                matrices[p.b] = self.matrix(p)
        barrier = lp.BarrierInstruction(
            self.draft.fresh_id("matrices_are_there"),
            depends_on=frozenset(insn.id for insn in self.draft.instructions),
            synchronization_kind="local",
            mem_kind="local",
            within_inames=self.around,
            within_inames_is_final=True,
        )
        self.draft.instructions.append(barrier)
        self._compute(matrices, held, barrier.id)
        return self.draft.finished(self.match.insn_ids, {p.rule for p in self.products if p.rule is not None})

    def _compute(self, matrices: Mapping[Any, str], held: Mapping[str, str], after: str) -> None:
        """Load, multiply and store, product after product, in the loop over tiles."""
        rows: dict[MatrixProduct, list[int]] = {}
        for row, p in enumerate(self.products):
            rows.setdefault(p, []).append(row)
        loads = self.loads(rows, held)
        previous: tuple[str, ...] = (after,)
        for number, (p, own) in enumerate(rows.items()):
            previous = self._product(own, p, matrices[p.b], loads(number, previous))

    def _product(self, rows: list[int], p: MatrixProduct, matrix: str, after: tuple[str, ...]) -> tuple[str, ...]:
        """All columns of a tile: products by blocks of columns, and what instructions make of them."""
        acc, block = Variable(self.accumulators), self.draft.fresh("block")
        if self.part:
            most = -(-self.columns // COLUMNS)
            begun = f"{self.part} * {self.blocks} + {block} < {most}"
            self.draft.domain(self.part, [block], f"0 <= {block} < {self.blocks} and {begun}")
        else:
            self.draft.domain("", [block], f"0 <= {block} < {self.blocks}")
        around = self.inside | {block}
        zero = self.draft.unrolled(("zero",) * (len(self.batch) + 2), (*self.batch.values(), 2, 2))
        cleared = self.draft.assign(acc[tuple(map(Variable, zero))], 0.0, around | set(zero), after)
        batch = self.draft.unrolled(tuple(self.batch), tuple(self.batch.values()))
        (step,) = self.draft.unrolled(("step",), (self.steps * DEPTH // self.unit.k,))
        self.draft.priorities.append(",".join((self.round, block, step, *batch)))
        multiplied = multiply_accumulate(
            self.unit,
            tuple(acc[(*map(Variable, batch), half, number)] for half in range(2) for number in range(2)),
            self.registers_of_a(p, step, batch),
            self.registers_of_b(matrix, block, step, batch),
            id=self.draft.fresh_id("multiply"),
            within_inames=around | {step, *batch},
            within_inames_is_final=True,
            depends_on=frozenset([cleared]),
            depends_on_is_final=True,
        )
        self.draft.instructions.append(multiplied)
        if not self.tiling.staged:
            return tuple(self._store(row, block, multiplied.id, None) for row in rows)
        staged = self._staged_array(rows)
        gathered = tuple(
            self._store(row, block, multiplied.id, _Staging(staged, number)) for number, row in enumerate(rows)
        )
        ready = self._synchronize(gathered)
        written = tuple(self._write(row, _Staging(staged, number), ready) for number, row in enumerate(rows))
        return (self._synchronize(written),)

    def _store(self, row: int, block: str, after: str, staging: _Staging | None) -> str:
        """What an instruction makes of the accumulators, to its output or to where results are staged."""
        insn, loops = self.rows[row], self.match.loops[row]
        half, number = self.draft.unrolled(("upper", "number"), (2, 2))
        others, lengths = self.other_loops(row)
        copies = self.draft.unrolled(others, lengths)
        column = COLUMNS * (Variable(block) + self.first_block) + column_of(self.lane, Variable(number))
        there = row_of(self.lane, Variable(half))
        place = ROWS * self.tile + there
        at = {loops[self.m]: place, loops[self.n]: column, **dict(zip(others, map(Variable, copies), strict=True))}
        value = substituted(_Results(self, row, (Variable(half), Variable(number)))(insn.expression), at)
        inside = self.inside | {block, half, number, *copies}
        predicates = [Comparison(column, "<", self.columns)] if self.columns % COLUMNS else []
        if staging is not None:
            index = (self.sub_group, staging.row, *map(Variable, copies), there, column)
            return self.draft.assign(
                Variable(staging.name)[index], value, inside, (after,), predicates=predicates, alone=True
            )
        predicates.append(Comparison(place, "<", self.rows_m))
        return self.draft.assign(
            substituted(insn.assignee, at), value, inside, (after,), predicates=predicates, insn_id=insn.id
        )

    def _write(self, row: int, staging: _Staging, after: str) -> str:
        """Write what is staged of a row, the last axis quickest."""
        insn, loops = self.rows[row], self.match.loops[row]
        numbers = ROWS * self.columns
        others, lengths = self.other_loops(row)
        copies = self.draft.unrolled(others, lengths)
        (piece,) = self.draft.unrolled(("piece",), (-(-numbers // SUB_GROUP),))
        inside = self.inside | {piece, *copies}
        number = Variable(piece) * SUB_GROUP + self.lane
        # In a temporary, as loopy would take the division apart into one of numbers that may be negative.
        quotient = Variable(self._temporary("quotient"))
        # The rows share what is written here, so each begins after the one before.
        begin = (after, *self._written)
        divided = self.draft.assign(quotient, FloorDiv(number, self.columns), self.inside | {piece}, begin)
        place = (quotient, number - self.columns * quotient)
        # One limit for both ends, and hidden: else the conditions of all pieces would be kept, from one row to the next.
        limit = self._temporary("limit")
        left = (self.rows_m - ROWS * self.tile) * self.columns
        limited = self.draft.assign(Variable(limit), If(Comparison(left, "<", numbers), left, numbers), self.inside, begin)
        hidden = self.draft.hide(limit, self.inside, (limited,))
        predicates = [Comparison(number, "<", Variable(limit))]
        at = {loops[self.m]: ROWS * self.tile + place[0], loops[self.n]: place[1]}
        at |= dict(zip(others, map(Variable, copies), strict=True))
        value = Variable(staging.name)[(self.sub_group, staging.row, *map(Variable, copies), *place)]
        assignee = substituted(insn.assignee, at)
        written = self.draft.assign(
            assignee, value, inside, (divided, hidden), predicates=predicates, alone=True, insn_id=insn.id
        )
        self._written = (written,)
        return written

    def _temporary(self, name: str) -> str:
        """A whole number that all rows share."""
        if name not in self._temporaries:
            self._temporaries[name] = self.draft.array(name, (), dtype=self.kernel.index_dtype.numpy_dtype)
        return self._temporaries[name]

    def _staged_array(self, rows: list[int]) -> str:
        _, lengths = self.other_loops(rows[0])
        if not self._staged:
            most = max(sum(p == q for q in self.products) for p in self.products)
            shape = (self.tiling.sub_groups, most, *lengths, ROWS, self.columns)
            self._staged = self.draft.array("staged", shape, lp.AddressSpace.LOCAL, dtype=self.dtype)
        return self._staged

    def _synchronize(self, after: Sequence[str]) -> str:
        insn = synchronize_sub_group(
            id=self.draft.fresh_id("synchronize"),
            within_inames=self.inside,
            within_inames_is_final=True,
            depends_on=frozenset(after),
            depends_on_is_final=True,
        )
        self.draft.instructions.append(insn)
        return str(insn.id)


class _Results(Held):
    """Reads products from accumulators too."""

    def __init__(self, tiles: _Products, row: int, register: tuple[Any, Any]) -> None:
        super().__init__(tiles.held, register[0])
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
        value = Variable(tiles.accumulators)[(*batch, *self.register)]
        return value if tiles.number == tiles.dtype else TypeCast(tiles.dtype, value)
