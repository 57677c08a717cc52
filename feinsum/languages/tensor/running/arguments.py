"""Arguments of a compiled function: which arrays fit its parameters, and where their elements lie.

An array has the shape of its memref, column-major or as the strides of the type say.  Static strides bind; those that the
type leaves open are taken from the array.  What a type promises (alignment, divisors of sizes and strides) is checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from feinsum.errors import ValidationError
from feinsum.languages.calling.arguments import check_names, require_one_library
from feinsum.languages.calling.overlap import check_apart
from feinsum.languages.tensor.arguments import (
    check_array,
    check_group,
    check_sizes,
    pieces,
    stride_divisors,
    take_number,
    wanted_strides,
)
from feinsum.languages.tensor.ir import Function, Value
from feinsum.languages.tensor.types import BF16, Boolean, Extent, Group, Memref, Scalar

_REMEMBERED = 512


@dataclass(frozen=True, eq=False)
class Given:
    """An argument that fits.

    :ivar arrays: the array of a memref, or those of a group.
    :ivar strides: of each, in elements, as the kernel is to find them.
    :ivar fits: whether the arrays lie so.
    :ivar number: a scalar.
    :ivar given: what the caller passed.
    """

    parameter: Value
    arrays: tuple[Any, ...] = ()
    strides: tuple[tuple[int, ...], ...] = ()
    fits: bool = True
    number: Any = None
    given: Any = None

    @property
    def name(self) -> str:
        return f"%{self.parameter.name}"

    def result(self) -> Any:
        """What the caller gets back of it."""
        return list(self.given) if isinstance(self.parameter.type, Group) else self.given


Layout: TypeAlias = tuple[tuple[int, ...], bool]
"""Where the elements of an array are to lie, and whether they do."""


def examine(
    function: Function, arguments: Mapping[str, Any], written: Sequence[Value], known_layouts: dict[Any, Layout]
) -> list[Given]:
    """The arguments in order of the parameters.

    :param known_layouts: what was found out about arrays of a class, shape, strides and type in earlier calls.
    :raises ValidationError, ShapeError, DTypeError: naming the one that does not fit.
    """
    check_names(str(function.name), [parameter.name for parameter in function.parameters], arguments)
    given = [
        _examine(parameter, attributes, arguments[parameter.name], known_layouts)
        for parameter, attributes in zip(function.parameters, function.parameter_attributes, strict=True)
    ]
    arrays = pieces(given, written)
    require_one_library((name, array) for name, array, _ in arrays)
    check_apart(arrays)
    return given


def _examine(parameter: Value, attributes: Mapping[str, Any], argument: Any, known_layouts: dict[Any, Layout]) -> Given:
    type_, name = parameter.type, f"%{parameter.name}"
    if isinstance(type_, Memref):
        # an alignment depends on more than what is remembered, and a type that is no numpy type is viewed as one
        lasting = type_.element != BF16 and "alignment" not in attributes and hasattr(argument, "strides")
        key = (parameter, argument.__class__, argument.shape, argument.strides, argument.dtype) if lasting else None
        known = known_layouts.get(key)
        if known is not None:
            return Given(parameter, (argument,), (known[0],), known[1], given=argument)
        check_array(type_, argument, name)
        array = _as_bits(type_, argument)
        strides, fits = _strides(type_, array, attributes, name)
        if key is not None:
            if len(known_layouts) >= _REMEMBERED:
                known_layouts.clear()
            known_layouts[key] = strides, fits
        return Given(parameter, (array,), (strides,), fits, given=argument)
    if isinstance(type_, Group):
        check_group(type_, argument, name)
        arrays = [_as_bits(type_.memref, one) for one in argument]
        found = [_strides(type_.memref, one, attributes, f"{name}[{k}]") for k, one in enumerate(arrays)]
        return Given(parameter, tuple(arrays), tuple(s for s, _ in found), all(fits for _, fits in found), given=argument)
    assert isinstance(type_, (Scalar, Boolean))
    return Given(parameter, number=take_number(type_, argument, name))


def _as_bits(type_: Memref, array: Any) -> Any:
    """An array; bf16 as its bits."""
    return array.view(np.uint16) if type_.element == BF16 and array.dtype != np.uint16 else array


def _strides(type_: Memref, array: Any, attributes: Mapping[str, Any], name: str) -> Layout:
    """Where the elements of an array are to lie, and whether they do."""
    check_sizes(array.shape, attributes, name)
    own = _fitting(type_.strides, array, stride_divisors(type_, attributes))
    alignment = attributes.get("alignment", 1)
    address = array.ctypes.data if isinstance(array, np.ndarray) else array.offset
    if own is not None and array.size and address % alignment:
        if not isinstance(array, np.ndarray):
            raise ValidationError(f"{name} promises an alignment of {alignment} bytes, and begins at byte {address}")
        return own, False
    return (own, True) if own is not None else (wanted_strides(type_, array.shape, attributes, name), False)


def _fitting(wanted: Sequence[Extent], array: Any, multiples: Sequence[int]) -> tuple[int, ...] | None:
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
