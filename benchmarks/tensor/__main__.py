"""``python -m benchmarks tensor``: programs of the tensor language by both routes, beside peers that do the same work.

Of each case the *general* route, the *einsum* route and the einsum that a user of :func:`feinsum.generate` would write are
timed in turn with torch, JAX and numpy, or torch, JAX and CuPy on a GPU, where these are installed: a round times each of
them once, and ratios are medians over rounds (:mod:`feinsum.timing.races`).  What a way computes is compared with numpy
before it is timed.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import numpy as np

import feinsum as fe
from benchmarks.epilogues import timed
from benchmarks.tensor.cases import PERIOD, Case, cases
from feinsum.timing.races import Race, run_race

OURS = ("general", "einsum", "generate")
Way = tuple[Callable[[], Any], Callable[[], Any]]
"""What runs it once, and what fetches the output as a C-contiguous batch."""


def ours(case: Case, arrays: dict[str, Any], device: fe.Device) -> Iterator[tuple[str, Way]]:
    """Both routes and `generate`, on arrays of the device."""
    import pyopencl.array as cla

    queue = device.queue
    given = {name: cla.to_device(queue, value) for name, value in arrays.items()}

    def way(call: Callable[[], Any]) -> Way:
        own = arrays[case.output]

        def fetch() -> Any:
            # every way begins with the same output
            given[case.output].set(own, queue)
            call()
            queue.finish()
            return given[case.output].get(queue).T

        return (lambda: (call(), queue.finish())), fetch

    for route in ("general", "einsum"):
        with suppress(fe.errors.FeinsumError):
            kernel = fe.build(fe.program(case.text), device=device, route=route)
            yield route, way(lambda kernel=kernel: kernel(**given, **case.numbers))  # type: ignore[misc]
    if case.einsum is not None:
        subscripts, operands, epilogue = case.einsum
        batches = {name: value.T for name, value in given.items()}
        described = [
            fe.array(name, tuple("E" if n == "E" else n for n in reversed(case.shapes[name])), case.dtype)
            for name in operands
        ]
        e = fe.einsum(subscripts, *described)
        kernel = fe.generate(e.then(epilogue) if epilogue else e, device)
        inputs = {name: batches[name] for name in operands}
        yield "generate", way(lambda: kernel(inputs, out=batches[case.output], queue=queue))


def peers(case: Case, arrays: dict[str, Any], on_gpu: bool) -> Iterator[tuple[str, Way]]:
    """torch, JAX and numpy, or CuPy on a GPU."""
    batches = {name: value.T for name, value in arrays.items()}
    with suppress(ImportError):
        import torch

        place = "cuda" if on_gpu else "cpu"
        held = SimpleNamespace(**{name: torch.from_numpy(value.copy()).to(place) for name, value in batches.items()})

        def run_torch() -> Any:
            found = case.in_place(torch, held) if case.in_place else case.compute(held)
            if on_gpu:
                torch.cuda.synchronize()
            return found

        yield "torch", (run_torch, lambda: run_torch().cpu().numpy())
    with suppress(ImportError):
        import jax

        jax.config.update("jax_enable_x64", True)
        jax.config.update("jax_default_matmul_precision", "highest")
        names = [name for name in batches if name != case.output]
        inputs = {name: jax.numpy.asarray(batches[name]) for name in names}
        called = jax.jit(lambda out, given: case.compute(SimpleNamespace(**given, **{case.output: out})), donate_argnums=0)
        state = [jax.numpy.asarray(batches[case.output].copy())]

        def run_jax() -> Any:
            state[0] = called(state[0], inputs).block_until_ready()
            return state[0]

        yield "jax", (run_jax, lambda: np.asarray(run_jax()))
    if on_gpu:
        with suppress(ImportError):
            import cupy

            there = SimpleNamespace(**{name: cupy.asarray(value) for name, value in batches.items()})

            def run_cupy() -> Any:
                found = case.compute(there)
                cupy.cuda.get_current_stream().synchronize()
                return found

            yield "cupy", (run_cupy, lambda: run_cupy().get())
    else:
        here = SimpleNamespace(**{name: value.copy() for name, value in batches.items()})

        def run_numpy() -> Any:
            if case.name.startswith("gemm") and case.name.endswith("0"):
                return np.matmul(here.B, here.A, out=here.C)
            return case.compute(here)

        yield "numpy", (run_numpy, run_numpy)


def ways(case: Case, count: int, device: fe.Device) -> dict[str, Callable[[], float]]:
    """What times each way once, after each has been found right."""
    arrays = case.arrays(count)
    exact = {name: value.T[:PERIOD].astype("float64") for name, value in arrays.items()}
    expected = case.compute(SimpleNamespace(**exact))
    made: dict[str, Callable[[], float]] = {}
    on_gpu = device.profile.kind == "gpu"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for found in (ours(case, arrays, device), peers(case, arrays, on_gpu)):
            for name, (run, fetch) in found:
                output = fetch()
                wanted = np.resize(expected, output.shape)
                error = max(
                    float(np.abs(output[part] - wanted[part]).max() / np.abs(expected).max())
                    for part in (slice(PERIOD), slice(-PERIOD, None))
                )
                if error > 1e3 * np.finfo(case.dtype).eps:
                    raise SystemExit(f"{case.name}: {name} is wrong by {error:.1e}")
                made[name] = timed(run)
    return made


def told(case: Case, race: Race, count: int, device: fe.Device) -> dict[str, Any]:
    """A line of results."""
    seconds = {name: float(np.median([r[name] for r in race.rounds if name in r])) for name in race.names}
    others = [name for name in race.names if name not in OURS]
    best = min(others, key=seconds.__getitem__) if others else None
    mine = min((name for name in OURS if name in seconds), key=seconds.__getitem__)

    def ratio(a: str, b: str | None) -> float | None:
        """How many times as fast as b a is."""
        return float(race.compare(a, b).ratio) if b in seconds and a in seconds else None

    return {
        "case": case.name,
        "count": count,
        "device": device.id,
        "seconds": seconds,
        "best_peer": best,
        "einsum_over_best": ratio("einsum", best),
        "general_over_best": ratio("general", best),
        "general_over_einsum": ratio("general", "einsum"),
        "einsum_over_generate": ratio("einsum", "generate"),
        "best_over_torch": ratio(mine, "torch"),
        "rounds": len(race.rounds),
    }


def table(lines: list[dict[str, Any]]) -> str:
    """The results as a table of reStructuredText."""
    heads = ("case", "general", "einsum", "best peer", "general/peer", "einsum/peer", "general/einsum", "einsum/generate")
    rows = [heads]
    for line in lines:
        seconds, best = line["seconds"], line["best_peer"]
        times = [f"{seconds[name] * 1e3:.2f} ms" if name in seconds else "--" for name in ("general", "einsum")]
        peer = f"{seconds[best] * 1e3:.2f} ms ({best})" if best else "--"
        keys = ("general_over_best", "einsum_over_best", "general_over_einsum", "einsum_over_generate")
        ratios = [f"{line[key]:.2f}" if line[key] is not None else "--" for key in keys]
        rows.append((line["case"], *times, peer, *ratios))
    widths = [max(len(row[k]) for row in rows) for k in range(len(heads))]
    rule = "  ".join("=" * width for width in widths)
    text = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([rule, text[0], rule, *text[1:], rule])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", help="as `feinsum --device` takes it")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each case")
    parser.add_argument("--mib", type=float, default=64.0, help="of what the instances of a case read and write")
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    parser.add_argument("--out", help="a file to which a line of JSON is added for each case")
    arguments = parser.parse_args()
    device = fe.device(arguments.device)
    lines = []
    for case in cases():
        if arguments.only not in case.name:
            continue
        count = max(int(arguments.mib * 2**20) // case.instance_bytes, 1)
        # all ways are timed in all rounds: which one is the fastest is not the question
        race = run_race(ways(case, count, device), seconds=arguments.seconds, looks=(64,))
        lines.append(told(case, race, count, device))
        print(f"{case.name}: " + ", ".join(f"{k} {v * 1e3:.2f}" for k, v in lines[-1]["seconds"].items()), flush=True)
        if arguments.out:
            with open(os.path.expanduser(arguments.out), "a", encoding="utf-8") as file:
                file.write(json.dumps(lines[-1]) + "\n")
    print(table(lines))


if __name__ == "__main__":
    main()
