"""Random arguments, to try a program out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

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


def sample_arguments(function: Function, sizes: Mapping[str, int], seed: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """An argument for each parameter: those `given`, and random ones of both signs; type variables are float32.

    :param sizes: lengths, and numbers of type ``int``, by name; 64 where not given.
    :raises ValidationError: if there is no such length or parameter, or a parameter is a function.
    """
    generator = np.random.default_rng(seed)
    parameters = {p.name: p for p in function.parameters}
    lengths = {n.name for p in parameters.values() for n in syntax.walk(p.type) if isinstance(n, syntax.Name)}
    for name in (*sizes, *given):
        if name not in parameters and name not in lengths:
            known = ", ".join([*parameters, *sorted(lengths)])
            raise ValidationError(f"the program has no {name!r}; it has {known}")
    known_lengths = {name: sizes.get(name, _LENGTH) for name in lengths}
    for name, value in given.items():
        known_lengths |= _lengths_of(parameters[name], value)
    return {n: given[n] if n in given else _sample(p, known_lengths, sizes, generator) for n, p in parameters.items()}


def _lengths_of(parameter: Declaration, value: Any) -> dict[str, int]:
    extents = getattr(parameter.type, "extents", ())
    pairs = zip(extents, np.shape(value), strict=False)
    return {extent.name: length for extent, length in pairs if isinstance(extent, syntax.Name)}


def _sample(parameter: Declaration, lengths: Mapping[str, int], sizes: Mapping[str, int], generator: Any) -> Any:
    type_ = parameter.type
    if isinstance(type_, syntax.FunctionType):
        raise ValidationError(f"{parameter.name} is a function, of which there are no random ones")
    if isinstance(type_, syntax.ScalarType):
        if type_.name == "int":
            return sizes.get(parameter.name, _LENGTH)
        return _numbers(generator, (), type_.name)[()]
    machine = Machine(Source(""), {})
    machine.names = {name: Value(np.asarray(length), 0, "int") for name, length in lengths.items()}
    return _numbers(generator, tuple(machine.integer(extent) for extent in type_.extents), type_.dtype or "f32")


def _numbers(generator: Any, shape: tuple[int, ...], word: str) -> Any:
    dtype = SCALARS.get(word, np.dtype(np.float32))
    if dtype.kind == "b":
        return generator.random(shape) < 0.5
    if dtype.kind in "iu":
        return generator.integers(0 if dtype.kind == "u" else -4, 5, shape).astype(dtype)
    return np.asarray(generator.uniform(-1, 1, shape)).astype(dtype)
