"""Draws of the inputs that kernels are proved with: each reveals errors that another hides.

even
    numbers in [-1, 1), of mixed sign as in use.
uneven
    numbers of many magnitudes, up to 128, and zeros: they reveal a kernel that takes one product for another of its size.
infinite
    one infinity: entries that do not depend on it must not change, as they would if a kernel multiplied by zero where it
    should leave out; and entries that do are infinite or NaN.  Where IEEE 754 leaves no choice (:func:`is_determined`) they
    must be what it says, and NaN, the other infinity or the largest number is drawn beside the infinity.
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
"""The exponents of the powers of two that scale numbers in [-1, 1) to many magnitudes; the end is excluded."""
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


def is_determined(e: BatchedEinsum) -> bool:
    """Whether infinities and NaN give the same results in whatever order sums are evaluated.

    They do in plain sums of products of two real operands that both have all summed indices: a result is
    NaN if a term is, or if there are terms of both infinities; else it is infinite.  Where one operand
    alone has a summed index, ``(b + b') * inf`` and ``b * inf + b' * inf`` may differ.
    """
    summed = set(e.indexing.indices) - set(e.indexing.output)
    real = all(a.dtype.kind == "f" for a in e.arrays)
    return e.n == 2 and real and not e.epilogues and all(summed <= set(letters) for letters in e.indexing.inputs)


def infinite_inputs(e: BatchedEinsum, lengths: Mapping[str, int], seed: int) -> Inputs:
    """Random arrays without zeros, an entry of one of which is infinite.

    It meets no zero, and no other one from which it could make what depends on the order of evaluation.
    """
    rng = np.random.default_rng([seed, _OTHER_STREAM])
    found = random_inputs(e, lengths, seed)
    for values in found.values():
        values[values == 0] = 1
    able = [values for values in found.values() if values.dtype.kind in "fc" and values.size]
    if able:
        first, second = (able[k] for k in rng.integers(len(able), size=2))
        infinity = rng.choice([-np.inf, np.inf])
        if is_determined(e):
            others = [np.nan, -infinity]
            if not any(len({a.name for entry in row for a in entry}) == 1 for row in e.args):
                others.append(np.finfo(second.dtype).max)  # an array that meets itself would square it
            second.flat[rng.integers(second.size)] = rng.choice(others)
        first.flat[rng.integers(first.size)] = infinity
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
