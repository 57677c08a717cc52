"""Values of tiles that reach registers through local memory: copied in wide pieces while another tile is multiplied."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import loopy as lp
from loopy.symbolic import get_dependencies
from pymbolic.primitives import Call, Comparison, FloorDiv, If, Max, Remainder, Subscript, Variable

from feinsum.errors import TransformError
from feinsum.rewrites.loops import fixed_length
from feinsum.rewrites.reads import with_calls, with_rules
from feinsum.skeletons.common.digits import position
from feinsum.skeletons.common.draft import all_of
from feinsum.skeletons.common.matrix_product import MatrixProduct, substituted
from feinsum.skeletons.instructions.async_copies import WIDEST_BYTES, commit_copies, copy_in_rows, wait_for_copies
from feinsum.skeletons.instructions.matrix_units import DEPTH, ROWS, SUB_GROUP, depth_of
from feinsum.skeletons.warp_tiles.tile_loops import TileLoops
from feinsum.skeletons.warp_tiles.wide_stores import RowPlaces, rows_in_memory


@dataclass(frozen=True)
class CopiedOperand:
    """An operand that is copied: its elements in A, which differ in numbers and in indices summed over.

    :ivar rule: that stands for it.
    :ivar elements: the arguments of the rule without numbers, and where the rows of that element are.
    :ivar loops: those of the indices summed over, but the last, that tell elements apart.
    """

    rule: str
    elements: tuple[tuple[tuple[Any, ...], RowPlaces], ...]
    loops: tuple[str, ...]


class CopiedRows:
    """The rows of a tile in local memory, 16 for each warp, and how they come there and leave.

    Before: ``a[step, h] = F(u(16 tile + 8 h + g, 4 step + t))``; after, for a slice of K of the numbers of a row, with p
    counting pieces of 16 bytes of the 16 rows::

        for p: copy asynchronously coming[s, p..] = u(16 tile + p / K, K slice + p mod K..)
        ...
        wait
        for step, h: a[step, h] = F(coming[s, K (8 h + g) + 4 step + t])
        begin to copy the next slice, or that of the next tile

    The operand u may have further indices, summed over within A or outside; each value of them is a *plane* of rows.

    ``cache_read`` into a buffer that is filled asynchronously, in TVM.

    :raises TransformError: if A has no operand with the last index summed over, or its rows do not lie where wide pieces
        can be copied, or there are more planes than planned.
    """

    def __init__(self, loops: TileLoops, products: Sequence[MatrixProduct]) -> None:
        self.loops, self.plan, self.depth = loops, loops.plan, loops.plan.copied_depth
        self._operands = {p: self._operand(p) for p in products}
        first = self._operands[products[0]]
        self._lengths = [fixed_length(loops.matched.kernel, loop) for loop in first.loops]
        planes = len(first.elements) * math.prod(self._lengths)
        if planes != self.plan.product.planes:
            raise TransformError(f"'{products[0].a}' has {planes} planes of rows, and not {self.plan.product.planes}")
        dtype = self.plan.product.dtype
        shape = (self.plan.warps, self.plan.copied_numbers)
        self._coming = loops.draft.array("coming", shape, lp.AddressSpace.LOCAL, dtype, WIDEST_BYTES)
        self._left = loops.draft.array("left", (), dtype=loops.matched.index_dtype)

    def _operand(self, p: MatrixProduct) -> CopiedOperand:
        """The operand of A that has the last index summed over."""
        calls = [call for call in _calls_in(p.a) if p.sums[-1] in get_dependencies(call)]
        rules = {call.function.name for call in calls}
        if len(rules) != 1:
            raise TransformError(f"'{p.a}' has no operand, or several, with the last index summed over")
        loops = tuple(name for name in p.sums[:-1] if any(name in get_dependencies(call) for call in calls))
        elements = tuple((call.parameters, self._rows(p, call, loops)) for call in calls)
        return CopiedOperand(rules.pop(), elements, loops)

    def _rows(self, p: MatrixProduct, value: Any, loops: tuple[str, ...]) -> RowPlaces:
        kernel, columns, wide = self.loops.matched.kernel, self.plan.product.sums[-1], self._wide
        element = with_rules(kernel, value)
        if not isinstance(element, Subscript):
            raise TransformError(f"'{value}' is no element of an array, and only such are copied")
        rows = rows_in_memory(kernel, element, p.names[self.loops.matched.m], p.sums[-1], columns, loops)
        if not rows.are_aligned(wide) or (self.plan.k_slices > 1 and columns % wide):
            raise TransformError(f"the rows of '{value}' do not begin where {wide} numbers can be copied at once")
        return rows

    @property
    def _wide(self) -> int:
        """Numbers of a piece."""
        return WIDEST_BYTES // self.plan.product.dtype.itemsize

    def begin(
        self, p: MatrixProduct, tile: Any, slice_: Any, around: frozenset[str], after: Sequence[str], *only: Any
    ) -> str:
        """Begin to copy a slice of the rows of a tile, zeros in place of rows beyond the last; the id of what ends it.

        :param only: conditions, the same for all lanes, on which to copy.
        """
        draft = self.loops.draft
        rows_left = draft.assign(Variable(self._left), self.loops.matched.rows - ROWS * tile, around, after)
        # Hidden, or else the conditions of all pieces would be kept.
        ready = draft.hide(self.plan.vendor, self._left, around, (rows_left,))
        elements = range(len(self._operands[p].elements))
        copied = [self._copy(p, element, tile, slice_, around, ready, only) for element in elements]
        return draft.add(partial(commit_copies, self.plan.copies), "commit", around, copied)

    def _copy(
        self,
        p: MatrixProduct,
        element: int,
        tile: Any,
        slice_: Any,
        around: frozenset[str],
        ready: str,
        only: tuple[Any, ...],
    ) -> str:
        """Copy the planes of an element; the id of the instruction."""
        draft, operand, numbers = self.loops.draft, self._operands[p], ROWS * self.depth
        _, rows = operand.elements[element]
        loops = draft.unrolled(operand.loops, self._lengths)
        (piece,) = draft.unrolled(("piece",), (-(-numbers // (SUB_GROUP * self._wide)),))
        number = self._wide * (Variable(piece) * SUB_GROUP + self.loops.lane)
        begin, there = self._place(number, tile, slice_)
        plane = position(map(Variable, loops), self._lengths, element)
        first = substituted(rows.begin, dict(zip(operand.loops, map(Variable, loops), strict=True)))
        copy = partial(
            copy_in_rows,
            self.plan.copies,
            f"{self._coming} + to",
            f"{rows.array} + begin",
            "size",
            (
                ("to", self.loops.warp * self.plan.copied_numbers + plane * numbers + number),
                ("begin", first + begin),
                ("size", there * self.plan.product.dtype.itemsize),
            ),
            assignees=(Variable(self._coming)[self.loops.warp, plane * numbers + number],),
            read_variables=frozenset([rows.array, self._left]),
            predicates=frozenset([*only, Comparison(number, "<", numbers)]),
        )
        return draft.add(copy, f"copy_{rows.array}", around | {piece, *loops}, (ready,), alone=True)

    def _place(self, number: Any, tile: Any, slice_: Any) -> tuple[Any, Any]:
        """Where in a plane a piece is that begins with a number of the slice, and how many numbers of it there are."""
        wide, left, columns = self._wide, Variable(self._left), self.plan.product.sums[-1]
        if self.plan.k_slices == 1:
            there = left * columns - number
            return ROWS * columns * tile + number, If(Comparison(there, "<", wide), Max((there, 0)), wide)
        row, column = FloorDiv(number, self.depth), slice_ * self.depth + Remainder(number, self.depth)
        conditions = [Comparison(row, "<", left)]
        if self.depth * self.plan.k_slices > columns:
            conditions.append(Comparison(column, "<", columns))
        return columns * (ROWS * tile + row) + column, If(all_of(conditions), wide, 0)

    def wait(self, around: frozenset[str], after: Sequence[str]) -> str:
        """Wait for what was copied, until all lanes see it; the id of the instruction."""
        waited = self.loops.draft.add(partial(wait_for_copies, self.plan.copies, 0), "wait", around, after)
        return self.loops.synchronize((waited,), around)

    def read(self, p: MatrixProduct, step: Any, half: Any) -> Any:
        """A in terms of what was copied, for a lane's row and a step of a slice, in formal names otherwise."""
        lanes = self.loops.lanes
        within = step if len(self.plan.product.sums) == 1 else Remainder(step, -(-self.depth // DEPTH))
        place = self.depth * lanes.row(half) + depth_of(lanes.lane, within)
        return with_calls(p.a, lambda call: self._element(self._operands[p], call, place))

    def _element(self, operand: CopiedOperand, call: Call, place: Any) -> Any:
        """The place in local memory of what a call of the rule stands for; of another, the call."""
        if call.function.name != operand.rule:
            return call
        known = [parameters for parameters, _ in operand.elements]
        at = [Variable(loop) for loop in operand.loops]
        plane = position(at, self._lengths, known.index(call.parameters))
        return Variable(self._coming)[self.loops.warp, ROWS * self.depth * plane + place]


def _calls_in(expression: Any) -> list[Call]:
    """The calls in an expression, each once."""
    found: dict[Call, None] = {}

    def gather(call: Call) -> Call:
        found[call] = None
        return call

    with_calls(expression, gather)
    return list(found)
