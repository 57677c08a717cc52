"""``python -m benchmarks declarative``: programs of the declarative language beside torch, JAX and numba, in one run.

Of each program the built kernel, what it is measured against, and what peers make of the same are timed in turn; a round
times each of them once, and ratios are medians over rounds (:mod:`feinsum.timing.races`).  What it is measured against is
the kernel of :func:`feinsum.generate` for a program that is an einsum, or a tile of one; a copy of the same array, or the
time of its bytes at the measured peak if that is less, for what reads one and writes one; the matrix product alone where
more is made of it.  ``--page`` writes a table of the results.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

import feinsum as fe
from benchmarks.peers import installed_here
from benchmarks.table import list_table
from feinsum.timing.races import Race, run_race

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
GELU: Final = """
A: Tensor<M, K; f32>
B: Tensor<K, N; f32>
b: Tensor<N; f32>
y = compute (shape = [M, N]) |i, j| {
    v = (reduce (shape = [K], op = sum) |k| A[i, k] * B[k, j]) + b[j]
    v * 0.5 * (1 + erf(v * 0.7071067811865476))
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
_PEAK: Final = "peak copy"
"""A copy as fast as the device was seen to copy, where that is faster than a kernel that copies."""


@dataclass(frozen=True)
class Case:
    """A program at given lengths.

    :ivar against: what it is measured against: "generate", "copy" or "bare"; beside the latter stands one with an open
        number of rows, as programs of very many have.
    :ivar bar: the part of that speed that is aimed at.
    :ivar has_peers: whether libraries are timed beside it.
    """

    name: str
    text: str
    shapes: Mapping[str, tuple[int, ...]]
    against: str
    bar: float | None = None
    has_peers: bool = True

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Random arguments."""
        rng = np.random.default_rng(0)
        return {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in self.shapes.items()}

    @property
    def lengths(self) -> str:
        return " ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in self.shapes.items())


def _product(name: str, text: str, m: int, k: int, n: int, against: str, bar: float, **more: tuple[int, ...]) -> Case:
    return Case(name, text, {"A": (m, k), "B": (k, n), **more}, against, bar)


def _finished(name: str, function: str) -> Case:
    shapes = {"A": (8192, 512), "B": (512, 64), "b": (64,)}
    return Case(name, FINISHED.replace("FUNCTION", function), shapes, "bare", has_peers=False)


def cases(gpu: bool) -> tuple[Case, ...]:
    """The programs, with lengths for the kind of device."""
    rows, columns = (65536, 2048) if gpu else (8192, 2048)
    n = 4096 if gpu else 1024
    heads = (16, 2048, 64) if gpu else (8, 512, 64)
    return (
        _product("matrix product", MATMUL, n, n, n, "generate", 1 / 1.03),
        _product("matrix product, thin", MATMUL, 65536, 64, 64, "generate", 1 / 1.03),
        _product("tiled product", TILED.replace("TILE_K", "16" if gpu else "128"), n, n, n, "generate", 0.5),
        Case("softmax", SOFTMAX, {"A": (rows, columns)}, "copy", 0.8),
        Case("layer norm", LAYER_NORM, {"A": (rows, columns), "gamma": (columns,), "beta": (columns,)}, "copy", 0.8),
        _product("gelu(x@W + b)", GELU, 8192, 512, 64, "bare", 1 / 1.05, b=(64,)),
        _product("gelu(x@W + b)", GELU, 2048, 512, 512, "bare", 1 / 1.05, b=(512,)),
        _finished("x@W + b", "v"),
        _finished("relu(x@W + b)", "max(v, 0.0)"),
        _finished("exp(x@W + b)", "exp(v)"),
        _finished("tanh(x@W + b)", "tanh(v)"),
        _finished("erf(x@W + b)", "erf(v)"),
        Case("attention", ATTENTION, dict.fromkeys("QKV", heads), "", None),
    )


def samplers(
    case: Case, device: fe.Device, database: str | None, clock: Callable[[], float] = time.perf_counter
) -> dict[str, Callable[[], float]]:
    """What times the program, what it is measured against, and each peer once; peers only by the time on the wall."""
    import pyopencl.array as cla

    queue, arrays = device.queue, case.arrays()
    held = {name: cla.to_device(queue, value) for name, value in arrays.items()}
    built = fe.build(fe.program(case.text, "declarative"), device=device, database=database)
    result = built(held)
    computed = result.get()
    found = {"program": timed(lambda: built(held, out=result), queue.finish, clock)}
    if case.against in ("generate", "bare"):
        operands = [fe.array(name, case.shapes[name], "float32") for name in "AB"]
        kernel = fe.generate(fe.einsum("ik,kj->ij", *operands), device, database)
        own = {name: held[name] for name in "AB"}
        found[case.against] = timed(lambda: kernel(own, out=result), queue.finish, clock)  # where an array lies counts
        if case.against == "bare":
            rows = fe.array("A", ("M", *case.shapes["A"][1:]), "float32")
            other = fe.generate(fe.einsum("ik,kj->ij", rows, operands[1]), device, database, {"M": case.shapes["A"][0]})
            found["open"] = timed(lambda: other(own, out=result), queue.finish, clock)
    elif case.against == "copy":
        kernel = fe.generate(fe.einsum("ij->ij", fe.array("A", case.shapes["A"], "float32")), device, database)
        found["copy"] = timed(lambda: kernel({"A": held["A"]}, out=result), queue.finish, clock)
    if case.has_peers and clock is time.perf_counter:
        found |= dict(peers(case, arrays, device.profile.kind != "cpu", computed))
    return found


def timed(
    run: Callable[[], object],
    finish: Callable[[], object] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Callable[[], float]:
    """What returns the seconds of a run: of several in a row, where one takes less than a millisecond."""
    run()
    finish()
    begin = clock()
    run()
    finish()
    count = max(1, min(100, int(2e-3 / max(clock() - begin, 1e-6))))

    def sample() -> float:
        begin = clock()
        for _ in range(count):
            run()
        finish()
        return (clock() - begin) / count

    return sample


def peers(
    case: Case, arrays: Mapping[str, np.ndarray[Any, Any]], gpu: bool, result: np.ndarray[Any, Any]
) -> Iterator[tuple[str, Callable[[], float]]]:
    """torch, as it is and compiled, JAX, and numba where it has the program, if they are installed.

    :raises AssertionError: if what one computes is not what we do.
    """

    def require_same(name: str, value: Any) -> None:
        assert np.allclose(value, result, rtol=1e-2, atol=1e-2 * float(np.abs(result).max())), (case.name, name)

    side = "gpu" if gpu else "cpu"
    for name, peer in installed_here(["torch", "jax"] if gpu else ["torch", "jax", "numba"]):
        given = [peer.adopt(value, side) for value in arrays.values()]
        for kind, called in _programs(case, name):
            try:
                require_same(kind, peer.fetch(called(*given)))
            except (RuntimeError, AttributeError) as error:  # as where torch.compile finds no compiler
                print(f"{kind}: {type(error).__name__}")
                continue
            yield kind, timed(partial(called, *given), peer.wait)


def _programs(case: Case, peer: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The program as a peer has it, by the names of the ways in which the peer runs it."""
    if peer == "torch":
        import torch

        yield "torch", _torch(case, torch)
        yield "torch.compile", torch.compile(_torch(case, torch))
    elif peer == "jax":
        import jax

        jitted = jax.jit(_jax(case, jax))
        yield "jax", lambda *given: jitted(*given).block_until_ready()
    else:
        import numba

        if case.name in (known := _loops(numba)):
            yield "numba", known[case.name]


def _torch(case: Case, torch: Any) -> Callable[..., Any]:
    functional = torch.nn.functional
    return {
        "softmax": lambda A: torch.softmax(A, 1),
        "layer norm": lambda A, gamma, beta: functional.layer_norm(A, A.shape[1:], gamma, beta),
        "gelu(x@W + b)": lambda A, B, b: functional.gelu(A @ B + b),
        "attention": lambda Q, K, V: torch.softmax(Q @ K.transpose(1, 2), 2) @ V,
    }.get(case.name, lambda A, B: A @ B)


def _jax(case: Case, jax: Any) -> Callable[..., Any]:
    def layer_norm(A: Any, gamma: Any, beta: Any) -> Any:
        mean = A.mean(1, keepdims=True)
        variance = ((A - mean) ** 2).mean(1, keepdims=True)
        return (A - mean) * jax.lax.rsqrt(variance + 1e-5) * gamma + beta

    return {
        "softmax": lambda A: jax.nn.softmax(A, axis=1),
        "layer norm": layer_norm,
        "gelu(x@W + b)": lambda A, B, b: jax.nn.gelu(A @ B + b, approximate=False),
        "attention": lambda Q, K, V: jax.nn.softmax(Q @ K.transpose(0, 2, 1), axis=2) @ V,
    }.get(case.name, lambda A, B: A @ B)


def _loops(numba: Any) -> dict[str, Callable[..., Any]]:
    """The programs that are written as loops for numba, which compiles them."""

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

    compiled = numba.njit(parallel=True, fastmath=True)
    return {"softmax": compiled(softmax), "layer norm": compiled(layer_norm)}


def told(case: Case, device: fe.Device, race: Race, busy: bool = False) -> dict[str, Any]:
    """A line of results: seconds of each way, and how fast the program is beside each other."""
    seconds = {name: float(np.median([r[name] for r in race.rounds if name in r])) for name in race.names}
    ratios = {name: race.compare("program", name).ratio for name in race.names if name != "program"}
    if case.against == "copy":
        arrays = list(case.arrays().values())
        moved = sum(value.nbytes for value in arrays) + arrays[0].nbytes
        ratios[_PEAK] = moved / device.peaks.copy_bytes_per_s / seconds["program"]
    return {
        "program": case.name,
        "lengths": case.lengths,
        "device": device.id,
        "date": time.strftime("%Y-%m-%d"),
        "seconds": seconds,
        "times_as_fast_as": ratios,
        "against": case.against,
        "bar": case.bar,
        "rounds": len(race.rounds),
        "clock": "processor" if busy else "wall",
    }


def page(lines: list[dict[str, Any]]) -> str:
    """A table of results for each device, the newest of each program."""
    newest = {(line["device"], line["program"], line["lengths"], line.get("clock", "wall")): line for line in lines}
    text = [
        ".. this file is written by the command that it names",
        "",
        "Made by ``python -m benchmarks declarative --page``.",
        "",
    ]
    for device in dict.fromkeys(line["device"] for line in reversed(newest.values())):  # the latest first
        own = [line for line in newest.values() if line["device"] == device]
        dates = " and ".join(sorted({line["date"] for line in own}))
        text += [f"On ``{device}``, {dates}:", "", *list_table(_rows([x for x in own if not _is_busy(x)])), ""]
        if any(map(_is_busy, own)):
            told = list(filter(_is_busy, own))
            opened = [
                "rows open",
                *(f"{x['times_as_fast_as']['open']:.2f}" if "open" in x["times_as_fast_as"] else "" for x in told),
            ]
            rows = [[*row[:5], more] for row, more in zip(_rows(told), opened, strict=True)]
            text += [
                "The same by the time of its processors (``--busy``), on a machine with other work:",
                "",
                *list_table(rows),
                "",
            ]
    return "\n".join(text)


def _is_busy(line: dict[str, Any]) -> bool:
    return line.get("clock") == "processor"


def _rows(lines: list[dict[str, Any]]) -> list[list[str]]:
    """The rows of a table, headings first."""
    peers = ["torch", "torch.compile", "jax", "numba"]
    rows = [["program", "lengths", "time", "of what it is measured against", "aim", *peers]]
    for line in lines:
        ratios = line["times_as_fast_as"]
        yardstick = min((name for name in (line["against"], _PEAK) if name in ratios), key=ratios.__getitem__, default="")
        against = f"{ratios[yardstick]:.2f} ({yardstick})" if yardstick else ""
        bar = f"{line['bar']:.2f}" if line["bar"] else ""
        told = [f"{ratios[name]:.2f}" if name in ratios else "" for name in peers]
        rows.append([line["program"], line["lengths"], f"{line['seconds']['program'] * 1e3:.3g} ms", against, bar, *told])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", help="as `feinsum --device` takes it")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each case")
    parser.add_argument("--case", default="", help="only programs whose name has this in it")
    parser.add_argument("--database", help="where records of einsums and programs are")
    parser.add_argument(
        "--busy", action="store_true", help="take the time of the processors, without peers, beside other work"
    )
    parser.add_argument("--out", help="a file to which a line of JSON is added for each case")
    parser.add_argument("--page", help="write a table of the lines of --out to this file, and measure nothing")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.page:
        lines = [json.loads(line) for line in Path(arguments.out).read_text(encoding="utf-8").splitlines()]
        Path(arguments.page).write_text(page(lines), encoding="utf-8")
        return
    device = fe.device(arguments.device)
    for case in cases(device.profile.kind != "cpu"):
        if arguments.case not in case.name:
            continue
        found = samplers(case, device, arguments.database, time.process_time if arguments.busy else time.perf_counter)
        # All ways are timed in all rounds: which one is the fastest is not the question.
        line = told(case, device, run_race(found, seconds=arguments.seconds, looks=(64,)), arguments.busy)
        shown = "  ".join(f"{name} {ratio:.2f}" for name, ratio in line["times_as_fast_as"].items())
        print(f"{case.name:22} {case.lengths:44} {line['seconds']['program'] * 1e3:8.3f} ms  {shown}", flush=True)
        if arguments.out:
            with open(arguments.out, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
