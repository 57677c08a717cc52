"""Checks of arguments that all languages share, each with one class of error, whether a program is interpreted or built."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from feinsum.compile.buffers import library_of
from feinsum.errors import ArgumentError, DTypeError, ShapeError, ValidationError


def check_names(function: str, parameters: Sequence[str], arguments: Iterable[str]) -> None:
    """Check that there is an argument for each parameter, and no other.

    :raises ValidationError: naming the first that is missing, or that is no parameter.
    """
    known = ", ".join(f"%{name}" for name in parameters) or "none"
    given = list(arguments)
    for name in parameters:
        if name not in given:
            raise ValidationError(f"@{function} needs an argument for %{name}; its parameters are {known}")
    for name in given:
        if name not in parameters:
            raise ValidationError(f"@{function} has no parameter %{name}; its parameters are {known}")


def refuse_positions(parameters: Iterable[object]) -> NoReturn:
    """Refuse arguments by position.

    :raises ArgumentError: naming the parameters.
    """
    usage = ", ".join(f"{str(name).removeprefix('%')}=..." for name in parameters)
    raise ArgumentError(f"arguments are passed by name, as in ({usage}), not by position")


def refuse_keywords(given: Mapping[str, Any]) -> None:
    """Refuse keywords that mean nothing to a language.

    :raises ValidationError: naming the first that has a value.
    """
    for name, value in given.items():
        if value is not None:
            raise ValidationError(f"{name}= means nothing in this language; leave it out")


def is_array(value: Any) -> bool:
    """Whether a value is an array of numpy or of pyopencl."""
    return isinstance(value, np.ndarray) or library_of(value) == "pyopencl"


def check_array(name: str, type_: Any, argument: Any, wanted: np.dtype[Any], shape: Sequence[int | None]) -> None:
    """Check an array of a parameter of some type.

    :param type_: as errors show it, with the type of its elements.
    :param shape: the length of each axis; None for any.
    :raises ValidationError: if it is not an array.
    :raises DTypeError, ShapeError: if its elements are of another type than `wanted`, or it has another shape.
    """
    if not is_array(argument):
        raise ValidationError(f"{name} is {type_}: pass an array of numpy or pyopencl, not a {type(argument).__name__}")
    if argument.dtype != wanted:
        raise DTypeError(f"{name} holds {type_.element}, and its argument {argument.dtype}; convert it to {wanted}")
    given = argument.shape
    if len(given) != len(shape) or any(b not in (None, a) for a, b in zip(given, shape, strict=True)):
        said = "x".join("n" if length is None else str(length) for length in shape) or "()"
        raise ShapeError(f"{name} is {type_}, and its argument has the shape {given} in place of {said}")


def take_number(name: str, type_: Any, argument: Any, kinds: str, wanted: np.dtype[Any] | None = None) -> Any:
    """A number as an array of numpy without axes.

    :param kinds: the kinds of numpy's types that go.
    :param wanted: the type that it becomes; it has to be an integer of that type if this is one of integers.
    :raises ValidationError: if it is not a number, or no value of its type.
    :raises DTypeError: if it is of another kind.
    """
    number = np.asarray(argument)
    if number.size != 1 or number.dtype.kind not in "biufc":
        raise ValidationError(f"{name} is {type_}, and its argument {argument!r} is no number")
    if number.dtype.kind not in kinds:
        raise DTypeError(f"{name} is {type_}, and its argument {argument!r} is of type {number.dtype}")
    if wanted is not None and wanted.kind in "iu":
        value, info = number.item(), np.iinfo(wanted)
        if not info.min <= value <= info.max or value != int(value):
            raise ValidationError(f"{name} is {type_}, and its argument {argument!r} is no value of this type")
    return number.reshape(())


def require_one_library(arrays: Iterable[tuple[str, Any]]) -> str:
    """The library of all arrays: ``"numpy"`` or ``"pyopencl"``.

    :param arrays: with their names.
    :raises ValidationError: if they are of two.
    """
    kinds = {name: "numpy" if isinstance(array, np.ndarray) else "pyopencl" for name, array in arrays}
    if len(set(kinds.values())) > 1:
        shown = ", ".join(f"{name}: {kind}" for name, kind in kinds.items())
        raise ValidationError(f"arrays of two libraries are mixed ({shown}); pass all of one")
    return next(iter(kinds.values()), "numpy")
