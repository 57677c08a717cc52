"""*Fragments*: the entries of ``D = A B + D`` that the lanes of a sub-group hold, for matrix units and multiply-adds alike.

A matrix unit wants its fragments as :mod:`feinsum.skeletons.instructions.matrix_units` says.  Where multiply-adds do the
work, a fragment is 32 rows by one column: a lane holds one row of A and of D, and all lanes hold the same element of B.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pymbolic.primitives import FloorDiv, Remainder

from feinsum.devices.vendors.units import MatrixUnit
from feinsum.skeletons.instructions.matrix_units import SUB_GROUP, depth_of, fragment_dtype, fragment_unit, row_of

MULTIPLY_ADD = "multiply-add"


@dataclass(frozen=True)
class LaneFragments:
    """The fragments of a product of (`rows`, `depth`) by (`depth`, `columns`).

    :ivar unit: the matrix unit that multiplies them, or None for multiply-adds.
    :ivar registers: of a lane, for A, B and D.
    """

    unit: MatrixUnit | None
    rows: int
    columns: int
    depth: int
    registers: tuple[int, int, int]

    @property
    def itemsize(self) -> int:
        """Bytes of a number as the unit takes it; multiply-adds take any."""
        return fragment_dtype(self.unit).itemsize if self.unit else 0

    def of_a(self, lane: Any, register: int) -> tuple[Any, Any]:
        """Row and depth of a register of A."""
        return (row_of(lane, register % 2), depth_of(lane, register // 2)) if self.unit else (lane, 0)

    def of_b(self, lane: Any, register: int) -> tuple[Any, Any]:
        """Column and depth of a register of B."""
        return (_dealt_column(FloorDiv(lane, 4)), depth_of(lane, register)) if self.unit else (0, 0)

    def of_d(self, lane: Any, register: Any) -> tuple[Any, Any]:
        """Row and column of a register of D."""
        if self.unit is None:
            return lane, 0
        half, number = FloorDiv(register, 2), Remainder(register, 2)
        return row_of(lane, half), Remainder(Remainder(lane, 4) + 2 * number, 4) + 4 * number

    def stride(self, length: int, itemsize: int, *, along_sums: bool) -> int:
        """The distance of rows of a tile in local memory at which lanes read a fragment without bank conflicts.

        There are 32 banks of 4 bytes; lanes g, t = lane / 4, lane mod 4 read element (g, t), 16 lanes at a time of float64
        and all 32 of float32.  Where 4 rows t of 8 neighbours each are read, they have to begin 4 doubles or 8 floats
        apart, and where 8 rows g of 4 neighbours are, 4 of either.
        """
        modulus, wanted = (16, 8) if self.unit and itemsize == 4 and not along_sums else (8, 4)
        return length + (wanted - length) % modulus


def _dealt_column(g: Any) -> Any:
    """The column of the matrix that is column g of the unit.

    The unit leaves its columns 2 t and 2 t + 1 in lane t.  These are t and (t + 2) mod 4 + 4 of the matrix, so that four
    lanes write four neighbours at once, and 16 lanes that read float64 from rows 4 apart meet in no bank.
    """
    return Remainder(FloorDiv(g, 2) + 2 * Remainder(g, 2), 4) + 4 * Remainder(g, 2)


@lru_cache(maxsize=32)
def unit_fragments(unit: str) -> LaneFragments:
    """The fragments of a matrix unit, or of multiply-adds for :data:`MULTIPLY_ADD`.

    :raises TransformError: if there is no such unit, or its fragments do not have 16 rows.
    """
    if unit == MULTIPLY_ADD:
        return LaneFragments(None, SUB_GROUP, 1, 1, (1, 1, 1))
    found = fragment_unit(unit)
    return LaneFragments(found, found.m, found.n, found.k, found.registers)
