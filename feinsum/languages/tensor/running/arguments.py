"""Arguments of a compiled function: which arrays fit its parameters, and where their elements lie.

An array has the shape of its memref, column-major or as the strides of the type say.  Static strides bind; those that the
type leaves open are taken from the array.  What a type promises (alignment, divisors of sizes and strides) is checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from feinsum.compile.buffers import is_part, library_of, share_memory
from feinsum.errors import DTypeError, ShapeError, ValidationError
from feinsum.languages.arguments import check_names
from feinsum.languages.tensor.interpreting.numbers import dtype_of, rounded
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
        _examine(parameter, attributes, arguments[parameter.name], parameter in written, known_layouts)
        for parameter, attributes in zip(function.parameters, function.parameter_attributes, strict=True)
    ]
    _check_libraries(given)
    check_apart(given, written)
    return given


def _examine(
    parameter: Value, attributes: Mapping[str, Any], argument: Any, written: bool, known_layouts: dict[Any, Layout]
) -> Given:
    type_, name = parameter.type, f"%{parameter.name}"
    if isinstance(type_, Memref):
        # an alignment depends on more than what is remembered, and a type that is no numpy type is viewed as one
        lasting = type_.element != BF16 and "alignment" not in attributes and hasattr(argument, "strides")
        key = (parameter, argument.__class__, argument.shape, argument.strides, argument.dtype) if lasting else None
        known = known_layouts.get(key)
        if known is not None and (not written or not isinstance(argument, np.ndarray) or argument.flags.writeable):
            return Given(parameter, (argument,), (known[0],), known[1], given=argument)
        array = _array(type_, argument, name, written)
        strides, fits = _strides(type_, array, attributes, name)
        if key is not None:
            if len(known_layouts) >= _REMEMBERED:
                known_layouts.clear()
            known_layouts[key] = strides, fits
        return Given(parameter, (array,), (strides,), fits, given=argument)
    if isinstance(type_, Group):
        if not isinstance(argument, Sequence) or isinstance(argument, str):
            raise ValidationError(f"{name} is a group: pass a list of arrays, each of the shape of {type_.memref}")
        if type_.size not in (None, len(argument)):
            raise ShapeError(f"{name} is a group of {type_.size}, and its argument a list of {len(argument)}")
        arrays = [_array(type_.memref, one, f"{name}[{k}]", written) for k, one in enumerate(argument)]
        found = [_strides(type_.memref, one, attributes, f"{name}[{k}]") for k, one in enumerate(arrays)]
        return Given(parameter, tuple(arrays), tuple(s for s, _ in found), all(fits for _, fits in found), given=argument)
    assert isinstance(type_, (Scalar, Boolean))
    return Given(parameter, number=_number(type_, argument, name))


def _number(type_: Scalar | Boolean, argument: Any, name: str) -> Any:
    number = np.asarray(argument)
    if number.size != 1 or number.dtype.kind not in "biufc":
        raise ValidationError(f"{name} is {type_}, and its argument {argument!r} is no number")
    kinds = "b" if isinstance(type_, Boolean) else "biu" if type_.is_integer else "biufc" if type_.is_complex else "biuf"
    if number.dtype.kind not in kinds:
        raise DTypeError(f"{name} is {type_}, and its argument {argument!r} is of type {number.dtype}")
    return rounded(number.reshape(()), type_)


def _array(type_: Memref, argument: Any, name: str, written: bool) -> Any:
    """An array that fits a memref; bf16 as its bits."""
    library = library_of(argument)
    if library is None or isinstance(argument, np.generic):
        raise ValidationError(f"{name} is {type_}: pass an array of numpy or pyopencl, not a {type(argument).__name__}")
    wanted = dtype_of(type_.element)
    if type_.element == BF16:
        if argument.dtype.name not in ("bfloat16", "uint16"):
            raise DTypeError(f"{name} holds bf16: pass ml_dtypes.bfloat16, or bits as uint16, not {argument.dtype}")
        argument = argument if argument.dtype == np.uint16 else argument.view(np.uint16)
    elif argument.dtype != wanted:
        raise DTypeError(f"{name} holds {type_.element}, and its argument {argument.dtype}; convert it to {wanted}")
    fits = len(argument.shape) == type_.order and all(
        extent in (None, size) for size, extent in zip(argument.shape, type_.shape, strict=True)
    )
    if not fits:
        raise ShapeError(f"{name} is {type_}, and its argument has the shape {argument.shape}")
    if written and library == "numpy" and not argument.flags.writeable:
        raise ValidationError(f"{name} is written, and its argument is read-only")
    return argument


def _strides(type_: Memref, array: Any, attributes: Mapping[str, Any], name: str) -> Layout:
    """Where the elements of an array are to lie, and whether they do."""
    for mode, (size, divisor) in enumerate(zip(array.shape, attributes.get("shape_gcd", ()), strict=False)):
        if size % divisor:
            raise ValidationError(f"{name} promises that {divisor} divides the size of mode {mode}, which is {size}")
    multiples = [*attributes.get("stride_gcd", ()), *[1] * type_.order][: type_.order]
    own = _fitting(type_.strides, array, multiples)
    alignment = attributes.get("alignment", 1)
    address = array.ctypes.data if isinstance(array, np.ndarray) else array.offset
    if own is not None and array.size and address % alignment:
        if not isinstance(array, np.ndarray):
            raise ValidationError(f"{name} promises an alignment of {alignment} bytes, and begins at byte {address}")
        return own, False
    return (own, True) if own is not None else (_wanted(type_.strides, array.shape, multiples, name), False)


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


def _wanted(wanted: Sequence[Extent], shape: Sequence[int], multiples: Sequence[int], name: str) -> tuple[int, ...]:
    """The strides of a type, packed where it says nothing.

    :raises ShapeError: if they overlap at the sizes of the argument.
    """
    strides, least = [], 1
    for size, extent, multiple in zip(shape, wanted, multiples, strict=True):
        stride = -(-max(least, 1) // multiple) * multiple if extent is None else extent
        if stride < least:
            raise ShapeError(f"{name} has the stride {stride}, below {least}, with an argument of the shape {tuple(shape)}")
        strides.append(stride)
        least = stride * size
    return tuple(strides)


def _check_libraries(given: Sequence[Given]) -> None:
    found = {library_of(array): one.name for one in given for array in one.arrays}
    if len(found) > 1:
        said = " and ".join(f"{name} is of {library}" for library, name in found.items())
        raise ValidationError(f"arrays have to be of one library: {said}")


def check_apart(given: Sequence[Given], written: Sequence[Value]) -> None:
    """Check that what is written is no part of another argument.

    :raises ValidationError: if arrays share memory and one of them is written.
    """
    arrays = [(one, array) for one in given for array in one.arrays if array.size]
    if not any(one.parameter in written for one, _ in arrays):
        return
    if all(isinstance(array, np.ndarray) for _, array in arrays):
        candidates = _neighbours(arrays)
    else:
        candidates = [(a, b) for k, a in enumerate(arrays) for b in arrays[:k]]
    for (one, array), (other, another) in candidates:
        if one.parameter not in written and other.parameter not in written:
            continue
        if not isinstance(array, np.ndarray) and _are_other_buffers(array, another):
            continue
        exact = np.shares_memory if isinstance(array, np.ndarray) else share_memory
        if exact(array, another):
            names = " and ".join(sorted({one.name, other.name}))
            raise ValidationError(f"arguments of {names} share memory that is written; pass a copy of one of them")


def _are_other_buffers(a: Any, b: Any) -> bool:
    """Whether two device arrays lie in buffers that are no parts of others."""
    return a.base_data is not b.base_data and not is_part(a.base_data) and not is_part(b.base_data)


def _neighbours(arrays: Sequence[tuple[Given, Any]]) -> list[Any]:
    """Pairs of arrays whose memory may overlap, found in order of address."""
    ends = [np.lib.array_utils.byte_bounds(array) for _, array in arrays]
    pairs, open_ones = [], list[int]()
    for k in sorted(range(len(arrays)), key=lambda k: ends[k][0]):
        open_ones = [other for other in open_ones if ends[other][1] > ends[k][0]]
        pairs += [(arrays[k], arrays[other]) for other in open_ones]
        open_ones.append(k)
    return pairs
