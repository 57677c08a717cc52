"""Counts of operations and bytes: those of the benchmark suite, and small ones that can be checked by hand."""

from __future__ import annotations

import pytest

import feinsum as fe
from benchmarks import cases

METHODS = {"shared": "pairwise_shared", "pairwise": "pairwise", "naive": "naive"}


@pytest.mark.parametrize("case", cases.CASES, ids=lambda case: case["name"])
@pytest.mark.parametrize("side", ["cpu", "gpu"])
def test_counts_equal_those_of_the_suite(case: cases.Case, side: str) -> None:
    """Every case at the sizes for CPUs and GPUs, by every method of counting, as numbers and with a long axis."""
    expected = case[side]
    for dtype, nbytes in expected["min_bytes"].items():
        if dtype == "float16":
            dtype, nbytes = "float32", 2 * nbytes
        e = cases.describe(case, side, dtype)
        assert e.min_bytes() == nbytes
        for method, name in METHODS.items():
            assert e.flops(method=method) == expected["flops"][name]
    letter, length = max(expected["sizes"].items(), key=lambda item: item[1])
    long = e.with_sizes({letter: "N"})
    assert long.flops({"N": length}) == expected["flops"]["pairwise_shared"]
    assert long.min_bytes({"N": length}) == nbytes


def arrays(text: str, length: int = 10, dtype: str = "float64") -> list[fe.Array]:
    """One array for each operand, every axis of one length."""
    terms = text.partition("->")[0].split(",")
    return [fe.array(f"a{k}", (length,) * len(term), dtype) for k, term in enumerate(terms)]


@pytest.mark.parametrize(
    ("text", "naive", "shared"),
    [
        ("ij,jk->ik", 2000, 2000),
        ("ij,jk,kl->il", 30000, 4000),
        ("i,i->i", 20, 10),
        ("i,j->ij", 200, 100),
        ("ij->ji", 100, 100),
        ("ii->", 10, 20),
        (",->", 2, 1),
        ("->", 1, 1),
    ],
)
def test_counts_by_hand(text: str, naive: int, shared: int) -> None:
    """A product of a sum costs two operations; a step always costs one for each point."""
    e = fe.einsum(text, *arrays(text))
    assert e.flops(method="naive") == naive
    assert e.flops() == e.flops(method="pairwise") == shared


def test_rows_share_partial_results() -> None:
    """A product of operands that two rows have in common is counted once."""
    A, B, x, y = (*arrays("ij,jk"), fe.array("x", 10), fe.array("y", 10))
    both = fe.batched_einsum("ij,jk,k->i", [[A, B, x], [A, B, y]])
    one = fe.einsum("ij,jk,k->i", A, B, x)
    assert one.flops() == 400
    assert both.flops() == both.flops(method="pairwise") == 800
    three = fe.batched_einsum("ij,jk,kl->il", [[A, B, fe.array(f"C{k}", (10, 10))] for k in range(3)])
    assert three.flops() == 2000 + 3 * 2000
    assert three.flops(method="pairwise") == 3 * 4000


def test_sets_and_complex_numbers_cost_more() -> None:
    """The arrays of a set are multiplied first; an operation on complex numbers takes four on reals."""
    a, b, c = (fe.array(name, 10) for name in "abc")
    assert fe.einsum("i,i->", (a, b), c).flops() == 10 + fe.einsum("i,i->", a, c).flops()
    assert fe.einsum("ij,jk", *arrays("ij,jk", dtype="complex64")).flops() == 4 * 2000


def test_bytes_count_every_array_once() -> None:
    """However often an array stands in the matrix; outputs count in their own types."""
    a, b = fe.array("a", (10, 10)), fe.array("b", 10, "float32")
    assert fe.einsum("ij,ij,j->i", a, a, b).min_bytes() == 800 + 40 + 80
    assert fe.batched_einsum("i,i->", [[b, b], [b, fe.array("c", 10, "complex64")]]).min_bytes() == 40 + 80 + 4 + 8


def test_many_operands_have_a_cheap_order() -> None:
    """A chain of twelve matrices is contracted in pairs, within the time of a search that does not enumerate."""
    text = "ab,bc,cd,de,ef,fg,gh,hi,ij,jk,kl,lm->am"
    assert fe.einsum(text, *arrays(text)).flops() == 11 * 2000
