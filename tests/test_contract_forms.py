"""`contract` reads what opt_einsum reads: names as indices, more indices than letters, limits, paths."""

from __future__ import annotations

from typing import Any

import numpy as np
import opt_einsum
import pytest

import feinsum as fe
from feinsum.contract.contraction_plan import make_plan
from feinsum.devices import Device
from feinsum.subscripts import from_names, parse_symbols

A, B, C = (np.random.default_rng(k).uniform(-1, 1, shape) for k, shape in enumerate([(3, 4), (4, 5), (5, 2)]))


@pytest.fixture(scope="module")
def how(cpu: Device, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A device and a store of its own."""
    return {"device": cpu, "database": str(tmp_path_factory.mktemp("forms") / "records.sqlite")}


FORMS: dict[str, tuple[Any, ...]] = {
    "Greek": ("αβ,βγ->γα", A, B),
    "Greek, implicit output": ("βα,ακ", A, B),
    "letters and others": ("aĤ,Ĥb", A, B),
    "ellipsis among others": ("...α,α...->...", A, B[:, :1]),
    "names": (A, ["x", "sum"], B, ["sum", "y"], ["y", "x"]),
    "names, implicit output": (A, ["y", "sum"], B, ["sum", "x"]),
    "text as a list of names": (A, "ij", B, "jk", "ki"),
    "large numbers": (A, [1000, 7], B, [7, 52]),
    "names and ellipsis": (A, [..., "k"], B, ["k", "j"]),
    "names of ten operands": (*(x for k in range(10) for x in (np.full((2, 2), k + 1.0), [f"n{k}", f"n{k + 1}"])),),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_indices_may_be_what_they_are_in_opt_einsum(form: tuple[Any, ...], how: dict[str, Any]) -> None:
    """Other alphabets, names, and numbers of any size; implicit outputs are in the order of opt_einsum."""
    np.testing.assert_allclose(fe.contract(*form, **how), opt_einsum.contract(*form))


def test_there_may_be_more_indices_than_letters(how: dict[str, Any]) -> None:
    """As text and as numbers, along a path whose steps have no more than 52."""
    matrices = [np.random.default_rng(k).normal(size=(2, 2)) for k in range(60)]
    expected = np.linalg.multi_dot(matrices)
    text = ",".join(opt_einsum.get_symbol(k) + opt_einsum.get_symbol(k + 1) for k in range(60))
    pairs = [part for k, x in enumerate(matrices) for part in (x, [k, k + 1])]
    np.testing.assert_allclose(fe.contract(f"{text}->{text[0]}{text[-1]}", *matrices, **how), expected)
    np.testing.assert_allclose(fe.contract(*pairs, [0, 60], **how), expected)
    with pytest.raises(fe.SubscriptError, match="a step of 60 operands has 61 indices; a kernel has 52: take smaller"):
        fe.contract(text, *matrices, optimize=False, **how)


def test_names_become_letters_in_their_order() -> None:
    """Numbers up to 51 are those of numpy; ellipses get characters that nothing else has."""
    assert from_names([[0, 51], [51, 26]], None) == "aZ,ZA->aA"
    assert from_names([["b", ...], ["a"]], None) == "b...,a->...ab"
    assert parse_symbols("a...,...α->a", (1, 1)) == (("a", "α"), "a")
    assert parse_symbols("...α,b", (3, 1)) == (("acα", "b"), "acbα")
    assert from_names([range(100), [*range(100)]], []).endswith(f"{opt_einsum.get_symbol(99)}->")


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ([[0, "x"], [1]], "'x' in operand 0 is not an index; the interleaved form takes integers 0 to 51 or '...'"),
        ([[-1, 60]], "-1 in operand 0 is not an index"),
        ([[0.5]], "0.5 in operand 0 is not an index"),
        ([3], "the indices of operand 0 are 3; the interleaved form takes a list of integers"),
        (
            [[np.ones(3)]],
            "an array in operand 0 is not an index; the interleaved form takes integers 0 to 51 or '...'; where subscripts"
            " are text, they come before the arrays",
        ),
        ([[A]], "in operand 0 is not an index"),
    ],
    ids=str,
)
def test_what_is_no_index_is_named(axes: Any, message: str) -> None:
    """Of names and numbers mixed as well."""
    with pytest.raises(fe.SubscriptError) as error:
        from_names(axes, None)
    assert message in str(error.value)


def test_an_expression_may_be_interleaved(how: dict[str, Any]) -> None:
    """Shapes and constants take the places of the operands."""
    expression = fe.contract_expression((3, 4), [0, 1], B, [1, 2], (5, 2), [2, 3], [3, 0], constants=None, **how)
    np.testing.assert_allclose(expression(A, C), (A @ B @ C).T)
    assert repr(expression) == "<ContractExpression ab,bc,cd->da of (3, 4), (4, 5), (5, 2), constant [1]>"


@pytest.mark.parametrize("limit", [None, -1, 10, 1000, "max_input"])
@pytest.mark.parametrize("optimize", [True, False, "greedy", [(0, 1), (0, 1)]], ids=str)
def test_the_memory_in_between_can_be_limited(limit: Any, optimize: Any, how: dict[str, Any]) -> None:
    """By the keyword of opt_einsum, beside any strategy."""
    found = fe.contract("ij,jk,kl", A, B, C, optimize=optimize, memory_limit=limit, **how)
    np.testing.assert_allclose(found, A @ B @ C)
    expression = fe.contract_expression("ij,jk,kl", (3, 4), (4, 5), (5, 2), optimize=optimize, memory_limit=limit, **how)
    np.testing.assert_allclose(expression(A, B, C), A @ B @ C)


def test_a_limit_changes_the_path() -> None:
    """Outer products of a million elements are not made where a thousand are allowed."""
    shapes = [(1000,), (1000,), (1000,), (1000,)]
    steps = make_plan("a,b,a,b->", shapes, (True, 1000)).steps
    assert all(len(step.subscripts.partition("->")[2]) < 2 for step in steps)


@pytest.mark.parametrize("order", ["c", "f", "a", "k", None])
def test_orders_are_read_as_numpy_reads_them(order: Any, how: dict[str, Any]) -> None:
    """In either case."""
    assert fe.contract("ij->ji", A, order=order, **how).flags.f_contiguous == (order == "f")


def test_subscripts_may_be_bytes(how: dict[str, Any]) -> None:
    """As in numpy."""
    np.testing.assert_allclose(fe.contract(b"ij,jk", A, B, **how), A @ B)


@pytest.mark.parametrize(
    ("optimize", "message"),
    [
        ({"a": 1}, "optimize is {'a': 1}, neither a strategy nor a path"),
        (np.array([[0, 1], [0, 1]]), "neither a strategy nor a path"),
        ([(0, 1), (0, "b")], "a step of the path takes (0, 'b') where there are 2 operands, from 0 to 1"),
        ([(0, 0), (0, 1)], "a step of the path takes (0, 0) where there are 3 operands"),
        ([(), (0, 1, 2)], "a step of the path takes () where there are 3 operands"),
        ([0, 1, 2], "a step of the path takes 0 where there are 3 operands"),
        ([], "the path leaves 3 operands; its last step has to take all that are left"),
        (("greedy", 0), "optimize is ('greedy', 0), which opt_einsum does not know"),
    ],
    ids=str,
)
def test_what_is_no_path_is_refused(optimize: Any, message: str, how: dict[str, Any]) -> None:
    """With the step at fault."""
    with pytest.raises(fe.SubscriptError) as error:
        fe.contract("ij,jk,kl", A, B, C, optimize=optimize, **how)
    assert message in str(error.value)


def test_constants_are_computed_for_each_layout_of_the_result(cpu: fe.Device) -> None:
    """A result in Fortran order is made with its axes backwards, and `out` is not: what one kept is not for the other."""
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(7, 8, 8, 7)), rng.normal(size=(7, 5))
    expression = fe.contract_expression("baab,bc->cb", A, B, constants=(0, 1), order="F")
    out = np.empty((5, 7))
    for found in (expression(), expression(out=out), out):
        np.testing.assert_allclose(found, np.einsum("baab,bc->cb", A, B), rtol=1e-12)


def test_numbers_of_numpy_are_taken_again(cpu: Device) -> None:
    """In the second call as in the first one: what was prepared for arrays of no axes takes none."""
    for _ in range(2):
        found = fe.contract(",a,->", np.float32(2), np.full(3, 5, np.float32), np.float32(3), device=cpu, optimize="greedy")
        assert found == 90


@pytest.mark.parametrize(
    ("operands", "message"),
    [
        (("A", "B"), "operand 0 is a str; pass an array, a list of numbers or a number"),
        (([np.ones((4, 5)), np.ones((5, 6))],), "operand 0 is a list of arrays or lists of different shapes; pass several"),
    ],
    ids=["names", "a list"],
)
def test_what_is_no_operand_is_named(cpu: Device, operands: Any, message: str) -> None:
    """Names belong to einsums, and a list of operands is not one of them."""
    with pytest.raises(fe.ArgumentError, match=message):
        fe.contract("ij,jk->ik" if len(operands) == 2 else "ij->ij", *operands, device=cpu)
