"""`feinsum` as a backend of opt_einsum."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import opt_einsum as oe
import pytest

import feinsum as fe
from feinsum.interop import opt_einsum_backend

EQUATIONS = ["ij,jk,kl->il", "bij,bjk->bik", "ij,kl->ijkl", "ij->ji", "ijk,ilm,njm,nlk->", "ijk,kj->i"]


@pytest.mark.parametrize("equation", EQUATIONS)
def test_opt_einsum_calls_us(equation, monkeypatch):
    """Every step is done by our kernels, and the result is numpy's."""
    called = []
    contract = opt_einsum_backend.contract
    monkeypatch.setattr(opt_einsum_backend, "contract", lambda *a, **k: called.append(a[0]) or contract(*a, **k))
    rng = np.random.default_rng(21)
    arrays = [rng.random([3 + "bijklmn".index(x) for x in term]) for term in equation.split("->")[0].split(",")]
    found = oe.contract(equation, *arrays, backend="feinsum")
    np.testing.assert_allclose(found, np.einsum(equation, *arrays), rtol=1e-12)
    assert called
    out = np.empty_like(found)
    expression = oe.contract_expression(equation, *(a.shape for a in arrays))
    np.testing.assert_allclose(expression(*arrays, backend="feinsum", out=out), found)


@pytest.mark.parametrize("axes", [1, ([0, -1], [1, 0]), (2, 0)])
def test_tensordot_is_that_of_numpy(axes):
    rng = np.random.default_rng(21)
    a, b = rng.random((3, 4, 5)), rng.random((5, 3, 2))
    if axes == (2, 0):
        a = a[:, :, :5]
    np.testing.assert_allclose(opt_einsum_backend.tensordot(a, b, axes), np.tensordot(a, b, axes), rtol=1e-12)


def test_products_of_xarray(monkeypatch):
    """`xarray.dot` passes on what opt_einsum takes."""
    xarray = pytest.importorskip("xarray")
    called = []
    contract = opt_einsum_backend.contract
    monkeypatch.setattr(opt_einsum_backend, "contract", lambda *a, **k: called.append(a[0]) or contract(*a, **k))
    rng = np.random.default_rng(21)
    a = xarray.DataArray(rng.random((3, 4)), dims=("row", "sum"))
    b = xarray.DataArray(rng.random((4, 2)), dims=("sum", "column"))
    found = xarray.dot(a, b, dim="sum", backend="feinsum")
    np.testing.assert_allclose(found, a.values @ b.values, rtol=1e-12)
    assert called


def test_derivatives_pass_through():
    torch = pytest.importorskip("torch")
    a, b, c = (torch.randn(3, 3, dtype=torch.float64, requires_grad=True) for _ in range(3))
    oe.contract("ij,jk,kl->il", a, b, c, backend="feinsum").sum().backward()
    found, a.grad = a.grad, None
    (a @ b @ c).sum().backward()
    torch.testing.assert_close(found, a.grad)


def test_it_is_there_whoever_is_imported_first():
    code = "import numpy as np; {}; print(oe.contract('ij,jk->ik', np.eye(2), np.eye(2), backend='feinsum').sum())"
    for imports in ("import feinsum, opt_einsum as oe", "import opt_einsum as oe, feinsum"):
        done = subprocess.run([sys.executable, "-c", code.format(imports)], capture_output=True, text=True, check=True)
        assert done.stdout == "2.0\n"


def test_describing_is_as_it_was():
    assert fe.einsum("ij->ji", fe.array("a", (2, 3))).subscripts == "ij->ji"
