"""Samples: random arguments for a function, groups of as many items as somebody said, or as do not take long."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from feinsum.errors import ValidationError
from feinsum.languages.immediate.syntax import Function
from feinsum.languages.immediate.types import Group, Memref, Scalar, Type

ITEMS: Final = 64
"""Of a group of which nobody says how many it has."""


def sample_arguments(
    function: Function, sizes: Mapping[str, int], seed: int, count: int | None, given: Mapping[str, Any]
) -> dict[str, Any]:
    """An argument for each parameter: those `given`, and random ones, from -1 to 1 or -4 to 4; integers alone are 0.

    :param sizes: ``E`` or the name of a group: how many items there are.
    :param count: the same, of all groups.
    :raises ValidationError: if there is no such size or parameter.
    """
    rng = np.random.default_rng(seed)
    types = {p.name.text: p.type for p in function.parameters}
    groups = [name for name, type_ in types.items() if isinstance(type_, Group)]
    for name in given:
        if name not in types:
            raise ValidationError(f"@{function.name} has no parameter %{name}; its parameters are {', '.join(types)}")
    for name in sizes:
        if name not in ("E", *groups):
            raise ValidationError(f"@{function.name} has no size {name}; there are {', '.join(['E', *groups])}")
    items = {name: sizes.get(name, sizes.get("E", ITEMS if count is None else count)) for name in groups}
    return {
        name: given[name] if name in given else _sample(type_, items.get(name, 0), rng) for name, type_ in types.items()
    }


def _sample(type_: Type, items: int, rng: np.random.Generator) -> Any:
    if isinstance(type_, Scalar):
        return 0 if type_.is_integer else 1.0
    shape: tuple[int, ...]
    memref, shape = (type_.memref, (items,)) if isinstance(type_, Group) else (type_, ())
    assert isinstance(memref, Memref)
    shape += memref.shape
    if memref.element.is_integer:
        return rng.integers(0 if memref.element.name[0] == "u" else -4, 5, shape).astype(memref.element.dtype)
    return rng.uniform(-1, 1, shape).astype(memref.element.dtype)
