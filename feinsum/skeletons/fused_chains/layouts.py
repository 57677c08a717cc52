"""Arrays in local memory padded against bank conflicts: an entry x of an array lies at ``Σ stride[x] x``.

Lanes that meet in one bank at different addresses wait for one another, so the strides are padded until few do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from pymbolic.primitives import flattened_product, flattened_sum

from feinsum.devices.ptx import SUB_GROUP
from feinsum.skeletons.common.digits import VECTOR_BYTES, Digits
from feinsum.skeletons.nvidia.matrix_units import DEPTH, ROWS

LINE_BYTES = 128
"""Bytes that the banks of local memory deliver together, on devices with sub-groups of 32; elsewhere padding does no
harm."""
_PADS = (0, 1, 2, 4, 8)
_PADDED_AXES = 3
_SAMPLED = 128
"""Work-items looked at: their pattern repeats."""


@dataclass(frozen=True)
class Layout:
    """The layout of an array: the stride of each axis, and the number of places."""

    strides: tuple[int, ...]
    size: int

    def place(self, at: Sequence[Any]) -> Any:
        """The place of an entry; indices are ints or expressions."""
        return flattened_sum(tuple(flattened_product((i, n)) for i, n in zip(at, self.strides, strict=True)))


@dataclass(frozen=True)
class Access:
    """An access of all work-items together to an array, each at the place of its digits.

    :ivar deep: of the fragments of a matrix unit, whose lane (g, t) has the digits of row g and of number t of these.
    """

    digits: Digits
    weight: int
    deep: Digits | None = None


@lru_cache(maxsize=4096)
def padded(
    letters: str,
    lengths: tuple[int, ...],
    accesses: tuple[Access, ...],
    itemsize: int,
    rows: bool = False,
    able: tuple[int, ...] | None = None,
) -> Layout:
    """The layout in which the accesses take the fewest turns of the banks, the smallest of several.

    :param rows: whether work-items read along the last axis, so that rows have to begin where vectors can.
    :param able: the axes whose strides may be padded; by default all but the last.

    >>> column = Digits("i", (16,))  # work-item i reads row i of 8-byte numbers
    >>> padded("ij", (16, 8), (Access(column, 8),), 8).strides
    (9, 1)
    """
    axes = [k for k, length in enumerate(lengths[:-1]) if length > 1 and (able is None or k in able)][-_PADDED_AXES:]
    found = []
    choices = range(LINE_BYTES // itemsize) if len(axes) == 1 else _PADS
    for pads in product(choices, repeat=len(axes)):
        all_pads = [0] * len(lengths)
        for axis, pad in zip(axes, pads, strict=True):
            all_pads[axis] = pad
        found.append(_layout(lengths, tuple(all_pads), VECTOR_BYTES // itemsize if rows else 1))
    strides = np.array([layout.strides for layout in found]).reshape(len(found), len(letters))
    turns = sum(access.weight * _turns(strides, letters, access, itemsize) for access in accesses)
    best = min(range(len(found)), key=lambda k: (round(float(np.broadcast_to(turns, len(found))[k]), 6), found[k].size))
    return found[best]


def _layout(lengths: tuple[int, ...], pads: tuple[int, ...], multiple: int) -> Layout:
    """The layout with a pad before each axis, and all strides but the last multiples of a number."""
    strides: list[int] = []
    stride = 1
    for length, pad in reversed(list(zip(lengths, pads, strict=True))):
        stride = stride + pad if not strides else -(-(stride + pad) // multiple) * multiple
        strides.append(stride)
        stride *= length
    strides.reverse()
    return Layout(tuple(strides), 1 + sum((n - 1) * s for n, s in zip(lengths, strides, strict=True)))


def _turns(strides: Any, letters: str, access: Access, itemsize: int) -> Any:
    """For each row of strides, how many turns of the banks an access of one sub-line of work-items takes on average."""
    banks, digits = LINE_BYTES // itemsize, access.digits
    if access.deep is None:
        count = max(banks, min(_SAMPLED, digits.total) // banks * banks)
        at = digits.of(np.minimum(np.arange(count), digits.total - 1))
    else:
        count = _SAMPLED
        lane = np.arange(count)
        row = ROWS * (lane // SUB_GROUP) + lane % SUB_GROUP // DEPTH
        at = digits.of(np.minimum(row, digits.total - 1))
        at |= access.deep.of(np.minimum(lane % DEPTH, access.deep.total - 1))
    where = np.array([at.get(letter, np.zeros(count, int)) for letter in letters]).reshape(len(letters), count)
    places = np.sort((strides @ where).reshape(len(strides), -1, banks), axis=-1)
    fresh = np.concatenate([np.ones_like(places[..., :1], bool), places[..., 1:] != places[..., :-1]], axis=-1)
    met = (places % banks)[..., None] == np.arange(banks)
    return (met & fresh[..., None]).sum(axis=-2).max(axis=-1).mean(axis=-1)
