"""`contract` takes what opt_einsum's takes besides arrays, raises errors of numpy's classes, explains and tunes itself."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import opt_einsum
import pyopencl.array as cla
import pytest

import feinsum as fe
from feinsum.contract import step_choice
from feinsum.contract.evaluation import StepByStep
from feinsum.contract.sharing import current_cache
from feinsum.devices import Device

A, B, C, D = (np.random.default_rng(k).uniform(-1, 1, shape) for k, shape in enumerate([(3, 4), (4, 5), (5, 2), (2, 6)]))


@pytest.fixture(scope="module")
def how(cpu: Device, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A device and a store of its own."""
    return {"device": cpu, "database": str(tmp_path_factory.mktemp("drop") / "records.sqlite")}


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every step that is computed."""
    seen: list[Any] = []
    original = StepByStep._by_kernel
    other = StepByStep._by_library

    monkeypatch.setattr(StepByStep, "_by_kernel", lambda self, *more: seen.append(more) or original(self, *more))
    monkeypatch.setattr(StepByStep, "_by_library", lambda self, *more: seen.append(more) or other(self, *more))
    return seen


REFUSED: dict[str, tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = {
    "nothing": ((), {}, ValueError, "contract takes subscripts and operands"),
    "numbers": ((0, 0), {}, TypeError, "the indices of operand 0 are 0; the interleaved form takes a list"),
    "text as out": (("ij->i", A), {"out": "x"}, TypeError, "out is a str; pass a numpy array, as the operands are"),
    "casting": (("ij->i", A), {"casting": "blah"}, ValueError, "casting is 'blah'; it is one of no, equiv, safe"),
    "order": (("ij->i", A), {"order": "blah"}, ValueError, "order is 'blah'; it is 'C', 'F', 'A' or 'K'"),
    "type": (("ij->i", A), {"dtype": "blah"}, TypeError, "dtype is 'blah', which is no data type"),
    "rank": (("ij->i", A[0]), {}, ValueError, "operand 0 is 'ij' in 'ij->i' but has 1 axes"),
}


@pytest.mark.parametrize(("operands", "options", "kind", "message"), REFUSED.values(), ids=REFUSED)
def test_errors_are_of_the_classes_of_numpy(
    operands: tuple[Any, ...], options: dict[str, Any], kind: type[Exception], message: str, how: dict[str, Any]
) -> None:
    """And errors of feinsum besides, which say what to do."""
    with pytest.raises(kind):
        np.einsum(*operands, **options)
    with pytest.raises(kind) as error:
        fe.contract(*operands, **options, **how)
    assert isinstance(error.value, fe.FeinsumError)
    assert message in str(error.value)


def test_backends_are_those_whose_arrays_there_are(cpu: Device, how: dict[str, Any]) -> None:
    """Or "auto", which is opt_einsum's default."""
    there = [cla.to_device(cpu.queue, x) for x in (A, B)]
    for backend, operands in (("auto", (A, B)), ("numpy", (A, B)), ("auto", there), ("pyopencl", there)):
        found = fe.contract("ij,jk", *operands, backend=backend, use_blas=False, **how)
        np.testing.assert_allclose(found if operands is not there else found.get(), A @ B)
    with pytest.raises(fe.ValidationError, match="backend is 'pyopencl' but the operands are numpy arrays"):
        fe.contract("ij,jk", A, B, backend="pyopencl", **how)
    with pytest.raises(fe.ValidationError, match="backend is 'tensorflow'; arrays are those of 'numpy', 'pyopencl',"):
        fe.contract("ij,jk", A, B, backend="tensorflow", **how)


def test_paths_are_those_of_opt_einsum(how: dict[str, Any]) -> None:
    """For arrays and shapes, either form, and with a limit; `contract` takes them."""
    operands = ("ij,jk,kl,lm->im", A, B, C, D)
    path, description = fe.contract_path(*operands, optimize="optimal")
    assert path == opt_einsum.contract_path(*operands, optimize="optimal")[0]
    assert description.opt_cost > 0
    np.testing.assert_allclose(fe.contract(*operands, optimize=path, **how), A @ B @ C @ D)
    assert fe.contract_path("ij,jk,kl,lm->im", *(x.shape for x in (A, B, C, D)), shapes=True, optimize="optimal")[0] == path
    assert fe.contract_path(A, [0, 1], B, [1, 2], memory_limit=-1)[0] == [(0, 1)]
    with pytest.raises(fe.SubscriptError, match="opt_einsum finds no path for 'ij,jk'"):
        fe.contract_path("ij,jk", A, C)


def test_results_in_between_are_shared(how: dict[str, Any], steps: list[Any], cpu: Device) -> None:
    """Between contractions of the same objects in one context, whatever the letters and the order; not outside of it."""
    marginals = [("ij,jk,kl->i", (A, B, C)), ("ij,jk,kl->l", (A, B, C)), ("ab,xa,bc->c", (B, A, C))]
    options = {"optimize": [(0, 1), (0, 1)], **how}
    with fe.shared_intermediates() as cache:
        for text, operands in marginals:
            np.testing.assert_allclose(fe.contract(text, *operands, **options), np.einsum(text, *operands))
        assert cache
        assert len(steps) == 4  # the first product with i, without it, and two that end it
        again = fe.contract(*marginals[0][:1], *marginals[0][1], **options)
        again += 1
        np.testing.assert_allclose(fe.contract(marginals[0][0], *marginals[0][1], **options), again - 1)
        assert len(steps) == 4
        fe.contract(marginals[0][0], A.copy(), B, C, **options)
        assert len(steps) == 6
    assert current_cache() is None
    steps.clear()
    with fe.shared_intermediates(cache), fe.shared_intermediates() as inner:
        assert inner is cache
        fe.contract(marginals[0][0], A, B, C, **options)
    assert not steps
    fe.contract(marginals[0][0], A, B, C, **options)
    assert len(steps) == 2
    there = [cla.to_device(cpu.queue, x) for x in (A, B, C)]
    with fe.shared_intermediates():
        for _ in range(2):
            np.testing.assert_allclose(fe.contract("ij,jk,kl->il", *there, **options).get(), A @ B @ C)
    assert len(steps) == 4


