"""The key against a brute-force definition of isomorphism, on whole families of small einsums.

The oracle knows nothing of graphs: the name of a class is the smallest description among all orders of operands, rows and
members of sets, with indices, arrays and long axes numbered in order of appearance.  Every family is enumerated completely,
and two einsums of a family must have one key exactly if the oracle gives them one name.

All einsums up to 3 operands of rank 2, 3 indices and 2 rows, with repeated arrays, two lengths and two types, are four
million; they take an hour and run where FEINSUM_EXHAUSTIVE is set.  The families of the default run are slices of
that product.  Each test says which features its slice takes all values of; the others are held fixed in it.  All matrices
of a slice are enumerated for one indexing expression of each class, because the other presentations of an indexing
expression are the subject of the first test.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, combinations, islice, permutations, product
from typing import Any

import pytest

from feinsum.arrays import Array, Axis, array
from feinsum.canonicalization import canonicalize_einsum
from feinsum.einsum import BatchedEinsum, batched_einsum

SINGLE = ("float64",)
DOUBLE = ("float32", "float64")
PARTS = 16
"""Einsums of different indexing expressions are never isomorphic, so the whole product can be checked in parts."""

Indexing = tuple[tuple[str, ...], str]
"""The words of the operands and of the output."""

Matrix = tuple[tuple[tuple[int, ...], ...], ...]
"""For each row and operand, the numbers of its arrays."""


@dataclass(frozen=True)
class Plain:
    """An einsum without feinsum: words of letters, the axis of each letter, a matrix of array numbers and their types."""

    inputs: tuple[str, ...]
    output: str
    axes: dict[str, Axis]
    rows: Matrix
    dtypes: tuple[str, ...]

    def describe(self) -> BatchedEinsum:
        arrays = {}
        for row in self.rows:
            for entry, word in zip(row, self.inputs, strict=True):
                for a in entry:
                    arrays.setdefault(a, known_array(a, tuple(self.axes[x] for x in word), self.dtypes[a]))
        rows = [[tuple(arrays[a] for a in entry) for entry in row] for row in self.rows]
        return batched_einsum(f"{','.join(self.inputs)}->{self.output}", rows)


@lru_cache(maxsize=1024)
def known_array(a: int, shape: tuple[Axis, ...], dtype: str) -> Array:
    """The array of a number, as every einsum of a family has it that has it at all."""
    return array(f"a{a}", shape, dtype)


def number(things: Iterable[Any]) -> dict[Any, int]:
    """Number things in order of appearance."""
    numbers: dict[Any, int] = {}
    for thing in things:
        numbers.setdefault(thing, len(numbers))
    return numbers


def oracle(plain: Plain) -> tuple[object, ...]:
    """The smallest description among all presentations of an einsum.

    It says first what is indexed, then which arrays stand where, then of what types these are; so the presentations that
    are smallest in one part are looked at for the next one, and what einsums share is spelt once.
    """
    indexing, operands = smallest_indexing(plain.inputs, plain.output, tuple(equal_lengths(plain).items()))
    matrix, arrays = smallest_matrix(plain.rows, operands)
    return (*indexing, matrix, min(tuple(plain.dtypes[a] for a in order) for order in arrays))


@lru_cache(maxsize=1024)
def smallest_indexing(
    inputs: tuple[str, ...], output: str, lengths: tuple[tuple[str, object], ...]
) -> tuple[tuple[object, ...], tuple[tuple[int, ...], ...]]:
    """The smallest description of words and lengths, and the orders of operands that have it."""
    orders = list(permutations(range(len(inputs))))
    found = [spell_indexing([inputs[k] for k in order], output, dict(lengths)) for order in orders]
    return min(found), tuple(order for order, text in zip(orders, found, strict=True) if text == min(found))


def spell_indexing(inputs: list[str], output: str, lengths: dict[str, object]) -> tuple[object, ...]:
    """The words of one presentation, and the lengths of its letters."""
    letters = number(chain.from_iterable(inputs))
    long = number(lengths[x] for x in letters if not isinstance(lengths[x], int))
    return (
        tuple(tuple(letters[x] for x in word) for word in inputs),
        tuple(letters[x] for x in output),
        tuple((0, lengths[x]) if isinstance(lengths[x], int) else (1, long[lengths[x]]) for x in letters),
    )


@lru_cache(maxsize=1024)
def smallest_matrix(rows: Matrix, operands: tuple[tuple[int, ...], ...]) -> tuple[Matrix, set[tuple[int, ...]]]:
    """The smallest matrix in any order of rows and members, and one of `operands`; the orders of arrays that have it."""
    found: dict[Matrix, set[tuple[int, ...]]] = {}
    for own in operands:
        for order in permutations(rows):
            for presented in product(*(product(*(permutations(row[k]) for k in own)) for row in order)):
                arrays = number(a for row in presented for entry in row for a in entry)
                matrix = tuple(tuple(tuple(sorted(arrays[a] for a in entry)) for entry in row) for row in presented)
                found.setdefault(matrix, set()).add(tuple(arrays))
    return min(found.items())


def equal_lengths(plain: Plain) -> dict[str, object]:
    """What identifies the length of each letter: the length, or a set of letters that are equally long."""
    long = [x for x, axis in plain.axes.items() if not isinstance(axis, int)]
    equal = {(x, y) for x in long for y in long if x == y or plain.axes[x] == plain.axes[y] != math.inf}
    words: dict[int, set[str]] = {}
    for row in plain.rows:
        for entry, word in zip(row, plain.inputs, strict=True):
            for a in entry:
                words.setdefault(a, set()).add(word)
    for stands in words.values():
        equal |= {(x, y) for v, w in product(stands, repeat=2) for x, y in zip(v, w, strict=True) if x in long}
    for _ in long:
        equal |= {(x, z) for x, y in equal for other, z in equal if y == other}
    return {x: frozenset(y for other, y in equal if other == x) if x in long else axis for x, axis in plain.axes.items()}


def indexings(operands: int, rank: int) -> Iterator[Indexing]:
    """Every indexing expression in i, j, k, the letters in order of appearance."""
    words = ["".join(letters) for r in range(rank + 1) for letters in product("ijk", repeat=r)]
    for inputs in product(words, repeat=operands):
        used = "".join(dict.fromkeys("".join(inputs)))
        if used == "ijk"[: len(used)]:
            for r in range(len(used) + 1):
                yield from ((inputs, "".join(output)) for output in permutations(used, r))


def distinct_indexings(operands: int, rank: int) -> Iterator[Indexing]:
    """One indexing expression of each class, as the oracle sees it."""
    seen = set()
    for inputs, output in indexings(operands, rank):
        name = oracle(distinct(inputs, output, dict.fromkeys("ijk", 2)))
        if name not in seen:
            seen.add(name)
            yield inputs, output


def distinct(inputs: tuple[str, ...], output: str, axes: dict[str, Axis]) -> Plain:
    """The einsum of one row in which every operand is another array of one type."""
    used = {x: axes[x] for x in "".join(inputs)}
    return Plain(inputs, output, used, (tuple((k,) for k in range(len(inputs))),), ("float64",) * len(inputs))


def lengths(inputs: tuple[str, ...], choices: Iterable[Axis]) -> Iterator[dict[str, Axis]]:
    letters = dict.fromkeys("".join(inputs))
    return (dict(zip(letters, axes, strict=True)) for axes in product(tuple(choices), repeat=len(letters)))


def matrices(
    inputs: tuple[str, ...], axes: dict[str, Axis], rows: int, members: tuple[int, ...] = (1,)
) -> Iterator[Matrix]:
    """Every matrix of sets, arrays numbered in order of appearance, each standing only where its shape fits."""
    shapes = [tuple(axes[x] for x in word) for word in inputs] * rows

    def fill(place: int, known: tuple[tuple[Axis, ...], ...], entries: Matrix) -> Iterator[Matrix]:
        if place == len(shapes):
            yield entries
            return
        old = [a for a, shape in enumerate(known) if shape == shapes[place]]
        for size in members:
            for new in range(size + 1):
                fresh = tuple(range(len(known), len(known) + new))
                for kept in combinations(old, size - new):
                    yield from fill(place + 1, known + (shapes[place],) * new, (*entries, kept + fresh))

    n = len(inputs)
    return (tuple(entries[i * n : (i + 1) * n] for i in range(rows)) for entries in fill(0, (), ()))


def with_matrices(
    families: Iterable[Indexing],
    choices: tuple[Axis, ...],
    rows: tuple[int, ...],
    dtypes: tuple[str, ...],
    members: tuple[int, ...] = (1,),
) -> Iterator[Plain]:
    for inputs, output in families:
        for axes in lengths(inputs, choices):
            for b in rows:
                for matrix in matrices(inputs, axes, b, members):
                    count = 1 + max(a for row in matrix for entry in row for a in entry)
                    for types in product(dtypes, repeat=count):
                        yield Plain(inputs, output, axes, matrix, types)


def check(family: Iterable[Plain]) -> tuple[int, int]:
    """Compare keys with the oracle; the number of einsums and of classes."""
    keys: dict[tuple[object, ...], str] = {}
    names: dict[str, tuple[object, ...]] = {}
    count = 0
    for plain in family:
        name, key = oracle(plain), canonicalize_einsum(plain.describe()).key
        assert keys.setdefault(name, key) == key, f"{plain} is isomorphic to another with key {keys[name]} but has {key}"
        assert names.setdefault(key, name) == name, f"{plain} has the key {key} of another that is not isomorphic to it"
        count += 1
    return count, len(keys)


def one_or_two_operands() -> Iterator[Indexing]:
    return chain(distinct_indexings(1, 2), distinct_indexings(2, 2))


def test_every_indexing_expression() -> None:
    """All presentations of all expressions up to three operands of rank two, every axis two or three long."""
    family = (distinct(*ix, axes) for n in (1, 2, 3) for ix in indexings(n, 2) for axes in lengths(ix[0], (2, 3)))
    assert check(family) == (31_035, 6_433)


def test_every_choice_of_long_axes() -> None:
    """Up to two operands of rank two, arrays repeated, every axis two long, anonymous, or one of two names."""
    family = with_matrices(one_or_two_operands(), (2, math.inf, "M", "N"), (1,), SINGLE)
    assert check(family) == (5_655, 1_472)


def test_every_matrix_of_two_operands_and_two_lengths() -> None:
    """Up to two operands of rank two in up to two rows, arrays repeated, every axis two or three long."""
    assert check(with_matrices(one_or_two_operands(), (2, 3), (1, 2), SINGLE)) == (6_148, 5_179)


def test_every_matrix_of_two_operands_and_two_types() -> None:
    """Up to two operands of rank two in up to two rows, arrays repeated, every array of one of two types."""
    assert check(with_matrices(one_or_two_operands(), (2,), (1, 2), DOUBLE)) == (9_660, 6_063)


def test_every_matrix_of_three_operands_and_two_lengths() -> None:
    """Three operands of rank one in up to two rows, arrays repeated, every axis two or three long."""
    assert check(with_matrices(distinct_indexings(3, 1), (2, 3), (1, 2), SINGLE)) == (6_374, 2_661)


def test_every_matrix_of_three_operands_and_two_types() -> None:
    """Three operands of rank one in up to two rows, arrays repeated, every array of one of two types."""
    assert check(with_matrices(distinct_indexings(3, 1), (2,), (1, 2), DOUBLE)) == (33_456, 10_256)


def test_every_row_of_three_operands_of_rank_two() -> None:
    """Three operands of rank two in one row, arrays repeated, every array of one of two types."""
    assert check(with_matrices(distinct_indexings(3, 2), (2,), (1,), DOUBLE)) == (13_168, 11_976)


def test_every_matrix_of_sets() -> None:
    """Up to two operands of rank one in up to two rows, every entry a set of one or two arrays."""
    family = chain(distinct_indexings(1, 1), distinct_indexings(2, 1))
    assert check(with_matrices(family, (2,), (1, 2), SINGLE, members=(1, 2))) == (8_071, 1_867)


@pytest.mark.skipif("FEINSUM_EXHAUSTIVE" not in os.environ, reason="takes an hour; set FEINSUM_EXHAUSTIVE to run it")
@pytest.mark.parametrize("part", range(PARTS))
def test_every_small_einsum(part: int) -> None:
    """Up to three operands of rank two in up to two rows, arrays repeated, two lengths and two types."""
    family = chain(one_or_two_operands(), distinct_indexings(3, 2))
    count, classes = check(with_matrices(islice(family, part, None, PARTS), (2, 3), (1, 2), DOUBLE))
    assert count > classes > 0
