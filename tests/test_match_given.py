"""Matching a kernel to an einsum that is given, in other names, with long axes for fixed ones, or not at all."""

from __future__ import annotations

import math

import loopy as lp
import pytest
from kernels import make_kernel

from feinsum.einsum import BatchedEinsum, array, batched_einsum, einsum
from feinsum.errors import MatchError
from feinsum.lower import generate_loopy
from feinsum.match import match_t_unit_to_einsum


def product(rows: object = "M", summed: object = "K", columns: object = "N", dtype: str = "float64") -> BatchedEinsum:
    """A matrix product with axes of these lengths or names."""
    return einsum("ij,jk->ik", array("A", (rows, summed), dtype), array("B", (summed, columns), dtype))


def test_fixed_lengths_of_a_kernel_fit_long_axes() -> None:
    """Whether an axis is long is a property of the question: 512 is no long axis, and fits one."""
    t_unit = generate_loopy(product(512, 512, 512))
    assert match_t_unit_to_einsum(t_unit, product(512, 512, 512))["A"] == "A"
    names = match_t_unit_to_einsum(t_unit, product())
    assert {names[axis] for axis in "MNK"} == {"512"}
    assert match_t_unit_to_einsum(t_unit, product(math.inf, math.inf, math.inf))["j"] == "j"
    assert match_t_unit_to_einsum(generate_loopy(product(3, 5, 4)), product()) == {
        "i": "i", "j": "j", "k": "k", "M": "3", "K": "5", "N": "4", "A": "A", "B": "B", "out": "out",
    }  # fmt: skip


def test_long_axes_of_a_kernel_fit_long_axes_only() -> None:
    """A kernel for any length computes no einsum of one length, and one with lengths of 2 none of 3."""
    t_unit = generate_loopy(product("n", 5, 4))
    assert match_t_unit_to_einsum(t_unit, product("M", "K", 4))["M"] == "n"
    for wanted in (product(512, 5, 4), product("M", 6, 4), product("M", "K", 5)):
        with pytest.raises(
            MatchError, match=r"kernel 'feinsum' computes ij,jk->ik .* not ij,jk->ik .*: the lengths of axes differ"
        ):
            match_t_unit_to_einsum(t_unit, wanted)


def test_equal_axes_must_be_equal_but_different_ones_need_not_differ() -> None:
    """Two indices of one long axis fit equal lengths only; two long axes fit equal lengths too."""
    square = generate_loopy(product("n", "n", "n"))
    assert {match_t_unit_to_einsum(square, product())[axis] for axis in "MNK"} == {"n"}
    with pytest.raises(MatchError, match="the lengths of axes differ"):
        match_t_unit_to_einsum(generate_loopy(product(3, 3, 4)), product("M", "M", "M"))
    assert match_t_unit_to_einsum(generate_loopy(product(3, 4, 3)), product("M", "K", "M"))["M"] == "3"
    both = einsum("ij,ji->ij", array("A", (math.inf, math.inf)), array("A", (math.inf, math.inf)))
    with pytest.raises(MatchError, match="array 'A' is read over"):
        match_t_unit_to_einsum(
            make_kernel(
                "q[i, l] = A_(i, l)*A_(l, i)",
                "{[i, l]: 0 <= i < 3 and 0 <= l < 4}",
                rules="A_(a, b) := A[a, b]\n",
                arrays={"A": (4, 4), "q": (3, 4)},
            ),
            both,
        )


def test_summed_axes_are_told_apart_by_their_lengths() -> None:
    """Summed indices in like places are matched such that every length fits."""
    a, b, c = array("a", 3), array("b", "K"), array("c", "L")
    t_unit = generate_loopy(einsum("i,j,k->", array("x", 5), array("y", 3), array("z", "n")))
    names = match_t_unit_to_einsum(t_unit, einsum("i,j,k->", a, b, c))
    assert names["a"] == "y"
    assert {(names["b"], names["K"]), (names["c"], names["L"])} == {("x", "5"), ("z", "n")}


def test_names_of_rows_and_operands_follow_the_order_of_the_kernel() -> None:
    """Rows and operands in another order are found, each output with its own array."""
    D, u = array("D", (4, 4)), [array(f"w{k}", ("E", 4)) for k in range(2)]
    t_unit = make_kernel(
        "z[e, i] = sum(j, u_(e, j)*D_(i, j))\ny[e, i] = sum(j, D_(i, j)*D_u(e, j))",
        rules="D_(a, b) := D[a, b]\nu_(a, b) := u[a, b]\nD_u(a, b) := u[a, b] + v[a, b]\n",
    )
    names = match_t_unit_to_einsum(t_unit, batched_einsum("qp,ep->eq", [[D, (u[0], u[1])], [D, u[0]]]))
    assert (names["out_0"], names["out_1"], names["w0"], names["w1"]) == ("y", "z", "u", "v")
    assert (names["e"], names["q"], names["p"], names["E"], names["D"]) == ("e", "i", "j", "n", "D")


