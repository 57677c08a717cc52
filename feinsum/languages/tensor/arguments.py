"""Arguments of the tensor language, as the interpreter and compiled functions check them.

An array has the shape of its memref, and a group is a list of them; bf16 is `ml_dtypes.bfloat16`, or its bits as `uint16`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from feinsum.errors import DTypeError, ShapeError, ValidationError
from feinsum.languages.calling import arguments
from feinsum.languages.calling.signature import BoundArgument, Signature, Taken
from feinsum.languages.tensor.ir import TensorFunction, TensorOperation, TensorValue
from feinsum.languages.tensor.memory_effects import written_parameters
from feinsum.languages.tensor.numbers import dtype_of, rounded
from feinsum.languages.tensor.types import BF16, Boolean, PointerGroup, TensorMemref, TensorScalar

LayOut: TypeAlias = Callable[[TensorValue, TensorMemref, Mapping[str, Any], Any, str], tuple[Any, Any]]
"""A function that checks an array.  It takes the parameter, the memref that the array has to fit, the attributes, the array
and its name in errors; it returns the array as the program has it, and where its elements lie."""


def signature(function: TensorFunction) -> Signature[TensorValue]:
    """The parameters of a function."""
    open_sizes: list[str] = []
    for parameter in function.parameters:
        type_ = parameter.type
        memref = type_.memref if isinstance(type_, PointerGroup) else type_
        open_sizes += [parameter.name] if isinstance(type_, PointerGroup) and type_.size is None else []
        if isinstance(memref, TensorMemref):
            open_sizes += [f"{parameter.name}.{mode}" for mode, size in enumerate(memref.shape) if size is None]
    parameters = {parameter.name: parameter for parameter in function.parameters}
    written = tuple(parameter.name for parameter in written_parameters(function))
    return Signature(f"@{function.name}", parameters, written, sizes=tuple(open_sizes))


def taker(function: TensorFunction, lay_out: LayOut) -> Callable[[str, TensorValue, Any], Taken]:
    """The function that :meth:`Signature.bind` needs: it rounds numbers to their types, and lays out arrays.

    :raises ValidationError, DTypeError, ShapeError: there, if an argument does not fit its type.
    """
    attributes = dict(zip(function.parameters, function.parameter_attributes, strict=True))

    def take(name: str, parameter: TensorValue, argument: Any) -> Taken:
        type_ = parameter.type
        if isinstance(type_, (TensorScalar, Boolean)):
            return (), rounded(arguments.take_number(name, type_, argument, dtype_of(type_)), type_)
        if isinstance(type_, TensorMemref):
            array, place = lay_out(parameter, type_, attributes[parameter], argument, name)
            return (array,), (place,)
        assert isinstance(type_, PointerGroup)
        _check_group(type_, argument, name)
        found = [
            lay_out(parameter, type_.memref, attributes[parameter], array, f"{name}[{number}]")
            for number, array in enumerate(argument)
        ]
        return [array for array, _ in found], [place for _, place in found]

    return take


def check_array(type_: TensorMemref, attributes: Mapping[str, Any], argument: Any, name: str) -> None:
    """Check that an array fits a memref, and has sizes as its parameter promises.

    :raises ValidationError, DTypeError, ShapeError: if it does not.
    """
    wanted = dtype_of(type_.element)
    if type_.element == BF16 and arguments.is_own_array(argument):
        if argument.dtype.name not in ("bfloat16", "uint16"):
            raise DTypeError(f"{name} holds bf16: pass ml_dtypes.bfloat16, or bits as uint16, not {argument.dtype}")
        wanted = argument.dtype
    arguments.check_array(name, type_, argument, wanted, type_.shape)
    for mode, (size, divisor) in enumerate(zip(argument.shape, attributes.get("shape_gcd", ()), strict=False)):
        if size % divisor:
            raise ValidationError(f"{name} promises that {divisor} divides the size of mode {mode}, which is {size}")


def _check_group(type_: PointerGroup, argument: Any, name: str) -> None:
    if not isinstance(argument, Sequence) or isinstance(argument, str):
        raise ValidationError(f"{name} is a group: pass a list of arrays, each of the shape of {type_.memref}")
    if type_.size not in (None, len(argument)):
        raise ShapeError(f"{name} is a group of {type_.size}, but its argument is a list of {len(argument)}")


def wanted_strides(type_: TensorMemref, shape: Sequence[int], attributes: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """The strides of a type, packed where it says nothing.

    :raises ShapeError: if they overlap at the sizes of the argument.
    """
    strides, least = [], 1
    for size, extent, multiple in zip(shape, type_.strides, stride_divisors(type_, attributes), strict=True):
        stride = -(-max(least, 1) // multiple) * multiple if extent is None else extent
        if stride < least:
            raise ShapeError(f"{name} has the stride {stride}, below {least}, with an argument of the shape {tuple(shape)}")
        strides.append(stride)
        least = stride * size
    return tuple(strides)


def stride_divisors(type_: TensorMemref, attributes: Mapping[str, Any]) -> list[int]:
    """The number that divides the stride of each mode, as the parameter promises."""
    return [*attributes.get("stride_gcd", ()), *[1] * type_.order][: type_.order]


def instance_count(
    function: TensorFunction,
    given: Sequence[BoundArgument[TensorValue]],
    counted: Sequence[tuple[TensorValue, int]],
    count: int | None,
) -> int:
    """How often the function runs: as often as sizes say that the group id is an index of, or as was asked.

    :param counted: the :func:`indexed_by_group` of the function.
    :raises ValidationError: if sizes differ, or one is smaller than `count`.
    """
    sizes: dict[str, int] = {}
    known = {one.parameter: one for one in given}
    for value, mode in counted:
        grouped, arrays = isinstance(value.type, PointerGroup), known[value].arrays
        what = f"%{value.name}" if grouped else f"mode {mode} of %{value.name}"
        sizes[what] = len(arrays) if grouped else arrays[0].shape[mode]
    if count is None:
        if len(set(sizes.values())) > 1:
            said = ", ".join(f"{size} by {what}" for what, size in sizes.items())
            raise ValidationError(f"how often @{function.name} runs is not clear: {said}; say count=")
        return next(iter(sizes.values()), 1)
    for what, size in sizes.items():
        if size < count:
            raise ValidationError(f"count is {count}, and {what} has the size {size}, of which the group id is an index")
    return count


def indexed_by_group(function: TensorFunction) -> list[tuple[TensorValue, int]]:
    """Parameters and modes of which the group id is the index."""
    ids = {op.results[0] for op in function.body.walk() if op.attributes.get("builtin") == "group_id"}
    found = (place for operation in function.body.walk() for place in _indexed(operation, ids))
    return list(dict.fromkeys(place for place in found if place[0] in function.parameters))


def _indexed(operation: TensorOperation, ids: set[TensorValue]) -> list[tuple[TensorValue, int]]:
    """Memrefs and modes of which a group id is the index."""
    if operation.name == "load":
        return [(operation.operands[0], mode) for mode, value in enumerate(operation.operands[1:]) if value in ids]
    if operation.name == "store":
        return [(operation.operands[1], mode) for mode, value in enumerate(operation.operands[2:]) if value in ids]
    if operation.name != "subview":
        return []
    bounds = enumerate(operation.bounds)
    return [(operation.operands[0], mode) for mode, (offset, size) in bounds if offset in ids and size in (0, 1)]
