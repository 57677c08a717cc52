"""Checks of arguments, shared by all languages: a mistake has one class of error, interpreted or built."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn

import numpy as np

from feinsum.compile.buffers import library_of
from feinsum.errors import ArgumentError, DTypeError, ShapeError, ValidationError

_KINDS: Final = {"b": "b", "i": "biu", "u": "biu", "f": "biuf", "c": "biufc"}
"""For each kind of numpy types, the kinds converted to it, none of which loses a sign, a fraction or an imaginary part."""


def refuse_positions(parameters: Iterable[object]) -> NoReturn:
    """Refuse arguments by position.

    :raises ArgumentError: naming the parameters.
    """
    usage = ", ".join(f"{str(name).removeprefix('%')}=..." for name in parameters)
    raise ArgumentError(f"arguments are passed by name, as in ({usage}), not by position")


def refuse_keywords(given: Mapping[str, Any], why: str = "") -> None:
    """Refuse keywords that mean nothing to a language.

    :param why: the reason for the error: what the language does instead.
    :raises ValidationError: naming the first that has a value.
    """
    for name, value in given.items():
        if value is not None:
            raise ValidationError(f"{name}= means nothing in this language{why and f', as {why}'}; leave it out")


def check_count(count: Any) -> None:
    """Check a number of instances.

    :raises ArgumentError, ValidationError: if it is not an integer, or negative.
    """
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)):
        raise ArgumentError(f"count is {count!r}, not a whole number")
    if count < 0:
        raise ValidationError(f"count is {count}; it cannot be negative")


def is_own_array(value: Any) -> bool:
    """Whether a value is an array of numpy or of pyopencl."""
    return isinstance(value, np.ndarray) or library_of(value) == "pyopencl"


def check_array(name: str, type_: Any, argument: Any, wanted: np.dtype[Any], shape: Sequence[int | None]) -> None:
    """Check an array of a parameter of some type.

    :param type_: as errors show it, with the type of its elements.
    :param shape: the length of each axis; None for any.
    :raises ValidationError: if it is not an array.
    :raises DTypeError, ShapeError: if its elements are of another type than `wanted`, or it has another shape.
    """
    if not is_own_array(argument):
        raise ValidationError(f"{name} is {type_}: pass an array of numpy or pyopencl, not a {type(argument).__name__}")
    if argument.dtype != wanted:
        raise DTypeError(f"{name} holds {type_.element}, but its argument is {argument.dtype}; convert it to {wanted}")
    given = argument.shape
    if len(given) != len(shape) or any(b not in (None, a) for a, b in zip(given, shape, strict=True)):
        said = "x".join("n" if length is None else str(length) for length in shape) or "()"
        raise ShapeError(f"{name} is {type_}, but its argument has the shape {given}, not {said}")


def take_number(name: str, type_: Any, argument: Any, wanted: np.dtype[Any] | None) -> Any:
    """A number as a numpy array without axes.

    :param wanted: the type that it becomes; None for any real type.  An integer type must hold the number.
    :raises ValidationError: if it is not a number, or its type does not hold it.
    :raises ShapeError, DTypeError: if it is an array with axes, or of another kind.
    """
    try:
        number = np.asarray(argument)
    except ValueError:  # lists of different lengths
        number = np.asarray(None)
    if number.dtype.kind not in "biufc":
        what = "value of this type" if isinstance(argument, int) else "number"
        raise ValidationError(f"{name} is {type_}, but its argument {argument!r} is no {what}")
    if number.size != 1:
        raise ShapeError(f"{name} is {type_}, but its argument has the shape {number.shape}")
    if number.dtype.kind not in _KINDS["f" if wanted is None else wanted.kind]:
        raise DTypeError(f"{name} is {type_}, but its argument {argument!r} is of type {number.dtype}")
    if wanted is not None and wanted.kind in "iu":
        info = np.iinfo(wanted)
        if not info.min <= number.item() <= info.max:
            raise ValidationError(f"{name} is {type_}, but its argument {argument!r} is no value of this type")
    return number.reshape(())


def require_one_library(named: Collection[tuple[Any, ...]]) -> str:
    """The library of all arrays: ``"numpy"`` or ``"pyopencl"``.

    :param named: tuples that begin with a name and an array.
    :raises ValidationError: if arrays of both are mixed.
    """
    on_host = [isinstance(one[1], np.ndarray) for one in named]
    if any(on_host) and not all(on_host):
        kinds = ("numpy" if here else "pyopencl" for here in on_host)
        shown = ", ".join(f"{one[0]}: {kind}" for one, kind in zip(named, kinds, strict=True))
        raise ValidationError(f"arrays of two libraries are mixed ({shown}); pass all of one")
    return "numpy" if all(on_host) else "pyopencl"
