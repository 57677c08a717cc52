"""Samples: random arguments for a function of any language, in place of those that are not given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from feinsum.languages.calling.signature import Signature

P = TypeVar("P")


def sample(signature: Signature[P], given: Mapping[str, Any], make: Callable[[str, P], Any]) -> dict[str, Any]:
    """An argument for each parameter: the `given` one, or what `make` returns for name and parameter.

    :raises ValidationError: if `given` names no parameter.
    """
    signature.check_names(given, complete=False)
    return {name: given[name] if name in given else make(name, one) for name, one in signature.parameters.items()}


def random_numbers(rng: np.random.Generator, dtype: Any, shape: tuple[int, ...] = ()) -> np.ndarray[Any, Any]:
    """Numbers of both signs: integers from -4 to 4; reals, and both parts of complex numbers, from -1 to 1."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        return rng.integers(0 if dtype.kind == "u" else -4, 5, shape).astype(dtype)
    values = np.asarray(rng.uniform(-1, 1, shape))
    return (values + 1j * rng.uniform(-1, 1, shape) if dtype.kind == "c" else values).astype(dtype)
