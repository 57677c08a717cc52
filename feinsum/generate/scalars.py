"""The numbers that epilogues take: checked and converted at a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from feinsum.compile.buffers import fetched, put
from feinsum.einsum import BatchedEinsum
from feinsum.epilogue.values import evaluate
from feinsum.errors import ArgumentError, DTypeError, ValidationError


def take_scalars(e: BatchedEinsum, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is given at a call, apart: the arrays, and the numbers in the types of the einsum.

    :raises ValidationError: if a number is missing.
    :raises ArgumentError: if something is no number.
    :raises DTypeError: if a number does not fit the type of the outputs that it is for.
    """
    arrays = {name: value for name, value in given.items() if name not in e.scalars}
    scalars = {}
    for name, dtype in e.scalars.items():
        if name not in given:
            takes = ", ".join([*(a.name for a in e.arrays), *e.scalars])
            raise ValidationError(f"'{name}' is missing, a number that the epilogue takes; the kernel takes {takes}")
        scalars[name] = as_scalar(name, given[name], dtype)
    return arrays, scalars


def finish_nothing(
    e: BatchedEinsum,
    arrays: Mapping[str, Any],
    scalars: Mapping[str, Any],
    results: Sequence[Any],
    queue: Any,
    events: Sequence[Any],
) -> None:
    """Store what epilogues make of sums that have no terms, which are zero; no kernel runs.

    :param arrays: the inputs, of numpy or on the device.
    :param results: where it is stored.
    :param events: what must have happened first.
    """
    for event in events:
        event.wait()

    def on_host(value: Any) -> np.ndarray[Any, Any]:
        return np.asarray(value if isinstance(value, np.ndarray | np.generic) else fetched(value, queue))

    for row, (result, dtype) in enumerate(zip(results, e.dtypes, strict=True)):
        own = e.epilogues[row]
        values = np.zeros(result.shape, dtype)
        if own is not None and values.size:
            present = on_host(result) if own.reads_output else None
            read = {a.name: on_host(arrays[a.name]) for a in own.arrays}
            values = evaluate(own, values, present, read, scalars)
        put(values, result, queue)


def as_scalar(name: str, value: Any, dtype: np.dtype[Any]) -> Any:
    """A number in the type in which a kernel takes it.

    :raises ArgumentError: if it is none.
    :raises DTypeError: if it is complex and the type real, or no whole number and the type an integer, or too large.
    """
    number = np.asarray(value) if isinstance(value, (bool, int, float, complex, np.generic, np.ndarray)) else None
    if number is None or number.ndim or number.dtype.kind not in "biufc":
        raise ArgumentError(f"'{name}' is {value!r}; it is a number, of type {dtype}")
    if not np.can_cast(number.dtype, dtype, "same_kind") and not _holds(dtype, number):
        raise DTypeError(f"'{name}' is {value!r}, but the output it is for is {dtype}")
    if dtype.kind in "iu" and not np.iinfo(dtype).min <= int(number) <= np.iinfo(dtype).max:
        raise DTypeError(f"'{name}' is {value!r}, which is too large for the output it is for, {dtype}")
    return dtype.type(number[()])


def _holds(dtype: np.dtype[Any], number: Any) -> bool:
    """Whether an unsigned type holds a signed number."""
    return dtype.kind == "u" and number.dtype.kind == "i" and int(number) >= 0
