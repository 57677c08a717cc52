"""Arguments: numpy arrays are laid out in memory as the types of parameters say, and what was written comes back.

An array has the shape of its memref, in whatever order it lies; what its type leaves unknown is packed, as column-major
strides.  The gaps of strided memrefs are poisoned, so that a kernel which reads them is found out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from feinsum.errors import ValidationError
from feinsum.languages.arguments import check_names
from feinsum.languages.tensor.definitions import DEFINITIONS
from feinsum.languages.tensor.interpreting.memory import GroupOfViews, Memory, View
from feinsum.languages.tensor.interpreting.numbers import Numbers, dtype_of, rounded
from feinsum.languages.tensor.ir import Function, Operation, Value
from feinsum.languages.tensor.types import BF16, Boolean, Group, Memref, Scalar


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

    :raises ValidationError: if there is none, one too many, or one that does not fit its type.
    """
    check_names(str(function.name), [parameter.name for parameter in function.parameters], arguments)
    return [
        _bind(parameter, attributes, arguments[parameter.name])
        for parameter, attributes in zip(function.parameters, function.parameter_attributes, strict=True)
    ]


def _bind(parameter: Value, attributes: Mapping[str, Any], argument: Any) -> Bound:
    type_ = parameter.type
    if isinstance(type_, Memref):
        array = _array(parameter, type_, argument, f"%{parameter.name}")
        view = _lay_out(array, type_, attributes, f"%{parameter.name}")
        return Bound(parameter, view, (array,), (view,))
    if isinstance(type_, Group):
        return _bind_group(parameter, type_, attributes, argument)
    assert isinstance(type_, (Scalar, Boolean))
    number = np.asarray(argument)
    if number.size != 1 or number.dtype.kind not in "biufc":
        raise ValidationError(f"%{parameter.name} is {type_}, and its argument {argument!r} is no number")
    kinds = "b" if isinstance(type_, Boolean) else "biu" if type_.is_integer else "biufc" if type_.is_complex else "biuf"
    if number.dtype.kind not in kinds:
        raise ValidationError(f"%{parameter.name} is {type_}, and its argument {argument!r} is of type {number.dtype}")
    return Bound(parameter, rounded(number.reshape(()), type_))


def _array(parameter: Value, type_: Memref, argument: Any, name: str) -> Any:
    """An array that fits a memref."""
    if not isinstance(argument, np.ndarray):
        raise ValidationError(f"{name} is {type_}, and its argument no numpy array but a {type(argument).__name__}")
    wanted = dtype_of(type_.element)
    if type_.element == BF16:
        if argument.dtype.name not in ("bfloat16", "uint16"):
            raise ValidationError(f"{name} holds bf16: pass ml_dtypes.bfloat16, or bits as uint16, not {argument.dtype}")
    elif argument.dtype != wanted:
        raise ValidationError(f"{name} holds {type_.element}, and its argument {argument.dtype}; convert it to {wanted}")
    fits = len(argument.shape) == type_.order and all(
        extent in (None, size) for size, extent in zip(argument.shape, type_.shape, strict=True)
    )
    if not fits:
        raise ValidationError(f"{name} is {type_}, and its argument has the shape {argument.shape}")
    return argument


