"""Values of tiles that reach registers through local memory: copied in wide pieces while another tile is multiplied."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import loopy as lp
from loopy.symbolic import IdentityMapper, get_dependencies
from pymbolic.primitives import Call, Comparison, FloorDiv, If, Max, Remainder, Subscript, Variable

from feinsum.devices.ptx import SUB_GROUP
from feinsum.errors import TransformError
from feinsum.rewrites.loops import fixed_length
from feinsum.rewrites.reads import with_calls, with_rules
from feinsum.skeletons.common.digits import position
from feinsum.skeletons.common.draft import all_of
from feinsum.skeletons.common.products import MatrixProduct, substituted
from feinsum.skeletons.nvidia.async_copies import WIDEST_BYTES, commit_copies, copy_in_rows, wait_for_copies
from feinsum.skeletons.nvidia.matrix_units import DEPTH, ROWS, depth_of, row_of
from feinsum.skeletons.warp_tiles.held import HeldCopies
from feinsum.skeletons.warp_tiles.loops import TileLoops
from feinsum.skeletons.warp_tiles.tiling import copied_depth, copied_numbers
from feinsum.skeletons.warp_tiles.wide_stores import Rows, rows_in_memory


@dataclass(frozen=True)
class _Source:
    """An operand that is copied: its elements in A, which differ in numbers and in indices summed over.

    :ivar rule: that stands for it.
    :ivar elements: the arguments of the rule without numbers, and where the rows of that element are.
    :ivar loops: those of the indices summed over, but the last, that tell elements apart.
    """

    rule: str
    elements: tuple[tuple[tuple[Any, ...], Rows], ...]
    loops: tuple[str, ...]


class TileCopies:
    """The rows of a tile in local memory, 16 for each sub-group, and how they come there and leave.

    Before: ``a[step, h] = F(u(16 tile + 8 h + g, 4 step + t))``; after, for a slice of K of the numbers of a row, with p
    counting pieces of 16 bytes of the 16 rows::

        for p: copy asynchronously coming[s, p..] = u(16 tile + p / K, K slice + p mod K..)
        ...
        wait
        for step, h: a[step, h] = F(coming[s, K (8 h + g) + 4 step + t])
        begin to copy the next slice, or that of the next tile

    The operand u may have further indices, summed over within A or outside; each value of them is a *plane* of rows.

    ``cache_read`` into a buffer that is filled asynchronously, in TVM.

    :param held: factors of A that are copied, too.
    """

    def __init__(self, tiles: TileLoops, products: Sequence[MatrixProduct], held: HeldCopies | None = None) -> None:
        self.held = held
        self.tiles, self.depth = tiles, copied_depth(tiles.tiling, tiles.sums)
        self.sources = {p: self._source(p) for p in products}
        first = self.sources[products[0]]
        self.lengths = [fixed_length(tiles.kernel, loop) for loop in first.loops]
        self.planes = len(first.elements) * math.prod(self.lengths)
        shape = (tiles.tiling.sub_groups, copied_numbers(self.depth, self.planes))
        self._coming = tiles.draft.array("coming", shape, lp.AddressSpace.LOCAL, tiles.dtype, WIDEST_BYTES)
        self._left = tiles.draft.array("left", (), dtype=tiles.kernel.index_dtype.numpy_dtype)

    def _source(self, p: MatrixProduct) -> _Source:
        """The operand of A that has the last index summed over.

        :raises TransformError: if there is not just one, or its rows do not lie where wide pieces can be copied.
        """
        found = _Calls()
        found(p.a)
        calls = [call for call in found.calls if p.sums[-1] in get_dependencies(call)]
        rules = {call.function.name for call in calls}
        if len(rules) != 1:
            raise TransformError(f"'{p.a}' has no operand, or several, with the last index summed over")
        loops = tuple(name for name in p.sums[:-1] if any(name in get_dependencies(call) for call in calls))
        elements = tuple((call.parameters, self._rows(p, call, loops)) for call in calls)
        return _Source(rules.pop(), elements, loops)

    def _rows(self, p: MatrixProduct, value: Any, loops: tuple[str, ...]) -> Rows:
        tiles, kernel = self.tiles, self.tiles.kernel
        element = with_rules(kernel, value)
        if not isinstance(element, Subscript):
            raise TransformError(f"'{value}' is no element of an array, and only such are copied")
        rows, wide = rows_in_memory(kernel, element, p.names[tiles.m], p.sums[-1], tiles.sums[-1], loops), self._wide
        if not rows.are_aligned(wide) or (tiles.tiling.slices > 1 and tiles.sums[-1] % wide):
            raise TransformError(f"the rows of '{value}' do not begin where {wide} numbers can be copied at once")
        return rows

    @property
    def _wide(self) -> int:
        return WIDEST_BYTES // self.tiles.dtype.itemsize

    def begin(
        self, p: MatrixProduct, tile: Any, slice_: Any, around: frozenset[str], after: Sequence[str], *only: Any
    ) -> str:
        """Begin to copy a slice of the rows of a tile, zeros in place of rows beyond the last; the id of what ends it.

        :param only: conditions, the same for all lanes, on which to copy.
        """
        tiles, draft, source = self.tiles, self.tiles.draft, self.sources[p]
        rows_left = draft.assign(Variable(self._left), tiles.rows_m - ROWS * tile, around, after)
        # Hidden, or else the conditions of all pieces would be kept.
        ready = draft.hide(self._left, around, (rows_left,))
        numbers = ROWS * self.depth
        copied = []
        for count, (_, rows) in enumerate(source.elements):
            loops = draft.unrolled(source.loops, self.lengths)
            (piece,) = draft.unrolled(("piece",), (-(-numbers // (SUB_GROUP * self._wide)),))
            number = self._wide * (Variable(piece) * SUB_GROUP + tiles.lane)
            begin, there = self._place(number, tile, slice_)
            plane = position(map(Variable, loops), self.lengths, count)
            first = substituted(rows.begin, dict(zip(source.loops, map(Variable, loops), strict=True)))
            copy = partial(
                copy_in_rows,
                f"{self._coming} + to",
                f"{rows.array} + begin",
                "size",
                (
                    ("to", tiles.sub_group * copied_numbers(self.depth, self.planes) + plane * numbers + number),
                    ("begin", first + begin),
                    ("size", there * tiles.dtype.itemsize),
                ),
                assignees=(Variable(self._coming)[tiles.sub_group, plane * numbers + number],),
                read_variables=frozenset([rows.array, self._left]),
                predicates=frozenset([*only, Comparison(number, "<", numbers)]),
            )
            copied.append(draft.add(copy, f"copy_{rows.array}", around | {piece, *loops}, (ready,), alone=True))
        return draft.add(commit_copies, "commit", around, copied)

    def _place(self, number: Any, tile: Any, slice_: Any) -> tuple[Any, Any]:
        """Where in a plane a piece is that begins with a number of the slice, and how many numbers of it there are."""
        wide, left, columns = self._wide, Variable(self._left), self.tiles.sums[-1]
        if self.tiles.tiling.slices == 1:
            there = left * columns - number
            return ROWS * columns * tile + number, If(Comparison(there, "<", wide), Max((there, 0)), wide)
        row, column = FloorDiv(number, self.depth), slice_ * self.depth + Remainder(number, self.depth)
        conditions = [Comparison(row, "<", left)]
        if self.depth * self.tiles.tiling.slices > columns:
            conditions.append(Comparison(column, "<", columns))
        return columns * (ROWS * tile + row) + column, If(all_of(conditions), wide, 0)

    def wait(self, around: frozenset[str], after: Sequence[str]) -> str:
        """Wait for what was copied, until all lanes see it; the id of the instruction."""
        waited = self.tiles.draft.add(partial(wait_for_copies, 0), "wait", around, after)
        return self.tiles.synchronize((waited,), around)

    def values(self, p: MatrixProduct, step: Any, half: Any) -> Any:
        """A in terms of what was copied, for a lane's row and a step of a slice, in formal names otherwise."""
        tiles = self.tiles
        within = step if len(tiles.sums) == 1 else Remainder(step, -(-self.depth // DEPTH))
        place = self.depth * row_of(tiles.lane, half) + depth_of(tiles.lane, within)
        a = with_calls(p.a, lambda call: self._element(self.sources[p], call, place))
        return a if self.held is None else self.held.values(a, half)

    def _element(self, source: _Source, call: Call, place: Any) -> Any:
        """The place in local memory of what a call of the rule stands for; of another, the call."""
        if call.function.name != source.rule:
            return call
        known = [parameters for parameters, _ in source.elements]
        at = [Variable(loop) for loop in source.loops]
        plane = position(at, self.lengths, known.index(call.parameters))
        return Variable(self._coming)[self.tiles.sub_group, ROWS * self.depth * plane + place]


class _Calls(IdentityMapper):  # type: ignore[misc]
    """Gathers the calls in an expression, each once."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def map_call(self, expr: Call) -> Call:
        if expr not in self.calls:
            self.calls.append(expr)
        return expr
