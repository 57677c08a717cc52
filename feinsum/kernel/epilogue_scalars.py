"""The numbers that epilogues take: checked and converted at a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from feinsum.compile.buffers import device_elements, put_values
from feinsum.einsum import BatchedEinsum
from feinsum.epilogue.epilogue_values import evaluate_epilogue
from feinsum.errors import ArgumentError, DTypeError, ValidationError


def take_scalars(e: BatchedEinsum, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments of a call, separated: the arrays, and the scalars in the types of the einsum.

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


@dataclass(frozen=True)
class Scaling:
    """``alpha*v + beta*out``, in the terms that a call has.

    :ivar numbers: those that are not 1 for alpha and 0 for beta, by name.
    """

    numbers: Mapping[str, Any]

    @property
    def updates(self) -> bool:
        """Whether the present content of the output is read."""
        return "beta" in self.numbers

    @property
    def text(self) -> str:
        """The text of the epilogue."""
        return f"{'alpha*v' if 'alpha' in self.numbers else 'v'}{' + beta*out' if self.updates else ''}"

    def typed(self, dtype: np.dtype[Any]) -> dict[str, Any]:
        """The numbers in the type of a result.

        :raises ArgumentError, DTypeError: if one does not fit it.
        """
        return {name: as_scalar(name, value, dtype) for name, value in self.numbers.items()}

    def of(self, values: Any, present: Any, numbers: Mapping[str, Any]) -> Any:
        """The entries to store, for a result of numpy.

        :param numbers: in the type of the result.
        """
        found = numbers["alpha"] * values if "alpha" in numbers else values
        return found + numbers["beta"] * present if self.updates else found


_ONE, _ZERO = 1, 0


def scaling_of(alpha: Any, beta: Any, out: Any) -> Scaling | None:
    """The scaling of the keywords of :func:`feinsum.contract`; None if there is none.

    :raises ValidationError: if `beta` is given, and no output.
    """
    if alpha is _ONE and beta is _ZERO:  # as in nearly all calls, of which small ones are over in microseconds
        return None
    numbers = {name: x for name, x, idle in (("alpha", alpha, 1), ("beta", beta, 0)) if not _is_scalar_number(x, idle)}
    if "beta" in numbers and out is None:
        raise ValidationError(f"beta is {beta!r}, by which the content of out is multiplied; pass out=, to be updated")
    return Scaling(numbers) if numbers else None


def _is_scalar_number(value: Any, idle: int) -> bool:
    return isinstance(value, (bool, int, float, complex, np.generic)) and bool(value == idle)


def finish_nothing(
    e: BatchedEinsum,
    arrays: Mapping[str, Any],
    scalars: Mapping[str, Any],
    results: Sequence[Any],
    queue: Any,
    events: Sequence[Any],
) -> None:
    """Store the epilogues of sums without terms, which are zero; no kernel runs.

    :param arrays: the inputs, of numpy or on the device.
    :param results: where it is stored.
    :param events: what must have happened first.
    """
    for event in events:
        event.wait()

    def on_host(value: Any) -> np.ndarray[Any, Any]:
        return np.asarray(value if isinstance(value, np.ndarray | np.generic) else device_elements(value, queue))

    for row, (result, dtype) in enumerate(zip(results, e.dtypes, strict=True)):
        own = e.epilogues[row]
        values = np.zeros(result.shape, dtype)
        if own is not None and values.size:
            present = on_host(result) if own.reads_output else None
            read = {a.name: on_host(arrays[a.name]) for a in own.arrays}
            values = evaluate_epilogue(own, [values] * e.b, present, read, scalars)
        put_values(values, result, queue)


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
