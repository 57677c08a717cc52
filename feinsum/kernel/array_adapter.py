"""Arrays of other libraries than numpy and pyopencl, as the calls of kernels and contractions see them.

:mod:`feinsum.interop.host_adapter`, a room above, knows each library: it is loaded when the first such array comes, so that
users of numpy and pyopencl do not wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from feinsum.compile.buffers import library_of
from feinsum.errors import ArgumentError
from feinsum.interrupts import load_module

if TYPE_CHECKING:
    from feinsum.contract.evaluate import How
    from feinsum.contract.evaluation import Evaluation
    from feinsum.devices import Device
    from feinsum.kernel.kernel import Kernel

_ADAPTER = "feinsum.interop.host_adapter"
_native: set[type] = set()


@dataclass(frozen=True)
class Copied:
    """An array that a call had to copy.

    :ivar name: its name in explanations: ``'J'``, ``operand 0`` or ``the result``.
    """

    name: str
    why: str
    nbytes: int


class ArrayAdapter(Protocol):
    """Arrays of another library, ready to be computed with.

    :ivar library: the library that they belong to.
    :ivar on_host: whether they are in the memory of the host, where numpy sees them; else they are CUDA arrays.
    :ivar inputs: by name or number; numpy arrays if on the host.
    :ivar out: the array for the result, or a tuple of them, in the same form; None for new ones.
    :ivar copied: the inputs that had to be copied.
    """

    library: Any
    on_host: bool
    inputs: Mapping[Any, Any]
    out: Any
    copied: Sequence[Copied]

    def give(self, results: Any) -> tuple[Any, Sequence[Copied]]:
        """The results as the caller wants them, and what was copied for that."""

    def launch(self, kernel: Kernel, scalars: Mapping[str, Any], stream: Any) -> tuple[Any, Sequence[Copied]]:
        """The results of a kernel for CUDA arrays, and what was copied."""

    def contract(
        self, text: str, how: How, stream: Any, known: dict[Any, Any]
    ) -> tuple[Any, Sequence[Copied], tuple[Evaluation, tuple[Any, ...]], Any]:
        """The result of a contraction of CUDA arrays, what was copied, how it was evaluated for operands of
        which shapes and types, and what gives the results of like ones quickly, as in :attr:`Kernel.quick`.

        :param known: what it remembers for the equation.
        """


def has_foreign_arrays(values: Iterable[Any]) -> bool:
    """Whether any value is not an array of numpy or pyopencl."""
    for value in values:
        kind = value.__class__
        if kind not in _native:
            if library_of(value) is None:
                return True
            _native.add(kind)
    return False


def has_arrays_of_others(values: Iterable[Any]) -> bool:
    """Whether any value is an array of another library; lists and numbers may be among them."""
    return has_foreign_arrays(value for value in values if is_array_like(value))


def is_array_like(value: Any) -> bool:
    """Whether something is an array of some library, which may speak DLPack and nothing else."""
    return (hasattr(value, "shape") and hasattr(value, "dtype")) or hasattr(value, "__dlpack__")


def shape_of(key: str | int, value: Any) -> tuple[int, ...]:
    """The shape of an array, list or number.

    :raises ArgumentError: if it is none of these.
    """
    if hasattr(value, "shape"):
        return tuple(value.shape)
    if hasattr(value, "__dlpack__"):
        adapt_arrays({key: value}, None, None, None)
        return tuple(np.from_dlpack(value).shape)
    return tuple(as_numbers(key, value).shape)


def as_numbers(key: str | int, value: Any) -> np.ndarray[Any, Any]:
    """An array of numpy made of a list or number.

    :raises ArgumentError: if it is neither, but text, for instance.
    """
    try:
        found = np.asarray(value)
    except ValueError:
        what = f"{array_label(key)} is a {type(value).__name__} of arrays or lists of different shapes"
        raise ArgumentError(f"{what}; pass several operands one by one, as in contract(subscripts, *operands)") from None
    if found.dtype.kind not in "biufcV" and not isinstance(value, (list, tuple)) and not is_array_like(value):
        raise ArgumentError(f"{array_label(key)} is a {type(value).__name__}; pass an array, a list of numbers or a number")
    return found


def library_name(value: Any) -> str:
    """The library of an array; lists and numbers become arrays of numpy."""
    known = library_of(value)
    if known is None and is_array_like(value):
        known = load_module(_ADAPTER).find_library(value).name
    return known or "numpy"


def array_label(key: str | int) -> str:
    """The name of an array in errors: its name in a kernel, or its number among operands."""
    return f"operand {key}" if isinstance(key, int) else f"'{key}'"


def adapt_arrays(
    inputs: Mapping[Any, Any], out: Any, like: Any, device: Device | None, written: Collection[Any] = ()
) -> ArrayAdapter | None:
    """Adapt arrays of another library; None if all are of numpy or pyopencl.

    :param inputs: by name, or by number.
    :param like: an array or the name of a library that the results are to be of.
    :param device: where they are computed with; None if that follows from the arrays.
    :param written: the keys of inputs that are written, too.
    :raises ValidationError, DTypeError: naming one that cannot be taken, or if arrays of two libraries are mixed.
    """
    found: ArrayAdapter | None = load_module(_ADAPTER).adapt_host_arrays(inputs, out, like, device, written)
    return found


def return_like(results: Any, like: Any, queue: Any) -> tuple[Any, Sequence[Copied]]:
    """Results of numpy or pyopencl as arrays of another library, and what was copied for that.

    :param queue: on which device arrays are made.
    """
    given: tuple[Any, Sequence[Copied]] = load_module(_ADAPTER).give_like(results, like, queue)
    return given


def map_results(results: Any, change: Callable[[Any], Any]) -> Any:
    """`change` applied to a result, or to each of a tuple of results."""
    return tuple(map(change, results)) if isinstance(results, tuple) else change(results)


def is_number(value: Any) -> bool:
    """Whether something goes with the arrays of any library: a number, which has no axes."""
    try:
        return np.ndim(value) == 0
    except (TypeError, ValueError):
        return False
