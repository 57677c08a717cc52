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

from feinsum.skeletons.common.digits import VECTOR_BYTES, Digits
from feinsum.skeletons.instructions.matrix_units import DEPTH, ROWS, SUB_GROUP

LINE_BYTES = 128
"""Bytes that the banks of local memory deliver together, on devices with sub-groups of 32; elsewhere padding does no
harm."""
_PADS = (0, 1, 2, 4, 8)
_PADDED_AXES = 3
_SAMPLED = 128
"""Work-items looked at: their pattern repeats."""


@dataclass(frozen=True)
class LocalLayout:
    """The layout of an array: the stride of each axis, and the number of places."""

    strides: tuple[int, ...]
    size: int

    def place(self, at: Sequence[Any]) -> Any:
        """The place of an entry; indices are ints or expressions."""
        return flattened_sum(tuple(flattened_product((i, n)) for i, n in zip(at, self.strides, strict=True)))


@dataclass(frozen=True)
class LocalAccess:
    """An access of all work-items together to an array, each at the place of its digits.

    :ivar deep: of the fragments of a matrix unit, whose lane (g, t) has the digits of row g and of number t of these.
    """

    digits: Digits
    weight: int
    deep: Digits | None = None


@lru_cache(maxsize=4096)
def padded_layout(
    letters: str,
    lengths: tuple[int, ...],
    accesses: tuple[LocalAccess, ...],
    itemsize: int,
    rows: bool = False,
    able: tuple[int, ...] | None = None,
) -> LocalLayout:
    """The layout in which the accesses take the fewest turns of the banks, the smallest of several.

    :param rows: whether work-items read along the last axis, so that rows have to begin where vectors can.
    :param able: the axes whose strides may be padded; by default all but the last.

    >>> column = Digits("i", (16,))  # work-item i reads row i of 8-byte numbers
    >>> padded_layout("ij", (16, 8), (LocalAccess(column, 8),), 8).strides
    (9, 1)
    """
    axes = [k for k, length in enumerate(lengths[:-1]) if length > 1 and (able is None or k in able)][-_PADDED_AXES:]
    choices = range(LINE_BYTES // itemsize) if len(axes) == 1 else _PADS
    every = list(product(choices, repeat=len(axes)))
    pads = np.zeros((len(every), len(lengths)), int)
    pads[:, axes] = every
    strides = _padded_strides(lengths, pads, VECTOR_BYTES // itemsize if rows else 1)
    turns = sum((access.weight * _turns(strides, letters, access, itemsize) for access in accesses), np.zeros(len(every)))
    # Sums of the same averages may differ in the last places.
    fewest = turns.min()
    alike = [k for k in np.flatnonzero(turns < fewest + 1e-5) if round(float(turns[k]), 6) == round(float(fewest), 6)]
    sizes = 1 + strides[alike] @ (np.array(lengths, int) - 1)
    best = int(sizes.argmin())
    return LocalLayout(tuple(strides[alike[best]].tolist()), int(sizes[best]))


def _padded_strides(lengths: tuple[int, ...], pads: Any, multiple: int) -> Any:
    """For each row of pads, the strides with a pad before each axis; all but the last are multiples of a number."""
    strides = np.ones_like(pads)
    for k in reversed(range(len(lengths) - 1)):
        strides[:, k] = -(-(strides[:, k + 1] * lengths[k + 1] + pads[:, k]) // multiple) * multiple
    return strides


def _turns(strides: Any, letters: str, access: LocalAccess, itemsize: int) -> Any:
    """For each row of strides, how many turns of the banks an access of one sub-line of work-items takes on average."""
    banks = LINE_BYTES // itemsize
    where = _entries(letters, access, banks)
    count = where.shape[1]
    line = np.arange(count) // banks
    # Work-items that read the same entry take one turn, whatever the strides.
    entries = strides[0] @ where
    _, single = np.unique(line * (entries.max() + 1) + entries, return_index=True)
    places = (strides @ where[:, single]) % banks
    lines = count // banks
    cells = (np.arange(len(strides))[:, None] * lines + line[single]) * banks + places
    met = np.bincount(cells.ravel(), minlength=len(strides) * count).reshape(len(strides), lines, banks)
    return met.max(axis=-1).mean(axis=-1)


def _entries(letters: str, access: LocalAccess, banks: int) -> Any:
    """The entry of an array that each of some work-items moves: shape ``(axes, work-items)``, in whole lines of banks."""
    digits = access.digits
    if access.deep is None:
        count = max(banks, min(_SAMPLED, digits.total) // banks * banks)
        at = digits.of(np.minimum(np.arange(count), digits.total - 1))
    else:
        count = _SAMPLED
        lane = np.arange(count)
        row = ROWS * (lane // SUB_GROUP) + lane % SUB_GROUP // DEPTH
        at = digits.of(np.minimum(row, digits.total - 1))
        at |= access.deep.of(np.minimum(lane % DEPTH, access.deep.total - 1))
    return np.array([at.get(letter, np.zeros(count, int)) for letter in letters], int).reshape(len(letters), count)
