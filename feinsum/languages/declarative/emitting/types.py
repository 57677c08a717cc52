"""Types, numbers and functions as OpenCL C spells them."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from feinsum.epilogue.vector_functions import own_functions
from feinsum.languages.declarative.forms import SCALARS
from feinsum.languages.declarative.types import ANY_FLOAT, ANY_INT

C_TYPES: Final = {
    "bool": "int", "i8": "char", "i16": "short", "i32": "int", "i64": "long", "u8": "uchar", "u16": "ushort",
    "u32": "uint", "u64": "ulong", "f32": "float", "f64": "double", ANY_INT: "int", ANY_FLOAT: "double",
}  # fmt: skip
"""Types of variables; truth is an int, and an index one of 32 bits, which programs that need more are refused for."""

PREAMBLE: Final = """\
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
"""

_LEAST_GREATEST = """\
static inline {c} least_{c}({c} a, {c} b) {{ return (a != a || a < b) ? a : b; }}
static inline {c} greatest_{c}({c} a, {c} b) {{ return (a != a || a > b) ? a : b; }}
"""
_ROUNDED = """\
static inline {c} floordiv_{c}({c} a, {c} b) {{ {c} q = a / b; return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q; }}
static inline {c} mod_{c}({c} a, {c} b) {{ {c} r = a % b; return (r != 0 && (r < 0) != (b < 0)) ? r + b : r; }}
"""


_REMAINDER = """\
static inline {c} mod_{c}({c} a, {c} b) {{
    const {c} r = fmod(a, b);
    return r != 0 ? ((r < 0) != (b < 0) ? r + b : r) : copysign(({c}) 0, b);
}}
"""


def helpers(source: str) -> str:
    """The definitions of helper functions that a source calls; those of floating point have numpy's NaN."""
    found = [f"{text}\n" for _, text in own_functions(source)]
    for c in ("float", "double", "char", "short", "int", "long", "uchar", "ushort", "uint", "ulong"):
        rounded = (_REMAINDER, ("mod",)) if c in ("float", "double") else (_ROUNDED, ("floordiv", "mod"))
        for text, names in ((_LEAST_GREATEST, ("least", "greatest")), rounded):
            if any(f"{name}_{c}(" in source for name in names):
                found.append(text.format(c=c))
    return "".join(found)


def c_type(dtype: str) -> str:
    """The type of a variable."""
    return C_TYPES[dtype]


def stored_type(dtype: str) -> str:
    """The type of an element of an array: a bool takes a byte."""
    return "uchar" if dtype == "bool" else C_TYPES[dtype]


def literal(value: Any, dtype: str) -> str:
    """A number."""
    if dtype in ("f32", "f64", ANY_FLOAT):
        with np.errstate(over="ignore"):
            value = float(np.float32(value) if dtype == "f32" else value)
        if math.isnan(value):
            return "NAN"
        if math.isinf(value):
            return "INFINITY" if value > 0 else "-INFINITY"
        if dtype == "f32":
            return f"({value!r}f)" if value < 0 else f"{value!r}f"
        return f"({value!r})" if value < 0 else repr(value)
    if dtype == "bool":
        return str(int(bool(value)))
    suffix = {"i64": "L", "u64": "UL"}.get(dtype, "")
    return f"({int(value)}{suffix})" if value < 0 else f"{int(value)}{suffix}"


def extreme(dtype: str, greatest: bool) -> str:
    """The greatest number of a type, or the least."""
    if dtype in ("f32", "f64", ANY_FLOAT):
        return "INFINITY" if greatest else "-INFINITY"
    if dtype == "i64":
        return "LONG_MAX" if greatest else "LONG_MIN"
    info = np.iinfo(SCALARS.get(dtype, np.dtype(np.int32)) if dtype != ANY_INT else np.int32)
    return literal(int(info.max if greatest else info.min), dtype)
