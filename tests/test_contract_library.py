"""Steps that are matrix products go to numpy's BLAS where that is quicker, proved as kernels are, and said by `explain`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, cycle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyopencl.array as cla
import pytest

import feinsum as fe
from feinsum.contract import library_products, step_choice, step_timing
from feinsum.contract.evaluation import Evaluation
from feinsum.contract.library_products import find_product
from feinsum.devices import Device, matmul_rates
from feinsum.devices.matmul_rates import DTYPES, ProductRates, product_rates

FAST = ProductRates(1e-9, 1e-12, dict.fromkeys(DTYPES, 1e15), dict.fromkeys(DTYPES, 1e-3), 1e15, 1.0)
SLOW = ProductRates(1.0, 1.0, dict.fromkeys(DTYPES, 1.0), dict.fromkeys(DTYPES, 1e3), 1.0, 1.0)


@pytest.fixture(scope="module")
def how(cpu: Device, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A device and a store of its own."""
    return {"device": cpu, "database": str(tmp_path_factory.mktemp("library") / "records.sqlite")}


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose BLAS is quicker than any kernel."""
    monkeypatch.setattr(library_products, "product_rates", lambda: FAST)
    monkeypatch.setattr(step_choice, "measured_times", lambda device: {})


def draw(text: str, lengths: dict[str, int], dtype: str = "float64") -> list[np.ndarray[Any, Any]]:
    """Operands of mixed sign, by the letters of an equation."""
    rng = np.random.default_rng(len(text))
    drawn = []
    for term in text.partition("->")[0].split(","):
        values = rng.uniform(-1, 1, [lengths[x] for x in term])
        drawn.append((values * (1 + 0.5j) if dtype.startswith("c") else values).astype(dtype))
    return drawn


PRODUCTS = [
    "ab,bc->ac",
    "ab,bc->ca",
    "ba,cb->ac",
    "ab,b->a",
    "b,ba->a",
    "a,a->",
    "ab,ab->",
    "abc,acd->abd",
    "abc,acd->adb",
    "abc,dc->adb",
    "abc,bcd->abd",
    "abc,db->acd",
    "abc,dcea->bde",
    "abcd,cfba->df",
    "ab,abc->bc",
    "abi,cbi->bac",
    "iab,ibc->aci",
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("text", PRODUCTS)
def test_a_product_equals_the_einsum(text: str, dtype: str) -> None:
    """Whatever the order of axes, stacked or not, into new memory or memory that is given."""
    lengths = dict(zip("abcdefi", (5, 3, 4, 2, 6, 3, 7), strict=True))
    operands = draw(text, lengths, dtype)
    expected = np.einsum(text, *operands)
    found = find_product(text, np.dtype(dtype))
    assert found is not None
    product = found.prepared(lengths)
    out = np.full(expected.shape, np.nan, dtype)
    for result in (product(*operands), product(*operands, out)):
        assert result.dtype == dtype
        assert np.asarray(result).flags.c_contiguous
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "text", ["ab,ab->ab", "a,b->ab", "ab,bc->a", "aab,bc->ac", "ab->a", "ab,bc,cd->ad", "ab,ab->a", "ab,bc->acb"]
)
def test_what_is_no_product_is_left_to_kernels(text: str) -> None:
    """Nothing summed, an index of one operand alone, a diagonal, three operands, elementwise products."""
    assert find_product(text, np.dtype("float64")) is None


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers_are_left_to_kernels(dtype: str) -> None:
    """For which numpy has no BLAS."""
    assert find_product("ab,bc->ac", np.dtype(dtype)) is None


def test_a_library_that_is_wrong_is_not_used(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A product is compared with the reference once, as every kernel is."""
    find_product.cache_clear()
    right = np.matmul
    monkeypatch.setattr(np, "matmul", lambda a, b, out=None: right(a, b) * (1 + 1e-9))
    assert find_product("ab,bc->ac", np.dtype("float64")) is None
    assert "numpy's product for 'ab,bc->ac' in float64 is wrong; kernels take its place" in caplog.text
    monkeypatch.undo()
    find_product.cache_clear()
    assert find_product("ab,bc->ac", np.dtype("float64")) is not None


