"""``python -m benchmarks declarative``: programs of the declarative language compared with torch, JAX and numba.

For each program, the built kernel, a baseline and the programs of peers are timed alternately.  The baseline is the kernel
of :func:`feinsum.generate` for a program that is an einsum, or a tile of one; a copy of the same array, or the time of its
bytes at the measured peak if that is less, for a program that reads one array and writes one; the matrix product alone for
a program that computes more from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np

import feinsum as fe
from benchmarks.measure import Comparison, Sampler
from benchmarks.peers.base import Work
from benchmarks.report import PEAK_COPY
from feinsum.timing.races import Race

MATMUL: Final = """
A: Tensor<M, K; f32>
B: Tensor<K, N; f32>
y = compute (shape = [M, N]) |i, j| reduce (shape = [K], op = sum) |k| A[i, k] * B[k, j]
"""
SOFTMAX: Final = """
A: Tensor<R, C; f32>
t = compute (shape = [R, C]) |i, j| {
    most = reduce (shape = [C], op = max) |k| A[i, k]
    exp(A[i, j] - most)
}
y = compute (shape = [R, C]) |i, j| {
    total = reduce (shape = [C], op = sum) |k| t[i, k]
    t[i, j] / total
}
"""
LAYER_NORM: Final = """
A: Tensor<R, C; f32>
gamma: Tensor<C; f32>
beta: Tensor<C; f32>
y = compute (shape = [R, C]) |i, j| {
    mean = reduce (shape = [C], op = sum) |k| A[i, k] / C
    variance = reduce (shape = [C], op = sum) |k| (A[i, k] - mean) * (A[i, k] - mean) / C
    (A[i, j] - mean) * rsqrt(variance + 1e-5) * gamma[j] + beta[j]
}
"""
FINISHED: Final = """
A: Tensor<M, K; f32>
B: Tensor<K, N; f32>
b: Tensor<N; f32>
y = compute (shape = [M, N]) |i, j| {
    v = (reduce (shape = [K], op = sum) |k| A[i, k] * B[k, j]) + b[j]
    FUNCTION
}
"""
"""One function of a product alone: which part of gelu takes longer than the product."""
GELU: Final = FINISHED.replace("FUNCTION", "v * 0.5 * (1 + erf(v * 0.7071067811865476))")
ATTENTION: Final = """
Q: Tensor<H, S, E; f32>
K: Tensor<H, T, E; f32>
V: Tensor<H, T, E; f32>
scores = compute (shape = [H, S, T]) |h, s, t| reduce (shape = [E], op = sum) |e| Q[h, s, e] * K[h, t, e]
weights = compute (shape = [H, S, T]) |h, s, t| {
    most = reduce (shape = [T], op = max) |u| scores[h, s, u]
    exp(scores[h, s, t] - most)
}
y = compute (shape = [H, S, E]) |h, s, e| {
    total = reduce (shape = [T], op = sum) |t| weights[h, s, t]
    (reduce (shape = [T], op = sum) |t| weights[h, s, t] * V[h, t, e]) / total
}
"""
TILED: Final = """
A: Tensor<M, K; f32>
B: Tensor<K, N; f32>
tile_m = tune(M, [128, 64])
tile_n = tune(N, [128, 64])
tile_k = tune(K, [TILE_K])
y: Tensor<M, N; f32> = grid (dim = [cdiv(M, tile_m), cdiv(N, tile_n)]) |gm, gn| {
    affine_for (end = cdiv(K, tile_k), init = zeros([tile_m, tile_n])) |gk, sums| {
        a = compute (shape = [tile_m, tile_k]) |m, k| {
            if m + gm * tile_m < M and k + gk * tile_k < K then A[m + gm * tile_m, k + gk * tile_k] else 0
        }
        b = compute (shape = [tile_k, tile_n]) |k, n| {
            if k + gk * tile_k < K and n + gn * tile_n < N then B[k + gk * tile_k, n + gn * tile_n] else 0
        }
        sums + compute (shape = [tile_m, tile_n]) |m, n| reduce (shape = [tile_k], op = sum) |k| a[m, k] * b[k, n]
    }
}
"""


@dataclass(frozen=True)
class Case:
    """A program at given lengths.

    :ivar against: the baseline: "generate", "copy" or "bare".
    :ivar bar: the part of that speed that is aimed at.
    :ivar compute: the same for peers; None where none is timed beside it.
    :ivar loops: the same as loops for numba, where there are some.
    """

    name: str
    text: str
    shapes: Mapping[str, tuple[int, ...]]
    against: str
    bar: float | None = None
    compute: Callable[..., Any] | None = None
    loops: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Random arguments."""
        rng = np.random.default_rng(0)
        return {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in self.shapes.items()}

    def work(self) -> Work | None:
        """What peers are asked for."""
        return None if self.compute is None else Work(self.arrays(), self.compute, special=self.loops)

    @property
    def lengths(self) -> str:
        return " ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in self.shapes.items())


def _product(name: str, text: str, m: int, k: int, n: int, against: str, bar: float, **more: tuple[int, ...]) -> Case:
    def compute(xp: Any, A: Any, B: Any, b: Any = None) -> Any:
        return A @ B if b is None else xp.gelu(A @ B + b)

    return Case(name, text, {"A": (m, k), "B": (k, n), **more}, against, bar, compute)


def _finished(name: str, function: str) -> Case:
    shapes = {"A": (8192, 512), "B": (512, 64), "b": (64,)}
    return Case(name, FINISHED.replace("FUNCTION", function), shapes, "bare")


