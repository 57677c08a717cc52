"""Programs that functions of Python are traced to.

Annotations are evaluated where they stand, and not put off: their strings are lengths.
"""

# ruff: noqa: F821  strings in annotations are lengths

from typing import Any

import declarative_programs as programs
import numpy as np
import pytest

import feinsum as fe
from feinsum.errors import FeinsumError, LanguageError
from feinsum.languages.declarative import tracing as decl
from feinsum.languages.declarative.tracing import T

RNG = np.random.default_rng(7)


def test_kernels_in_python() -> None:
    """The same trees as from text."""

    @fe.kernel
    def product(A: T["M", "K"], B: T["K", "N"]) -> Any:
        (M, K), (_, N) = A.shape, B.shape
        return decl.compute((M, N), lambda i, j: decl.reduce((K,), lambda k: A[i, k] * B[k, j]), name="y")

    assert product == fe.program(programs.MATMUL)

    @fe.kernel
    def layer_norm(A: T["R", "C", "f32"], gamma: T["C", np.float32], beta: T["C", "f32"]) -> Any:
        R, C = A.shape

        def element(i: Any, j: Any) -> Any:
            mean = decl.reduce((C,), lambda k: A[i, k] / C, name="mean")
            variance = decl.reduce((C,), lambda k: (A[i, k] - mean) * (A[i, k] - mean) / C, name="variance")
            return (A[i, j] - mean) * decl.rsqrt(variance + 1e-5) * gamma[j] + beta[j]

        return decl.compute((R, C), element, name="y")

    assert layer_norm == fe.program(programs.LAYER_NORM)


def test_every_form_in_python() -> None:
    """With numbers."""

    @fe.kernel
    def several(a: T["N", "f64"], n: int, s: float) -> Any:
        (N,) = a.shape
        running = decl.scan((N,), lambda i: a[i], name="running")
        shifted = decl.compute((N,), lambda i: decl.where(i > 0, lambda: a[i - 1], 0.0), name="shifted")
        tile = decl.tune(N, [4, 8], name="tile")
        tiles = decl.grid(
            (decl.cdiv(N, tile),),
            lambda g: decl.compute((tile,), lambda i: decl.where(g * tile + i < N, lambda: s * a[g * tile + i], 0.0)),
            (N,),
            name="tiles",
        )
        power = decl.affine_for(n, 1.0, lambda k, r: r * s, name="power")
        large = decl.while_(s, lambda x: x > 100, lambda x: x * x + 1, name="large")
        both = decl.alternative(name="both", one=lambda: a + a, two=lambda: 2 * a)
        return running, shifted, tiles, power, large, both, a[1:3], ~(a < 0)

    a = RNG.standard_normal(11)
    running, shifted, tiles, power, large, both, part, positive = several.interpret(a=a, n=3, s=3.0)
    np.testing.assert_allclose(running, a.cumsum())
    np.testing.assert_allclose(shifted, np.append(0, a[:-1]))
    np.testing.assert_allclose(tiles, 3 * a)
    assert (power, large) == (27.0, 101.0)
    np.testing.assert_allclose(both, 2 * a)
    np.testing.assert_allclose(part, a[1:3])
    np.testing.assert_array_equal(positive, a >= 0)


def test_what_python_cannot_trace() -> None:
    """A condition of Python, a parameter without a type, an object that is no number."""
    with pytest.raises(FeinsumError, match="is not known as it is traced; use where"):

        @fe.kernel
        def chooses(a: T["N"]) -> Any:
            return a if a[0] > 0 else -a

    with pytest.raises(FeinsumError, match="parameter 'a' of untyped has to be annotated"):

        @fe.kernel
        def untyped(a: Any) -> Any:
            return a

    with pytest.raises(FeinsumError, match="'x' is a str"):

        @fe.kernel
        def wrong(a: T["N"]) -> Any:
            return a + "x"

    with pytest.raises(LanguageError, match="shapes differ"):

        @fe.kernel
        def shapes(a: T["N"], b: T["N", "N"]) -> Any:
            return a + b
