"""Properties of keys and renamings on random einsums up to 8 operands, 10 indices and 16 rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from feinsum.arrays import Array, Axis, array
from feinsum.canonicalization import canonicalize_einsum, isomorphism, parse_key
from feinsum.einsum import BatchedEinsum, batched_einsum
from feinsum.subscripts import INDEX_LETTERS

DTYPES = ("float32", "float64", "complex128", "int32")


@st.composite
def einsums(draw: st.DrawFn) -> BatchedEinsum:
    """Few arrays and lengths, so that rows share arrays and operands look alike."""
    rng = Random(draw(st.integers(0, 2**32)))
    axes: tuple[Axis, ...] = (2, 3, 3, "low", "wide", math.inf)[: draw(st.integers(1, 6))]
    letters = {letter: rng.choice(axes) for letter in INDEX_LETTERS[: draw(st.integers(1, 10))]}
    rank = draw(st.integers(0, 3))
    words = ["".join(rng.choices(list(letters), k=rng.randint(0, rank))) for _ in range(draw(st.integers(1, 8)))]
    words = [rng.choice(words) for _ in words] if draw(st.booleans()) else words
    used = sorted(set("".join(words)))
    output = "".join(rng.sample(used, rng.randint(0, min(4, len(used)))))
    return batched_einsum(f"{','.join(words)}->{output}", random_rows(draw, rng, letters, words))


def random_rows(draw: st.DrawFn, rng: Random, letters: dict[str, Axis], words: list[str]) -> list[list[tuple[Array, ...]]]:
    """Up to 16 rows of sets of arrays; how likely an array is to be used again is drawn."""
    known: dict[tuple[Axis, ...], list[Array]] = {}
    again = draw(st.sampled_from([0.0, 0.4, 0.8, 0.97]))
    dtypes = DTYPES[: draw(st.integers(1, 4))]
    largest = draw(st.integers(1, 3))

    def pick(word: str) -> Array:
        pool = known.setdefault(tuple(letters[letter] for letter in word), [])
        if not pool or rng.random() > again:
            count = sum(map(len, known.values()))
            pool.append(array(f"a{count}", [letters[letter] for letter in word], rng.choice(dtypes)))
        return rng.choice(pool)

    return [
        [tuple({pick(word) for _ in range(rng.randint(1, largest))}) for word in words]
        for _ in range(draw(st.integers(1, 16)))
    ]


def disguise(e: BatchedEinsum, rng: Random) -> BatchedEinsum:
    """Another presentation of `e`: new names for everything, operands and rows in another order."""
    letters = dict(zip(e.indexing.indices, rng.sample(INDEX_LETTERS, len(e.indexing.indices)), strict=True))
    names = [f"b{k}" for k in range(len(e.arrays))]
    rng.shuffle(names)
    axes: dict[Axis, Axis] = {axis: axis for axis in e.index_sizes.values()}
    axes.update(zip(["low", "wide"], rng.sample(["wide", "tall", "deep"], 2), strict=True))
    arrays = {a: array(name, [axes[axis] for axis in a.shape], a.dtype) for a, name in zip(e.arrays, names, strict=True)}
    operands = rng.sample(range(e.n), e.n)
    inputs = ["".join(letters[x] for x in e.indexing.inputs[k]) for k in operands]
    rows = [[{arrays[a] for a in row[k]} for k in operands] for row in rng.sample(e.args, e.b)]
    return batched_einsum(f"{','.join(inputs)}->{''.join(letters[x] for x in e.indexing.output)}", rows)


def replace(e: BatchedEinsum, change: Callable[[Array], Array]) -> BatchedEinsum:
    return batched_einsum(e.subscripts, [[{change(a) for a in entry} for entry in row] for row in e.args])


def invariants(e: BatchedEinsum) -> tuple[object, ...]:
    """What no renaming or reordering changes, counted without knowledge of canonical forms."""
    uses = Counter(a for row in e.args for entry in row for a in entry)
    return (
        sorted((str(a.dtype), count) for a, count in uses.items()),
        sorted(sorted(len(entry) for entry in row) for row in e.args),
        [axis if isinstance(axis, int) else None for axis in e.shape],
        sorted(axis for axis in e.index_sizes.values() if isinstance(axis, int)),
        sorted(len(letters) for letters in e.indexing.inputs),
    )


def other_dtype(e: BatchedEinsum, rng: Random) -> BatchedEinsum:
    chosen = rng.choice(e.arrays)
    return replace(e, lambda a: array(a.name, a.shape, "int8") if a == chosen else a)


def other_length(e: BatchedEinsum, rng: Random) -> BatchedEinsum:
    if not e.index_sizes:
        return e
    old = rng.choice(list(e.index_sizes.values()))
    return replace(e, lambda a: array(a.name, [7 if axis == old else axis for axis in a.shape], a.dtype))


def one_row_less(e: BatchedEinsum, rng: Random) -> BatchedEinsum:
    return BatchedEinsum(e.indexing, e.args[1:] or e.args)


def one_row_twice(e: BatchedEinsum, rng: Random) -> BatchedEinsum:
    return BatchedEinsum(e.indexing, (*e.args, rng.choice(e.args)))


def one_array_apart(e: BatchedEinsum, rng: Random) -> BatchedEinsum:
    """Put a new array where another stood."""
    i, k = rng.randrange(e.b), rng.randrange(e.n)
    old = e.args[i][k][0]
    new = array("new", old.shape, old.dtype)
    rows = [[set(entry) for entry in row] for row in e.args]
    rows[i][k] = rows[i][k] - {old} | {new}
    return batched_einsum(e.subscripts, rows)


def two_arrays_one(e: BatchedEinsum, rng: Random) -> BatchedEinsum:
    """Put one array for another of its shape and type."""
    first = rng.choice(e.arrays)
    second = rng.choice([a for a in e.arrays if (a.shape, a.dtype) == (first.shape, first.dtype)])
    return replace(e, lambda a: first if a == second else a)


def exchanged_entries(e: BatchedEinsum, rng: Random) -> BatchedEinsum:
    """Exchange two entries of one column."""
    i, j, k = rng.randrange(e.b), rng.randrange(e.b), rng.randrange(e.n)
    rows = [list(row) for row in e.args]
    rows[i][k], rows[j][k] = rows[j][k], rows[i][k]
    return batched_einsum(e.subscripts, rows)


def transposed_output(e: BatchedEinsum, rng: Random) -> BatchedEinsum:
    output = "".join(rng.sample(e.indexing.output, len(e.indexing.output)))
    return batched_einsum(f"{','.join(e.indexing.inputs)}->{output}", e.args)


MUTATIONS = [
    other_dtype,
    other_length,
    one_row_less,
    one_row_twice,
    one_array_apart,
    two_arrays_one,
    exchanged_entries,
    transposed_output,
]

some_time = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@given(einsums(), st.integers(0, 2**32))
@settings(some_time, max_examples=400)
def test_every_presentation_has_one_key(e: BatchedEinsum, seed: int) -> None:
    """New names and another order change neither the key nor the canonical einsum."""
    other = disguise(e, Random(seed))
    assert canonicalize_einsum(other).key == canonicalize_einsum(e).key
    assert canonicalize_einsum(other).einsum == canonicalize_einsum(e).einsum
    assert canonicalize_einsum(other).pattern.key == canonicalize_einsum(e).pattern.key


@given(einsums())
@settings(some_time, max_examples=200)
def test_the_key_says_everything(e: BatchedEinsum) -> None:
    """The renaming makes of an einsum what its key describes, so einsums with one key are isomorphic."""
    c = canonicalize_einsum(e)
    assert c.renaming.apply(e) == c.einsum == parse_key(c.key)
    assert c.renaming.inverse.apply(parse_key(c.key)) == e
    assert canonicalize_einsum(parse_key(c.key)).key == c.key


@given(einsums(), st.integers(0, 2**32))
@settings(some_time, max_examples=200)
def test_isomorphism_leads_there_and_back(e: BatchedEinsum, seed: int) -> None:
    """The renaming between two presentations makes each of the other, and composes with further renamings."""
    second, third = disguise(e, Random(seed)), disguise(e, Random(seed + 1))
    first_to_second, second_to_third = isomorphism(e, second), isomorphism(second, third)
    assert first_to_second is not None
    assert second_to_third is not None
    assert first_to_second.apply(e) == second
    assert first_to_second.inverse.apply(second) == e
    assert first_to_second.then(second_to_third).apply(e) == third
    assert first_to_second.inverse.inverse == first_to_second
    lengths = e.resolve(dict.fromkeys(e.long_axes, 11))
    assert second.min_bytes(second.sizes_from(first_to_second.lengths(lengths))) == e.min_bytes(e.sizes_from(lengths))


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
@given(e=einsums(), seed=st.integers(0, 2**32))
@settings(some_time, max_examples=100)
def test_a_change_changes_the_key(
    mutate: Callable[[BatchedEinsum, Random], BatchedEinsum], e: BatchedEinsum, seed: int
) -> None:
    """A change that counting can see gives another key; where the key stays, a renaming really undoes the change."""
    changed = disguise(mutate(e, Random(seed)), Random(seed))
    renaming = isomorphism(e, changed)
    if invariants(changed) != invariants(e):
        assert renaming is None
    if renaming is not None:
        assert renaming.apply(e) == changed


@given(einsums(), st.integers(0, 2**32))
@settings(some_time, max_examples=100)
def test_what_counting_sees_the_key_sees(e: BatchedEinsum, seed: int) -> None:
    """An unused type or length put in for another, or one row more, always gives another key."""
    rng = Random(seed)
    changes = [other_dtype(e, rng), one_row_twice(e, rng)] + ([other_length(e, rng)] if e.index_sizes else [])
    for changed in changes:
        assert canonicalize_einsum(changed).key != canonicalize_einsum(e).key
