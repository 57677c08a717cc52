"""Numbers of the tensor language in numpy: what stores them, and arithmetic that is rounded after every instruction.

A bf16 is stored as the float32 of its value, since numpy has no such type; all else is stored as itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from feinsum.elementwise import FUNCTIONS
from feinsum.languages.tensor.types import BF16, Boolean, Coopmatrix, TensorScalar, Type

Numbers: TypeAlias = NDArray[Any]

_DTYPES: Final = {
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "index": "int64", "bf16": "float32", "f16": "float16",
    "f32": "float32", "f64": "float64", "c32": "complex64", "c64": "complex128",
}  # fmt: skip


def component(type_: Type) -> TensorScalar | Boolean:
    """The scalar type of a number or of the elements of a coopmatrix."""
    found = type_.component if isinstance(type_, Coopmatrix) else type_
    assert isinstance(found, (TensorScalar, Boolean))
    return found


def dtype_of(type_: TensorScalar | Boolean) -> np.dtype[Any]:
    """The type in which numpy stores values."""
    return np.dtype(bool if isinstance(type_, Boolean) else _DTYPES[type_.name])


def accumulation_type(type_: TensorScalar) -> np.dtype[Any]:
    """The type in which sums of products are computed before they are rounded."""
    return np.dtype("int64" if type_.is_integer else "complex128" if type_.is_complex else "float64")


def rounded(values: Any, type_: TensorScalar | Boolean) -> Numbers:
    """Values as numbers of a type: rounded to nearest, integers cut to their bits, and real parts of none but complex ones.

    >>> float(rounded(1.01, BF16)), int(rounded(300, TensorScalar("i8")))
    (1.0078125, 44)
    """
    values = np.asarray(values)
    if type_ == BF16:
        return _rounded_to_bf16(values)
    with np.errstate(all="ignore"):
        return np.asarray(values.astype(dtype_of(type_)))


def _rounded_to_bf16(values: Numbers) -> Numbers:
    """Nearest numbers with 8 bits, ties to even; from doubles by way of the float32 that is odd where it is not exact."""
    with np.errstate(all="ignore"):
        single = values.astype(np.float32)
        bits = single.view(np.uint32)
        if values.dtype.itemsize > 4 or values.dtype.kind in "iu":
            exact = values.astype(np.float64)
            back = single.astype(np.float64)
            too_far = np.abs(back) > np.abs(exact)
            bits = np.where((back != exact) & np.isfinite(back), (bits - too_far.astype(np.uint32)) | 1, bits)
        nearest = (bits + (0x7FFF + ((bits >> 16) & 1)).astype(np.uint32)) & np.uint32(0xFFFF0000)
        result = np.where(np.isnan(single), bits | np.uint32(0x400000), nearest).astype(np.uint32)
    return np.asarray(result.view(np.float32))


def poison(type_: TensorScalar, shape: tuple[int, ...]) -> Numbers:
    """The content of memory before it is written: NaN, or an unlikely pattern of bits for integers."""
    dtype = dtype_of(type_)
    if type_.is_integer:
        return np.full(shape, np.frombuffer(b"\xa5" * dtype.itemsize, dtype)[0], dtype)
    return np.full(shape, complex(np.nan, np.nan) if type_.is_complex else np.nan, dtype)


def _quotient(a: Numbers, b: Numbers) -> Numbers:
    """a / b without its fraction, for integers; b = 0 has been refused."""
    safe = np.where(b == 0, 1, b).astype(b.dtype)
    quotient = np.floor_divide(a, safe)
    remainder = a - quotient * safe
    return np.asarray((quotient + ((remainder != 0) & ((a < 0) != (safe < 0)))).astype(a.dtype))


def _divided_values(a: Numbers, b: Numbers) -> Numbers:
    return _quotient(a, b) if a.dtype.kind == "i" else np.divide(a, b)


def _remainder(a: Numbers, b: Numbers) -> Numbers:
    """The remainder of a division without fraction; it has the sign of `a`."""
    if a.dtype.kind == "i":
        return np.asarray((a - _quotient(a, b) * b).astype(a.dtype))
    return np.fmod(a, b)


_ARITHMETIC: Final[dict[str, Callable[..., Numbers]]] = {
    **{name: row.evaluate for name, row in FUNCTIONS.items()},  # and, or and not are replaced below, bit by bit
    "native_exp": FUNCTIONS["exp"].evaluate,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _divided_values,
    "rem": _remainder,
    "shl": np.left_shift,
    "shr": np.right_shift,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "im": np.imag,
    "re": np.real,
    "eq": np.equal,
    "ne": np.not_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lt": np.less,
    "le": np.less_equal,
}


def compute_scalar(name: str, operands: list[Numbers], result: Type) -> Numbers:
    """A scalar instruction, element by element: its result in the type of the result."""
    with np.errstate(all="ignore"):
        return rounded(_ARITHMETIC[name](*operands), component(result))


def extreme(type_: TensorScalar, largest: bool) -> Any:
    """The largest or smallest number of a type."""
    if type_.is_integer:
        limits = np.iinfo(dtype_of(type_))
        return limits.max if largest else limits.min
    return np.inf if largest else -np.inf
