"""The arguments of a kernel call, checked before anything is launched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from feinsum.einsum import BatchedEinsum, format_axis
from feinsum.errors import DTypeError, ShapeError, ValidationError


def check_arguments(e: BatchedEinsum, arrays: Mapping[str, Any]) -> dict[str, int]:
    """Check names, types and shapes; return the length of every index.

    :raises ValidationError: if a name is missing or unknown, or numpy and device arrays are mixed.
    :raises DTypeError: if an array has another type than it was described with.
    :raises ShapeError: if an array has another rank or length, or two arrays disagree about a long axis.
    """
    expected = {a.name: a for a in e.arrays}
    for name in expected:
        if name not in arrays:
            raise ValidationError(f"'{name}' is missing; the kernel takes {', '.join(expected)}")
    for name in arrays:
        if name not in expected:
            raise ValidationError(f"'{name}' is no array of the kernel, which takes {', '.join(expected)}")
    if len({isinstance(value, np.ndarray | np.generic) for value in arrays.values()}) > 1:
        kinds = ", ".join(f"{name}: {type(value).__module__}" for name, value in arrays.items())
        raise ValidationError(f"numpy and device arrays are mixed ({kinds}); pass all of one kind")
    lengths: dict[str, int] = {}
    owner: dict[object, tuple[str, int]] = {}
    for a, letters in e.array_indices.items():
        value = arrays[a.name]
        if np.dtype(value.dtype) != a.dtype:
            raise DTypeError(f"'{a.name}' is {value.dtype} but was described as {a.dtype}; convert it with astype")
        if len(value.shape) != len(a.shape):
            raise ShapeError(f"'{a.name}' has {len(value.shape)} axes but was described with {len(a.shape)}")
        for axis, (letter, length) in enumerate(zip(letters, value.shape, strict=True)):
            size = e.index_sizes[letter]
            if isinstance(size, int) and length != size:
                raise ShapeError(f"axis {axis} of '{a.name}' has length {length} but was described with {size}")
            first, known = owner.setdefault(size if isinstance(size, str) else letter, (a.name, length))
            if known != length:
                name = format_axis(size) if isinstance(size, str) else letter
                raise ShapeError(f"long axis '{name}' has length {known} in '{first}' but {length} in '{a.name}'")
            lengths[letter] = length
    return lengths


def check_output(value: Any, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Check an array that the caller wants a result in.

    :raises ShapeError, DTypeError, ValidationError: if it has another shape or type, or is not C-contiguous.
    """
    if tuple(value.shape) != shape:
        raise ShapeError(f"out '{name}' has shape {tuple(value.shape)} but the result has {shape}")
    if np.dtype(value.dtype) != dtype:
        raise DTypeError(f"out '{name}' is {value.dtype} but the result is {dtype}")
    if not value.flags.c_contiguous:
        raise ValidationError(f"out '{name}' is not C-contiguous; pass a contiguous array")
