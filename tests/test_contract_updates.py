"""`contract` with alpha and beta: ``out := alpha*result + beta*out``, whoever does the last step."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pyopencl.array as cla
import pytest

import feinsum as fe
from feinsum.contract.step_choice import StepChoice
from feinsum.devices import Device

SHAPES = ((7, 5, 3), (64, 2, 2))
CASES: list[tuple[str, dict[str, Any]]] = [
    ("ik,kj->ij", {}),
    ("ik,kj->ij", {"library": False}),
    ("ik,k,kj->ij", {"optimize": "greedy"}),
    ("ik,k,kj->ij", {"optimize": "greedy", "library": False}),
]


def drawn(text: str, shape: tuple[int, int, int]) -> tuple[list[np.ndarray[Any, Any]], np.ndarray[Any, Any]]:
    """The operands, and what the output holds."""
    rng, lengths = np.random.default_rng(1), dict(zip("ijk", shape, strict=True))
    inputs, _, output = text.partition("->")
    return [rng.random([lengths[x] for x in term]) for term in inputs.split(",")], rng.random([lengths[x] for x in output])


@pytest.mark.parametrize(("text", "keywords"), CASES)
@pytest.mark.parametrize("layout", ["C", "F", "strided", "float32", "device"])
def test_an_output_is_updated(text: str, keywords: dict[str, Any], layout: str, cpu: Device) -> None:
    """In place, of every layout and of a narrower type; by a kernel, by numpy's BLAS, at the last of several steps."""
    for shape in SHAPES:
        operands, before = drawn(text, shape)
        given: list[Any] = list(operands)
        result, out = np.einsum(text, *operands), before.copy()
        if layout == "F":
            out = np.asfortranarray(out)
        elif layout == "strided":
            out = np.repeat(out, 2, axis=1)[:, ::2]
        elif layout == "float32":
            out, keywords = out.astype("float32"), keywords | {"casting": "same_kind"}
        elif layout == "device":
            given, out = [cla.to_device(cpu.queue, x) for x in operands], cla.to_device(cpu.queue, out)
        assert fe.contract(text, *given, out=out, alpha=2, beta=-0.5, device=cpu, **keywords) is out
        found = out.get() if layout == "device" else out
        np.testing.assert_allclose(found, 2 * result - 0.5 * before, rtol=1e-5 if layout == "float32" else 1e-12)


@pytest.mark.parametrize("scale", [{"alpha": 2, "beta": -0.5}, {"alpha": 2}, {"beta": -0.5}])
def test_an_undecided_update_is_timed(scale: dict[str, float], cpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where kernel and library may be equally fast both are called first, the kernel with numbers and an output, too."""
    choices = []

    def choose(*arguments: Any, **keywords: Any) -> StepChoice:
        choices.append(StepChoice(None, 1e-3, 1e-3, undecided=True))
        return choices[-1]

    monkeypatch.setattr(import_module("feinsum.contract.evaluate"), "choose_kernel_or_library", choose)
    (a, b), before = drawn("ik,kj->ij", (17, 15, 13))
    out = before.copy()
    fe.contract("ik,kj->ij", a, b, out=out, device=cpu, **scale)
    assert choices
    np.testing.assert_allclose(out, scale.get("alpha", 1) * a @ b + scale.get("beta", 0) * before)


def test_what_zero_multiplies_is_not_looked_at(cpu: Device) -> None:
    """And without beta no output is needed; an expression takes both, too."""
    (a, b), before = drawn("ik,kj->ij", (7, 5, 3))
    for library in (True, False):
        out = np.full_like(before, np.nan)
        fe.contract("ik,kj->ij", a, b, out=out, alpha=3, beta=0.0, device=cpu, library=library)
        np.testing.assert_allclose(out, 3 * a @ b)
        np.testing.assert_allclose(fe.contract("ik,kj->ij", a, b, alpha=3, device=cpu, library=library), 3 * a @ b)
    expression = fe.contract_expression("ik,kj->ij", a.shape, b.shape, device=cpu, library=False)
    out = before.copy()
    for _ in range(2):
        expression(a, b, out=out, beta=1)
    np.testing.assert_allclose(out, before + 2 * a @ b)
    np.testing.assert_allclose(expression(a, b), a @ b)
    empty = fe.contract("ik,kj->ij", a[:, :0], b[:0], out=before.copy(), beta=2, device=cpu, library=False)
    np.testing.assert_array_equal(empty, 2 * before)


def test_what_does_not_fit_is_refused(cpu: Device) -> None:
    """Beta without an output, what is no number, and a number that the result cannot hold."""
    a = np.ones((2, 2))
    with pytest.raises(fe.ValidationError, match="beta is 1, by which the content of out is multiplied; pass out="):
        fe.contract("ij,jk->ik", a, a, beta=1, device=cpu)
    with pytest.raises(fe.ValidationError, match="'alpha' is 'x'; it is a number, of type float64"):
        fe.contract("ij,jk->ik", a, a, alpha="x", device=cpu)
    with pytest.raises(fe.DTypeError, match="'alpha' is 1j, but the output it is for is float64"):
        fe.contract("ij,jk->ik", a, a, alpha=1j, device=cpu)