def cases(gpu: bool) -> tuple[Case, ...]:
    """The programs, with lengths for the kind of device."""
    rows, columns = (65536, 2048) if gpu else (8192, 2048)
    n = 4096 if gpu else 1024
    heads = (16, 2048, 64) if gpu else (8, 512, 64)
    normed = {"A": (rows, columns), "gamma": (columns,), "beta": (columns,)}
    return (
        _product("matrix product", MATMUL, n, n, n, "generate", 1 / 1.03),
        _product("matrix product, thin", MATMUL, 65536, 64, 64, "generate", 1 / 1.03),
        _product("tiled product", TILED.replace("TILE_K", "16" if gpu else "128"), n, n, n, "generate", 0.5),
        Case(
            "softmax", SOFTMAX, {"A": (rows, columns)}, "copy", 0.8, lambda xp, A: xp.softmax(A, -1),
            {"numba": _softmax_loops},
        ),
        Case(
            "layer norm", LAYER_NORM, normed, "copy", 0.8, lambda xp, A, gamma, beta: xp.layer_norm(A, gamma, beta),
            {"numba": _layer_norm_loops},
        ),
        _product("gelu(x@W + b)", GELU, 8192, 512, 64, "bare", 1 / 1.05, b=(64,)),
        _product("gelu(x@W + b)", GELU, 2048, 512, 512, "bare", 1 / 1.05, b=(512,)),
        _finished("x@W + b", "v"),
        _finished("relu(x@W + b)", "max(v, 0.0)"),
        _finished("exp(x@W + b)", "exp(v)"),
        _finished("tanh(x@W + b)", "tanh(v)"),
        _finished("erf(x@W + b)", "erf(v)"),
        Case(
            "attention", ATTENTION, dict.fromkeys("QKV", heads), "",
            compute=lambda xp, Q, K, V: xp.softmax(Q @ K.swapaxes(1, 2), -1) @ V,
        ),
    )  # fmt: skip


def _softmax_loops(numba: Any) -> Callable[..., Any]:
    def softmax(A):  # type: ignore[no-untyped-def]  # numba makes sense of it
        y = np.empty_like(A)
        for i in numba.prange(A.shape[0]):
            most = A[i].max()
            total = np.float32(0)
            for j in range(A.shape[1]):
                y[i, j] = np.exp(A[i, j] - most)
                total += y[i, j]
            for j in range(A.shape[1]):
                y[i, j] /= total
        return y

    return softmax


def _layer_norm_loops(numba: Any) -> Callable[..., Any]:
    def layer_norm(A, gamma, beta):  # type: ignore[no-untyped-def]  # as above
        y = np.empty_like(A)
        for i in numba.prange(A.shape[0]):
            mean = A[i].sum() / np.float32(A.shape[1])
            variance = np.float32(0)
            for j in range(A.shape[1]):
                variance += (A[i, j] - mean) * (A[i, j] - mean)
            scale = np.float32(1) / np.sqrt(variance / np.float32(A.shape[1]) + np.float32(1e-5))
            for j in range(A.shape[1]):
                y[i, j] = (A[i, j] - mean) * scale * gamma[j] + beta[j]
        return y

    return layer_norm


class Declarative(Comparison):
    command = "declarative"
    peers = {"cpu": ("torch", "jax", "numba"), "gpu": ("torch", "jax")}  # noqa: RUF012 (a constant of the class)
    more = {"database": {"help": "where records of einsums and programs are"}}  # noqa: RUF012

    def cases(self) -> tuple[Case, ...]:
        return cases(self.device.profile.kind != "cpu")

    def samplers(self, case: Case) -> dict[str, Sampler]:
        """The functions that time program, baseline and each peer once."""
        import pyopencl.array as cla

        on = {"device": self.device, "database": self.options.database}
        held = {name: cla.to_device(self.device.queue, value) for name, value in case.arrays().items()}
        built = fe.build(fe.program(case.text, "declarative"), **on)
        result = built(held)
        computed = result.get()
        found = {"program": self.timed(partial(built, held, out=result))}
        # The baseline stores into the same array, as the place of an array affects its time.
        if case.against in ("generate", "bare"):
            own = {name: held[name] for name in "AB"}
            A, B = (fe.array(name, case.shapes[name], "float32") for name in own)
            found[case.against] = self.timed(partial(fe.generate(fe.einsum("ik,kj->ij", A, B), **on), own, out=result))
        elif case.against == "copy":
            copy = fe.generate(fe.einsum("ij->ij", fe.array("A", case.shapes["A"], "float32")), **on)
            found["copy"] = self.timed(partial(copy, {"A": held["A"]}, out=result))
        if work := case.work():
            near = partial(np.allclose, b=computed, rtol=1e-2, atol=1e-2 * float(np.abs(computed).max()))
            found |= self.beside(work, near)
        return found

    def told(self, case: Case, race: Race, seconds: Mapping[str, float]) -> dict[str, Any]:
        """How many times as fast as each other way the program is."""
        ratios = {name: race.compare("program", name).ratio for name in race.names if name != "program"}
        if case.against == "copy":
            arrays = list(case.arrays().values())
            moved = sum(value.nbytes for value in arrays) + arrays[0].nbytes
            ratios[PEAK_COPY] = moved / self.device.peaks.copy_bytes_per_s / seconds["program"]
        return {"lengths": case.lengths, "ratios": ratios, "against": case.against, "bar": case.bar}


main = Declarative.main
