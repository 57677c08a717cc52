"""Einsums for tests: random ones as hypothesis draws them, inputs for any, and what numpy makes of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np
from hypothesis import strategies as st

import feinsum as fe
from feinsum.arrays import DTYPES

LONG = ("M", "N", math.inf)


@st.composite
def einsums(draw: st.DrawFn, most: int = 4) -> tuple[fe.BatchedEinsum, dict[str, int]]:
    """A batched einsum of up to four operands and three rows, and lengths for its long axes; no length is above `most`."""
    sizes = {"M": draw(st.integers(0, most)), "N": draw(st.integers(1, most))}
    letters = "abcde"[: draw(st.integers(1, 5))]
    axes: dict[str, Any] = {
        x: draw(st.one_of(st.integers(1, 4), st.integers(0, 4), st.sampled_from(LONG))) for x in letters
    }
    terms = ["".join(draw(st.lists(st.sampled_from(letters), max_size=3))) for _ in range(draw(st.integers(1, 4)))]
    used = sorted(set("".join(terms)))
    output = "".join(draw(st.permutations(used))[: draw(st.integers(0, len(used)))])
    dtypes = draw(st.lists(st.sampled_from(DTYPES), min_size=1, max_size=2))
    pool: dict[tuple[Any, ...], list[fe.Array]] = {}

    def pick(term: str) -> fe.Array:
        shape = tuple(axes[x] for x in term)
        known = pool.setdefault(shape, [])
        if not known or draw(st.booleans()):
            known.append(fe.array(f"a{sum(map(len, pool.values()))}", shape, draw(st.sampled_from(dtypes))))
        return draw(st.sampled_from(known))

    rows = [
        [tuple({pick(term) for _ in range(draw(st.integers(1, 2)))}) for term in terms]
        for _ in range(draw(st.integers(1, 3)))
    ]
    e = fe.batched_einsum(f"{','.join(terms)}->{output}", rows)
    for group in e.equal_long_axes:
        length = sizes[str(axes[group[0]])] if axes[group[0]] in sizes else draw(st.integers(0, most))
        sizes |= dict.fromkeys(group, length)
    return e, {name: sizes[name] for name in e.long_axes}


def inputs(e: fe.BatchedEinsum, sizes: Mapping[str, int] | None = None, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """An array of small numbers of mixed sign for each name."""
    rng = np.random.default_rng(seed)
    lengths = e.resolve(sizes)

    def values(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        if dtype.kind in "iu":
            return rng.integers(0 if dtype.kind == "u" else -9, 10, shape, dtype=dtype)
        real = rng.uniform(-1, 1, shape)
        return np.asarray(real + 1j * rng.uniform(-1, 1, shape) if dtype.kind == "c" else real, dtype)

    return {a.name: values(tuple(lengths[x] for x in at), a.dtype) for a, at in e.array_indices.items()}


def check_against_numpy(e: fe.BatchedEinsum, arrays: Mapping[str, np.ndarray[Any, Any]], results: Any) -> None:
    """Integers equal those of numpy.einsum; others are as near to it in a wider type as roundoff allows."""
    results = (results,) if e.b == 1 else results
    assert len(results) == e.b
    for row, dtype, found in zip(e.args, e.dtypes, results, strict=True):
        wide: Any = {"f": np.longdouble, "c": np.clongdouble}.get(dtype.kind, dtype)
        if not all(arrays[a.name].size for entry in row for a in entry):
            wide = dtype  # numpy 2.4 writes out of bounds for empty operands of clongdouble
        operands = [reduce(np.multiply, [arrays[a.name].astype(wide) for a in entry]) for entry in row]
        expected = np.einsum(e.subscripts, *operands)
        assert found.dtype == dtype
        assert found.shape == expected.shape
        if dtype.kind in "iu":
            np.testing.assert_array_equal(found, expected)
            continue
        magnitude = np.einsum(e.subscripts, *map(abs, operands))
        operations = 4 * sum(map(len, row)) + count_terms(e, arrays)
        assert (abs(found - expected) <= operations * np.finfo(dtype).eps * magnitude).all()


def count_terms(e: fe.BatchedEinsum, arrays: Mapping[str, np.ndarray[Any, Any]]) -> int:
    """How many products are summed for one entry."""
    lengths = {x: n for a, at in e.array_uses for x, n in zip(at, arrays[a.name].shape, strict=True)}
    return math.prod(lengths[x] for x in e.indexing.summed)
