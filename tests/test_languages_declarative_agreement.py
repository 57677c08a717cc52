"""Kernels of declarative programs agree with the interpreter: loops over tensors, gathers, empty axes, remainders."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import feinsum as fe
from feinsum.devices import Device
from feinsum.errors import LanguageError
from feinsum.languages.declarative.forms import SCALARS

RNG = np.random.default_rng(42)
X = RNG.random(20, np.float32)
MATRIX = RNG.random((12, 12))


def agree(cpu: Device, text: str, **arguments: Any) -> fe.Built:
    """Compare a kernel with the interpreter: shapes, types and values."""
    program = fe.program(text, language="declarative")
    kernel = fe.build(program, device=cpu)
    found, wanted = (x if isinstance(x, tuple) else (x,) for x in (kernel(**arguments), program.interpret(**arguments)))
    for one, other in zip(found, wanted, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(one, other, rtol=1e-5)
    return kernel


STENCIL = """{
    l = if i > 0 then u[i - 1] else 0.0
    r = if i < N - 1 then u[i + 1] else 0.0
    0.5 * (l + r) + x[i] * k
}"""
LOOPS = [
    f"y = affine_for (begin = 1, end = 4, init = x) |k, u| compute (shape = [N]) |i| {STENCIL}",
    "y = affine_for (end = 3, init = zeros(shape = [N])) |k, u| compute (shape = [N]) |i| u[N - 1 - i] + x[i]",
    "y = affine_for (end = 3, init = compute (shape = [N]) |i| i) |k, u| compute (shape = [N]) |i| u[N - 1 - i] + 1",
    "y = affine_for (end = 3, init = x) |k, u| { s = scan (shape = [N], op = sum) |j| u[j] * k\n"
    "compute (shape = [N]) |i| s[i] - u[i] }",
    "y = affine_for (end = 3, init = x) |k, u| affine_for (end = 2, init = u) |l, v|\n"
    "compute (shape = [N]) |i| v[N - 1 - i] + u[i] * k - l",
    "y = compute (shape = [3]) |b| affine_for (end = 4, init = x) |k, u| compute (shape = [N]) |i| u[N - 1 - i] + k * b",
    "y = compute (shape = [N]) |q| if x[q] > 0.5 { r = affine_for (end = 3, init = x) |k, u|\n"
    "compute (shape = [N]) |i| u[N - 1 - i] + x[i]\nr[q] } else { 0 }",
    "y = affine_for (end = 0, init = x) |k, u| compute (shape = [N]) |i| u[N - 1 - i]",
    "y = affine_for (end = 3, init = x) |k, u| { n = reduce (shape = [N], op = sum) |j| u[j]\n"
    "compute (shape = [N]) |i| u[i] / n }\nz = compute (shape = [N]) |i| y[N - 1 - i]",
]


@pytest.mark.parametrize("text", LOOPS)
def test_loops_may_carry_tensors_whose_elements_meet(text: str, cpu: Device) -> None:
    """A round reads any element of the state before it, which is an array."""
    kernel = agree(cpu, f"x: Tensor<N; f32>\n{text}", x=X)
    assert len(kernel.source) < 20_000


@pytest.mark.parametrize("route", ["einsum", "general"])
def test_a_round_may_be_an_einsum(route: str, cpu: Device) -> None:
    """Two buffers take turns, and the last round writes the result, whether rounds are even or odd."""
    for rounds in (1, 2, 5):
        text = f"""
        a: Tensor<N, N; f64>
        y = affine_for (end = {rounds}, init = a) |k, u| compute (shape = [N, N]) |i, j| {{
            reduce (shape = [N], op = sum) |l| a[i, l] * u[l, j]
        }}
        """
        found = fe.build(fe.program(text), device=cpu, route=route)(a=MATRIX)
        np.testing.assert_allclose(found, np.linalg.matrix_power(MATRIX, rounds + 1), rtol=1e-12)


def test_elements_that_stay_in_place_share_one_kernel(cpu: Device) -> None:
    """They are loops of their own, and need neither arrays nor launches for rounds."""
    text = "x: Tensor<N; f32>\ny = affine_for (end = 2, init = x) |k, u| compute (shape = [N]) |i| u[i] * 0.5 + k"
    assert agree(cpu, text, x=RNG.random(1000, np.float32)).source.count("__kernel") == 1


IX = np.array([2, -1, 3, 9, -(2**31), 2**31 - 1], np.int32)
GATHERS = [
    "if ix[i] >= 0 and ix[i] < V then E[ix[i], d] else 0.0",
    "if ix[i] < 0 or V <= ix[i] then -1 else E[ix[i], d]",
    "if not (ix[i] < 0 or ix[i] >= V) then E[ix[i], d] else 0.0",
    "if ix[i] >= 0 then (if ix[i] < V then E[ix[i], d] else 1.0) else 2.0",
    "if ix[i] >= 1 and ix[i] <= V then E[ix[i] - 1, d] else 0",
    "if ix[i] == 2 or ix[i] == 3 then E[ix[i], d] else 0",
    "E[min(max(ix[i], 0), V - 1), d]",
    "E[ix[i] % V, d]",
    "{ j = ix[i]\n ok = j >= 0 and j < V\n if ok then E[j, d] else 0 }",
    "{ j = if ix[i] < 0 then 0 else ix[i]\n E[min(j, V - 1), d] }",
    "if ok[i] then E[ix[i], d] else 0",
    "E[clamped[i], d]",
    "if ix[i] > 0 then 7 % ix[i] else floordiv(7, if ix[i] == 0 then 1 else ix[i])",
]
TABLE = """
E: Tensor<V, D; f32>
ix: Tensor<N; TYPE>
ok = compute (shape = [N]) |i| ix[i] >= 0 and ix[i] < V
clamped = compute (shape = [N]) |i| min(max(ix[i], 0), V - 1)
y = compute (shape = [N, D]) |i, d| """


@pytest.mark.parametrize("body", GATHERS)
def test_guards_and_clamps_prove_gathers(body: str, cpu: Device) -> None:
    """Conditions and minima bound an index that is data, under any name."""
    agree(cpu, TABLE.replace("TYPE", "i32") + body, E=RNG.random((4, 3), np.float32), ix=IX)


@pytest.mark.parametrize("dtype", ["i8", "u8", "i16", "u16", "i64", "u32"])
def test_gathers_by_indices_of_any_type(dtype: str, cpu: Device) -> None:
    """The range of the type is all that is known without a guard."""
    ix = np.array([2, 3, 100, 0]).astype(SCALARS[dtype])
    agree(cpu, TABLE.replace("TYPE", dtype) + GATHERS[0], E=RNG.random((4, 3), np.float32), ix=ix)


UNPROVED = {
    "E[ix[i], d]": "if ix[i] >= 0 and ix[i] < 4 then",
    "if ix[i] < V then E[ix[i], d] else 0.0": "if ix[i] >= 0 then",
    "if ix[i] >= 0 and ix[i] < V then 0.0 else E[ix[i], d]": "if ix[i] >= 0 and ix[i] < 4 then",
    "if ix[i] + 1 <= V and ix[i] > -1 then E[ix[i], d] else 0": "if ix[i] < 4 then",  # the sum wraps
    "if i < 4.5 then E[i, d] else 0": "if i < 4 then",
}


@pytest.mark.parametrize("body", UNPROVED)
def test_gathers_without_proof_are_refused_with_the_guard_that_is_missing(body: str, cpu: Device) -> None:
    """Kernels check no index, so a condition has to hold for all data; 4 is below 4.5, and out of an axis of 4."""
    kernel = fe.build(TABLE.replace("TYPE", "i32") + body, device=cpu)
    with pytest.raises(LanguageError, match=rf"guard it, `{re.escape(UNPROVED[body])} .*`, or clamp it"):
        kernel(E=np.ones((4, 3), np.float32), ix=IX)


def test_a_guard_says_nothing_of_what_a_thread_changes(cpu: Device) -> None:
    """Shared elements may differ between two reads."""
    text = """
    x: Tensor<N; i32>
    s = compute (shape = [N]) |i| x[i]
    thread (threads = N, shared = [s]) |t| {
        if s[t] >= 0 and s[t] < N {
            s[t] = 100
            s[s[t]] = 1
        }
    }
    """
    with pytest.raises(LanguageError, match=r"run-bounds"):
        fe.build(text, device=cpu)(x=np.arange(3, dtype=np.int32))


EMPTY = [
    "compute (shape = [M]) |j| reduce (shape = [N], op = sum) |i| a[i, j]",
    "compute (shape = [M]) |j| reduce (shape = [N], op = max) |i| a[i, j]",
    "reduce (shape = [N, M], op = all) |i, j| a[i, j] > 0",
    "compute (shape = [N]) |i| reduce (shape = [M], op = sum) |j| a[i, j]",
    "scan (shape = [N], op = sum) |i| a[i, 0]",
    "compute (shape = [M]) |j| { s = scan (shape = [N], op = sum) |i| a[i, j]\n reduce (shape = [N], op = sum) |i| s[i] }",
    "compute (shape = [M, M]) |j, k| reduce (shape = [N], op = sum) |i| a[i, j] * a[i, k]",
    "compute (shape = [N, N]) |j, k| reduce (shape = [M], op = sum) |i| a[j, i] * a[k, i]",
    "compute (shape = [M]) |j| affine_for (end = N, init = 1.0) |i, s| s + a[i, j]",
    "affine_for (end = 2, init = a[:, 0]) |k, s| compute (shape = [N]) |i| s[N - 1 - i] + 1",
    "a * 2",
    "compute (shape = [N, M]) |i, j| { s = a[:, j]\n reduce (shape = [4], op = sum) |k| s[k] }",
    "compute (shape = [N, M]) |i, j| { s = scan (shape = [M], op = sum) |k| a[k + 4, 0]\n s[j] }",
    "compute (shape = [N]) |i| affine_for (end = 2, init = zeros(shape = [20])) |k, s|\n"
    "compute (shape = [20]) |l| s[19 - l] + a[l + k, 0]",
    "compute (shape = [N]) |i| i / 2 + i % (i - i)",
    "compute (shape = [M]) |j| if N > 0 then a[0, j] else 1",
    "compute (shape = [N]) |i| if a[i, 0] > 0 { a[i, 1] } else { s = scan (shape = [M], op = sum) |k| a[i, k]\n s[0] }",
    "grid (dim = [cdiv(N, 4), cdiv(M, 4)]) |g, h| compute (shape = [4, 4]) |p, q|\n"
    "if g * 4 + p < N and h * 4 + q < M then a[g * 4 + p, h * 4 + q] else 0.0",
]


@pytest.mark.parametrize("body", EMPTY)
def test_axes_may_be_empty(body: str, cpu: Device) -> None:
    """Nothing is evaluated along them, so nothing has to be inside, and sums are 0."""
    type_ = ": Tensor<N, M; f64>" if body.startswith("grid") else ""
    agree(cpu, f"a: Tensor<N, M; f64>\ny{type_} = {body}", a=np.zeros((0, 3)))


VALUES = [
    "x % 5",
    "x % -0.75",
    "1 / (x % inf)",
    "5.5 % x",
    "x % 0.0",
    "max(x, -inf) + nan",
    "compute (shape = [N]) |i| if x[i] > -100 then 1 else 0.5",
    "compute (shape = [N]) |i| if N > 1 then i else 0.5",
    "compute (shape = [N]) |i| min(c[i], 3) + c[i] * 100 - 7 % (i + 1)",
    "compute (shape = [N]) |i| c[i] < 300 or c[i] % 2.5 > 1",
]


@pytest.mark.parametrize("body", VALUES)
def test_numbers_are_those_of_the_interpreter(body: str, cpu: Device) -> None:
    """Remainders have the sign of the divisor, infinity is a number, narrow integers wrap."""
    x = np.array([-6, -5.5, -0.0, 0, 5, 5.5, np.inf, -np.inf, np.nan, 1e-30, -1e-30], np.float32)
    c = np.arange(-5, 6, dtype=np.int8) * 20
    agree(cpu, f"x: Tensor<N; f32>\nc: Tensor<N; i8>\ny = {body}", x=x, c=c)


def test_special_numbers_are_printed_as_they_are_read() -> None:
    """The canonical text is a text of the language."""
    program = fe.program("x: Tensor<N; f32>\ny = x + nan * 1e999 - inf")
    assert fe.program(str(program)) == program
