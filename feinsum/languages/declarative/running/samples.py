"""Random arguments, to try a program out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import numpy as np

from feinsum.errors import ValidationError
from feinsum.languages.declarative import syntax
from feinsum.languages.declarative.forms import SCALARS
from feinsum.languages.declarative.interpreting.machine import Machine
from feinsum.languages.declarative.interpreting.values import Value
from feinsum.languages.declarative.syntax import Declaration, Function
from feinsum.languages.source import Source

_LENGTH: Final = 64
"""Of what nobody said how long it is."""
Filled: TypeAlias = Callable[[tuple[int, ...], str], Any]
"""Makes an array of a shape and a type of the language."""


def sample_arguments(function: Function, sizes: Mapping[str, int], seed: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """An argument for each parameter: those `given`, and random ones of both signs; type variables are float32.

    :param sizes: lengths, and numbers of type ``int``, by name; 64 where not given.
    :raises ValidationError: if there is no such length or parameter, or a parameter is a function.
    """
    generator = np.random.default_rng(seed)
    return _arguments(function, sizes, given, lambda shape, word: _numbers(generator, shape, word))


def shape_arguments(function: Function, sizes: Mapping[str, int]) -> dict[str, Any]:
    """The same for whoever asks for shapes and types alone: arrays all of whose elements are one zero in memory."""
    generator = np.random.default_rng(0)

    def filled(shape: tuple[int, ...], word: str) -> Any:
        return np.broadcast_to(np.zeros((), _dtype(word)), shape) if shape else _numbers(generator, shape, word)

    return _arguments(function, sizes, {}, filled)


def _arguments(function: Function, sizes: Mapping[str, int], given: Mapping[str, Any], filled: Filled) -> dict[str, Any]:
    parameters = {p.name: p for p in function.parameters}
    lengths = {n.name for p in parameters.values() for n in syntax.walk(p.type) if isinstance(n, syntax.Name)}
    for name in (*sizes, *given):
        if name not in parameters and name not in lengths:
            known = ", ".join([*parameters, *sorted(lengths)])
            raise ValidationError(f"the program has no {name!r}; it has {known}")
    known_lengths = {name: sizes.get(name, _LENGTH) for name in lengths}
    for name, value in given.items():
        known_lengths |= _lengths_of(parameters[name], value)
    return {n: given[n] if n in given else _sample(p, known_lengths, sizes, filled) for n, p in parameters.items()}


def _lengths_of(parameter: Declaration, value: Any) -> dict[str, int]:
    extents = getattr(parameter.type, "extents", ())
    pairs = zip(extents, np.shape(value), strict=False)
    return {extent.name: length for extent, length in pairs if isinstance(extent, syntax.Name)}


def _sample(parameter: Declaration, lengths: Mapping[str, int], sizes: Mapping[str, int], filled: Filled) -> Any:
    type_ = parameter.type
    if isinstance(type_, syntax.FunctionType):
        raise ValidationError(f"{parameter.name} is a function, of which there are no random ones")
    if isinstance(type_, syntax.ScalarType):
        if type_.name == "int":
            return sizes.get(parameter.name, _LENGTH)
        return filled((), type_.name)[()]
    machine = Machine(Source(""), {})
    machine.names = {name: Value(np.asarray(length), 0, "int") for name, length in lengths.items()}
    return filled(tuple(machine.integer(extent) for extent in type_.extents), type_.dtype or "f32")


def _numbers(generator: Any, shape: tuple[int, ...], word: str) -> Any:
    dtype = _dtype(word)
    if dtype.kind == "b":
        return generator.random(shape) < 0.5
    if dtype.kind in "iu":
        return generator.integers(0 if dtype.kind == "u" else -4, 5, shape).astype(dtype)
    return np.asarray(generator.uniform(-1, 1, shape)).astype(dtype)


def _dtype(word: str) -> np.dtype[Any]:
    """A type; variables are float32."""
    return SCALARS.get(word, np.dtype(np.float32))
