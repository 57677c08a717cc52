"""Arguments of a compiled function: which arrays fit its parameters, and where their elements lie.

An array has the shape of its memref, column-major or as the strides of the type say.  Static strides bind; those that the
type leaves open are taken from the array.  What a type promises (alignment, divisors of sizes and strides) is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from feinsum.compile.call_cache import CallCache
from feinsum.errors import ValidationError
from feinsum.languages.calling.signature import Taken
from feinsum.languages.tensor.arguments import check_array, stride_divisors, taker, wanted_strides
from feinsum.languages.tensor.ir import TensorFunction, TensorValue
from feinsum.languages.tensor.types import BF16, Extent, TensorMemref


class Layout(NamedTuple):
    """Where the elements of an array are to lie, in elements, and whether they do."""

    strides: tuple[int, ...]
    fits: bool


def layouts(function: TensorFunction) -> Callable[[str, TensorValue, Any], Taken]:
    """The function that ``Signature.bind`` needs: the value of an array is its :class:`Layout`.

    The layout of an array is remembered by its class, shape, strides and type.
    """
    known = CallCache[Layout]()

    def lay_out(
        parameter: TensorValue, type_: TensorMemref, attributes: Mapping[str, Any], array: Any, name: str
    ) -> tuple[Any, Layout]:
        # an alignment depends on more than what is remembered, and a type that is no numpy type is viewed as one
        lasting = type_.element != BF16 and "alignment" not in attributes and hasattr(array, "strides")
        key = (parameter, array.__class__, array.shape, array.strides, array.dtype) if lasting else None
        layout = known.get(key)
        if layout is None:
            check_array(type_, attributes, array, name)
            array = _as_bits(type_, array)
            layout = _layout(type_, array, attributes, name)
            if key is not None:
                known[key] = layout
        return array, layout

    return taker(function, lay_out)


def _as_bits(type_: TensorMemref, array: Any) -> Any:
    """An array; bf16 as its bits."""
    return array.view(np.uint16) if type_.element == BF16 and array.dtype != np.uint16 else array


def _layout(type_: TensorMemref, array: Any, attributes: Mapping[str, Any], name: str) -> Layout:
    own = _fitting_strides(type_.strides, array, stride_divisors(type_, attributes))
    alignment = attributes.get("alignment", 1)
    address = array.ctypes.data if isinstance(array, np.ndarray) else array.offset
    if own is not None and array.size and address % alignment:
        if not isinstance(array, np.ndarray):
            raise ValidationError(f"{name} promises an alignment of {alignment} bytes, and begins at byte {address}")
        return Layout(own, False)
    return Layout(wanted_strides(type_, array.shape, attributes, name) if own is None else own, own is not None)


def _fitting_strides(wanted: Sequence[Extent], array: Any, multiples: Sequence[int]) -> tuple[int, ...] | None:
    """The strides of an array, in elements, if a type allows them."""
    strides, least = [], 1
    for size, step, extent, multiple in zip(array.shape, array.strides, wanted, multiples, strict=True):
        stride, rest = divmod(step, array.dtype.itemsize)
        if size <= 1 or array.size == 0:
            # where there is no neighbour any stride will do
            stride = extent if extent is not None else -(-max(least, 1) // multiple) * multiple
        elif rest or stride < least or stride % multiple or extent not in (None, stride):
            return None
        if stride < least and array.size:
            return None
        strides.append(stride)
        least = stride * max(size, 1)
    return tuple(strides)
