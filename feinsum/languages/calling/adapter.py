"""Adapter: arguments of torch, JAX and any DLPack library become numpy arrays of the same memory, and results theirs.

:mod:`feinsum.interop.host_adapter`, which knows the libraries, is loaded when the first such array comes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from feinsum.compile.buffers import library_of
from feinsum.errors import ValidationError
from feinsum.kernel.array_adapter import ArrayAdapter, Copied, adapt_arrays, has_arrays_of_others

_own: set[type] = {bool, int, float, complex}
"""Classes known to belong to numpy, pyopencl or Python."""


def has_foreign_arguments(arguments: Mapping[str, Any]) -> bool:
    """Whether an argument, or an array of a group, is of another library than numpy and pyopencl."""
    for value in arguments.values():  # noqa: SIM110 - any() takes three times as long
        if value.__class__ not in _own and _is_foreign(value):
            return True
    return False


def _is_foreign(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return not _own.issuperset(map(type, value)) and any(map(_is_foreign, value))
    if library_of(value) is not None:
        _own.add(value.__class__)
        return False
    return has_arrays_of_others((value,))


def refuse_device_arrays(arguments: Mapping[str, Any]) -> None:
    """Refuse arrays of pyopencl where numpy computes.

    :raises ValidationError: naming the first.
    """
    for name, value in _arrays_among(arguments):
        if library_of(value) == "pyopencl":
            raise ValidationError(f"'{name}' is a pyopencl array, but the interpreter computes on the host; pass its get()")


def call_with_foreign_arrays(
    run: Callable[[Mapping[str, Any], Any], Any],
    arguments: Mapping[str, Any],
    out: Any,
    written: Collection[str],
    device: Any = None,
) -> tuple[Any, Sequence[Copied]]:
    """Run a program on arrays of any library; returns its results in that library, and what was copied.

    :param run: takes arguments of numpy or pyopencl, and ``out``.
    :param written: the parameters that the program writes.
    :raises ValidationError, DTypeError: naming an array that cannot be taken.
    """
    if not has_foreign_arguments(arguments):
        return run(arguments, out), ()
    arrays = dict(_arrays_among(arguments))
    numbers = {key: value for key, value in arrays.items() if not value.shape}
    if len(numbers) < len(arrays) and not has_foreign_arguments(
        {k: value for k, value in arrays.items() if k not in numbers}
    ):
        # numbers go with arrays of any library, and do not decide of which one the results are
        received = adapt_arrays(numbers, None, None, device)
        return run(arguments if received is None else _NumpyArguments(received, arguments, numbers, ()).arguments, out), ()
    keys = {key for key in arrays if key.partition("[")[0] in written}
    received = adapt_arrays(arrays, out, None, device, keys)
    if received is None:
        return run(arguments, out), ()
    if not received.on_host:
        raise ValidationError("programs take CUDA arrays as those of pyopencl only; bring them to the host")
    seen = _NumpyArguments(received, arguments, arrays, keys)
    return seen.give(run(seen.arguments, received.out))


def _arrays_among(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The arrays among arguments, and those in lists, by names as in errors: ``x``, ``x[0]``."""
    for name, value in arguments.items():
        if isinstance(value, (list, tuple)):
            yield from _arrays_among({f"{name}[{k}]": one for k, one in enumerate(value)})
        elif hasattr(value, "shape") and hasattr(value, "dtype"):
            yield name, value


@dataclass(frozen=True)
class _NumpyArguments:
    """The arguments of a call as numpy arrays.

    :ivar arrays: those of the caller, by name.
    :ivar keys: the names of those that are written.
    """

    received: ArrayAdapter
    given: Mapping[str, Any]
    arrays: Mapping[str, Any]
    keys: Collection[str]

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments, with numpy arrays in place of the caller's arrays."""
        return {name: self._seen(name, value) for name, value in self.given.items()}

    def _seen(self, name: str, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(self._seen(f"{name}[{k}]", one) for k, one in enumerate(value))
        return self.received.inputs.get(name, value)

    def give(self, results: Any) -> tuple[Any, Sequence[Copied]]:
        """Results in the caller's library: the caller's own arrays where those were written, else new ones."""
        if not self.keys:
            given, copied = self.received.give(results)
            return given, (*self.received.copied, *copied)
        for key in self.keys:
            self.received.library.written(self.arrays[key])
        own = {id(self.received.inputs[key]): value for key, value in self.arrays.items()}
        return _replaced_arrays(results, own), self.received.copied


def _replaced_arrays(value: Any, own: Mapping[int, Any]) -> Any:
    """The value with the caller's arrays in place of the numpy arrays made of them, in lists and tuples too."""
    if isinstance(value, (list, tuple)):
        return type(value)(_replaced_arrays(one, own) for one in value)
    return own.get(id(value), value)
