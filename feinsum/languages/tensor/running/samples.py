"""Samples: random arguments for a function, of sizes that somebody said or that are easy on whoever waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from feinsum.errors import ValidationError
from feinsum.languages.tensor.arguments import indexed_by_group
from feinsum.languages.tensor.ir import Function, Operation, Value
from feinsum.languages.tensor.numbers import dtype_of, rounded
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
    lengths = _lengths(function)
    names = {parameter.name for parameter in function.parameters}
    if strange := [name for name in given if name not in names]:
        known_names = ", ".join(f"%{name}" for name in sorted(names)) or "none"
        raise ValidationError(f"@{function.name} has no parameter %{strange[0]}; its parameters are {known_names}")
    return {
        parameter.name: given[parameter.name]
        if parameter.name in given
        else np.int64(1)
        if parameter in lengths
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


def _lengths(function: Function) -> set[Value]:
    """Numbers among the parameters that may not be 0, as sizes of views, steps of loops or divisors come from them."""
    sources: dict[Value, set[Value]] = {
        p: {p} for p in function.parameters if isinstance(p.type, Scalar) and p.type.is_integer
    }
    found: set[Value] = set()
    for operation in function.body.walk():
        for value in _positive(operation):
            found |= sources.get(value, set())
        if operation.name.startswith("arith.") or operation.name == "cast":
            come = set().union(*(sources.get(value, set()) for value in operation.operands))
            sources |= dict.fromkeys(operation.results, come)
    return found


def _positive(operation: Operation) -> Sequence[Value]:
    """The operands of an instruction that may not be 0."""
    match operation.name:
        case "expand":
            return operation.operands[1:]
        case "subview":
            return _sizes_among(operation)
        case "arith.div" | "arith.rem":
            return operation.operands[1:]
        case "for":
            return operation.operands[2 : len(operation.operands) - len(operation.results)]
    return ()


def _sizes_among(operation: Operation) -> tuple[Value, ...]:
    """The sizes of a subview that are operands; offsets and sizes of its modes take turns."""
    left = iter(operation.operands[1:])
    found = []
    for offset, size in zip(operation.attributes["offsets"], operation.attributes["sizes"], strict=True):
        if offset is None:
            next(left)
        if size is None:
            found.append(next(left))
    return tuple(found)


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
