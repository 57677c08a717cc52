"""Fragments: cooperative matrices as matrix units have them, and their products.

A matrix is divided into tiles of the units' m, n and least depth.  :mod:`feinsum.devices.vendors.units` says which elements
of a tile are in a work-item's registers.  Elements beyond the end of a matrix are 0 in factors, and of no use in sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from feinsum.devices.vendors.units import FragmentLayout, MatrixUnit, UnitTile
from feinsum.languages.tensor.emitting.context import Amount, Context, plus
from feinsum.languages.tensor.emitting.layouts import Matrix
from feinsum.languages.tensor.lowering.coopmatrix_units import HeldMatrix, padded, units_for
from feinsum.languages.tensor.types import Coopmatrix

_DIGITS = {(1, 4): "unit_item", (4, 8): "unit_row"}
"""Names of the digits of a lane's number, by their divisor and length, that most units have."""


def _digit(divisor: int, count: int) -> str:
    """The variable that has a digit of a lane's number."""
    return _DIGITS.get((divisor, count), f"unit_{divisor}_{count}")


def lane_digits(units: Iterable[MatrixUnit]) -> str:
    """The declarations of the digits of a lane's number that the fragments of units need, the slowest first."""
    found = {
        (divisor, count): unit.lanes
        for unit in units
        for layout in (unit.a, unit.b, unit.d)
        for axis in (0, 1)
        for divisor, count, _ in layout.steps(axis)
    }
    quotients = {at: "lane" if at[0] == 1 else f"lane / {at[0]}" for at in found}
    values = {at: text if at[0] * at[1] == found[at] else f"{text} % {at[1]}" for at, text in quotients.items()}
    return ", ".join(f"{_digit(*at)} = {values[at]}" for at in sorted(found, reverse=True))


@dataclass(frozen=True)
class FragmentCoordinate:
    """A row or column of a fragment's element: a number, more by what a work-item has, which is at most `reach`."""

    number: int
    item: Amount
    reach: int

    @property
    def text(self) -> Amount:
        return plus(self.item, self.number)

    def test(self, size: int) -> str:
        """Whether it is below a size: empty if it always is, "0" if it never is."""
        if self.number + self.reach < size:
            return ""
        return f"{self.text} < {size}" if self.number < size else "0"


@dataclass(frozen=True, kw_only=True)
class Fragments(Matrix):
    """A coopmatrix in fragments of tiles, column of tiles after column; `depth` divides what is summed."""

    tile: UnitTile
    depth: int

    @property
    def length(self) -> int:
        tiles, registers = self.tiles, len(self._registers())
        return tiles[0] * tiles[1] * registers

    @property
    def tiles(self) -> tuple[int, int]:
        """Tiles along rows and along columns."""
        rows, columns = self.type.shape
        if self.type.use == "matrix_a":
            columns = padded(columns, self.depth)
        elif self.type.use == "matrix_b":
            rows = padded(rows, self.depth)
        down, across = self._size
        return -(-rows // down), -(-columns // across)

    @property
    def _size(self) -> tuple[int, int]:
        """Rows and columns of a tile."""
        tile = self.tile
        return {"matrix_a": (tile.m, tile.depth), "matrix_b": (tile.depth, tile.n)}.get(self.type.use, (tile.m, tile.n))

    @property
    def may_lack_rows(self) -> bool:
        """Elements beyond the end are told by their :class:`FragmentCoordinate`."""
        return False

    def _registers(self) -> tuple[tuple[FragmentCoordinate, FragmentCoordinate], ...]:
        """Row and column of each register of a tile."""
        layout = {"matrix_a": self.tile.a, "matrix_b": self.tile.b}.get(self.type.use, self.tile.d)
        places = (layout.offset(register) for register in range(layout.length))
        return tuple((_place(layout, 0, row), _place(layout, 1, column)) for row, column in places)

    def number(self, i: int, j: int, register: int) -> int:
        """The element of the array in a register of tile i, j."""
        return (j * self.tiles[0] + i) * len(self._registers()) + register

    def elements(self) -> list[tuple[str, FragmentCoordinate, FragmentCoordinate]]:
        """Each element of the array with its row and column, in order."""
        found, size = [], self._size
        for j in range(self.tiles[1]):
            for i in range(self.tiles[0]):
                for register, (row, column) in enumerate(self._registers()):
                    places = (
                        FragmentCoordinate(row.number + i * size[0], row.item, row.reach),
                        FragmentCoordinate(column.number + j * size[1], column.item, column.reach),
                    )
                    found.append((f"{self.name}[{self.number(i, j, register)}]", *places))
        return found


def _place(layout: FragmentLayout, axis: int, number: int) -> FragmentCoordinate:
    """The place of a register along an axis: what the lane's number adds, and its own number."""
    steps = list(layout.steps(axis))
    terms = [f"{step} * {_digit(divisor, count)}" if step > 1 else _digit(divisor, count) for divisor, count, step in steps]
    return FragmentCoordinate(number, " + ".join(terms) or 0, sum((count - 1) * step for _, count, step in steps))


def fragments(type_: Coopmatrix, name: str, held: HeldMatrix) -> Fragments:
    """The fragments in which units hold a coopmatrix."""
    return Fragments(name, type_, 1, 0, False, 0, tile=held.tile, depth=held.depth)


def multiply_fragments(context: Context, a: Fragments, b: Fragments, total: Fragments) -> None:
    """``total += a b``, by the deepest units that fit what is left."""
    units = units_for(context.target, a.type.component, b.type.component, total.type.component, None) or units_for(
        context.target, a.type.component, b.type.component, total.type.component, _ENOUGH
    )
    k = 0
    while k < a.tiles[1]:
        unit = next(unit for unit in units if unit.k // a.tile.depth <= a.tiles[1] - k)
        context.units[unit.name] = None
        _product_step(context.put, unit, (a, b, total), k)
        k += unit.k // a.tile.depth


_ENOUGH = 1 << 20
"""Terms of a sum that no unit is too coarse for: who holds fragments has been found to be long enough."""


def _product_step(
    put: Callable[[str], None], unit: MatrixUnit, matrices: tuple[Fragments, Fragments, Fragments], k: int
) -> None:
    """One product of a unit for each tile of the total."""
    (a, b, total), tile = matrices, unit.tile
    deep = range(k, k + unit.k // tile.depth)
    for j in range(total.tiles[1]):
        for i in range(total.tiles[0]):
            left = [f"{a.name}[{a.number(i, s, r)}]" for s in deep for r in range(tile.a.length)]
            right = [f"{b.name}[{b.number(s, j, r)}]" for s in deep for r in range(tile.b.length)]
            sums = [f"{total.name}[{total.number(i, j, q)}]" for q in range(tile.d.length)]
            others = [f"&{sum_}" for sum_ in sums[1:]]
            put(f"{sums[0]} = {unit.called()}({', '.join([*sums, *left, *right, *others])})")
