"""Memory: flat arrays of elements, and views of them by offset, sizes and strides.

Offsets, sizes and strides are integers, or arrays with one for each work-item where work-items look at different places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from feinsum.languages.tensor.numbers import Numbers, poison
from feinsum.languages.tensor.types import TensorScalar

Integers: TypeAlias = NDArray[np.int64]
Bound: TypeAlias = "int | Integers"
"""An integer, or one for each work-item."""


class OutOfBoundsError(Exception):
    """An element that does not exist; says which."""


@dataclass(frozen=True, eq=False)
class ElementStorage:
    """Elements of one type."""

    element: TensorScalar
    data: Numbers

    @classmethod
    def of_size(cls, element: TensorScalar, size: int) -> ElementStorage:
        """New memory, not written yet."""
        return cls(element, poison(element, (size,)))


@dataclass(frozen=True, eq=False)
class InterpretedView:
    """Elements ``offset + Σ i_k strides_k`` of a memory, of which those from `first` to before `end` are its to use."""

    memory: ElementStorage
    offset: Bound
    shape: tuple[Bound, ...]
    strides: tuple[Bound, ...]
    first: Bound
    end: Bound

    def positions(self, indices: Sequence[Any], active: NDArray[np.bool_]) -> Integers:
        """Where the elements of indices lie, which may be arrays; 0 where they are not active.

        :raises OutOfBoundsError: if an active one does not exist.
        """
        place = np.asarray(self.offset, np.int64)
        for mode, (index, size, stride) in enumerate(zip(indices, self.shape, self.strides, strict=True)):
            outside = active & ((np.asarray(index) < 0) | (np.asarray(index) >= size))
            if outside.any():
                index, size = _first_of(outside, index), _first_of(outside, size)
                raise OutOfBoundsError(f"index {index} of mode {mode}, whose size is {size}")
            place = place + np.asarray(index, np.int64) * stride
        place = np.broadcast_to(place, active.shape)
        outside = active & ((place < self.first) | (place >= self.end))
        if outside.any():
            raise OutOfBoundsError(
                f"element {_first_of(outside, place - self.first)} of an array with {self._size(outside)}"
            )
        return np.where(active, place, 0)

    def _size(self, outside: NDArray[np.bool_]) -> int:
        return _first_of(outside, np.asarray(self.end) - np.asarray(self.first))

    def whole(self) -> Integers:
        """Where all elements lie, in an array of the view's shape; for views that all work-items share.

        :raises OutOfBoundsError: if one does not exist.
        """
        shape = tuple(int(np.asarray(size).reshape(-1)[0]) for size in self.shape)
        grid = np.indices(shape, dtype=np.int64) if shape else np.zeros((0,), np.int64)
        shared = InterpretedView(
            self.memory, _one(self.offset), shape, tuple(map(_one, self.strides)), _one(self.first), _one(self.end)
        )
        return shared.positions(list(grid), np.ones(shape, bool))


def _one(bound: Bound) -> int:
    """The integer that all work-items share."""
    return int(np.asarray(bound).reshape(-1)[0])


def _first_of(where: NDArray[np.bool_], values: Any) -> int:
    return int(np.broadcast_to(values, where.shape)[where][0])


@dataclass(frozen=True, eq=False)
class InterpretedGroup:
    """Memrefs in one memory: offsets, sizes and strides have an entry for each."""

    memory: ElementStorage
    offsets: Integers
    shapes: tuple[Integers, ...]
    strides: tuple[Integers, ...]
    firsts: Integers
    ends: Integers

    @property
    def size(self) -> int:
        """The number of memrefs."""
        return len(self.offsets)

    def pick(self, index: Integers, active: NDArray[np.bool_]) -> InterpretedView:
        """The memref of an index, or of each work-item's index.

        :raises OutOfBoundsError: if an active one does not exist.
        """
        outside = active & ((index < 0) | (index >= self.size))
        if outside.any():
            raise OutOfBoundsError(f"memref {_first_of(outside, index)} of a group of {self.size}")
        index = np.where(np.broadcast_to(active, np.broadcast_shapes(active.shape, index.shape)), index, 0)
        if not self.size:
            nothing = np.zeros((1,), np.int64)
            return InterpretedView(self.memory, 0, (nothing,) * len(self.shapes), (nothing,) * len(self.shapes), 0, 0)
        return InterpretedView(
            self.memory,
            self.offsets[index],
            tuple(sizes[index] for sizes in self.shapes),
            tuple(strides[index] for strides in self.strides),
            self.firsts[index],
            self.ends[index],
        )