@pytest.mark.parametrize("switch", [{}, {"library": False}, {"use_blas": False}], ids=str)
@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("ij,jk->ik", [(30, 40), (40, 50)]),
        ("ij,jk->ki", [(30, 40), (40, 50)]),
        ("ab,bc,cd,de->ae", [(3, 4), (4, 5), (5, 6), (6, 7)]),
        ("ij,kj->ki", [(8, 8), (8, 8)]),
    ],
)
@pytest.mark.parametrize("dtype", ["float64", "complex64"])
def test_the_keyword_decides_whether_the_library_may_be_used(
    switch: dict[str, bool], text: str, shapes: Sequence[Any], dtype: str, how: dict[str, Any], fast: None
) -> None:
    """`explain` says who does what, and the result is right either way: new, given, in Fortran order, over an operand."""
    rng = np.random.default_rng(0)
    operands = [rng.uniform(-1, 1, shape).astype(dtype) for shape in shapes]
    expression = fe.contract_expression(text, *shapes, dtype=dtype, **switch, **how)
    expected = np.einsum(text, *operands)
    out = np.empty(expected.shape, dtype)
    fortran = np.empty(expected.shape, dtype, order="F")
    for found in (expression(*operands), expression(*operands, out=out), out, expression(*operands, out=fortran), fortran):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert ("rung      library: numpy's matrix product, a BLAS" in expression.explain()) == (not switch)
    assert (None in expression.kernels) == (not switch)
    if expected.shape == shapes[0]:
        np.testing.assert_allclose(expression(*operands, out=operands[0]), expected, rtol=1e-4, atol=1e-5)