DIFFERENT = {
    "rows": (
        batched_einsum("ij,j->i", [[array("A", (3, 4)), array("x", 4)], [array("A", (3, 4)), array("z", 4)]]),
        "it has 1 rows, not 2",
    ),
    "operands": (einsum("ij->i", array("A", (3, 4))), "it has 2 operands, not 1"),
    "axes of the output": (einsum("ij,j->ij", array("A", (3, 4)), array("x", 4)), "the subscripts differ"),
    "subscripts": (einsum("ij,i->j", array("A", (3, 4)), array("x", 3)), "the subscripts differ"),
    "lengths": (einsum("ij,j->i", array("A", (4, 3)), array("x", 3)), "the lengths of axes differ"),
    "types": (
        einsum("ij,j->i", array("A", (3, 4), "float32"), array("x", 4)),
        "the arrays, their element types or their places",
    ),
    "sets": (einsum("ij,j->i", array("A", (3, 4)), (array("x", 4), array("z", 4))), "the arrays, their element types"),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_difference_is_named(name: str) -> None:
    """Where the kernel computes another einsum the message says in what they differ."""
    e, reason = DIFFERENT[name]
    t_unit = generate_loopy(einsum("ij,j->i", array("A", (3, 4)), array("x", 4)))
    with pytest.raises(MatchError, match=reason):
        match_t_unit_to_einsum(t_unit, e)


SHAPES = {"(N, N) and (N, M)": (("N", "N"), ("N", "M")), "(N, M) and (N, 4)": (("N", 4), ("N", "M"))}


@pytest.mark.parametrize("name", SHAPES)
def test_shape_that_says_more_fits_one_that_says_less_and_not_the_reverse(name: str) -> None:
    """A kernel for square matrices computes a special case of one for all."""
    more, less = (einsum("ij->ji", array("A", shape)) for shape in SHAPES[name])
    assert match_t_unit_to_einsum(generate_loopy(more), less)["A"] == "A"
    with pytest.raises(MatchError, match="the lengths of axes differ"):
        match_t_unit_to_einsum(generate_loopy(less), more)


def test_one_array_twice_is_not_two_arrays() -> None:
    """Which operands are the same array is part of an einsum."""
    A, B = array("A", (4, 4)), array("B", (4, 4))
    same, other = einsum("ij,ji->ij", A, A), einsum("ij,ji->ij", A, B)
    assert match_t_unit_to_einsum(generate_loopy(same), same)["A"] == "A"
    for kernel, wanted in ((same, other), (other, same)):
        with pytest.raises(MatchError, match="the arrays, their element types or their places in the rows differ"):
            match_t_unit_to_einsum(generate_loopy(kernel), wanted)


def test_names_that_an_einsum_uses_twice_mean_the_array_or_axis() -> None:
    """An index letter with the name of a long axis or an array gives way to it."""
    e = einsum("mn,n->m", array("A", ("m", "n")), array("x", "n"))
    names = match_t_unit_to_einsum(generate_loopy(einsum("ij,j->i", array("A", ("p", "q")), array("x", "q"))), e)
    assert names == {"m": "p", "n": "q", "A": "A", "x": "x", "out": "out"}


def test_array_of_the_name_of_a_stand_in_is_no_obstacle() -> None:
    """Names that matching makes up for itself are free in both einsums."""
    e = einsum("ij,j->i", array("length0", ("length1", 4)), array("length", 4))
    names = match_t_unit_to_einsum(generate_loopy(e), e)
    assert {names[name] for name in ("length0", "length1", "length")} == {"length0", "length1", "length"}


def test_expressions_of_parameters_are_lengths() -> None:
    """The length of a long axis may be an expression in the kernel."""
    t_unit = make_kernel("y[e, i] = u_(e, i)", "[n] -> {[e, i]: 0 <= e < n - 1 and 0 <= i < 4}", more=[lp.ValueArg("m")])
    assert match_t_unit_to_einsum(t_unit, einsum("ij->ij", array("a", ("E", 4))))["E"] == "n - 1"
