"""Arguments: numpy arrays are laid out in memory as the types of parameters say, and what was written comes back.

An array has the shape of its memref, in whatever order it lies; what its type leaves unknown is packed, as column-major
strides.  The gaps of strided memrefs are poisoned, so that a kernel which reads them is found out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from feinsum.languages.calling.signature import BoundArgument
from feinsum.languages.tensor.arguments import check_array, signature, taker, wanted_strides
from feinsum.languages.tensor.interpreting.memory import ElementStorage, InterpretedGroup, InterpretedView
from feinsum.languages.tensor.ir import TensorFunction, TensorValue
from feinsum.languages.tensor.numbers import Numbers
from feinsum.languages.tensor.types import PointerGroup, TensorMemref


def bind_values(function: TensorFunction, arguments: Mapping[str, Any]) -> list[BoundArgument[TensorValue]]:
    """The arguments with the views of their elements, or the numbers that they are.

    :raises ValidationError, ShapeError, DTypeError: if an argument is missing, unknown, or does not fit its type.
    """
    return signature(function).bind(arguments, taker(function, _lay_out_array))


def values_of(bound: Sequence[BoundArgument[TensorValue]]) -> dict[TensorValue, Any]:
    """The values that the interpreter computes with, by parameter."""
    values: dict[TensorValue, Any] = {}
    for one in bound:
        if isinstance(type_ := one.parameter.type, PointerGroup):
            values[one.parameter] = _group(type_, one.value)
        else:
            values[one.parameter] = one.value[0] if isinstance(type_, TensorMemref) else one.value
    return values


def give_back(values: Mapping[TensorValue, Any], bound: Sequence[BoundArgument[TensorValue]]) -> None:
    """Copy the elements of written parameters back into the arrays that they came from."""
    for one in (one for one in bound if one.is_written):
        value = values[one.parameter]
        for number, array in enumerate(one.arrays):
            view = value.pick(np.asarray(number), np.ones((), bool)) if isinstance(value, InterpretedGroup) else value
            array[...] = _outside(view.memory.data[view.whole()], array.dtype)


def _group(type_: PointerGroup, views: Sequence[InterpretedView]) -> InterpretedGroup:
    """Memrefs one after the other in one memory, each after `offset` elements that are not its own."""
    lengths = np.array([len(view.memory.data) for view in views], np.int64)
    ends = np.cumsum(lengths + max(type_.offset or 0, 0))
    firsts = ends - lengths
    memory = ElementStorage.of_size(type_.memref.element, int(ends[-1]) if views else 0)
    for view, first, end in zip(views, firsts, ends, strict=True):
        memory.data[first:end] = view.memory.data
    shapes, strides = (
        tuple(np.array([own[mode] for own in each], np.int64) for mode in range(type_.memref.order))
        for each in ([view.shape for view in views], [view.strides for view in views])
    )
    return InterpretedGroup(memory, firsts, shapes, strides, firsts, ends)


def _lay_out_array(
    parameter: TensorValue, type_: TensorMemref, attributes: Mapping[str, Any], array: Any, name: str
) -> tuple[Any, InterpretedView]:
    """A memory that holds an array as its type says."""
    check_array(type_, attributes, array, name)
    strides = wanted_strides(type_, array.shape, attributes, name)
    length = 1 + sum((size - 1) * stride for size, stride in zip(array.shape, strides, strict=True)) if array.size else 0
    view = InterpretedView(ElementStorage.of_size(type_.element, length), 0, array.shape, strides, 0, length)
    view.memory.data[view.whole()] = _inside(array)
    return array, view


def _inside(array: Any) -> Numbers:
    """The elements of an argument as the machine stores them."""
    if array.dtype.name == "bfloat16":
        return np.asarray(array.astype(np.float32))
    if array.dtype == np.uint16:
        return np.asarray((array.astype(np.uint32) << 16).view(np.float32))
    return np.asarray(array)


def _outside(values: Numbers, dtype: Any) -> Any:
    """Elements as the argument stores them."""
    if dtype == np.uint16:
        return (np.ascontiguousarray(values).view(np.uint32) >> 16).astype(np.uint16)
    return np.asarray(values.astype(dtype))
