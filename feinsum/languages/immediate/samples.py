"""Random arguments: groups have as many items as given, or 64."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from feinsum.languages.calling.protocols import INSTANCES
from feinsum.languages.calling.samples import random_numbers, sample
from feinsum.languages.immediate.arguments import signature
from feinsum.languages.immediate.syntax import ImmediateFunction, ImmediateParameter
from feinsum.languages.immediate.types import ImmediateMemref, ImmediateScalar, MemrefGroup

ITEMS: Final = 64
"""The default number of items in a group."""


def immediate_samples(
    function: ImmediateFunction, sizes: Mapping[str, int], seed: int, count: int | None, given: Mapping[str, Any]
) -> dict[str, Any]:
    """An argument for each parameter: those `given`, and random ones, from -1 to 1 or -4 to 4; integers alone are 0.

    :param sizes: ``E`` or the name of a group: how many items there are.
    :param count: the same, of all groups.
    :raises ValidationError: if there is no such size or parameter.
    """
    own, rng = signature(function), np.random.default_rng(seed)
    groups = [name for name, parameter in own.parameters.items() if isinstance(parameter.type, MemrefGroup)]
    replace(own, sizes=(*own.sizes, *groups)).check_sizes(sizes)

    def make(name: str, parameter: ImmediateParameter) -> Any:
        type_ = parameter.type
        if isinstance(type_, ImmediateScalar):
            return 0 if type_.is_integer else 1.0
        items = sizes.get(name, sizes.get(INSTANCES, ITEMS if count is None else count))
        memref = type_.memref if isinstance(type_, MemrefGroup) else type_
        assert isinstance(memref, ImmediateMemref)
        shape = (items, *memref.shape) if isinstance(type_, MemrefGroup) else memref.shape
        return random_numbers(rng, memref.element.dtype, shape)

    return sample(own, given, make)
