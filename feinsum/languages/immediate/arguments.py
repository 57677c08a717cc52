"""Arguments: numpy arrays with the shapes of memrefs, a group with one more axis in front, checked before anything runs.

A group of pointers is a list of arrays, or a pool and an offset into it for each item: ``(pool, offsets)``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from feinsum.errors import ValidationError
from feinsum.languages.calling.arguments import check_array, check_names, is_array, require_one_library, take_number
from feinsum.languages.calling.overlap import check_apart
from feinsum.languages.immediate.syntax import Fixed, Function, GetWorkItem, Parameter, Subview, Update
from feinsum.languages.immediate.types import Group, Memref, Scalar, Type


@dataclass(frozen=True, eq=False)
class Bound:
    """A parameter with its argument.

    :ivar value: an array, a number, or the items of a group: an array with one more axis in front, or a list of arrays.
    :ivar argument: what was passed.
    """

    name: str
    type: Type
    value: Any
    argument: Any
    is_written: bool

    @property
    def arrays(self) -> list[Any]:
        """The arrays that hold its memory."""
        if isinstance(self.argument, tuple):
            return [self.argument[0]]
        return self.value if isinstance(self.value, list) else [self.value] if is_array(self.value) else []


def written(function: Function) -> set[str]:
    """The names of parameters that a function writes."""
    origin = {p.name.text: p.name.text for p in function.parameters}
    for instruction in function.walk():
        if isinstance(instruction, (GetWorkItem, Subview)) and instruction.operand.text in origin:
            origin[instruction.result.text] = origin[instruction.operand.text]
    return {origin[i.result.text] for i in function.walk() if isinstance(i, Update) and i.result.text in origin}


def bind(function: Function, arguments: Mapping[str, Any], changed: set[str] | None = None) -> list[Bound]:
    """A value for each parameter.

    :param changed: those that are written, if that is known.
    :raises ValidationError, ShapeError, DTypeError: if there is none, one too many, or one that does not fit its type.
    """
    check_names(str(function.name), [p.name.text for p in function.parameters], arguments)
    changed = written(function) if changed is None else changed
    return [
        Bound(p.name.text, p.type, _value(p, arguments[p.name.text]), arguments[p.name.text], p.name.text in changed)
        for p in function.parameters
    ]


def _value(parameter: Parameter, argument: Any) -> Any:
    name, type_ = str(parameter.name), parameter.type
    if isinstance(type_, Memref):
        return _array(name, type_, argument, type_.shape)
    if isinstance(type_, Group):
        return _items(name, type_, argument)
    assert isinstance(type_, Scalar)
    number = take_number(name, type_, argument, "biu" if type_.is_integer else "biuf")
    if not type_.holds(number.item()):
        raise ValidationError(f"{name} is {type_}, and its argument {argument!r} is no value of this type")
    return int(number) if type_.is_integer else float(number)


def _array(name: str, type_: Memref, argument: Any, shape: tuple[int | None, ...]) -> Any:
    check_array(name, type_, argument, type_.element.dtype, shape)
    return argument


def _items(name: str, type_: Group, argument: Any) -> Any:
    memref = type_.memref
    if is_array(argument):
        return _array(name, memref, argument, (None, *memref.shape))
    if type_.distance is not None:
        raise ValidationError(
            f"{name} is {type_}: pass an array with an axis of items in front, not {type(argument).__name__}"
        )
    if isinstance(argument, tuple) and len(argument) == 2 and is_array(argument[0]) and argument[0].ndim == 1:
        return pool_items(name, memref, *argument)
    if not isinstance(argument, Sequence) or isinstance(argument, str):
        raise ValidationError(f"{name} is a group of pointers: pass a list of arrays, or (pool, offsets)")
    return [_array(f"{name}[{k}]", memref, array, memref.shape) for k, array in enumerate(argument)]


def pool_items(name: str, memref: Memref, pool: Any, offsets: Any) -> Any:
    """The items in a pool of elements, laid out as the type says: one array where they lie at equal distances, else a list.

    :raises ValidationError: if one is not inside, or if they lie anywhere in a device array.
    """
    places = np.asarray(offsets)
    _array(name, memref, pool, (None,))
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
        return _strided(pool, int(places[0]), (places.size, *memref.shape), (step, *memref.strides))
    if not isinstance(pool, np.ndarray):
        raise ValidationError(
            f"{name} is a device array whose items do not lie at equal distances, and pointers of devices are not followed;"
            " pass numpy arrays, or copy the items to one array"
        )
    return [_strided(pool, int(place), memref.shape, memref.strides) for place in places]


def _strided(pool: Any, first: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
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


def check_memory(bound: Sequence[Bound]) -> str:
    """Check that all arrays are of one library, and what is written can be and shares no memory with anything else.

    :returns: the library, ``"numpy"`` or ``"pyopencl"``.
    :raises ValidationError: if they do not.
    """
    for one in bound:
        if one.is_written and isinstance(one.argument, tuple) and isinstance(one.type, Group):
            _check_items(one.name, one.argument[1], one.type.memref.extent)
    pieces = [(f"%{one.name}", array, one.is_written) for one in bound for array in one.arrays]
    library = require_one_library((name, array) for name, array, _ in pieces)
    check_apart(pieces)
    return library


def _check_items(name: str, offsets: Any, extent: int) -> None:
    if (np.diff(np.sort(np.asarray(offsets))) < extent).any():
        raise ValidationError(f"items of %{name} overlap, and are written: each takes {extent} elements")


def written_arrays(bound: Sequence[Bound]) -> Any:
    """The arrays that were written: one array, or a tuple of them."""
    found = tuple(one.argument for one in bound if one.is_written)
    return found[0] if len(found) == 1 else found


def instances(function: Function, bound: Sequence[Bound], count: int | None) -> int:
    """The number of work-items: the length of the shortest group behind its offset, or fewer if `count` says so.

    :raises ValidationError: if there are not as many as `count`, or an index is outside of what it is an index of.
    """
    values = {one.name: one.value for one in bound}
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
    if count is not None and count < 0:
        raise ValidationError(f"count is {count}, and cannot be negative")
    if least is None:
        if count not in (None, 1):
            raise ValidationError(f"@{function.name} fetches no item of a group, so it is executed once, not {count} times")
        return 1
    if count is not None and count > least[0]:
        raise ValidationError(f"count is {count}, and {least[1]} has {least[0]} items from its offset on")
    return least[0] if count is None else count


def check_numbers(function: Function, values: Mapping[str, Any]) -> None:
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
