"""For which lengths `contract` asks for kernels: axes that are long, and those compiled in."""

from __future__ import annotations

import numpy as np
import pytest

from feinsum.contract.contraction_operands import take_operands
from feinsum.contract.evaluate import How, recipe_for

DEFAULT = How(None, "K", "safe", True, None, None)

CASES = {
    # Few products: one kernel serves all lengths.
    "ij,jk->ik": ({"i": 65, "j": 70, "k": 80}, ["ijk"]),
    # Many: short lengths are compiled in.
    "ij,jl->il": ({"i": 300, "j": 300, "l": 20}, ["ij"]),
    # Two sums are fused, so one of them is compiled in.
    "abc,bdc->ad": ({"a": 2000, "b": 256, "c": 240, "d": 32}, ["ab"]),
    # One row, one column, one sum and one batch may be long.
    "xae,xde->xad": ({"x": 66, "a": 70, "e": 180, "d": 165}, ["xaed"]),
    # Rows of several indices, of which the longest stays.
    "aebf,fde->dba": ({"a": 100, "e": 80, "b": 120, "f": 70, "d": 65}, ["bed"]),
    # Any two of three may be multiplied first.
    "ir,jr,kr->ijk": ({"i": 256, "j": 255, "k": 300, "r": 32}, ["k"]),
    # A sum with more terms than the result has entries is divided among groups, and neighbours are one axis.
    "bci,abc->ai": ({"a": 256, "b": 256, "c": 255, "i": 32}, ["a"]),
    "kb,ck->bc": ({"k": 70000, "b": 66, "c": 65}, ["bc"]),
    # That of a vector is not, and has no rows to share.
    "ij,j->i": ({"i": 300, "j": 70000}, ["ij"]),
    # Of many axes only long ones are.
    "abcdefg->gfedcba": (dict.fromkeys("abcdef", 2) | {"g": 65}, ["g"]),
    # A copy fuses nothing.
    "abc->cba": ({"a": 300, "b": 310, "c": 320}, ["abc"]),
}


@pytest.mark.parametrize("text", CASES)
def test_one_axis_is_long_of_those_that_are_fused(text: str) -> None:
    """Of large products; what is expected of the others is the next power of two."""
    lengths, expected = CASES[text]
    # Memory that nobody touches is not there.
    arrays = [np.empty([lengths[x] for x in term], "float32") for term in text.partition("->")[0].split(",")]
    recipe = recipe_for(text, take_operands(arrays), DEFAULT, None)
    for (e, sizes), step, long in zip(recipe.einsums, recipe.plan.steps, expected, strict=True):
        known = step.lengths
        found = {x for x, axis in e.index_sizes.items() if not isinstance(axis, int)}
        assert sorted(lengths[x] for x in long) == sorted(known[x] for x in found)
        assert all(e.index_sizes[x] == known[x] for x in known.keys() - found)
        assert all(known[x] <= e.resolve(sizes)[x] < 2 * known[x] for x in found)