def _lay_out(array: Any, type_: Memref, attributes: Mapping[str, Any], name: str, offset: int = 0) -> View:
    """A memory that holds an array as its type says, behind `offset` elements that are not its own."""
    divisors = attributes.get("shape_gcd", ())
    for mode, (size, divisor) in enumerate(zip(array.shape, divisors, strict=False)):
        if size % divisor:
            raise ValidationError(f"{name} promises that {divisor} divides the size of mode {mode}, which is {size}")
    multiples = [*attributes.get("stride_gcd", ()), *[1] * type_.order]
    strides: list[int] = []
    least = 1
    for size, stride, multiple in zip(array.shape, type_.strides, multiples, strict=False):
        if stride is None:
            stride = -(-max(least, 1) // multiple) * multiple
        elif stride < least:
            raise ValidationError(
                f"{name} has the stride {stride}, below {least}, with an argument of the shape {array.shape}"
            )
        strides.append(stride)
        least = stride * size
    length = 1 + sum((size - 1) * stride for size, stride in zip(array.shape, strides, strict=True)) if array.size else 0
    memory = Memory.of_size(type_.element, offset + length)
    view = View(memory, offset, array.shape, tuple(strides), offset, offset + length)
    memory.data[view.whole()] = _inside(array)
    return view


def _bind_group(parameter: Value, type_: Group, attributes: Mapping[str, Any], argument: Any) -> Bound:
    name = f"%{parameter.name}"
    if not isinstance(argument, Sequence) or isinstance(argument, str):
        raise ValidationError(f"{name} is a group: pass a list of arrays, each of the shape of {type_.memref}")
    if type_.size not in (None, len(argument)):
        raise ValidationError(f"{name} is a group of {type_.size}, and its argument a list of {len(argument)}")
    arrays = [_array(parameter, type_.memref, array, f"{name}[{number}]") for number, array in enumerate(argument)]
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


def roots(function: Function) -> dict[Value, Value]:
    """The parameter that each memref is a part of, for those that are of one."""
    found = {parameter: parameter for parameter in function.parameters if isinstance(parameter.type, (Memref, Group))}
    for operation in function.body.walk():
        if operation.name in ("subview", "expand", "fuse", "load") and operation.operands[0] in found:
            for result in operation.results:
                if isinstance(result.type, Memref):
                    found[result] = found[operation.operands[0]]
    return found


def written(function: Function) -> list[Value]:
    """The parameters that a function may write, in order."""
    root = roots(function)
    changed = {root[value] for op in function.body.walk() for value in _targets(op) if value in root}
    return [parameter for parameter in function.parameters if parameter in changed]


def _targets(operation: Operation) -> list[Value]:
    definition = DEFINITIONS[operation.name]
    return [operation.operands[definition.roles.index(role)] for role in definition.writes]


def check_apart(bound: Sequence[Bound], changed: Sequence[Value]) -> None:
    """Check that what is written can be, and is no part of another argument.

    :raises ValidationError: if an array is read-only, or shares memory with another one and one of them is written.
    """
    arrays = [(one.parameter, array) for one in bound for array in one.arrays]
    for parameter, array in arrays:
        if parameter in changed and not array.flags.writeable:
            raise ValidationError(f"%{parameter.name} is written, and its argument is read-only")
    # in order of address only neighbours need to be compared with each other
    extents = sorted((*_addresses(array), number) for number, (_, array) in enumerate(arrays) if array.size)
    open_ones: list[tuple[int, int]] = []
    for begin, end, number in extents:
        open_ones = [(until, other) for until, other in open_ones if until > begin]
        parameter, array = arrays[number]
        for _, other in open_ones:
            neighbour, another = arrays[other]
            if (parameter in changed or neighbour in changed) and np.shares_memory(array, another):
                names = " and ".join(sorted({f"%{parameter.name}", f"%{neighbour.name}"}))
                raise ValidationError(f"arguments of {names} share memory that is written; pass a copy of one of them")
        open_ones.append((end, number))


def _addresses(array: Any) -> tuple[int, int]:
    """The first byte of an array, and the one behind its last."""
    reach = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)]
    first = array.ctypes.data + sum(min(step, 0) for step in reach)
    return first, array.ctypes.data + sum(max(step, 0) for step in reach) + array.itemsize


def instances(function: Function, bound: Sequence[Bound]) -> int:
    """How often a function runs where nobody says: the sizes of modes and groups that the group id is an index of.

    :raises ValidationError: if these differ.
    """
    values = {one.parameter: one.value for one in bound}
    ids = {op.results[0] for op in function.body.walk() if op.name == "builtin" and op.attributes["builtin"] == "group_id"}
    sizes: dict[int, str] = {}
    for operation in function.body.walk():
        for value, mode in _indexed(operation, ids):
            argument = values.get(value)
            if isinstance(argument, GroupOfViews):
                sizes.setdefault(argument.size, f"%{value.name}")
            elif isinstance(argument, View):
                sizes.setdefault(int(argument.shape[mode]), f"mode {mode} of %{value.name}")
    if len(sizes) > 1:
        said = ", ".join(f"{size} by {what}" for size, what in sizes.items())
        raise ValidationError(f"how often @{function.name} runs is not clear: {said}; say count=")
    return next(iter(sizes), 1)


def _indexed(operation: Operation, ids: set[Value]) -> list[tuple[Value, int]]:
    """Memrefs and modes of which a group id is the index."""
    if operation.name == "load":
        return [(operation.operands[0], mode) for mode, value in enumerate(operation.operands[1:]) if value in ids]
    if operation.name == "store":
        return [(operation.operands[1], mode) for mode, value in enumerate(operation.operands[2:]) if value in ids]
    if operation.name != "subview":
        return []
    dynamic = iter(operation.operands[1:])
    found = []
    for mode, (offset, size) in enumerate(zip(operation.attributes["offsets"], operation.attributes["sizes"], strict=True)):
        value = next(dynamic) if offset is None else None
        if size is None:
            next(dynamic)
        if value in ids and size in (0, 1):
            found.append((operation.operands[0], mode))
    return found
