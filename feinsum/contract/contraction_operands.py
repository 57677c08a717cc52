"""The operands of a contraction: their library, the type to compute in, and the order of their axes in memory.

Two kinds of numbers are converted, as OpenCL does not compute with them: booleans are counted as integers (a sum of
products is true where it is not zero), and float16 is computed in float32 and rounded once, at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from feinsum.arrays import DTYPES
from feinsum.compile.buffers import library_of
from feinsum.errors import DTypeError, ValidationError
from feinsum.kernel.array_adapter import as_numbers

STAND_INS: dict[np.dtype[Any], np.dtype[Any]] = {
    np.dtype(bool): np.dtype(np.int64),
    np.dtype(np.float16): np.dtype(np.float32),
}
"""For each type that devices do not compute with, the type that is computed in."""

CASTINGS = ("no", "equiv", "safe", "same_kind", "unsafe")


@dataclass(frozen=True)
class Operands:
    """The operands as arrays of one library; lists and Python's numbers have become arrays.

    :ivar library: ``"numpy"`` or ``"pyopencl"``.
    """

    arrays: tuple[Any, ...]
    library: str

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(a.shape) for a in self.arrays)


def take_operands(values: Sequence[Any]) -> Operands:
    """Make arrays of lists and numbers, and find the library of all.

    :raises ValidationError: if arrays of numpy and pyopencl, or of two contexts, are mixed; numbers go with either.
    :raises DTypeError: if a device array is of a type that devices do not compute with.
    """
    libraries = [library_of(value) for value in values]
    if "pyopencl" not in libraries:
        return Operands(tuple(as_numbers(k, value) for k, value in enumerate(values)), "numpy")
    first = libraries.index("pyopencl")
    for k, (value, library) in enumerate(zip(values, libraries, strict=True)):
        if library == "pyopencl":
            _check_device_array(k, value, first, values[first])
        elif np.ndim(value):
            raise ValidationError(
                f"operand {k} is a {type(value).__name__} but others are pyopencl arrays; pass all of one library"
            )
    arrays = [value if libraries[k] == "pyopencl" else as_numbers(k, value) for k, value in enumerate(values)]
    return Operands(tuple(arrays), "pyopencl")


def _check_device_array(k: int, value: Any, first: int, other: Any) -> None:
    if value.dtype in STAND_INS:
        raise DTypeError(f"operand {k} is a device array of {value.dtype}; convert it to {STAND_INS[value.dtype]}")
    if value.context != other.context:
        raise ValidationError(
            f"operand {k} belongs to another context than operand {first}; make both with queues of one context"
        )


@dataclass(frozen=True)
class ContractionTypes:
    """The types in which a contraction is computed.

    :ivar result: the type of the result.
    :ivar operands: the type that each operand is converted to; its own where a kernel converts as it reads.
    """

    result: np.dtype[Any]
    operands: tuple[np.dtype[Any], ...]


def choose_types(
    dtypes: Sequence[np.dtype[Any]], dtype: np.dtype[Any] | None, casting: str, in_steps: bool
) -> ContractionTypes:
    """The types of a contraction, as :func:`numpy.einsum` has them.

    :param dtype: the type that the caller wants to compute in; None for the result type of the operands.
    :param in_steps: whether there are intermediate results, which have to be of the type of the result.
    :raises DTypeError: if an operand must not be cast to `dtype`, or devices know no such numbers.
    """
    result: np.dtype[Any] = np.result_type(*dtypes) if dtype is None else dtype
    for k, own in enumerate(dtypes):
        if dtype is not None and not np.can_cast(own, result, casting):  # type: ignore[arg-type]
            raise DTypeError(f"operand {k} is {own}, which is not cast to {result} by the rule '{casting}'; see casting=")
        if own not in DTYPES and own.newbyteorder("=") not in (*DTYPES, *STAND_INS):
            raise DTypeError(f"operand {k} is {own}; convert it to one of {', '.join(map(str, DTYPES))}")
    native = result.newbyteorder("=")
    wanted: np.dtype[Any] = STAND_INS.get(native, native)
    if wanted not in DTYPES:
        raise DTypeError(f"the result would be {result}; it can be one of {', '.join(map(str, DTYPES))}, bool, float16")
    same = in_steps or dtype is not None
    computed = [_computed(own.newbyteorder("="), wanted, same) for own in dtypes]
    if wanted.kind == "c" and all(one.kind != "c" for one in computed):
        computed[0] = wanted
    return ContractionTypes(result, tuple(computed))


def _computed(own: np.dtype[Any], wanted: np.dtype[Any], same: bool) -> np.dtype[Any]:
    """The type an operand is converted to.  Real factors of complex products stay real, which halves the work."""
    if own.kind == "c" or wanted.kind != "c":
        return wanted if same or own in STAND_INS else own
    return np.empty(0, wanted).real.dtype if same or own in STAND_INS else own


def contiguous_order(value: Any) -> tuple[int, ...] | None:
    """The order of axes in which an array lies C-contiguous in memory; None if there is none, and it has to be copied.

    >>> contiguous_order(np.zeros((3, 4), order="F"))
    (1, 0)
    """
    order = tuple(sorted(range(len(value.shape)), key=lambda axis: -value.strides[axis]))
    step = value.dtype.itemsize
    for axis in reversed(order):
        if value.shape[axis] != 1 and value.strides[axis] != step:
            return None
        step *= value.shape[axis]
    return order
