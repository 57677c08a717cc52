"""A reduction by one work-item in vectors: each lane has a partial result of its own until the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from feinsum.languages.declarative.emitting.operators import FIRST, VECTOR_OPERATORS, combined, is_vectorial
from feinsum.languages.declarative.emitting.types import c_type
from feinsum.languages.declarative.emitting.writer import StatementWriter
from feinsum.languages.declarative.lowering.terms import Reduce, Term, TermVariable

CHAINS: Final = 4
"""Vectors of partial results where nothing else is computed: one alone would wait for itself."""


def is_partial(body: Reduce, last: TermVariable, width: int) -> bool:
    """Whether a reduction along an index can be made in vectors of so many numbers; there are none of no numbers."""
    fits = bool(width) and last.extent >= width and body.operator in VECTOR_OPERATORS
    return fits and is_vectorial(body.body, last, body.dtype)


class Partial:
    """The partial results of a reduction, whose variables are declared where one is made.

    NaN is the least and the greatest of all numbers: lanes keep the best of the others, and note whether there was any.
    """

    def __init__(self, writer: StatementWriter, body: Reduce, width: int, chains: int = CHAINS) -> None:
        self._writer, self._operator, self._dtype, self._width = writer, body.operator, body.dtype, width
        first = FIRST[body.operator](body.dtype)
        self._number = writer.declare(c_type(body.dtype), first, "acc")
        self._parts = [writer.fresh("acc") for _ in range(chains)]
        writer.line(f"{self._vector} {', '.join(f'{part} = {first}' for part in self._parts)};")
        self._none = ""
        if body.operator in ("min", "max"):
            self._none = writer.declare(f"{'int' if body.dtype == 'f32' else 'long'}{width}", "0", "none")

    @property
    def _vector(self) -> str:
        return f"{c_type(self._dtype)}{self._width}"

    @property
    def chains(self) -> int:
        """Vectors that are taken at once at most."""
        return len(self._parts)

    def take_vectors(self, values: Sequence[str]) -> None:
        """Bring vectors in, which have names: statements are written."""
        for part, value in zip(self._parts, values, strict=False):
            self._writer.line(f"{part} = {self._better(value, part)};")
        for a, b in zip(values[::2], [*values[1::2], values[-1]], strict=False) if self._none else ():
            self._writer.line(f"{self._none} |= ({a} != {a}) | ({b} != {b});")  # one comparison of both

    def take(self, term: Term) -> None:
        """Bring a number in."""
        value = self._writer.value(term)
        self._writer.line(f"{self._number} = {combined(self._operator, self._dtype, self._number, value)};")

    def result(self) -> str:
        """The name of the reduction of all that was brought in."""
        writer, parts = self._writer, self._parts
        while len(parts) > 1:
            half = len(parts) // 2
            for a, b in zip(parts[:half], parts[half:], strict=True):
                writer.line(f"{a} = {self._better(a, b)};")
            parts = parts[:half]
        (wide,), width = parts, self._width
        while width > 1:
            width //= 2
            kind = f"{c_type(self._dtype)}{width if width > 1 else ''}"
            wide = writer.declare(f"const {kind}", self._better(f"{wide}.lo", f"{wide}.hi"), "acc")
        if self._none:
            writer.line(f"if (any({self._none})) {self._number} = NAN;")
        writer.line(f"{self._number} = {combined(self._operator, self._dtype, self._number, wide)};")
        return self._number

    def _better(self, a: str, b: str) -> str:
        """Two partial results together: the second where the first is no number."""
        if self._operator in ("min", "max"):
            return f"{a} {'<' if self._operator == 'min' else '>'} {b} ? {a} : {b}"
        return combined(self._operator, self._dtype, a, b, self._width)
