"""A step of a fused chain on a matrix unit: ``D[m, n] = Σ_k A[m, k] B[n, k]`` by sub-groups.

A row m stands for all indices of A that are kept, a column n for those of the small matrix B, k for those summed over.  B
lies in local memory in the order in which lanes read it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pymbolic.primitives import Comparison, FloorDiv, If, LogicalAnd, Min, Remainder, Variable

from feinsum.errors import TransformError
from feinsum.skeletons.common.digits import position
from feinsum.skeletons.fused_chains.chain_kernel import GroupKernel
from feinsum.skeletons.fused_chains.chain_steps import MatrixSharing
from feinsum.skeletons.fused_chains.events import MOVED_TOGETHER, ContractStep, CopyMatrix, LocalArray
from feinsum.skeletons.instructions.matrix_units import (
    COLUMNS,
    DEPTH,
    ROWS,
    SUB_GROUP,
    column_of,
    column_of_b,
    depth_of,
    fragment_dtype,
    fragment_unit,
    multiply_accumulate,
    row_of,
)

_WRITTEN_OUT = 4
"""Instructions along a sum that are written out."""


def copy_matrix(work: GroupKernel, copy: CopyMatrix) -> None:
    """Copy B to local memory, padded with zeros.

    After, for lanes l of all sub-groups::

        local[(block * steps + step) * 32 + l] = B(8 block + column of l, 4 step + l mod 4)
    """
    sharing = copy.sharing
    number, turns = work.turns(sharing.copy.total)
    digits = sharing.copy.of(number)
    column = COLUMNS * digits["block"] + column_of_b(digits["lane"])
    depth = depth_of(digits["lane"], digits["step"])
    at = {**digits, **sharing.columns.of(column), **sharing.sums.of(depth)}
    operand = work.block.steps[copy.step].contraction.operands[sharing.matrix]
    value = _there(
        [
            (column, sharing.columns.total, COLUMNS * sharing.blocks),
            (depth, sharing.sums.total, sharing.copy.counts[-2] * DEPTH),
        ],
        work.operand(operand, copy.row, at),
    )
    work.last |= {work.assign(work.place(copy.target, number), value, work.around | set(turns))}


class MatrixUnitStep:
    """One contraction of a row, fragments by sub-groups."""

    def __init__(self, work: GroupKernel, event: ContractStep, sharing: MatrixSharing) -> None:
        self.work, self.event, self.sharing = work, event, sharing
        self.contraction = work.block.steps[event.step].contraction
        self.unit = fragment_unit(sharing.unit)
        self.lane = Remainder(work.item, SUB_GROUP)
        self.tiles, self.blocks = sharing.fragments
        self.early: dict[int, Any] = {}

    def can_load_early(self) -> bool:
        """Whether there are operands to read where they are, few enough numbers of each for registers."""
        few = math.prod(self._shape) <= MOVED_TOGETHER and self.sharing.digits.total <= self.work.block.items
        return few and None in self.event.sources

    @property
    def _shape(self) -> tuple[int, int, int]:
        """The shape of a lane's registers of A for all steps."""
        return (self.sharing.steps, self.tiles, 2 * self.unit.k // DEPTH)

    def load_early(self, around: frozenset[str], origin: Mapping[str, Any]) -> None:
        """Load such operands before they are needed."""
        # Lanes of sub-groups without a tile load what is there: the last rows of the last index.
        self.at = self.sharing.digits.of(Min((self.work.item, self.sharing.digits.total - SUB_GROUP + self.lane)))
        for number, source in enumerate(self.event.sources):
            if source is None and number != self.sharing.matrix:
                if number not in self.early:
                    name = self.work.draft.array("early", self._shape, dtype=self.work.dtype)
                    self.early[number] = Variable(name)
                predicates = self.work.begun(around, origin)
                self._each("load", self._shape, partial(self._early_entry, number, origin), around, predicates)

    def _early_entry(self, number: int, origin: Mapping[str, Any], index: tuple[Any, ...]) -> tuple[Any, Any]:
        """The register of an element that is loaded early, and its value."""
        at, depth = self._at_of_a(*index, direct=True)
        value = self.work.operand(self.contraction.operands[number], self.event.row, at, origin)
        return self.early[number][index], _there([depth], value)

    def write(self) -> None:
        """Load fragments, multiply, store.

        After, for every tile and part of a sub-group::

            for m, n, i: d[m, n, i] = 0
            for step:
                for m, i: a[m, i] = A(row of m and i, 4 (step width + i / 2) + lane mod 4)
                for n, i: b[n, i] = local[((part blocks + n) * steps + step width + i) * 32 + lane]
                for m, n: d[m, n, ...] = mma(d[m, n, ...], a[m, ...], b[n, ...])
            for m, n, i: result[row of m and i, column of n and i] = d[m, n, i]
        """
        draft, width = self.work.draft, self.unit.k // DEPTH
        number, self.turns = self.work.turns(self.sharing.digits.total)
        self.at = self.sharing.digits.of(number)
        self.around = self.work.inside | set(self.turns)
        d = self._array("d", (self.tiles, self.blocks, 2, 2))
        ahead = self._loads_ahead()
        a = self._array("a", (*ahead, self.tiles, 2 * width))
        b = self._array("b", (self.blocks, width))
        self._each("clear", (self.tiles, self.blocks, 2, 2), lambda i: (d[i], 0), self.around)
        if ahead:
            self._each("load", (*ahead, self.tiles, 2 * width), lambda i: (a[i], self._a(*i)), self.around)
        step = self._steps(written_out=bool(ahead))
        inside = self.around | {step}
        if not ahead:
            self._each("load", (self.tiles, 2 * width), lambda i: (a[i], self._a(Variable(step), *i)), inside)
        self._each("load", (self.blocks, width), lambda i: (b[i], self._b(Variable(step), *i)), inside)
        loops = draft.unrolled(("tile", "block"), (self.tiles, self.blocks))
        m, n = map(Variable, loops)
        multiply = partial(
            multiply_accumulate,
            self.unit,
            tuple(d[(m, n, half, number)] for half in range(2) for number in range(2)),
            tuple(a[(*(Variable(step) for _ in ahead), m, i)] for i in range(2 * width)),
            tuple(b[(n, i)] for i in range(width)),
        )
        draft.priorities.append(",".join((*self.turns, step, *loops)))
        self.work.last |= {draft.add(multiply, "multiply", inside | set(loops), self.work.last)}
        self._store(d)

    def _store(self, d: Any) -> None:
        draft, sharing = self.work.draft, self.sharing
        lengths = (self.tiles, self.blocks, 2, 2)
        loops = draft.unrolled(("tile", "block", "lower", "number"), lengths)
        m, n, half, number = map(Variable, loops)
        row = self._row(m, half)
        column = COLUMNS * (self.at["part"] * self.blocks + n) + column_of(self.lane, number)
        at = {**self.at, **sharing.rows.of(row), **sharing.columns.of(column)}
        predicates = [
            Comparison(place, "<", total)
            for place, total, padded in (
                (row, sharing.rows.total, sharing.padded_rows),
                (column, sharing.columns.total, COLUMNS * sharing.blocks),
            )
            if total < padded
        ]
        value, inside = d[(m, n, half, number)], self.around | set(loops)
        if isinstance(self.event.target, LocalArray):
            entry = self.work.entry(self.event.target, at)
            self.work.last |= {self.work.assign(entry, value, inside, predicates=predicates)}
        else:
            self.work.put(self.event.row, at, value, inside, dict(zip(loops, lengths, strict=True)), predicates)

    def _loads_ahead(self) -> tuple[int, ...]:
        """The number of steps if A is loaded for all of them first: from global memory, where each load takes long."""
        few = math.prod(self._shape) <= MOVED_TOGETHER
        return (self.sharing.steps,) if None in self.event.sources and few else ()

    def _steps(self, *, written_out: bool) -> str:
        """The loop over instructions along the sum."""
        if written_out or self.sharing.steps <= _WRITTEN_OUT:
            (step,) = self.work.draft.unrolled(("step",), (self.sharing.steps,))
            return str(step)
        step = self.work.draft.fresh("step")
        self.work.draft.domain("", [step], f"0 <= {step} < {self.sharing.steps}")
        return str(step)

    def _row(self, tile: Any, half: Any) -> Any:
        return ROWS * (self.at["tile"] * self.tiles + tile) + row_of(self.lane, half)

    def _a(self, step: Any, tile: Any, register: Any) -> Any:
        """The value in a register of A: zero beyond the sum, anything beyond the rows, whose results are not stored."""
        index = (step, tile, register)
        at, depth = self._at_of_a(*index, direct=None in self.event.sources)
        factors = [self._factor(k, at, index) for k in range(len(self.contraction.operands)) if k != self.sharing.matrix]
        value = factors[0]
        for factor in factors[1:]:
            value = value * factor
        return _there([depth], value)

    def _at_of_a(self, step: Any, tile: Any, register: Any, *, direct: bool) -> tuple[dict[str, Any], tuple[Any, int, int]]:
        """The element in a register of A, and the bound on its place in the sum."""
        sharing = self.sharing
        row = self._row(tile, Remainder(register, 2))
        row = Min((row, sharing.rows.total - 1)) if direct and sharing.rows.total < sharing.padded_rows else row
        depth = self.unit.k * step + depth_of(self.lane, FloorDiv(register, 2))
        at = {**self.at, **sharing.rows.of(row), **sharing.sums.of(depth)}
        return at, (depth, sharing.sums.total, self.unit.k * sharing.steps)

    def _b(self, step: Any, block: Any, register: Any) -> Any:
        sharing, width = self.sharing, self.unit.k // DEPTH
        place = position((self.at[letter] for letter in sharing.batch.letters), sharing.batch.counts)
        place = place * sharing.blocks + self.at["part"] * self.blocks + block
        place = place * (sharing.steps * width) + step * width + register
        matrix = self.event.sources[sharing.matrix]
        if not isinstance(matrix, LocalArray):
            raise TransformError(f"the matrix of '{self.contraction.indexing}' has no copy")
        return self.work.place(matrix, place * SUB_GROUP + self.lane)

    def _factor(self, number: int, at: Mapping[str, Any], index: tuple[Any, ...]) -> Any:
        source = self.event.sources[number]
        if number in self.early:
            return self.early[number][index]
        if isinstance(source, LocalArray):
            return self.work.entry(source, at)
        return self.work.operand(self.contraction.operands[number], self.event.row, at)

    def _array(self, base: str, shape: tuple[int, ...]) -> Any:
        return Variable(self.work.draft.array(base, shape, dtype=fragment_dtype(self.unit)))

    def _each(
        self,
        base: str,
        shape: tuple[int, ...],
        assignment: Any,
        around: frozenset[str],
        predicates: Sequence[Any] = (),
    ) -> None:
        """Assign to every entry of an array in registers."""
        loops = self.work.draft.unrolled([base] * len(shape), shape)
        assignee, value = assignment(tuple(map(Variable, loops)))
        self.work.last |= {self.work.assign(assignee, value, around | set(loops), predicates=predicates)}


def _there(places: list[tuple[Any, int, int]], value: Any) -> Any:
    """`value` where every place is below its total, else zero; nothing is asked where none can be beyond."""
    conditions = tuple(Comparison(place, "<", total) for place, total, padded in places if total < padded)
    if not conditions:
        return value
    return If(conditions[0] if len(conditions) == 1 else LogicalAnd(conditions), value, 0.0)
