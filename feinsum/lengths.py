"""Lengths of indices: those that the arrays of an einsum fix, and those of long axes once they are known."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from feinsum.arrays import Array, Axis, format_axis
from feinsum.errors import ShapeError


def common_lengths(placed: Iterable[tuple[str, Array, str]], subscripts: str) -> dict[str, Axis]:
    """The length of each index, which is that of every axis where it stands.

    :param placed: the places of arrays: how errors call it, the array, and its indices there.
    :raises ShapeError: if an array has other axes than indices, or two lengths of an index differ.
    """
    sizes: dict[str, Axis] = {}
    first: dict[str, str] = {}
    for where, a, axes in placed:
        if len(a.shape) != len(axes):
            raise ShapeError(f"{where} has {len(a.shape)} axes but its subscripts '{axes}' name {len(axes)}")
        for letter, axis in zip(axes, a.shape, strict=True):
            known = sizes.setdefault(letter, axis)
            here = first.setdefault(letter, where)
            if known != axis and math.inf in (known, axis) and not isinstance(known, int) and not isinstance(axis, int):
                sizes[letter] = axis if known == math.inf else known
            elif known != axis:
                raise ShapeError(
                    f"index '{letter}' is {format_axis(known)} in {here} but {format_axis(axis)} in {where}"
                    f" of '{subscripts}'; make the lengths equal"
                )
    return sizes


def resolve_lengths(subscripts: str, axes: Mapping[str, Axis], sizes: Mapping[str, int] | None) -> dict[str, int]:
    """The length of every index, see :meth:`feinsum.BatchedEinsum.resolve`; `axes` has the axis of each."""
    require_mapping(sizes)
    known = _long_axes(subscripts, axes, sizes or {})
    lengths: dict[str, int] = {}
    for letter, axis in axes.items():
        name = axis if isinstance(axis, str) else letter
        if not isinstance(axis, int) and name not in known:
            raise ShapeError(f"the long axis '{name}' of '{subscripts}' has no length; pass sizes={{'{name}': ...}}")
        lengths[letter] = axis if isinstance(axis, int) else known[name]
    return lengths


def _long_axes(subscripts: str, axes: Mapping[str, Axis], sizes: Mapping[str, int]) -> dict[str, int]:
    """The length of each long axis that `sizes` names, by itself or by the letter of an index."""
    named = {axis for axis in axes.values() if isinstance(axis, str)}
    known: dict[str, tuple[str, int]] = {}
    for key, length in sizes.items():
        if key not in named and key not in axes:
            raise ShapeError(f"sizes has {key!r}, which is neither a long axis nor an index of '{subscripts}'")
        if isinstance(length, bool) or not hasattr(length, "__index__") or length < 0:
            raise ShapeError(f"sizes[{key!r}] is {length!r}; a length is a non-negative integer")
        axis = key if key in named else axes[key]
        if isinstance(axis, int):
            if axis != length:
                raise ShapeError(f"sizes[{key!r}] is {length} but index '{key}' of '{subscripts}' is {axis}")
            continue
        name = axis if isinstance(axis, str) else key
        other, first = known.setdefault(name, (key, int(length)))
        if first != length:
            raise ShapeError(
                f"sizes[{other!r}] is {first} but sizes[{key!r}] is {length}, and both mean the long axis '{name}'"
                f" of '{subscripts}'; give one of them"
            )
    return {name: length for name, (_, length) in known.items()}


def check_repeated(subscripts: str, uses: Iterable[tuple[Array, str]], lengths: Mapping[str, int]) -> None:
    """Check that an array which stands in several operands has one shape in all of them."""
    known: dict[Array, str] = {}
    for a, letters in uses:
        for axis, (first, other) in enumerate(zip(known.setdefault(a, letters), letters, strict=True)):
            if lengths[first] != lengths[other]:
                raise ShapeError(
                    f"index '{first}' is {lengths[first]} but index '{other}' is {lengths[other]}, and both are axis"
                    f" {axis} of '{a.name}' in '{subscripts}'; make the lengths equal"
                )


def require_mapping(sizes: Any) -> None:
    """Check that lengths are given by name, if at all.

    :raises ShapeError: if they are not.
    """
    if not isinstance(sizes, Mapping | None):
        raise ShapeError(f"sizes is {sizes!r}; it gives lengths by name of long axis or index, as in {{'E': 1000}}")
