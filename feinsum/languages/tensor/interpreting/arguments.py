"""Arguments: numpy arrays are laid out in memory as the types of parameters say, and what was written comes back.

An array has the shape of its memref, in whatever order it lies; what its type leaves unknown is packed, as column-major
strides.  The gaps of strided memrefs are poisoned, so that a kernel which reads them is found out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from feinsum.languages.calling.arguments import check_names
from feinsum.languages.tensor.arguments import check_array, check_group, check_sizes, take_number, wanted_strides
from feinsum.languages.tensor.interpreting.memory import GroupOfViews, Memory, View
from feinsum.languages.tensor.ir import Function, Value
from feinsum.languages.tensor.numbers import Numbers, dtype_of
from feinsum.languages.tensor.types import Boolean, Group, Memref, Scalar


@dataclass(frozen=True, eq=False)
class Bound:
    """A parameter with its argument: what the machine computes with, and the arrays that it came from."""

    parameter: Value
    value: Any
    arrays: tuple[Any, ...] = ()
    views: tuple[View, ...] = ()

    def give_back(self) -> Any:
        """Write the elements into the arrays they came from; these."""
        for array, view in zip(self.arrays, self.views, strict=True):
            array[...] = _outside(view.memory.data[view.whole()], array.dtype)
        return list(self.arrays) if isinstance(self.parameter.type, Group) else self.arrays[0]


def bind(function: Function, arguments: Mapping[str, Any]) -> list[Bound]:
    """A value for each parameter.

    :raises ValidationError, ShapeError, DTypeError: if there is none, one too many, or one that does not fit its type.
    """
    check_names(str(function.name), [parameter.name for parameter in function.parameters], arguments)
    return [
        _bind(parameter, attributes, arguments[parameter.name])
        for parameter, attributes in zip(function.parameters, function.parameter_attributes, strict=True)
    ]


def _bind(parameter: Value, attributes: Mapping[str, Any], argument: Any) -> Bound:
    type_ = parameter.type
    if isinstance(type_, Memref):
        check_array(type_, argument, f"%{parameter.name}")
        view = _lay_out(argument, type_, attributes, f"%{parameter.name}")
        return Bound(parameter, view, (argument,), (view,))
    if isinstance(type_, Group):
        return _bind_group(parameter, type_, attributes, argument)
    assert isinstance(type_, (Scalar, Boolean))
    return Bound(parameter, take_number(type_, argument, f"%{parameter.name}"))


def _lay_out(array: Any, type_: Memref, attributes: Mapping[str, Any], name: str, offset: int = 0) -> View:
    """A memory that holds an array as its type says, behind `offset` elements that are not its own."""
    check_sizes(array.shape, attributes, name)
    strides = wanted_strides(type_, array.shape, attributes, name)
    length = 1 + sum((size - 1) * stride for size, stride in zip(array.shape, strides, strict=True)) if array.size else 0
    memory = Memory.of_size(type_.element, offset + length)
    view = View(memory, offset, array.shape, strides, offset, offset + length)
    memory.data[view.whole()] = _inside(array)
    return view


def _bind_group(parameter: Value, type_: Group, attributes: Mapping[str, Any], argument: Any) -> Bound:
    name = f"%{parameter.name}"
    check_group(type_, argument, name)
    arrays = list(argument)
    before = max(type_.offset or 0, 0)
    alone = [_lay_out(array, type_.memref, attributes, f"{name}[{number}]", before) for number, array in enumerate(arrays)]
    begins = np.cumsum([0, *(len(view.memory.data) for view in alone)])
    data = np.concatenate([view.memory.data for view in alone]) if alone else np.zeros(0, dtype_of(type_.memref.element))
    memory = Memory(type_.memref.element, data)
    views = [
        View(memory, before + int(begin), view.shape, view.strides, int(begin) + before, int(end))
        for view, begin, end in zip(alone, begins, begins[1:], strict=False)
    ]

    def column(values: Sequence[Any]) -> Any:
        return np.array(values, np.int64)

    modes = range(type_.memref.order)
    group = GroupOfViews(
        memory,
        column([view.offset for view in views]),
        tuple(column([view.shape[mode] for view in views]) for mode in modes),
        tuple(column([view.strides[mode] for view in views]) for mode in modes),
        column([view.first for view in views]),
        column([view.end for view in views]),
    )
    return Bound(parameter, group, tuple(arrays), tuple(views))


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
