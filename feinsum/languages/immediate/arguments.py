"""Arguments: numpy arrays with the shapes of memrefs, a group with one more axis in front, checked before anything runs.

A group of pointers is a list of arrays, or a pool and an offset into it for each item: ``(pool, offsets)``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from feinsum.errors import ValidationError
from feinsum.languages.calling.arguments import check_array, is_own_array, take_number
from feinsum.languages.calling.protocols import INSTANCES
from feinsum.languages.calling.signature import BoundArgument, Signature, Taken
from feinsum.languages.immediate.syntax import (
    Fixed,
    GetWorkItem,
    ImmediateFunction,
    ImmediateParameter,
    ImmediateUpdate,
    Subview,
)
from feinsum.languages.immediate.types import ImmediateMemref, ImmediateScalar, MemrefGroup

BoundParameter: TypeAlias = BoundArgument[ImmediateParameter]
"""A parameter with its argument.  The value is an array, a number, or the items of a group: an array with one more axis in
front, or a list of arrays."""


def signature(function: ImmediateFunction) -> Signature[ImmediateParameter]:
    """The parameters of a function."""
    parameters = {p.name.text: p for p in function.parameters}
    origin = {name: name for name in parameters}
    for instruction in function.walk():
        if isinstance(instruction, (GetWorkItem, Subview)) and instruction.operand.text in origin:
            origin[instruction.result.text] = origin[instruction.operand.text]
    changed = {origin[i.result.text] for i in function.walk() if isinstance(i, ImmediateUpdate) and i.result.text in origin}
    sizes = (INSTANCES,) if any(isinstance(parameter.type, MemrefGroup) for parameter in function.parameters) else ()
    return Signature(f"@{function.name}", parameters, tuple(n for n in parameters if n in changed), sizes=sizes)


def bind_parameters(own: Signature[ImmediateParameter], arguments: Mapping[str, Any]) -> list[BoundParameter]:
    """A value for each parameter.

    :raises ValidationError, ShapeError, DTypeError: if there is none, one too many, or one that does not fit its type.
    """
    bound = own.bind(arguments, _take)
    for one in bound:
        if one.is_written and isinstance(one.parameter.type, MemrefGroup) and _is_pool(one.given):
            _check_item_offsets(one.name, one.given[1], one.parameter.type.memref.extent)
    return bound


def _take(name: str, parameter: ImmediateParameter, argument: Any) -> Taken:
    type_ = parameter.type
    if isinstance(type_, ImmediateMemref):
        return (argument,), _check_memref(name, type_, argument, type_.shape)
    if isinstance(type_, MemrefGroup):
        items = _check_item_arrays(name, type_, argument)
        return [argument[0]] if _is_pool(argument) else items if isinstance(items, list) else [items], items
    assert isinstance(type_, ImmediateScalar)
    number = take_number(name, type_, argument, type_.dtype).item()
    if not type_.holds(number):
        raise ValidationError(f"{name} is {type_}, but its argument {argument!r} is no value of this type")
    return (), int(number) if type_.is_integer else float(number)


def _is_pool(argument: Any) -> bool:
    """Whether the items of a group are given as ``(pool, offsets)``."""
    return isinstance(argument, tuple) and len(argument) == 2 and is_own_array(argument[0]) and argument[0].ndim == 1


def _check_memref(name: str, type_: ImmediateMemref, argument: Any, shape: tuple[int | None, ...]) -> Any:
    check_array(name, type_, argument, type_.element.dtype, shape)
    return argument


def _check_item_arrays(name: str, type_: MemrefGroup, argument: Any) -> Any:
    memref = type_.memref
    if is_own_array(argument):
        return _check_memref(name, memref, argument, (None, *memref.shape))
    if type_.distance is not None:
        raise ValidationError(
            f"{name} is {type_}: pass an array with an axis of items in front, not {type(argument).__name__}"
        )
    if _is_pool(argument):
        return pool_items(name, memref, *argument)
    if not isinstance(argument, Sequence) or isinstance(argument, str):
        raise ValidationError(f"{name} is a group of pointers: pass a list of arrays, or (pool, offsets)")
    return [_check_memref(f"{name}[{k}]", memref, array, memref.shape) for k, array in enumerate(argument)]


def pool_items(name: str, memref: ImmediateMemref, pool: Any, offsets: Any) -> Any:
    """The items in a pool of elements, laid out as the type says: one array where they lie at equal distances, else a list.

    :raises ValidationError: if one is not inside, or if they lie anywhere in a device array.
    """
    places = np.asarray(offsets)
    _check_memref(name, memref, pool, (None,))
    if places.ndim != 1 or places.dtype.kind not in "iu":
        raise ValidationError(f"{name} is (pool, offsets), and the offsets are integers, one for each item")
    outside = places[(places < 0) | (places > pool.size - memref.extent)]
    if outside.size:
        raise ValidationError(
            f"{name} has an item at {int(outside[0])}, of {memref.extent} elements, in a pool of {pool.size}"
        )
    steps = np.diff(places)
    step = int(steps[0]) if len(steps) else memref.extent
    if places.size and step >= 0 and (steps == step).all():
        return _strided_pool(pool, int(places[0]), (places.size, *memref.shape), (step, *memref.strides))
    if not isinstance(pool, np.ndarray):
        raise ValidationError(
            f"{name} is a device array whose items do not lie at equal distances, and pointers of devices are not followed;"
            " pass numpy arrays, or copy the items to one array"
        )
    return [_strided_pool(pool, int(place), memref.shape, memref.strides) for place in places]


def _strided_pool(pool: Any, first: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    size = pool.dtype.itemsize
    steps = tuple(step * size for step in strides)
    if isinstance(pool, np.ndarray):
        return np.lib.stride_tricks.as_strided(pool[first:], shape, steps, writeable=pool.flags.writeable)
    return type(pool)(
        pool.queue,
        shape,
        pool.dtype,
        strides=steps,
        data=pool.base_data,
        offset=pool.offset + first * size,
        events=pool.events,
    )


def _check_item_offsets(name: str, offsets: Any, extent: int) -> None:
    if (np.diff(np.sort(np.asarray(offsets))) < extent).any():
        raise ValidationError(f"items of {name} overlap, and are written: each takes {extent} elements")


def instances(function: ImmediateFunction, bound: Sequence[BoundParameter], count: int | None) -> int:
    """The number of work-items: the length of the shortest group behind its offset, or fewer if `count` says so.

    :raises ValidationError: if there are not as many as `count`, or an index is outside of what it is an index of.
    """
    values = {one.parameter.name.text: one.value for one in bound}
    check_numbers(function, values)
    least: tuple[int, str] | None = None
    for instruction in function.walk():
        if isinstance(instruction, GetWorkItem):
            offset = values[instruction.offset[1].text] if instruction.offset else 0
            if offset < 0:
                raise ValidationError(f"%{instruction.offset[1].text} is {offset}, and an offset is not negative")  # type: ignore[index]
            length = max(len(values[instruction.operand.text]) - offset, 0)
            if least is None or length < least[0]:
                least = length, f"{instruction.operand}"
    if least is None:
        if count not in (None, 1):
            raise ValidationError(f"@{function.name} fetches no item of a group, so it is executed once, not {count} times")
        return 1
    if count is not None and count > least[0]:
        raise ValidationError(f"count is {count}, and {least[1]} has {least[0]} items from its offset on")
    return least[0] if count is None else count


def check_numbers(function: ImmediateFunction, values: Mapping[str, Any]) -> None:
    """Check the arguments that are indices of subviews.

    :raises ValidationError: if one is outside.
    """
    for instruction in function.walk():
        if not isinstance(instruction, Subview):
            continue
        for entry, length in zip(instruction.entries, instruction.source.shape, strict=True):
            name = entry.at if isinstance(entry, Fixed) else None
            if name is None or isinstance(name, int) or name.text not in values:
                continue
            if not 0 <= values[name.text] < length:
                raise ValidationError(f"{name} is {values[name.text]}, outside of [0, {length}) of {instruction.operand}")
