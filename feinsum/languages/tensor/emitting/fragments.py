"""Fragments: cooperative matrices as the matrix units of NVIDIA devices have them, and their products.

With g = lane / 4 and t = lane mod 4, a work-item holds of each tile of 16 rows, 8 columns and 4 between them

    matrix_a[g + 8 r, t]     matrix_b[t, g]     matrix_acc[g + 8 (q div 2), 2 t + q mod 2]

for r in 0, 1 and q in 0 to 3, as :mod:`feinsum.devices.ptx` says.  Elements beyond the end of a matrix are 0 in factors,
and in sums nobody looks at them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from feinsum.devices.ptx import MatrixUnit, product_name
from feinsum.languages.tensor.emitting.context import Amount, Context, plus
from feinsum.languages.tensor.emitting.layouts import Matrix
from feinsum.languages.tensor.lowering.units import COLUMNS, DEPTH, ROWS, padded, units_for
from feinsum.languages.tensor.types import Coopmatrix

GROUP, ITEM = "unit_row", "unit_item"
"""The variables lane / 4 and lane mod 4."""


@dataclass(frozen=True)
class Place:
    """A row or column of a fragment's element: a number, more by what a work-item has, which is at most `reach`."""

    number: int
    item: str
    reach: int

    @property
    def text(self) -> Amount:
        return plus(self.item, self.number)

    def test(self, size: int) -> str:
        """Whether it is below a size: empty if it always is, "0" if it never is."""
        if self.number + self.reach < size:
            return ""
        return f"{self.text} < {size}" if self.number < size else "0"


@dataclass(frozen=True)
class Fragments(Matrix):
    """A coopmatrix in fragments, of which those of a column of tiles follow each other; `depth` divides what is summed."""

    depth: int = DEPTH

    @property
    def length(self) -> int:
        tiles, registers = self.tiles, len(self._registers())
        return tiles[0] * tiles[1] * registers

    @property
    def tiles(self) -> tuple[int, int]:
        """Tiles along rows and along columns."""
        rows, columns = self.type.shape
        if self.type.use == "matrix_a":
            return -(-rows // ROWS), padded(columns, self.depth) // DEPTH
        if self.type.use == "matrix_b":
            return padded(rows, self.depth) // DEPTH, -(-columns // COLUMNS)
        return -(-rows // ROWS), -(-columns // COLUMNS)

    @property
    def may_lack_rows(self) -> bool:
        """Elements beyond the end are told by their :class:`Place`."""
        return False

    def _registers(self) -> tuple[tuple[Place, Place], ...]:
        """Row and column of each register of a tile."""
        if self.type.use == "matrix_a":
            return tuple((Place(8 * r, GROUP, 7), Place(0, ITEM, 3)) for r in range(2))
        if self.type.use == "matrix_b":
            return ((Place(0, ITEM, 3), Place(0, GROUP, 7)),)
        return tuple((Place(8 * (q // 2), GROUP, 7), Place(q % 2, f"2 * {ITEM}", 6)) for q in range(4))

    def number(self, i: int, j: int, register: int) -> int:
        """The element of the array in a register of tile i, j."""
        return (j * self.tiles[0] + i) * len(self._registers()) + register

    def elements(self) -> list[tuple[str, Place, Place]]:
        """Each element of the array with its row and column, in order."""
        size = (DEPTH if self.type.use == "matrix_b" else ROWS), (DEPTH if self.type.use == "matrix_a" else COLUMNS)
        found = []
        for j in range(self.tiles[1]):
            for i in range(self.tiles[0]):
                for register, (row, column) in enumerate(self._registers()):
                    places = (
                        Place(row.number + i * size[0], row.item, row.reach),
                        Place(column.number + j * size[1], column.item, column.reach),
                    )
                    found.append((f"{self.name}[{self.number(i, j, register)}]", *places))
        return found


def fragments(type_: Coopmatrix, name: str, depth: int) -> Fragments:
    """The fragments in which units hold a coopmatrix."""
    return Fragments(name, type_, 1, 0, False, 0, depth)


def multiply(context: Context, a: Fragments, b: Fragments, total: Fragments) -> None:
    """``total += a b``, by the deepest units that fit what is left."""
    units = units_for(context.target, a.type.component, b.type.component, total.type.component, None) or units_for(
        context.target, a.type.component, b.type.component, total.type.component, _ENOUGH
    )
    k = 0
    while k < a.tiles[1]:
        unit = next(unit for unit in units if unit.k // DEPTH <= a.tiles[1] - k)
        context.units[unit.name] = None
        _step(context.put, unit, (a, b, total), k)
        k += unit.k // DEPTH


_ENOUGH = 1 << 20
"""Terms of a sum that no unit is too coarse for: who holds fragments has been found to be long enough."""


def _step(put: Callable[[str], None], unit: MatrixUnit, matrices: tuple[Fragments, Fragments, Fragments], k: int) -> None:
    """One product of a unit for each tile of the total."""
    a, b, total = matrices
    deep = range(k, k + unit.k // DEPTH)
    for j in range(total.tiles[1]):
        for i in range(total.tiles[0]):
            left = [f"{a.name}[{a.number(i, s, r)}]" for s in deep for r in range(2)]
            right = [f"{b.name}[{b.number(s, j, 0)}]" for s in deep]
            sums = [f"{total.name}[{total.number(i, j, q)}]" for q in range(4)]
            others = [f"&{sum_}" for sum_ in sums[1:]]
            put(f"{sums[0]} = {product_name(unit)}({', '.join([*sums, *left, *right, *others])})")
