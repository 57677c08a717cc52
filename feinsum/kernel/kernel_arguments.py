"""The arguments of a kernel call, all of them checked before anything is launched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from feinsum.compile.buffers import library_of, share_memory
from feinsum.einsum import BatchedEinsum, format_axis
from feinsum.errors import DTypeError, ShapeError, ValidationError


def common_library(e: BatchedEinsum, arrays: Mapping[str, Any]) -> str:
    """The library of all arrays: ``"numpy"`` or ``"pyopencl"``.

    :raises ValidationError: if a name is unknown, if an array is neither's, or if both are mixed.
    """
    expected = [a.name for a in e.arrays]
    for name in arrays:
        if name not in expected:
            raise ValidationError(f"'{name}' is no array of the kernel, which takes {', '.join(expected)}")
    libraries = {name: library_of(value) for name, value in arrays.items()}
    for name, library in libraries.items():
        if library is None:
            given = type(arrays[name]).__name__
            raise ValidationError(f"'{name}' is a {given}; pass an array, of numpy or of a library that speaks DLPack")
    if len(set(libraries.values())) > 1:
        shown = ", ".join(f"{name}: {library}" for name, library in libraries.items())
        raise ValidationError(f"arrays of two libraries are mixed ({shown}); pass all of one")
    return next(iter(libraries.values()), None) or "numpy"


def check_arguments(e: BatchedEinsum, arrays: Mapping[str, Any]) -> dict[str, int]:
    """Check that all arrays are given, their types and shapes; return the length of every index.

    :param arrays: by names of the kernel's own.
    :raises ValidationError: if a name is missing.
    :raises DTypeError: if an array has another type than it was described with.
    :raises ShapeError: if an array has another rank or length, or two arrays disagree about a long axis.
    """
    expected = {a.name: a for a in e.arrays}
    for name, a in expected.items():
        if name not in arrays:
            raise ValidationError(f"'{name}' is missing; the kernel takes {', '.join(expected)}")
        value = arrays[name]
        if np.dtype(value.dtype) != a.dtype:
            raise DTypeError(f"'{name}' is {value.dtype} but was described as {a.dtype}; convert it with astype")
        if len(value.shape) != len(a.shape):
            raise ShapeError(f"'{name}' has {len(value.shape)} axes but was described with {len(a.shape)}")
    lengths: dict[str, int] = {}
    owner: dict[str, tuple[str, int]] = {}
    for a, letters in e.array_uses:
        for axis, (letter, length) in enumerate(zip(letters, arrays[a.name].shape, strict=True)):
            size = e.index_sizes[letter]
            lengths[letter] = length
            if isinstance(size, int):  # whose letter may be the name of a long axis
                if length != size:
                    raise ShapeError(f"axis {axis} of '{a.name}' has length {length} but was described with {size}")
                continue
            first, known = owner.setdefault(size if isinstance(size, str) else letter, (a.name, length))
            if known != length:
                at = f"long axis '{format_axis(size)}'" if isinstance(size, str) else f"index '{letter}'"
                raise ShapeError(f"{at} has length {known} in '{first}' but {length} in '{a.name}'")
    return lengths


def check_context(arrays: Mapping[str, Any], queue: Any) -> None:
    """Check that device arrays can be reached from a queue.

    :raises ValidationError: naming one of another context.
    """
    for name, value in arrays.items():
        if value.context != queue.context:
            raise ValidationError(
                f"'{name}' belongs to another context than the kernel; make it with a queue of the kernel's device"
            )


def check_output(name: str, value: Any, shape: tuple[int, ...], dtype: np.dtype[Any], library: str) -> None:
    """Check the array that the caller wants a result in.

    :param name: its name in errors.
    :param library: the library of the inputs.
    :raises ValidationError: if it is of another library, not C-contiguous or not writable.
    :raises ShapeError, DTypeError: if it is of another shape or type than the result.
    """
    if library_of(value) != library or isinstance(value, np.generic):
        raise ValidationError(f"{name} is a {type(value).__name__}; pass a {library} array, as the inputs are")
    if tuple(value.shape) != shape:
        raise ShapeError(f"{name} has shape {tuple(value.shape)} but the result has {shape}")
    if np.dtype(value.dtype) != dtype:
        raise DTypeError(f"{name} is {value.dtype} but the result is {dtype}")
    if not value.flags.c_contiguous:
        raise ValidationError(f"{name} is not C-contiguous; pass a contiguous array")
    if isinstance(value, np.ndarray) and not value.flags.writeable:
        raise ValidationError(f"{name} is read-only; pass an array that can be written")


def check_outputs(
    e: BatchedEinsum, out: Any, shape: tuple[int, ...], library: str, arrays: Mapping[str, Any]
) -> dict[str, Any]:
    """The arrays that the caller wants the results in, by name of output.

    :param arrays: the inputs, which results must not overwrite while they are read.
    :raises ShapeError, DTypeError, ValidationError: if there are too many or too few; if one is of another library than
        the inputs or of another shape or type than the result, is not C-contiguous or writable, or shares memory.
    """
    count = len(e.output_names)
    if count == 1 and not isinstance(out, (tuple, list)):
        given = [out]
    elif isinstance(out, Iterable) and not isinstance(out, (Mapping, str)):
        given = list(out)
    else:
        raise ValidationError(f"out is a {type(out).__name__}; the kernel has {count} outputs; pass a tuple of arrays")
    if len(given) != count:
        raise ValidationError(f"out has {len(given)} arrays but the kernel has {count} outputs")
    results = dict(zip(e.output_names, given, strict=True))
    for (name, value), dtype in zip(results.items(), e.dtypes, strict=True):
        check_output(f"out '{name}'", value, shape, dtype, library)
    others = {} if library == "numpy" else dict(arrays)  # inputs of numpy that share memory are copied
    for name, value in results.items():
        for other, its in others.items():
            if share_memory(value, its):
                raise ValidationError(f"out '{name}' shares memory with '{other}'; pass an array of its own")
        others[name] = value
    return results