def test_threads_share_nothing(how: dict[str, Any]) -> None:
    """A context is that of its thread."""
    seen: list[Any] = []
    with fe.shared_intermediates():
        thread = threading.Thread(target=lambda: seen.append(current_cache()))
        thread.start()
        thread.join()
    assert seen == [None]


def test_an_expression_explains_itself(how: dict[str, Any]) -> None:
    """Path, kernels, operations, and who does each step; before a call as for numpy arrays of the type asked for."""
    expression = fe.contract_expression("ij,jk,kl,lm->im", A.shape, B.shape, C.shape, D, library=False, **how)
    assert len(expression.path) == len(expression.kernels) == 3
    assert expression.flops == sum(k.einsum.flops(k.einsum.sizes_from(n)) for k, n in zip_lengths(expression))
    assert all(k is not None and k.einsum.dtype == np.float64 for k in expression.kernels)
    text = expression.explain()
    assert text.startswith(f"ij,jk,kl,lm->im on {how['device']}, in 3 steps\nstep 0 takes ")
    assert text.count("rung      ") == text.count("space     ") == 3
    expression(*(x.astype("float32") for x in (A, B, C)))
    expression = fe.contract_expression("ij,jk->ik", A.shape, B, library=False, dtype="float32", casting="same_kind", **how)
    [kernel] = expression.kernels
    assert kernel is not None
    assert kernel.einsum.dtype == np.float32


def zip_lengths(expression: Any) -> list[tuple[Any, Any]]:
    tasks = expression._evaluation().tasks
    return [(task.kernel, task.step.lengths) for task in tasks]


def test_what_follows_from_constants_is_computed_once_and_said(how: dict[str, Any]) -> None:
    """And constants are copies: what the caller writes to them afterwards does not count."""
    b = B.copy()
    expression = fe.contract_expression("ij,jk,kl->il", A.shape, b, C, optimize=[(1, 2), (0, 1)], **how)
    for _ in range(2):
        np.testing.assert_allclose(expression(A), A @ B @ C)
        b[...] = 0
    assert ", once, as it follows from constants alone" in expression.explain()


@pytest.mark.parametrize("tune", ["always", 0, -1, True, float("nan"), None])
def test_what_is_no_time_to_tune_is_refused(tune: Any, how: dict[str, Any]) -> None:
    """As the call is made."""
    with pytest.raises(fe.ValidationError, match=r"tune is .*; it is 'never', 'missing' or a number of seconds"):
        fe.contract("ij,jk", A, B, tune=tune, **how)
    with pytest.raises(fe.ValidationError, match=r"seconds is .*; it is how long to tune at most"):
        fe.contract_expression("ij,jk", A.shape, B.shape, **how).tune(tune)


def test_contractions_are_tuned_once(cpu: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step gets a record at its lengths; kernel and library are timed, and later calls take the quicker."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    store = str(tmp_path / "records.sqlite")
    a, b = np.random.default_rng(0).uniform(-1, 1, (2, 60, 60))
    found = fe.contract("ij,jk->ik", a, b, device=cpu, database=store, tune=3, library=False)
    np.testing.assert_allclose(found, a @ b)
    records = list(fe.Database(store).query())
    assert records
    expression = fe.contract_expression("ij,jk->ik", a.shape, b.shape, device=cpu, database=store, library=False)
    np.testing.assert_allclose(expression(a, b), a @ b)
    [kernel] = expression.kernels
    assert kernel is not None
    assert kernel.rung == "exact"
    both = fe.contract_expression("ij,jk->ik", a.shape, b.shape, device=cpu, database=store)
    both.tune(0.5)
    np.testing.assert_allclose(both(a, b), a @ b)
    [(library_s, kernel_s)] = step_choice.measured_times(cpu).values()
    assert library_s is not None
    assert (both.kernels == (None,)) == (library_s < kernel_s)
    assert "library   measured to take" in both.explain()
    assert len(list(fe.Database(store).query())) == len(records)


def test_records_that_are_added_are_found_by_contract_and_not_by_an_expression(cpu: Device, tmp_path: Path) -> None:
    """`contract` looks whether there are new ones, as `generate` does; an expression is planned once."""
    from test_ladder import BEST, add

    store = str(tmp_path / "records.sqlite")
    options = {"device": cpu, "database": store, "library": False}
    expression = fe.contract_expression("ij,jk->ik", A.shape, B.shape, **options)
    for _ in range(2):
        np.testing.assert_allclose(expression(A, B), A @ B)
        np.testing.assert_allclose(fe.contract("ij,jk->ik", A, B, **options), A @ B)
    rungs = [expression.kernels[0].rung]  # type: ignore[union-attr]
    e = fe.einsum("ij,jk->ik", fe.array("A", ("N", "M")), fe.array("B", ("M", "K")))
    add(store, e, cpu, {"N": 512, "M": 512, "K": 512}, BEST)
    np.testing.assert_allclose(fe.contract("ij,jk->ik", A, B, **options), A @ B)
    rungs.append(expression.kernels[0].rung)  # type: ignore[union-attr]
    rungs.append(fe.contract_expression("ij,jk->ik", A.shape, B.shape, **options).kernels[0].rung)  # type: ignore[union-attr]
    assert rungs[0] == rungs[1]
    assert rungs[2] == "lengths"
