"""Random arguments: sizes as given, or else small."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from feinsum.languages.calling.samples import random_numbers, sample
from feinsum.languages.tensor.arguments import indexed_by_group, signature
from feinsum.languages.tensor.ir import TensorFunction, TensorOperation, TensorValue
from feinsum.languages.tensor.numbers import dtype_of, rounded
from feinsum.languages.tensor.types import BF16, Boolean, PointerGroup, TensorMemref, TensorScalar

UNKNOWN_SIZE: Final = 8
"""The default of a size that the program leaves open."""


def tensor_samples(
    function: TensorFunction, sizes: Mapping[str, int], seed: int, count: int | None, given: Mapping[str, Any]
) -> dict[str, Any]:
    """An argument for each parameter: those `given`, and random ones of both signs, from -1 to 1 or -4 to 4.

    :param sizes: sizes that the program leaves open: ``A.1`` is mode 1 of %A, ``A`` the number of a group's memrefs.
    :param count: sizes that the group id is an index of.
    :raises ValidationError: if there is no such size or parameter.
    """
    own = signature(function)
    own.check_sizes(sizes)
    known = dict.fromkeys(own.sizes, UNKNOWN_SIZE)
    if count is not None:
        indexed = (
            value.name if isinstance(value.type, PointerGroup) else f"{value.name}.{n}"
            for value, n in indexed_by_group(function)
        )
        known |= dict.fromkeys((name for name in indexed if name in known), count)
    attributes = dict(zip(function.parameters, function.parameter_attributes, strict=True))
    lengths, rng = _nonzero_parameters(function), np.random.default_rng(seed)

    def make(name: str, parameter: TensorValue) -> Any:
        return (
            np.int64(1)
            if parameter in lengths
            else _sample_value(parameter, attributes[parameter], {**known, **sizes}, rng)
        )

    return sample(own, given, make)


def _nonzero_parameters(function: TensorFunction) -> set[TensorValue]:
    """Numbers among the parameters that may not be 0, as sizes of views, steps of loops or divisors come from them."""
    sources: dict[TensorValue, set[TensorValue]] = {
        p: {p} for p in function.parameters if isinstance(p.type, TensorScalar) and p.type.is_integer
    }
    found: set[TensorValue] = set()
    for operation in function.body.walk():
        for value in _positive(operation):
            found |= sources.get(value, set())
        if operation.name.startswith("arith.") or operation.name == "cast":
            come = set().union(*(sources.get(value, set()) for value in operation.operands))
            sources |= dict.fromkeys(operation.results, come)
    return found


def _positive(operation: TensorOperation) -> Sequence[TensorValue]:
    """The operands of an instruction that may not be 0."""
    match operation.name:
        case "expand":
            return operation.operands[1:]
        case "subview":
            return [size for _, size in operation.bounds if isinstance(size, TensorValue)]
        case "arith.div" | "arith.rem":
            return operation.operands[1:]
        case "for":
            return operation.operands[2 : len(operation.operands) - len(operation.results)]
    return ()


def _sample_value(
    parameter: TensorValue, attributes: Mapping[str, Any], sizes: Mapping[str, int], rng: np.random.Generator
) -> Any:
    type_ = parameter.type
    if isinstance(type_, (Boolean, TensorScalar)):
        return rounded(_random_values(type_, (), rng), type_)[()]
    memref = type_.memref if isinstance(type_, PointerGroup) else type_
    assert isinstance(memref, TensorMemref)
    divisors = [*attributes.get("shape_gcd", ()), *[1] * memref.order]
    shape = tuple(
        size if size is not None else -(-sizes[f"{parameter.name}.{mode}"] // divisor) * divisor
        for mode, (size, divisor) in enumerate(zip(memref.shape, divisors, strict=False))
    )
    if not isinstance(type_, PointerGroup):
        return _stored(memref.element, shape, rng)
    length = sizes[parameter.name] if type_.size is None else type_.size
    whole = _stored(memref.element, (*shape, length), rng)
    return [whole[..., number] for number in range(length)]


def _stored(type_: TensorScalar, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    """Numbers of a type in column-major order; bf16 as its bits."""
    numbers = np.asarray(rounded(_random_values(type_, shape, rng), type_), order="F")
    return np.asarray((numbers.view(np.uint32) >> 16).astype(np.uint16), order="F") if type_ == BF16 else numbers


def _random_values(type_: TensorScalar | Boolean, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    """Numbers before they are rounded; indices are 0 and 1."""
    if isinstance(type_, TensorScalar) and type_.name == "index":
        return rng.integers(0, 2, shape)
    kind = dtype_of(type_).kind
    return random_numbers(rng, {"f": np.float64, "c": np.complex128}.get(kind, dtype_of(type_)), shape)
