"""``python -m benchmarks epilogues``: what a function of the sum costs beside the bare einsum, and what two launches take.

Of each case the *bare* kernel, the *fused* one with the same configuration, and *two* launches, of which the second makes
the function of what the first stored, are timed in turn with torch.compile and jax where these are installed; a round times
each of them once, and ratios are medians over rounds (:mod:`feinsum.timing.races`).
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

import feinsum as fe
from feinsum.compile.executable import Executable, build
from feinsum.compile.realize import realize
from feinsum.registry import find_space
from feinsum.timing.races import Race, run_race

CASES = (
    ("gelu(v + b[j])", 8192, 512, 64),
    ("gelu(v + b[j])", 2048, 512, 512),
    ("gelu(v + b[j])", 8192, 64, 512),
    ("gelu(v + b[j])", 65536, 16, 64),
    ("v + out", 8192, 512, 64),
    ("v + out", 2048, 512, 512),
    ("v + out", 8192, 64, 512),
    ("v + out", 65536, 16, 64),
)
"""The epilogue, and the lengths of i, k and j."""


@dataclass(frozen=True)
class Layer:
    """One case: ``ik,kj->ij`` in float32 with an epilogue that may read a row b.

    :ivar device: where the kernels run.
    """

    text: str
    rows: int
    summed: int
    columns: int
    device: fe.Device

    def arrays(self) -> dict[str, Any]:
        """Random inputs and an output."""
        rng = np.random.default_rng(0)
        shapes = {
            "x": (self.rows, self.summed),
            "W": (self.summed, self.columns),
            "b": (self.columns,),
            "out": (self.rows, self.columns),
        }
        return {name: rng.standard_normal(shape).astype("float32") for name, shape in shapes.items()}

    @property
    def bare(self) -> fe.BatchedEinsum:
        x, W = fe.array("x", (self.rows, self.summed), "float32"), fe.array("W", (self.summed, self.columns), "float32")
        return fe.einsum("ik,kj->ij", x, W)

    def with_epilogue(self, e: fe.BatchedEinsum) -> fe.BatchedEinsum:
        return e.then(self.text, **({"b": fe.array("b", self.columns, "float32")} if "b[" in self.text else {}))

    def launches(self) -> dict[str, list[tuple[Executable, dict[str, str]]]]:
        """The kernels of each way, and what their arguments are: the space and configuration that `generate` would take."""
        profile, kernel = self.device.profile, fe.generate(self.bare, self.device)
        found, configuration = find_space(kernel.space), dict(kernel.configuration)
        second = fe.einsum("ij->ij", fe.array("sums", (self.rows, self.columns), "float32"))
        copies = find_space("permutation")
        bare, fused = (
            build(self.device.context, realize(e, {}, found, configuration, profile))
            for e in (self.bare, self.with_epilogue(self.bare))
        )
        after = realize(
            self.with_epilogue(second), {}, copies, copies.default(copies.problem(second, {}, profile)), profile
        )
        return {
            "bare": [(bare, {})],
            "fused": [(fused, {})],
            "two": [(bare, {"out": "sums"}), (build(self.device.context, after), {})],
        }

    def samplers(self) -> dict[str, Callable[[], float]]:
        """What times each way once."""
        import pyopencl as cl

        arrays = self.arrays()
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        values = {**arrays, "sums": arrays["out"]}
        buffers = {name: cl.Buffer(self.device.context, flags, hostbuf=value) for name, value in values.items()}
        ways = {name: self._ours(stages, buffers) for name, stages in self.launches().items()}
        return ways | (dict(peers(self.text, arrays)) if self.device.profile.kind == "cpu" else {})

    def _ours(self, stages: list[tuple[Executable, dict[str, str]]], buffers: Mapping[str, Any]) -> Callable[[], float]:
        calls = [(executable, {**buffers, **{a: buffers[b] for a, b in names.items()}}) for executable, names in stages]
        scratch = [executable.scratch(self.device.context, {}) for executable, _ in calls]

        def run() -> None:
            for (executable, own), more in zip(calls, scratch, strict=True):
                executable.enqueue(self.device.queue, {**own, **more}, {})
            self.device.queue.finish()

        return timed(run)


def timed(run: Callable[[], object]) -> Callable[[], float]:
    """What returns the seconds of a run, after one that is not counted."""

    def sample() -> float:
        begin = time.perf_counter()
        run()
        return time.perf_counter() - begin

    run()
    return sample


def peers(text: str, arrays: Mapping[str, Any]) -> Iterator[tuple[str, Callable[[], float]]]:
    """torch.compile and jax, if they are installed."""
    with suppress(ImportError):
        import torch

        given = {name: torch.from_numpy(value.copy()) for name, value in arrays.items()}
        gelu = torch.nn.functional.gelu
        layer = (lambda x, W, b, out: gelu(x @ W + b)) if "gelu" in text else (lambda x, W, b, out: out.addmm_(x, W))
        compiled = torch.compile(layer)
        yield "torch.compile", timed(lambda: compiled(**given))
    with suppress(ImportError):
        import jax

        held = {name: jax.numpy.asarray(value) for name, value in arrays.items()}

        def jitted(x: Any, W: Any, b: Any, out: Any) -> Any:
            return jax.nn.gelu(x @ W + b, approximate=False) if "gelu" in text else out + x @ W

        called = jax.jit(jitted)
        yield "jax", timed(lambda: called(**held).block_until_ready())


def told(layer: Layer, race: Race) -> dict[str, Any]:
    """A line of results: seconds of each way, and the ratios that are asked for."""
    seconds = {name: float(np.median([r[name] for r in race.rounds if name in r])) for name in race.names}
    fused = {name: 1 / race.compare(name, "fused").ratio for name in race.names if name != "fused"}
    return {
        "epilogue": layer.text,
        "lengths": {"i": layer.rows, "k": layer.summed, "j": layer.columns},
        "device": layer.device.id,
        "seconds": seconds,
        "fused_over_bare": 1 / fused["bare"],
        "two_over_fused": fused["two"],
        "peers_over_fused": {name: fused[name] for name in fused if name not in ("bare", "two")},
        "rounds": len(race.rounds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", help="as `feinsum --device` takes it")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each case")
    parser.add_argument("--out", help="a file to which a line of JSON is added for each case")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    device = fe.device(arguments.device)
    print(f"{'epilogue':16} {'i x k x j':>16} {'bare':>10} {'fused/bare':>10} {'two/fused':>10}  others/fused")
    for text, rows, summed, columns in CASES:
        layer = Layer(text, rows, summed, columns, device)
        # All ways are timed in all rounds: which one is the fastest is not the question.
        line = told(layer, run_race(layer.samplers(), seconds=arguments.seconds, looks=(64,)))
        others = " ".join(f"{name} {ratio:.2f}" for name, ratio in line["peers_over_fused"].items())
        print(
            f"{text:16} {f'{rows}x{summed}x{columns}':>16} {line['seconds']['bare'] * 1e3:7.3f} ms"
            f" {line['fused_over_bare']:10.3f} {line['two_over_fused']:10.2f}  {others}",
            flush=True,
        )
        if arguments.out:
            with open(arguments.out, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
