"""Layouts: in which order the axes of an array are given to a kernel, and which of them are one there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class ContractionLayout:
    """The layout in which an array with some letters is given to a kernel.

    :ivar letters: in the order in which the axes lie in memory, slowest first; groups are one letter.
    :ivar order: the axes of the array in that order; None where it is theirs.
    :ivar joined: the axes of each letter, by number, where there are groups; None where there are none.
    """

    letters: str
    order: tuple[int, ...] | None
    joined: tuple[tuple[int, ...], ...] | None

    def apply(self, value: Any) -> Any:
        """The array in this order."""
        value = value if self.order is None else value.transpose(self.order)
        if self.joined is None:
            return value
        return value.reshape(tuple(int(np.prod([value.shape[axis] for axis in axes])) for axes in self.joined))

    def undo(self, value: Any, shape: tuple[int, ...]) -> Any:
        """The array that :meth:`apply` was given, of this shape, of one with this layout."""
        ordered = shape if self.order is None else tuple(shape[axis] for axis in self.order)
        value = value if self.joined is None else value.reshape(ordered)
        return value if self.order is None else value.transpose(tuple(np.argsort(self.order).tolist()))


def order_of(value: Any) -> tuple[int, ...]:
    """The axes of an array, those that move most in memory first."""
    return tuple(sorted(range(len(value.shape)), key=lambda axis: -value.strides[axis]))


def is_contiguous(value: Any, order: Sequence[int]) -> bool:
    """Whether an array has no gaps when its axes are put into this order."""
    return bool(value.transpose(tuple(order)).flags.c_contiguous) if len(order) else True


def make_layout(order: tuple[int, ...], letters: str, groups: Mapping[str, str]) -> ContractionLayout:
    """The layout of an array whose axes are put into this order, and then have these letters."""
    plain = None if order == tuple(range(len(order))) else order
    axes, names, k = [], "", 0
    by_first = {sequence[0]: (group, sequence) for group, sequence in groups.items()}
    while k < len(letters):
        group, sequence = by_first.get(letters[k], (letters[k], letters[k]))
        axes.append(tuple(range(k, k + len(sequence))))
        names += group
        k += len(sequence)
    return ContractionLayout(names, plain, tuple(axes) if len(axes) < len(letters) else None)


def find_groups(wanted: Sequence[str], terms: Sequence[str], contiguous: Sequence[bool]) -> dict[str, str]:
    """The groups that lie in memory as one index, by their first letters, in the order there."""
    found: dict[str, str] = {}
    taken = ""
    for group in wanted:
        having = [(term, fine) for term, fine in zip(terms, contiguous, strict=True) if set(group) & set(term)]
        order = next((s for s in (group[::-1], group) if all(s in term and fine for term, fine in having)), None)
        if order is not None and not set(group) & set(taken):
            found[order[0]] = order
            taken += group
    return found
