"""Random arguments: lengths as given, or 64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import numpy as np

from feinsum.errors import ValidationError
from feinsum.languages.calling.samples import random_numbers, sample
from feinsum.languages.declarative import syntax
from feinsum.languages.declarative.forms import SCALARS
from feinsum.languages.declarative.interpreting.arguments import length_names, signature
from feinsum.languages.declarative.interpreting.machine import ExpressionInterpreter
from feinsum.languages.declarative.interpreting.values import IndexedValue
from feinsum.languages.declarative.syntax import Declaration, DeclarativeFunction
from feinsum.languages.source import SourceText

_LENGTH: Final = 64
"""The default of a length."""
Filled: TypeAlias = Callable[[tuple[int, ...], Any], Any]
"""Makes an array of a shape and a type."""


def declarative_samples(
    function: DeclarativeFunction, sizes: Mapping[str, int], seed: int, given: Mapping[str, Any]
) -> dict[str, Any]:
    """An argument for each parameter: those `given`, and random ones of both signs; type variables are float32.

    :param sizes: lengths, and numbers of type ``int``, by name; 64 where not given.
    :raises ValidationError: if there is no such length or parameter, or a parameter is a function.
    """
    rng = np.random.default_rng(seed)
    return _fill_arguments(function, sizes, given, lambda shape, dtype: random_numbers(rng, dtype, shape))


def shape_arguments(function: DeclarativeFunction, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Arguments where only shapes and types matter: all elements of an array are one zero in memory."""
    rng = np.random.default_rng(0)

    def filled(shape: tuple[int, ...], dtype: Any) -> Any:
        return np.broadcast_to(np.zeros((), dtype), shape) if shape else random_numbers(rng, dtype)

    return _fill_arguments(function, sizes, {}, filled)


def _fill_arguments(
    function: DeclarativeFunction, sizes: Mapping[str, int], given: Mapping[str, Any], filled: Filled
) -> dict[str, Any]:
    own = signature(function)
    own.check_sizes(sizes)
    lengths = {name: sizes.get(name, _LENGTH) for name in length_names(function)}
    for name, value in given.items():
        lengths |= _lengths_of(own.parameters[name], value) if name in own.parameters else {}
    return sample(own, given, lambda name, parameter: _sample_parameter(parameter, lengths, sizes, filled))


def _lengths_of(parameter: Declaration, value: Any) -> dict[str, int]:
    extents = getattr(parameter.type, "extents", ())
    pairs = zip(extents, np.shape(value), strict=False)
    return {extent.name: length for extent, length in pairs if isinstance(extent, syntax.NameUse)}


def _sample_parameter(parameter: Declaration, lengths: Mapping[str, int], sizes: Mapping[str, int], filled: Filled) -> Any:
    type_ = parameter.type
    if isinstance(type_, syntax.FunctionType):
        raise ValidationError(f"{parameter.name} is a function, of which there are no random ones")
    if isinstance(type_, syntax.ScalarType):
        if type_.name == "int":
            return sizes.get(parameter.name, _LENGTH)
        return filled((), _dtype(type_.name))[()]
    machine = ExpressionInterpreter(SourceText(""), {})
    machine.names = {name: IndexedValue(np.asarray(length), 0, "int") for name, length in lengths.items()}
    return filled(tuple(machine.integer(extent) for extent in type_.extents), _dtype(type_.dtype or "f32"))


def _dtype(word: str) -> np.dtype[Any]:
    """A type; variables are float32."""
    return SCALARS.get(word, np.dtype(np.float32))