def test_a_slow_library_is_not_used(how: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is expected to take longer than the kernel."""
    monkeypatch.setattr(library_products, "product_rates", lambda: SLOW)
    monkeypatch.setattr(step_choice, "measured_times", lambda device: {})
    expression = fe.contract_expression("ij,jk->ik", (30, 40), (40, 50), **how)
    assert None not in expression.kernels
    assert "library   expected to take" in expression.explain()


@pytest.mark.parametrize(
    ("expected_s", "kernel_s", "library_s", "winner"),
    [(3e-4, 2e-3, 1e-3, "library"), (3e-4, 1e-3, 2e-3, "kernel"), (3e-3, None, None, "kernel")],
    ids=["slower", "quicker", "far quicker"],
)
def test_a_kernel_that_is_guessed_to_be_quicker_is_compared_once(
    expected_s: float,
    kernel_s: float | None,
    library_s: float | None,
    winner: str,
    how: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Any,
) -> None:
    """With the library, unless that is guessed to be slower by far; who is quicker is remembered for every process."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(library_products.LibraryProduct, "seconds", lambda *_: expected_s)
    monkeypatch.setattr(step_choice, "kernel_seconds", lambda *_, margin=False: 1.4e-4 if margin else 1e-4)
    monkeypatch.setattr(step_timing, "_COMPARISON_S", 0.0)
    given = cycle([kernel_s, library_s])
    monkeypatch.setattr(step_timing, "_seconds_of_way", lambda way: next(given))
    a, b = draw("ij,jk->ik", {"i": 31, "j": 41, "k": 51}, "complex128")
    expression = fe.contract_expression("ij,jk->ik", a.shape, b.shape, **how)
    np.testing.assert_allclose(expression(a, b), a @ b)
    assert (expression.kernels == (None,)) == (winner == "library")
    told = expression.explain()
    assert ("library   measured to take" in told) == (kernel_s is not None)
    monkeypatch.setattr(step_timing, "_seconds_of_way", None)
    again = fe.contract_expression("ij,jk->ik", a.shape, b.shape, **how)
    np.testing.assert_allclose(again(a, b), a @ b)
    assert (again.kernels == (None,)) == (winner == "library")


def test_no_kernel_is_made_to_compare_small_products_of_many_axes(
    how: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """It takes a second to make, and a call gains less than a millisecond."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    given = cycle([1e-3, 2e-3])
    monkeypatch.setattr(step_timing, "_seconds_of_way", lambda way: next(given))
    monkeypatch.setattr(step_timing, "_COMPARISON_S", 0.0)
    monkeypatch.setattr(library_products.LibraryProduct, "seconds", lambda *_: 3e-4)
    monkeypatch.setattr(step_choice, "kernel_seconds", lambda *_, margin=False: 1.4e-4 if margin else 1e-4)
    for text, is_made in (("abcd,bfad->fc", True), ("abcde,cfagb->dfge", False)):
        a, b = draw(text, dict.fromkeys("abcdefg", 2), "complex128")
        expression = fe.contract_expression(text, a.shape, b.shape, **how)
        np.testing.assert_allclose(expression(a, b), np.einsum(text, a, b))
        assert (expression.kernels != (None,)) == is_made


def test_rates_of_a_busy_machine_are_those_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """What others took of the processor meanwhile does not count."""
    own = iter([0.0, 2.0, 3.0, 4.5, 5.0, 8.0])
    wall = count(0.0, 10.0)
    clocks = SimpleNamespace(process_time=lambda: next(own), perf_counter=lambda: next(wall))
    monkeypatch.setattr(matmul_rates, "time", clocks)
    assert matmul_rates._fastest_seconds(lambda: None) == 1.5


def test_three_operands_are_contracted_in_steps_where_that_is_quicker(how: dict[str, Any], fast: None) -> None:
    """A matrix product and what is left of it, unless the caller says how many kernels there are to be."""
    shapes = [(6, 7, 8), (7, 5), (8, 5)]
    operands = [np.random.default_rng(k).uniform(-1, 1, shape) for k, shape in enumerate(shapes)]
    expected = np.einsum("ijk,jl,kl->il", *operands)
    steps = fe.contract_expression("ijk,jl,kl->il", *shapes, **how)
    whole = fe.contract_expression("ijk,jl,kl->il", *shapes, optimize=False, **how)
    for expression in (steps, whole):
        np.testing.assert_allclose(expression(*operands), expected)
    assert len(whole.path) == 1
    assert sum(map(len, steps.path)) == len(steps.path) + 2


def test_device_arrays_never_go_to_the_library(cpu: Device, how: dict[str, Any], fast: None) -> None:
    """Nothing is waited for."""
    a, b = (cla.to_device(cpu.queue, x) for x in draw("ij,jk->ik", {"i": 3, "j": 4, "k": 5}))
    expression = fe.contract_expression("ij,jk->ik", (3, 4), (4, 5), **how)
    np.testing.assert_allclose(expression(a, b).get(), a.get() @ b.get())
    assert None not in expression.kernels


def test_operands_of_other_types_are_converted_for_the_library(how: dict[str, Any], fast: None) -> None:
    """A real matrix times a complex one, of one step and of several."""
    a, b = draw("ij,jk->ik", {"i": 3, "j": 4, "k": 5})
    for text, operands in (("ij,jk->ik", (a, b * 1j)), ("ij,jk,kl,lm->im", (a, b * 1j, b.T, b.astype("float32")))):
        np.testing.assert_allclose(fe.contract(text, *operands, **how), np.einsum(text, *operands), rtol=1e-6)


def test_rates_are_measured_once_and_survive_damage(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """In the user's data directory; a damaged file is measured anew, and a busy machine is for an hour only."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(matmul_rates, "_SAMPLES_S", 0.0)
    product_rates.cache_clear()
    first = product_rates()
    [file] = (tmp_path / "feinsum" / "products").iterdir()
    monkeypatch.setattr(matmul_rates, "_measure_products", lambda: FAST)
    product_rates.cache_clear()
    assert product_rates() == first
    file.write_text('{"format": 1, "rates": {"call_s": -1}}')
    product_rates.cache_clear()
    assert product_rates() == FAST
    product_rates.cache_clear()
    for shape in ((1, 1, 1, 1), (1000, 8, 8, 8), (1, 500, 500, 500)):
        assert first.seconds(*shape, "float64") > 0
        assert first.seconds(*shape, "complex128", 1 << 20) > first.seconds(*shape, "complex128")


def test_products_like_one_before_are_numpys_at_once(
    how: dict[str, Any], fast: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is prepared or looked up for arrays like those before; others, and every keyword, go the long way."""
    expression = fe.contract_expression("ab,bc->ac", (3, 4), (4, 5), **how)
    a, b = draw("ab,bc->ac", {"a": 3, "b": 4, "c": 5})
    first = expression(a, b)
    long_way: list[Any] = []
    run = Evaluation.run
    monkeypatch.setattr(Evaluation, "run", lambda self, *given: long_way.append(given) or run(self, *given))
    second = expression(a, b)
    assert not long_way
    assert second is not first
    np.testing.assert_array_equal(second, first)
    turned, out = np.asfortranarray(a), np.empty((3, 5))
    with fe.shared_intermediates():
        expression(a, b)
    for found in (expression(turned, b), expression(a.astype("float32"), b), expression(a, b, alpha=2) / 2):
        np.testing.assert_allclose(found, first, rtol=1e-6)
    assert expression(a, b, out=out) is out
    assert len(long_way) == 5
    with pytest.raises(fe.ShapeError, match="has shape"):
        expression(a, b[:3])
    with pytest.raises(fe.ShapeError, match="takes 2 arrays"):
        expression(a)
    np.testing.assert_array_equal(fe.contract("ab,cb->ca", a, b.T.copy(), **how), (b.T.copy() @ a.T))


def test_calls_with_and_without_out_are_prepared_apart(how: dict[str, Any], fast: None) -> None:
    """A result in `out` has the order of axes of `out`; later calls without it keep the order that they ask for."""
    expression = fe.contract_expression("ab,bc->ac", (3, 4), (4, 5), order="F", **how)
    a, b = draw("ab,bc->ac", {"a": 3, "b": 4, "c": 5})
    out = np.empty((3, 5))
    assert expression(a, b, out=out) is out
    for found in (expression(a, b), expression(a, b)):
        assert found.flags.f_contiguous
        np.testing.assert_allclose(found, out)
    np.testing.assert_allclose(out, a @ b)


def test_another_store_is_seen_at_once(how: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment decides at each call, also of arrays like those before."""
    a, b = draw("ab,bc->ac", {"a": 3, "b": 4, "c": 5})
    fe.contract("ab,bc->ac", a, b)
    fe.contract("ab,bc->ac", a, b)
    monkeypatch.setenv("FEINSUM_DEVICE", "no such device")
    with pytest.raises(fe.DeviceError, match="no such device"):
        fe.contract("ab,bc->ac", a, b)


def test_one_kernel_for_device_arrays(cpu: Device, how: dict[str, Any]) -> None:
    """Its result is as of the steps: of the shape asked for, with events, beside strided operands and numbers."""
    a, b = draw("ab,bc->ac", {"a": 3, "b": 4, "c": 5})
    there, other = cla.to_device(cpu.queue, a), cla.to_device(cpu.queue, b)
    for text, first, second, expected in (
        ("ab,bc->ac", there, other, a @ b),
        ("ab,bc->ca", there, other, (a @ b).T),
        ("ab,bc->ac", cla.to_device(cpu.queue, np.repeat(a, 2, 1))[:, ::2], other, a @ b),
        ("ab,->ab", there, 2.0, 2 * a),
        ("ab,xbc->axc", there, other.reshape(1, 4, 5), (a @ b)[:, None]),
    ):
        for _ in range(2):
            found = fe.contract(text, first, second, **how)
            assert found.shape == expected.shape
            np.testing.assert_allclose(found.get(), expected, rtol=1e-12)
        assert found.events or "->ca" in text
    np.testing.assert_allclose(fe.contract("ab,bc->ac", there, other, alpha=3, **how).get(), 3 * (a @ b), rtol=1e-12)
