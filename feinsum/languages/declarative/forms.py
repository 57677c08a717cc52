"""The vocabulary of the language: forms, reductions, functions of numbers and scalar types, a row for each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from feinsum.elementwise import MATH, OPERATORS, Function
from feinsum.errors import DTypeError


@dataclass(frozen=True)
class FormKind:
    """The arguments of a form.

    :ivar text: how it is written.
    :ivar meaning: what it is.
    """

    text: str
    meaning: str
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()


_HINTS: Final = ("layout", "type")

FORMS: Final = {
    "compute": FormKind(
        "compute (shape = [N, M]) |i, j| e", "the tensor whose elements are e for every i and j", ("shape",), _HINTS
    ),
    "read": FormKind("read (shape = [N]) |i| e", "`compute`, with the hint to stage it on chip", ("shape",), _HINTS),
    "reduce": FormKind(
        "reduce (shape = [N, M], op = sum) |i, j| e",
        "e of every i and j, brought together by op in any order",
        ("shape", "op"),
    ),
    "scan": FormKind("scan (shape = [N], op = sum) |i| e", "of every i the reduction of e of 0 to i", ("shape", "op")),
    "grid": FormKind(
        "grid (dim = [n, m]) |i, j| tile", "tiles side by side, cut to the shape that the result is said to have", ("dim",)
    ),
    "affine_for": FormKind(
        "affine_for (end = n, init = a) |k, r| e",
        "r = a, and then r = e for k from 0 to n - 1",
        ("end",),
        ("init", "begin"),
    ),
    "while": FormKind(
        "while (init = a, until = |x| c) |x| e", "x = a, and then x = e as long as c of x does not hold", ("init", "until")
    ),
    "thread": FormKind(
        "thread (threads = n, shared = [y]) |t| {...}",
        "statements that n work-items execute, and that change y",
        (),
        ("threads", "shared"),
    ),
}


@dataclass(frozen=True)
class Reduction:
    """An operator of `reduce`.

    :ivar combine: brings two values together, with numpy; `along` does so along axes.
    :ivar neutral: what an empty reduction gives; None where there is none for integers.
    """

    combine: np.ufunc | None
    along: Callable[..., Any]
    neutral: float | bool | None


REDUCTIONS: Final = {
    "sum": Reduction(np.add, np.sum, 0),
    "prod": Reduction(np.multiply, np.prod, 1),
    "min": Reduction(np.minimum, np.min, math.inf),
    "max": Reduction(np.maximum, np.max, -math.inf),
    "any": Reduction(np.logical_or, np.any, False),
    "all": Reduction(np.logical_and, np.all, True),
    "argmin": Reduction(None, np.argmin, None),
    "argmax": Reduction(None, np.argmax, None),
}
SCANS: Final = ("sum", "prod", "min", "max")

FUNCTIONS: Final[Mapping[str, Function]] = {
    **MATH,
    "pow": OPERATORS["**"],
    # Those of OpenCL C pass over NaN, which these keep, as numpy's.
    "min": Function("min", 2, "iuf", "minimum", ulps=0),
    "max": Function("max", 2, "iuf", "maximum", ulps=0),
    "isnan": Function("isnan", condition=True, ulps=0),
    "cdiv": Function("cdiv", 2, "iu", arrays=lambda a, b: -(-a // b), ulps=0),
    "floordiv": Function("floordiv", 2, "iu", arrays=lambda a, b: a // b, ulps=0),
}
"""Elementwise functions; those of integers alone are `cdiv` and `floordiv`, which round up and down."""

MAKERS: Final = {"zeros": 0.0, "ones": 1.0, "empty": math.nan}
"""Tensors of one number, by shape; an `empty` one has to be written before it is read."""

SCALARS: Final = {
    "bool": np.dtype(np.bool_),
    **{f"{sign}{bits}": np.dtype(f"{sign}{bits // 8}") for sign in "iu" for bits in (8, 16, 32, 64)},
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "int": np.dtype(np.int64),
}  # fmt: skip
"""Scalar types, and those of numpy; any other word is a type that the arguments of a call decide."""


def numpy_type(dtype: str) -> np.dtype[Any]:
    """The type of an array in numpy."""
    return SCALARS[dtype] if dtype in SCALARS else np.dtype(np.float64)


def type_name(dtype: Any) -> str:
    """The type of this language that one of numpy is.

    :raises DTypeError: if it is none.
    """
    for name, known in SCALARS.items():
        if known == dtype and name != "int":
            return name
    raise DTypeError(f"arrays of {dtype} are none of this language: {', '.join(SCALARS)}")
