"""Samples: random arguments for a function, of sizes that somebody said or that are easy on whoever waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from feinsum.errors import ValidationError
from feinsum.languages.tensor.arguments import indexed_by_group
from feinsum.languages.tensor.interpreting.numbers import dtype_of, rounded
from feinsum.languages.tensor.ir import Function, Value
from feinsum.languages.tensor.types import BF16, Boolean, Group, Memref, Scalar

UNKNOWN_SIZE: Final = 8
"""Of what the program leaves open and nobody says."""


def sample_arguments(
    function: Function, sizes: Mapping[str, int], seed: int, count: int | None, given: Mapping[str, Any]
) -> dict[str, Any]:
    """An argument for each parameter: those `given`, and random ones of both signs, from -1 to 1 or -4 to 4.

    :param sizes: sizes that the program leaves open: ``A.1`` is mode 1 of %A, ``A`` the number of a group's memrefs.
    :param count: sizes that the group id is an index of.
    :raises ValidationError: if there is no such size.
    """
    generator = np.random.default_rng(seed)
    known = _expected_sizes(function, sizes, count)
    names = {parameter.name for parameter in function.parameters}
    if strange := [name for name in given if name not in names]:
        known_names = ", ".join(f"%{name}" for name in sorted(names)) or "none"
        raise ValidationError(f"@{function.name} has no parameter %{strange[0]}; its parameters are {known_names}")
    return {
        parameter.name: given[parameter.name]
        if parameter.name in given
        else _sample(parameter, attributes, known, generator)
        for parameter, attributes in zip(function.parameters, function.parameter_attributes, strict=True)
    }


def _expected_sizes(function: Function, sizes: Mapping[str, int], count: int | None) -> dict[str, int]:
    found: dict[str, int] = {}
    for parameter in function.parameters:
        type_ = parameter.type
        memref = type_.memref if isinstance(type_, Group) else type_
        if isinstance(type_, Group) and type_.size is None:
            found[parameter.name] = UNKNOWN_SIZE
        if isinstance(memref, Memref):
            unknown = (mode for mode, size in enumerate(memref.shape) if size is None)
            found.update((f"{parameter.name}.{mode}", UNKNOWN_SIZE) for mode in unknown)
    if count is not None:
        for value, mode in indexed_by_group(function):
            name = value.name if isinstance(value.type, Group) else f"{value.name}.{mode}"
            if name in found:
                found[name] = count
    for name, size in sizes.items():
        if name not in found:
            known = ", ".join(found) or "none"
            raise ValidationError(f"@{function.name} has no unknown size {name}; there are {known}")
        found[name] = size
    return found


def _sample(parameter: Value, attributes: Mapping[str, Any], sizes: Mapping[str, int], rng: np.random.Generator) -> Any:
    type_ = parameter.type
    if isinstance(type_, Boolean):
        return bool(rng.integers(2))
    if isinstance(type_, Scalar):
        return _numbers(type_, (), rng, as_bits=False)[()]
    memref = type_.memref if isinstance(type_, Group) else type_
    assert isinstance(memref, Memref)
    divisors = [*attributes.get("shape_gcd", ()), *[1] * memref.order]
    shape = tuple(
        size if size is not None else -(-sizes[f"{parameter.name}.{mode}"] // divisor) * divisor
        for mode, (size, divisor) in enumerate(zip(memref.shape, divisors, strict=False))
    )
    if not isinstance(type_, Group):
        return _numbers(memref.element, shape, rng)
    length = sizes[parameter.name] if type_.size is None else type_.size
    whole = _numbers(memref.element, (*shape, length), rng)
    return [whole[..., number] for number in range(length)]


def _numbers(type_: Scalar, shape: tuple[int, ...], rng: np.random.Generator, as_bits: bool = True) -> Any:
    """Numbers of a type in column-major order; bf16 as its bits."""
    if type_.is_integer:
        values = rng.integers(0 if type_.name == "index" else -4, 2 if type_.name == "index" else 5, shape)
        return np.asarray(values.astype(dtype_of(type_)), order="F")
    values = np.asarray(rng.uniform(-1, 1, shape))
    if type_.is_complex:
        values = values + 1j * rng.uniform(-1, 1, shape)
    numbers = np.asarray(rounded(values, type_), order="F")
    if type_ == BF16 and as_bits:
        return np.asarray((numbers.view(np.uint32) >> 16).astype(np.uint16), order="F")
    return numbers
