"""Arrays as an einsum sees them: a name, a shape and an element type, no data.

An axis is a length, the name of a *long axis* (a length known only when the kernel is called), or ``math.inf`` (a long
axis without a name).
"""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from feinsum.errors import DTypeError, ShapeError

Axis = int | str | float
"""A length, the name of a long axis, or ``math.inf``."""

DTYPES = tuple(
    np.dtype(name)
    for name in "float32 float64 complex64 complex128 int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()
)
"""The element types of arrays: the numpy types that OpenCL C computes with."""

_RESERVED = frozenset(
    """auto break case char const continue default do double else enum extern float for goto if inline int long register
    restrict return short signed sizeof static struct switch typedef union unsigned void volatile while bool half uchar
    ushort uint ulong size_t ptrdiff_t intptr_t uintptr_t kernel global local constant private generic pipe uniform
    read_only write_only read_write image1d_t image2d_t image3d_t sampler_t event_t main complex imaginary NULL true false
    INFINITY HUGE_VAL""".split()
)
CONSTANT_PREFIXES = ("M_", "FLT_", "DBL_", "INT_", "LONG_")
"""Names of constants of OpenCL C begin like this; loopy gives every such name the type of the constant."""


@dataclass(frozen=True)
class Array:
    """The description of an array; no data.  Made by :func:`array`.

    :ivar name: an identifier; the keyword by which a kernel takes the array.
    :ivar shape: the axes: a length, the name of a long axis, or ``math.inf``.
    :ivar dtype: the type of its numbers.
    """

    name: str
    shape: tuple[Axis, ...]
    dtype: np.dtype[Any]

    def _repr_html_(self) -> str:
        from feinsum.report.displays import array_html

        return array_html(self)

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(format_axis(axis) for axis in self.shape)}]"


def array(name: str, shape: Axis | Iterable[Axis], dtype: Any = "float64") -> Array:
    """Describe an array.

    :param name: an identifier of C; the keyword by which a kernel takes the array.
    :param shape: one entry an axis: its length, the name of a long axis, or ``math.inf``.
    :param dtype: float32, float64, complex64, complex128 or an integer type, in any spelling numpy takes.
    :raises ShapeError: if the name is none, or an axis is negative or not a length.
    :raises DTypeError: if OpenCL has no such number (float16 and bool among them).

    >>> print(array("u", ("E", 35), "float32"))
    u: float32[E, 35]
    """
    if not is_identifier(name):
        raise ShapeError(
            f"{name!r} cannot name an array; use an identifier of C that is no keyword and does not begin with '_'"
        )
    axes: tuple[Any, ...] = tuple(shape) if isinstance(shape, Iterable) and not isinstance(shape, str) else (shape,)
    return Array(name, tuple(_checked_axis(axis, k, name) for k, axis in enumerate(axes)), _checked_dtype(dtype, name))


def is_identifier(name: object) -> bool:
    """Whether `name` may name an array or a long axis: an identifier of C that is no keyword and no constant."""
    return (
        isinstance(name, str)
        and name.isidentifier()
        and name.isascii()
        and not name.startswith("_")
        and not keyword.iskeyword(name)
        and name not in _RESERVED
        and not name.startswith(CONSTANT_PREFIXES)
    )


def axes_in(text: str) -> list[str]:
    """The axes of a shape that is one text, such as ``20x20``; none of any other text.

    >>> axes_in("20x20"), axes_in("3, 4"), axes_in("2 * E"), axes_in("maximum"), axes_in("20")
    (['20', '20'], ['3', '4'], ['2', 'E'], [], [])
    """
    axes = re.split(r"\s*[x×*,]\s*", text)
    return axes if len(axes) > 1 and all(re.fullmatch(r"\w+", axis) for axis in axes) and not is_identifier(text) else []


def format_axis(axis: Axis) -> str:
    """``35``, ``E`` or ``∞``."""
    return "∞" if axis == math.inf else str(axis)


def _checked_axis(axis: Any, k: int, name: str) -> Axis:
    if isinstance(axis, str):
        if not is_identifier(axis):
            meant = f"; write the shape ({', '.join(axes)})" if (axes := axes_in(axis)) else ""
            raise ShapeError(
                f"axis {k} of '{name}' is {axis!r}; a long axis is named by an identifier of C that is no keyword{meant}"
            )
        return axis
    if axis == math.inf:
        return math.inf
    if isinstance(axis, bool) or not hasattr(axis, "__index__"):
        raise ShapeError(f"axis {k} of '{name}' is {axis!r}; an axis is a length, the name of a long axis or math.inf")
    if axis.__index__() < 0:
        raise ShapeError(f"axis {k} of '{name}' is {axis}; a length is not negative")
    return int(axis.__index__())


def _checked_dtype(dtype: Any, name: str) -> np.dtype[Any]:
    try:
        result: np.dtype[Any] = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        why = "the axes of a shape are one tuple, as in (3, 4)" if isinstance(dtype, int) else error
        raise DTypeError(f"{dtype!r}, the type of '{name}', is not a data type: {why}") from None
    result = result.newbyteorder("=")
    if result not in DTYPES:
        hint = "; convert it to float32, whose range holds it" if result == np.float16 else ""
        raise DTypeError(f"'{name}' is {result}; arrays are {', '.join(map(str, DTYPES))}{hint}")
    return result
