"""`generate`: every einsum of a table, and random ones, equal numpy.einsum on the CPU device."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from einsums import check_against_numpy, einsums, inputs
from hypothesis import HealthCheck, given, settings

import feinsum as fe
from feinsum.arrays import DTYPES
from feinsum.devices import Device

INF = math.inf
FLOAT = ("float64",)

SINGLE: dict[str, tuple[str, list[tuple[Any, ...]], tuple[str, ...], dict[str, int]]] = {
    "matrix product": ("ij,jk->ik", [(7, 5), (5, 9)], FLOAT, {}),
    "matrix product, transposed": ("ji,kj->ki", [(7, 5), (9, 7)], FLOAT, {}),
    "matrix product, implicit output": ("kj,ji", [(7, 5), (5, 9)], FLOAT, {}),
    "matrix times vector": ("ij,j->i", [(33, 17), (17,)], FLOAT, {}),
    "vector times matrix": ("i,ij->j", [(33,), (33, 17)], FLOAT, {}),
    "batched matrix product": ("bij,bjk->bik", [(6, 3, 4), (6, 4, 5)], FLOAT, {}),
    "dot product": ("i,i->", [(1000,), (1000,)], FLOAT, {}),
    "sum": ("ijk->", [(4, 5, 6)], FLOAT, {}),
    "row sums": ("ij->i", [(40, 30)], FLOAT, {}),
    "transposition": ("ijk->kij", [(4, 5, 6)], FLOAT, {}),
    "copy": ("ij->ij", [(4, 5)], FLOAT, {}),
    "trace": ("ii->", [(7, 7)], FLOAT, {}),
    "trace by implicit output": ("ii", [(7, 7)], FLOAT, {}),
    "diagonal": ("ii->i", [(7, 7)], FLOAT, {}),
    "diagonal of three axes": ("iii->i", [(5, 5, 5)], FLOAT, {}),
    "diagonals of two operands": ("ii,jj->ij", [(4, 4), (6, 6)], FLOAT, {}),
    "trace of a product": ("ij,ji->", [(8, 9), (9, 8)], FLOAT, {}),
    "outer product": ("i,j->ij", [(5,), (7,)], FLOAT, {}),
    "outer product, turned": ("i,j,k->kji", [(5,), (7,), (3,)], FLOAT, {}),
    "elementwise product": ("ij,ij->ij", [(5, 7), (5, 7)], FLOAT, {}),
    "scalar": ("->", [()], FLOAT, {}),
    "product of scalars": (",,->", [(), (), ()], FLOAT, {}),
    "scalar times vector": (",i->i", [(), (7,)], FLOAT, {}),
    "scalar times sum": (",i->", [(), (7,)], FLOAT, {}),
    "white space": (" i j , j k -> i k ", [(2, 3), (3, 4)], FLOAT, {}),
    "capitals": ("iJ,Jk->ki", [(2, 3), (3, 4)], FLOAT, {}),
    "capitals by implicit output": ("bA", [(2, 3)], FLOAT, {}),
    "ellipsis": ("...ij,...jk->...ik", [(2, 3, 4, 5), (2, 3, 5, 6)], FLOAT, {}),
    "ellipsis of other number of axes": ("...ij,...j->...i", [(2, 3, 4, 5), (5,)], FLOAT, {}),
    "ellipsis broadcasts length one": ("...i,...i->...", [(3, 1, 5), (1, 4, 5)], FLOAT, {}),
    "ellipsis broadcasts against a long axis": ("...i,...i->...i", [("E", 5), (1, 5)], FLOAT, {"E": 9}),
    "ellipsis by implicit output": ("...ji", [(2, 3, 4)], FLOAT, {}),
    "ellipsis behind": ("i...,i...->...", [(5, 2, 3), (5, 2, 3)], FLOAT, {}),
    "ellipsis of no axes": ("...,...->...", [(), ()], FLOAT, {}),
    "axes of length one": ("ijk,kl->il", [(1, 3, 1), (1, 1)], FLOAT, {}),
    "empty sum": ("ij,j->i", [(3, 0), (0,)], FLOAT, {}),
    "empty output": ("ij,j->i", [(0, 3), (3,)], FLOAT, {}),
    "empty long axes": ("ij,j->i", [("N", "M"), ("M",)], FLOAT, {"N": 3, "M": 0}),
    "long axis": ("ej,ij->ei", [("E", 20), (20, 20)], FLOAT, {"E": 1000}),
    "anonymous long axes": ("ij,jk->ik", [(INF, INF), (INF, 5)], FLOAT, {"i": 11, "j": 13}),
    "long axis shared by two indices": ("ij,jk->ki", [("N", "N"), ("N", 3)], FLOAT, {"N": 9}),
    "long axis named like an index": ("ij,jk->ik", [("j", 4), (4, "i")], FLOAT, {"i": 5, "j": 6}),
    "long trace": ("ii->", [("N", "N")], FLOAT, {"N": 31}),
    "DG gradient": ("xre,rij,ej->xei", [(3, 3, "E"), (3, 20, 20), ("E", 20)], FLOAT, {"E": 77}),
    "DG face mass": ("ifj,fe,fej->ei", [(10, 4, 6), (4, "E"), (4, "E", 6)], FLOAT, {"E": 77}),
    "chain of five": ("ab,bc,cd,de,ef->af", [(3, 4), (4, 5), (5, 6), (6, 7), (7, 8)], FLOAT, {}),
    "hypercontraction": ("ab,ac,ad->bcd", [(9, 2), (9, 3), (9, 4)], FLOAT, {}),
    "twelve operands": (",".join("abcdefghijkl") + "->abl", [(2,)] * 12, FLOAT, {}),
    "six axes": ("abcdef,fedcba->adf", [(2, 3, 2, 3, 2, 3), (3, 2, 3, 2, 3, 2)], FLOAT, {}),
    "float32 and float64": ("ij,jk->ik", [(7, 5), (5, 9)], ("float32", "float64"), {}),
    "float32 and int32": ("ij,jk->ik", [(7, 5), (5, 9)], ("float32", "int32"), {}),
    "float32 and int16": ("ij,jk->ik", [(7, 5), (5, 9)], ("float32", "int16"), {}),
    "complex64 and float64": ("ij,jk->ik", [(7, 5), (5, 9)], ("complex64", "float64"), {}),
    "complex64 and int8": ("ij,jk->ik", [(7, 5), (5, 9)], ("complex64", "int8"), {}),
    "complex128 and complex64": ("ij,jk->ik", [(7, 5), (5, 9)], ("complex128", "complex64"), {}),
    "int8 and uint8": ("ij,jk->ik", [(7, 5), (5, 9)], ("int8", "uint8"), {}),
    "uint64 and int64": ("ij,jk->ik", [(7, 5), (5, 9)], ("uint64", "int64"), {}),
    "uint32 and int16": ("ij,jk->ik", [(7, 5), (5, 9)], ("uint32", "int16"), {}),
    "small integers wrap around": ("i,i,i->", [(500,)] * 3, ("int8",), {}),
    "small unsigned integers wrap around": ("i,i,i->", [(500,)] * 3, ("uint8",), {}),
}


def describe(text: str, shapes: list[tuple[Any, ...]], dtypes: tuple[str, ...]) -> fe.BatchedEinsum:
    arrays = [fe.array(f"a{k}", shape, dtypes[k % len(dtypes)]) for k, shape in enumerate(shapes)]
    return fe.einsum(text, *arrays)


@pytest.mark.parametrize(("text", "shapes", "dtypes", "sizes"), SINGLE.values(), ids=SINGLE)
def test_a_named_einsum_equals_numpy(
    text: str, shapes: list[tuple[Any, ...]], dtypes: tuple[str, ...], sizes: dict[str, int], cpu: Device, store: str
) -> None:
    """At the lengths expected, and with the text as it was given."""
    e = describe(text, shapes, dtypes)
    arrays = inputs(e, sizes)
    found = fe.generate(e, cpu, store, sizes)(arrays)
    check_against_numpy(e, arrays, found)
    expected = np.einsum(text, *(arrays[f"a{k}"] for k in range(len(shapes))))
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_type_equals_numpy(dtype: np.dtype[Any], cpu: Device, store: str) -> None:
    """A matrix product, and a product of three operands of which a long one is summed first."""
    for text, shapes in (("ik,kj->ij", [(7, 5), (5, 9)]), ("ej,ij,e->ie", [("E", 5), (6, 5), ("E",)])):
        e = describe(text, shapes, (dtype.name,))
        arrays = inputs(e, {"E": 33} if e.long_axes else {})
        check_against_numpy(e, arrays, fe.generate(e, cpu, store)(arrays))


A, B, C = (fe.array(name, (6, 6)) for name in "ABC")
X, Y, Z = (fe.array(name, 6) for name in "xyz")
SEVERAL: dict[str, tuple[fe.BatchedEinsum, dict[str, int]]] = {
    "one array twice": (fe.einsum("ij,jk->ik", A, A), {}),
    "one array twice, turned": (fe.einsum("ij,ji->ij", A, A), {}),
    "one array in operands of other indices": (fe.einsum("ij,kl->ijkl", A, A), {}),
    "one anonymous array in operands of other indices": (
        fe.einsum("i,j->ij", fe.array("a", INF), fe.array("a", INF)),
        {"i": 5, "j": 5},
    ),
    "a cube": (fe.einsum("i,i,i->", X, X, X), {}),
    "a set of arrays": (fe.einsum("ij,j->i", (A, B), X), {}),
    "sets of arrays": (fe.einsum("ij,j->i", (A, B, C), (X, Y)), {}),
    "a set without a sum": (fe.einsum("i->i", (X, Y)), {}),
    "a set of several types": (
        fe.einsum("i,i->", (fe.array("a", 9, "int8"), fe.array("b", 9, "float32")), fe.array("c", 9, "complex64")),
        {},
    ),
    "two rows": (fe.batched_einsum("ij,j->i", [[A, X], [A, Y]]), {}),
    "two equal rows": (fe.batched_einsum("ij,j->i", [[A, X], [A, X]]), {}),
    "rows of other arrays": (fe.batched_einsum("ij,j->i", [[A, X], [B, Y], [C, Z]]), {}),
    "rows that exchange arrays": (fe.batched_einsum("i,j->ij", [[X, Y], [Y, X]]), {}),
    "rows of sets": (fe.batched_einsum("ij,j->i", [[(A, B), X], [A, (X, Y)], [(B, C), (Y, Z)]]), {}),
    "rows of several types": (
        fe.batched_einsum("i,i->i", [[X, fe.array("c", 6, "complex64")], [X, fe.array("i", 6, "int8")], [X, X]]),
        {},
    ),
    "rows of scalars": (fe.batched_einsum("i,i->", [[X, Y], [Y, Z], [X, X]]), {}),
    "face mass of four fields": (
        fe.batched_einsum(
            "ifj,fe,fej->ei",
            [[fe.array("R", (4, 4, 3)), fe.array("J", (4, "E")), fe.array(f"v{k}", (4, "E", 3))] for k in range(4)],
        ),
        {"E": 50},
    ),
    "interleaved form": (fe.einsum(A, [0, 1], B, [1, 2], [2, 0]), {}),
    "interleaved form with ellipsis": (fe.einsum(A, [0, ...], X, [...], [..., 0]), {}),
}


@pytest.mark.parametrize(("e", "sizes"), SEVERAL.values(), ids=SEVERAL)
def test_rows_and_sets_equal_numpy(e: fe.BatchedEinsum, sizes: dict[str, int], cpu: Device, store: str) -> None:
    """Arrays in several places, sets of arrays, and outputs in the order of the rows."""
    arrays = inputs(e, sizes)
    check_against_numpy(e, arrays, fe.generate(e, cpu, store, sizes)(arrays))


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(problem=einsums())
def test_random_einsums_equal_numpy(problem: tuple[fe.BatchedEinsum, dict[str, int]], cpu: Device, tmp_path: Any) -> None:
    """Whatever the grammar, the axes, the types and the rows; one kernel serves all lengths of its long axes."""
    e, sizes = problem
    kernel = fe.generate(e, cpu, str(tmp_path / "records.sqlite"), sizes)
    for lengths in (sizes, dict.fromkeys(sizes, 1), dict.fromkeys(sizes, 5)):
        arrays = inputs(e, lengths)
        check_against_numpy(e, arrays, kernel(arrays))


def test_one_kernel_serves_every_length(cpu: Device, store: str) -> None:
    """Zero, one, primes and powers of two, whatever was expected."""
    e = describe("xre,rij,ej->xei", [(3, 3, "E"), (3, 10, 10), ("E", 10)], FLOAT)
    kernel = fe.generate(e, cpu, store, {"E": 64})
    for length in (0, 1, 2, 63, 64, 65, 127, 128, 1009):
        arrays = inputs(e, {"E": length})
        check_against_numpy(e, arrays, kernel(arrays))


def test_lengths_may_be_left_open(cpu: Device, store: str) -> None:
    """Without sizes, some are expected; given ones may go by the letter of the index."""
    e = describe("ej,ij->ei", [("E", 5), ("N", 5)], FLOAT)
    for sizes in (None, {}, {"N": 3}, {"i": 3}, {"e": 0}):
        kernel = fe.generate(e, cpu, store, sizes)
        arrays = inputs(e, {"E": 9, "N": 4})
        check_against_numpy(e, arrays, kernel(arrays))


def test_what_cannot_be_tuned_is_refused(cpu: Device, store: str) -> None:
    """An unknown word for `tune` is named, with those there are."""
    with pytest.raises(ValueError, match="tune is 'yes'; it is 'never', 'missing' or 'always'"):
        fe.generate(describe("ij,j", [(3, 4), (4,)], FLOAT), cpu, store, tune="yes")
