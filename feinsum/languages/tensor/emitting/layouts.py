"""Layouts: which rows of a cooperative matrix a work-item holds, and in which vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from feinsum.languages.tensor.emitting.context import Amount, Context, plus, product_expression
from feinsum.languages.tensor.emitting.numbers import c_type_of
from feinsum.languages.tensor.types import Coopmatrix

DIGITS: Final = "0123456789abcdef"


@dataclass(frozen=True)
class Matrix:
    """A coopmatrix as an array of `pieces` times `columns` vectors of `width` elements; `step` rows apart."""

    name: str
    type: Coopmatrix
    width: int
    pieces: int
    replicated: bool
    step: int

    @property
    def length(self) -> int:
        return self.pieces * self.type.columns

    @property
    def c(self) -> str:
        """The C type of a vector."""
        return c_type_of(self.type.component) + (str(self.width) if self.width > 1 else "")

    @property
    def overlaps(self) -> bool:
        """Whether the last piece begins inside the one before it, so that it is a whole vector in memory too."""
        rows, width = self.type.rows, self.width
        return self.step == 1 and not self.replicated and 1 < width < rows and rows % width != 0

    def first(self, piece: Amount) -> Amount:
        """The first row of a piece, which is one vector of rows."""
        if not self.overlaps:
            return product_expression(piece, self.width)
        last = self.type.rows - self.width
        return (
            min(piece * self.width, last)
            if isinstance(piece, int)
            else f"min({product_expression(piece, self.width)}, {last})"
        )

    def row(self, piece: Amount, lane: int) -> Amount:
        """The row of an element of a piece."""
        if self.replicated or self.step == 1:
            return plus(self.first(piece), lane)
        return plus("lane", product_expression(piece, self.step))

    def component(self, row: int, column: int) -> str:
        """An element of a matrix whose pieces are vectors of rows."""
        piece = row // self.width
        vector = f"{self.name}[{column * self.pieces + piece}]"
        first = self.first(piece)
        assert isinstance(first, int)
        return component_of(vector, self.width, row - first)

    @property
    def may_lack_rows(self) -> bool:
        """Whether some elements of the pieces are of no row."""
        if self.overlaps:
            return False
        return self.pieces * (self.width if self.step == 1 or self.replicated else self.step) != self.type.rows


def layout(context: Context, type_: Coopmatrix, name: str) -> Matrix:
    """The layout of a coopmatrix in registers."""
    target = context.target
    if type_.use == "matrix_b":
        return Matrix(name, type_, 1, type_.rows, True, 1)
    width = target.vector_width(type_.rows, type_.component)
    held = width if target.is_alone else target.subgroup_size
    return Matrix(name, type_, width, -(-type_.rows // held), target.is_alone, 1 if target.is_alone else held)


def component_of(vector: str, width: int, lane: int) -> str:
    return f"{vector}.s{DIGITS[lane]}" if width > 1 else vector
