"""Draws of the inputs that kernels are proved with: each reveals errors that another hides.

even
    numbers in [-1, 1), of mixed sign as in use.
uneven
    numbers of many magnitudes, up to 128, and zeros: they reveal a kernel that takes one product for another of its size.
infinite
    one infinity: entries that do not depend on it must not change, as they would if a kernel multiplied by zero where it
    should leave out; and entries that do are infinite or NaN, in whatever order they are evaluated.
whole
    small whole numbers, whose sums are exact; see :func:`feinsum.validate.reference.whole_inputs`.
zero
    as even, with a zero for every scalar of an epilogue: the content of an output that it multiplies, which is NaN then,
    must not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from feinsum.einsum import BatchedEinsum
from feinsum.validate.reference import random_inputs, whole_inputs

Inputs = dict[str, np.ndarray[Any, Any]]
_EXPONENTS = (-6, 8)
"""Of the powers of two by which numbers in [-1, 1) become uneven; the end is excluded."""
_ZEROS = 0.25
"""The part of uneven numbers that are zeros."""
_OTHER_STREAM = 1
"""Added to a seed, so that what is done to numbers is drawn independently of them."""


def uneven_inputs(e: BatchedEinsum, lengths: Mapping[str, int], seed: int) -> Inputs:
    """Random arrays of many magnitudes, with zeros in between."""
    rng = np.random.default_rng([seed, _OTHER_STREAM])
    found = random_inputs(e, lengths, seed)
    for name, values in found.items():
        if values.dtype.kind in "fc":
            powers = np.exp2(rng.integers(*_EXPONENTS, values.shape)).astype(np.empty(0, values.dtype).real.dtype)
            values = np.asarray(values * powers)
        found[name] = np.asarray(np.where(rng.random(values.shape) < _ZEROS, values.dtype.type(0), values))
    return found


def infinite_inputs(e: BatchedEinsum, lengths: Mapping[str, int], seed: int) -> Inputs:
    """Random arrays without zeros, an entry of one of which is infinite.

    It meets no other one and no zero, from which it could make what depends on the order of evaluation.
    """
    rng = np.random.default_rng([seed, _OTHER_STREAM])
    found = random_inputs(e, lengths, seed)
    for values in found.values():
        values[values == 0] = 1
    able = [values for values in found.values() if values.dtype.kind in "fc" and values.size]
    if able:
        values = able[rng.integers(len(able))]
        values.flat[rng.integers(values.size)] = rng.choice([-np.inf, np.inf])
    return found


ZERO = "zero"
"""The draw in which all numbers given at a call are zero, and outputs that are updated hold none."""


def scalars_of(e: BatchedEinsum, seed: int, draw: str) -> dict[str, Any]:
    """The numbers that epilogues take, for a draw of inputs; below 1 but for whole ones, so that updates do not grow."""
    rng = np.random.default_rng([seed, _OTHER_STREAM + 2])
    found = {}
    for name, dtype in e.scalars.items():
        sign = 1 if dtype.kind == "u" else rng.choice([-1, 1])
        size = rng.integers(1, 4) if dtype.kind in "iu" or draw == "whole" else rng.uniform(0.25, 0.9)
        turned = 1j if dtype.kind == "c" and rng.random() < 0.5 else 1
        found[name] = dtype.type(0 if draw == ZERO else sign * size * turned)
    return found


DRAWS: Mapping[str, Callable[[BatchedEinsum, Mapping[str, int], int], Inputs]] = {
    "even": random_inputs,
    "uneven": uneven_inputs,
    "infinite": infinite_inputs,
    "whole": whole_inputs,
    ZERO: random_inputs,
}
"""Arrays for every input, by name, for an einsum, the length of every index and a seed."""
