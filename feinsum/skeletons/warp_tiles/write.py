"""Contractions on matrix units, tile by tile: ``D[m, n] = Σ_k A[m, k] B[k, n]`` with a long m and small n and k.

A sub-group takes 16 rows m at a time and all columns n.  B lies in local memory for the whole kernel, in the order in
which lanes read it; what is loaded of A stays in registers; no work-group ever waits inside the loop over tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import loopy as lp
from pymbolic.primitives import Variable

from feinsum.match import Match
from feinsum.rewrites.loops import without_race_warnings
from feinsum.skeletons.common.products import MatrixProduct
from feinsum.skeletons.nvidia.async_copies import register_async_copies
from feinsum.skeletons.nvidia.matrix_units import COLUMNS, DEPTH, begin_late, multiply_accumulate, register_matrix_unit
from feinsum.skeletons.nvidia.summing_units import multiply_and_sum, register_summing_unit
from feinsum.skeletons.warp_tiles.epilogue import TileResults
from feinsum.skeletons.warp_tiles.loops import Turn
from feinsum.skeletons.warp_tiles.tiling import Tiling, copies_held


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
    several indices k the last is padded to whole steps.  Rows with the same product share it; of several products, the
    loop over tiles has all, or each has one of its own; so have parts of the columns with a share of the groups.
    Registers of a lane: two for each step of A, four for each r, two for each entry of what is held.  With several slices
    of the sum: two for each step of one, and four for each r and block; the loop over blocks is in that over slices.

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
    t_unit = t_unit.with_kernel(work.result(held or {}))
    if tiling.burst == 0 or copies_held(tiling):
        t_unit = register_async_copies(t_unit, work.dtype)
    if tiling.sums == "apart":
        return register_matrix_unit(t_unit, work.unit)
    return register_summing_unit(t_unit, work.unit, tiling.sums)


_AddProduct = Callable[[int, MatrixProduct, str, tuple[str, ...]], tuple[str, ...]]
"""Adds the product of a number and its matrix, after some instructions; returns the ids of the last."""


class _Products(TileResults):
    """Tiles with their operands, the products of these, and what instructions make of the products."""

    def result(self, held: Mapping[str, str]) -> lp.LoopKernel:
        matrices: dict[Any, str] = {}
        rows: dict[MatrixProduct, list[int]] = {}
        for row, p in enumerate(self.products):
            rows.setdefault(p, []).append(row)
            if p.b not in matrices:
                matrices[p.b] = self.matrix(p)
        self.prepare(list(rows), held)
        product = self._products_by_slices if self.tiling.slices > 1 else self._products
        previous: tuple[str, ...] = (self._begun(),)
        for number, turn in enumerate(self.turns(list(rows))):
            ended = previous if number else ()
            self.deal_tiles(turn, ended)
            previous += self.placed
            add = product(turn, rows, ended)
            for k, p in enumerate(turn.products):
                previous = add(k, p, matrices[p.b], previous)
        kernel = self.draft.finished(self.match.insn_ids, {p.rule for p in self.products if p.rule is not None})
        # A tile's place may be in a temporary, which does not show loopy that it is this sub-group's alone.
        return without_race_warnings(kernel, (insn.id for insn in self.draft.instructions)) if self.placed else kernel

    def _begun(self) -> str:
        """Wait for the matrices, and as each sub-group is to begin; the id of the instruction after which tiles may."""
        barrier = lp.BarrierInstruction(
            self.draft.fresh_id("matrices_are_there"),
            depends_on=frozenset(insn.id for insn in self.draft.instructions),
            synchronization_kind="local",
            mem_kind="local",
            within_inames=self.around,
            within_inames_is_final=True,
        )
        self.draft.instructions.append(barrier)
        if not self.tiling.stagger:
            return str(barrier.id)
        late = partial(begin_late, self.tiling.stagger, self.sub_group)
        return self.draft.add(late, "stagger", self.around, (str(barrier.id),))

    def _products(self, turn: Turn, rows: Mapping[MatrixProduct, list[int]], after: tuple[str, ...]) -> _AddProduct:
        """Adds the product of a number, with what is loaded before it."""
        loads = self.loads(turn.products, after)
        return lambda number, p, matrix, after: self._product(rows[p], p, matrix, loads(number, after))

    def _products_by_slices(
        self, turn: Turn, rows: Mapping[MatrixProduct, list[int]], after: tuple[str, ...]
    ) -> _AddProduct:
        """Adds the product of a number, with what is loaded before each slice."""
        loads = self.loads_of_slices(turn.products, after)
        return lambda number, p, matrix, after: self._product_by_slices(rows[p], p, matrix, partial(loads, number), after)

    def _product(self, rows: list[int], p: MatrixProduct, matrix: str, after: tuple[str, ...]) -> tuple[str, ...]:
        """All columns of a tile: products by blocks of columns, and what instructions make of them."""
        block = self.draft.fresh("block")
        if self.part:
            most = -(-self.columns // COLUMNS)
            begun = f"{self.part} * {self.blocks} + {block} < {most}"
            self.draft.domain(self.part, [block], f"0 <= {block} < {self.blocks} and {begun}")
        else:
            self.draft.domain("", [block], f"0 <= {block} < {self.blocks}")
        around = self.inside | {block}
        cleared = self._cleared(around, after)
        return self.store(rows, block, self._added(self._multiplied(p, matrix, block, around, cleared), around))

    def _product_by_slices(
        self,
        rows: list[int],
        p: MatrixProduct,
        matrix: str,
        loads: Callable[[str, tuple[str, ...]], tuple[str, ...]],
        after: tuple[str, ...],
    ) -> tuple[str, ...]:
        """All columns of a tile: their products slice by slice of the sum, and what instructions make of them."""
        slice_ = self.draft.fresh("slice")
        self.draft.domain("", [slice_], f"0 <= {slice_} < {self.tiling.slices}")
        cleared = self._cleared(self.inside, after)
        loaded = loads(slice_, after)
        block, last = self.draft.unrolled(("block", "block"), (self.blocks, self.blocks))
        multiplied = self._multiplied(p, matrix, block, self.inside | {slice_, block}, (*cleared, *loaded), slice_)
        return self.store(rows, last, self._added(multiplied, self.inside))

    def _cleared(self, around: frozenset[str], after: tuple[str, ...]) -> tuple[str, ...]:
        """Zeros in all accumulators; the ids of the instructions."""
        arrays = filter(None, (self.accumulators, self.corrections))
        return tuple(self._each("zero", array, lambda at: 0.0, around, after) for array in arrays)

    def _added(self, multiplied: str, around: frozenset[str]) -> str:
        """What the units could not sum, added; the id of the instruction that finishes the accumulators."""
        sums, rest = Variable(self.accumulators), self.corrections
        if not rest:
            return multiplied
        return self._each("add", self.accumulators, lambda at: sums[at] + Variable(rest)[at], around, (multiplied,))

    def _multiplied(
        self,
        p: MatrixProduct,
        matrix: str,
        block: str,
        around: frozenset[str],
        after: tuple[str, ...],
        slice_: str | None = None,
    ) -> str:
        """A block of products in the accumulators, or what a slice of the sum adds to it; the id of the instruction."""
        batch = self.draft.unrolled(tuple(self.batch), tuple(self.batch.values()))
        count = self.steps // self.tiling.slices * DEPTH // self.unit.k
        (step,) = self.draft.unrolled(("step",), (count,))
        outside = (block,) if slice_ is None else (slice_, block)
        self.draft.priorities.append(",".join((self.round, *outside, step, *batch)))
        place = Variable(step) if slice_ is None else Variable(slice_) * count + Variable(step)
        a, b = self.registers_of_a(p, step, batch), self.registers_of_b(matrix, block, place, batch)
        kept = () if slice_ is None else (Variable(block),)

        def registers(array: str) -> tuple[Any, ...]:
            at = (*kept, *map(Variable, batch))
            return tuple(Variable(array)[(*at, half, number)] for half in range(2) for number in range(2))

        sums = registers(self.accumulators)
        if self.corrections:
            multiply = partial(multiply_and_sum, self.unit, self.tiling.sums, sums, registers(self.corrections), a, b)
        else:
            multiply = partial(multiply_accumulate, self.unit, sums, a, b)
        return self.draft.add(multiply, "multiply", around | {step, *batch}, after)

    def _each(
        self, base: str, array: str, value: Callable[[Any], Any], around: frozenset[str], after: tuple[Any, ...]
    ) -> str:
        """Assign to every number that a lane has of the accumulators; the id of the instruction."""
        loops = self.draft.unrolled((base,) * len(self.accumulated), self.accumulated)
        at = tuple(map(Variable, loops))
        return self.draft.assign(Variable(array)[at], value(at), around | set(loops), after)
