"""The types of the immediate language: scalars, memrefs with strides, and groups of them.

Strides are always there, so that ``memref<f32x5x6x7>`` and ``memref<f32x5x6x7,strided<1,5,30>>`` are equal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np


@dataclass(frozen=True, slots=True)
class ImmediateScalar:
    """A number: ``i8`` to ``i64``, ``u8`` to ``u64``, ``f32`` and ``f64``."""

    name: str

    @property
    def is_integer(self) -> bool:
        return self.name[0] in "iu"

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The type of numpy.

        >>> SCALARS["u16"].dtype, SCALARS["f32"].dtype
        (dtype('uint16'), dtype('float32'))
        """
        return np.dtype(f"{self.name[0]}{int(self.name[1:]) // 8}")

    @property
    def greatest(self) -> int:
        """The greatest integer."""
        bits = int(self.name[1:]) - (self.name[0] == "i")
        return (1 << bits) - 1

    def holds(self, number: float) -> bool:
        """Whether a constant is a value of this type, or rounds to a finite one.

        >>> SCALARS["u8"].holds(-1.0), SCALARS["i8"].holds(1.5), SCALARS["f32"].holds(0.1), SCALARS["f32"].holds(1e39)
        (False, False, True, False)
        """
        if not self.is_integer:
            with np.errstate(over="ignore"):
                return bool(np.isfinite(self.dtype.type(number)))
        least = -self.greatest - 1 if self.name[0] == "i" else 0
        return number == int(number) and least <= int(number) <= self.greatest

    def __str__(self) -> str:
        return self.name


SCALARS: Final = {name: ImmediateScalar(name) for name in "i8 i16 i32 i64 u8 u16 u32 u64 f32 f64".split()}


@dataclass(frozen=True, slots=True)
class UnknownImmediateType:
    """The type of a name that stands for nothing; an error has said so, and what depends on it is not checked."""

    def __str__(self) -> str:
        return "unknown"


UNKNOWN: Final = UnknownImmediateType()


def packed_strides(shape: Iterable[int]) -> tuple[int, ...]:
    """Column-major strides without gaps, in elements.

    >>> packed_strides((5, 6, 7))
    (1, 5, 30)
    """
    strides = []
    stride = 1
    for length in shape:
        strides.append(stride)
        stride *= length
    return tuple(strides)


@dataclass(frozen=True, slots=True)
class ImmediateMemref:
    """A tensor in memory.

    :ivar shape: lengths, first index first; none of them for a single number.
    :ivar strides: distances in elements between neighbours along each index; the first one moves least.
    """

    element: ImmediateScalar
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def order(self) -> int:
        """The number of indices."""
        return len(self.shape)

    @property
    def is_packed(self) -> bool:
        """Whether there are no gaps."""
        return self.strides == packed_strides(self.shape)

    @property
    def extent(self) -> int:
        """Elements from the first one to behind the last one.

        >>> make_immediate_memref(SCALARS["f32"], (3, 2), (1, 4)).extent
        7
        """
        return 1 + sum((length - 1) * stride for length, stride in zip(self.shape, self.strides, strict=True))

    def __str__(self) -> str:
        shape = "x".join([self.element.name, *map(str, self.shape)])
        return f"memref<{shape}>" if self.is_packed else f"memref<{shape},strided<{','.join(map(str, self.strides))}>>"


def make_immediate_memref(
    element: ImmediateScalar, shape: tuple[int, ...], strides: tuple[int, ...] | None = None
) -> ImmediateMemref:
    """A memref, packed unless strides are given.

    >>> print(make_immediate_memref(SCALARS["f32"], (5, 6, 7), (1, 5, 30)))
    memref<f32x5x6x7>
    >>> print(make_immediate_memref(SCALARS["f64"], (3, 3), (1, 4)))
    memref<f64x3x3,strided<1,4>>
    """
    return ImmediateMemref(element, shape, packed_strides(shape) if strides is None else strides)


@dataclass(frozen=True, slots=True)
class MemrefGroup:
    """Memrefs of one type, one for each work-item.

    :ivar distance: elements between neighbours; None for a pointer to each of them.
    """

    memref: ImmediateMemref
    distance: int | None

    def __str__(self) -> str:
        layout = "pointers" if self.distance is None else f"distance<{self.distance}>"
        return f"group<{self.memref},{layout}>"


Type: TypeAlias = ImmediateScalar | ImmediateMemref | MemrefGroup | UnknownImmediateType
