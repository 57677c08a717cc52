"""The types of the tensor language: scalars, memrefs, groups of them, and matrices that a sub-group holds.

Unknown sizes and strides (``?``) are None.  Strides are always there, so that a packed memref and the same one with its
strides spelled out are equal.  `promotable(a, b)` is the partial order a ≼ b of the reference.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

Extent: TypeAlias = int | None
"""A size or stride: a number, or None for ``?``."""


@dataclass(frozen=True, slots=True)
class Void:
    """The type of what gives no value; no value has it."""

    def __str__(self) -> str:
        return "void"


@dataclass(frozen=True, slots=True)
class Boolean:
    """True or false."""

    def __str__(self) -> str:
        return "bool"


@dataclass(frozen=True, slots=True)
class UnknownTensorType:
    """The type of a name that stands for nothing; an error has said so, and what depends on it is not checked."""

    def __str__(self) -> str:
        return "unknown"


@dataclass(frozen=True, slots=True)
class TensorScalar:
    """A number: signless integers, floating point and complex numbers of two of these."""

    name: str

    @property
    def is_integer(self) -> bool:
        return self.name[0] == "i"

    @property
    def is_floating(self) -> bool:
        return self.name in ("bf16", "f16", "f32", "f64")

    @property
    def is_complex(self) -> bool:
        return self.name[0] == "c"

    @property
    def size_bytes(self) -> int:
        """The size in bytes; ``index`` has 64 bits, as everywhere in feinsum."""
        return _BYTES[self.name]

    @property
    def component(self) -> TensorScalar:
        """The type of the real and of the imaginary part."""
        return {"c32": F32, "c64": F64}.get(self.name, self)

    def __str__(self) -> str:
        return self.name


_BYTES: Final = {
    "i8": 1, "i16": 2, "i32": 4, "i64": 8, "index": 8, "bf16": 2, "f16": 2, "f32": 4, "f64": 8, "c32": 8, "c64": 16
}  # fmt: skip

SCALARS: Final = {name: TensorScalar(name) for name in _BYTES}
I8, I16, I32, I64, INDEX, BF16, F16, F32, F64, C32, C64 = SCALARS.values()
VOID, BOOL, UNKNOWN = Void(), Boolean(), UnknownTensorType()

_PROMOTIONS: Final = {
    "i8": "i8 i16 i32 i64 index bf16 f16 f32 f64 c32 c64",
    "i16": "i16 i32 i64 index f32 f64 c32 c64",
    "i32": "i32 i64 index f64 c32 c64",
    "i64": "i64",
    "index": "index",
    "bf16": "bf16 f32 f64 c32 c64",
    "f16": "f16 f32 f64 c32 c64",
    "f32": "f32 f64 c32 c64",
    "f64": "f64 c64",
    "c32": "c32 c64",
    "c64": "c64",
}
"""The matrix of the reference, row by row; ``index``, which it leaves out, goes with i64."""
_PROMOTABLE: Final = frozenset((a, b) for a, row in _PROMOTIONS.items() for b in row.split())


def promotable(a: TensorScalar, b: TensorScalar) -> bool:
    """Whether a ≼ b: each value of `a` is one of `b`.

    The matrix has i32 ≼ c32, though c32 holds no integer of more than 24 bits exactly; the matrix decides.

    >>> promotable(F32, F64), promotable(I32, F32)
    (True, False)
    """
    return (a.name, b.name) in _PROMOTABLE


def promote(a: TensorScalar, b: TensorScalar) -> TensorScalar | None:
    """The wider of two types; None where neither holds the other."""
    return b if promotable(a, b) else a if promotable(b, a) else None


def packed_strides(shape: Iterable[Extent]) -> tuple[Extent, ...]:
    """Column-major strides without gaps, in elements.

    >>> packed_strides((5, 6, 7)), packed_strides((5, None, 7))
    ((1, 5, 30), (1, 5, None))
    """
    strides: list[Extent] = []
    stride: Extent = 1
    for extent in shape:
        strides.append(stride)
        stride = None if stride is None or extent is None else stride * extent
    return tuple(strides)


@dataclass(frozen=True, slots=True)
class TensorMemref:
    """A reference to an array in memory.

    :ivar shape: sizes, first mode first; none of them for a single element.
    :ivar strides: distances in elements between neighbours of each mode.
    :ivar local: whether it lies in the memory of the work-group.
    """

    element: TensorScalar
    shape: tuple[Extent, ...]
    strides: tuple[Extent, ...]
    local: bool = False

    @property
    def order(self) -> int:
        """The number of modes."""
        return len(self.shape)

    @property
    def is_packed(self) -> bool:
        """Whether the strides are those of :func:`packed_strides`."""
        return self.strides == packed_strides(self.shape)

    def __str__(self) -> str:
        parts = ["x".join([self.element.name, *map(written_extent, self.shape)])]
        if not self.is_packed:
            parts.append(f"strided<{','.join(map(written_extent, self.strides))}>")
        if self.local:
            parts.append("local")
        return f"memref<{','.join(parts)}>"


@dataclass(frozen=True, slots=True)
class PointerGroup:
    """Pointers to memrefs, each moved on by `offset` elements."""

    memref: TensorMemref
    size: Extent
    offset: Extent = 0

    def __str__(self) -> str:
        offset = "" if self.offset == 0 else f",offset:{written_extent(self.offset)}"
        return f"group<{self.memref}x{written_extent(self.size)}{offset}>"


@dataclass(frozen=True, slots=True)
class Coopmatrix:
    """A matrix whose parts the work-items of a sub-group hold; `use` is its place in a product."""

    component: TensorScalar
    rows: int
    columns: int
    use: str

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows, self.columns

    def __str__(self) -> str:
        return f"coopmatrix<{self.component}x{self.rows}x{self.columns},{self.use}>"


Type: TypeAlias = Void | Boolean | UnknownTensorType | TensorScalar | TensorMemref | PointerGroup | Coopmatrix


@lru_cache(maxsize=4096)
def make_tensor_memref(
    element: TensorScalar, shape: tuple[Extent, ...], strides: tuple[Extent, ...] | None = None, local: bool = False
) -> TensorMemref:
    """A memref, packed unless strides are given.

    >>> print(make_tensor_memref(F32, (4, None)), make_tensor_memref(F64, (3, 3), (1, 4), local=True))
    memref<f32x4x?> memref<f64x3x3,strided<1,4>,local>
    """
    return TensorMemref(element, shape, packed_strides(shape) if strides is None else strides, local)


def written_extent(extent: Extent) -> str:
    """A size or stride as the language writes it."""
    return "?" if extent is None else str(extent)
