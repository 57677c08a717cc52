"""The facts about a value before a program runs: its shape, its type, and the value of an integer if it is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from feinsum.languages.declarative.extents import Extent

ANY_INT, ANY_FLOAT = "int", "float"
"""The types of literals, which are those of whatever they meet."""


@dataclass(frozen=True)
class Typed:
    """A value.

    :ivar shape: the extents of its axes; none for a number.
    :ivar dtype: a scalar type, ``float`` for a literal with a point, or the name of a type variable.
    :ivar integer: which number it is, if it is one that lengths and indices decide.
    :ivar varies: whether it differs between the threads of a scope.
    :ivar tuned: whether a tuned number takes part in it.
    :ivar writable: whether the scope at hand may change it.
    """

    shape: tuple[Extent, ...] = ()
    dtype: str = ANY_FLOAT
    integer: Extent | None = None
    varies: bool = False
    tuned: bool = False
    writable: bool = False

    @property
    def is_integer(self) -> bool:
        """Whether it may be an index."""
        return self.dtype == ANY_INT or (self.dtype[:1] in ("i", "u") and self.dtype[1:].isdigit())


SIZES: Final = {"bool": 0, "i8": 1, "u8": 1, "i16": 2, "u16": 2, "i32": 4, "u32": 4, "i64": 8, "u64": 8}


def promote(a: str, b: str) -> str:
    """The type of a sum; literals give way, and of a type variable and another type the variable is taken.

    >>> promote("float", "int"), promote("f32", "int"), promote("i32", "float"), promote("i8", "u8"), promote("f32", "f64")
    ('float', 'f32', 'f64', 'i16', 'f64')
    """
    if a == b:
        return a
    for weak, other in ((a, b), (b, a)):
        if weak in (ANY_INT, "bool"):
            return other
    for weak, other in ((a, b), (b, a)):
        if weak == ANY_FLOAT:
            return "f64" if other in SIZES else other
    for one in (a, b):
        if one not in SIZES and one[1:] not in ("32", "64"):
            return one
    floats = [t for t in (a, b) if t not in SIZES]
    if floats:
        wide = "f64" in floats or any(SIZES.get(t, 0) > 2 for t in (a, b))
        return "f64" if wide else "f32"
    if a[0] == b[0]:
        return max(a, b, key=SIZES.__getitem__)
    unsigned, signed = (a, b) if a[0] == "u" else (b, a)
    if SIZES[signed] > SIZES[unsigned]:
        return signed
    return f"i{min(16 * SIZES[unsigned], 64)}" if SIZES[unsigned] < 8 else "f64"
