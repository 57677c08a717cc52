"""``python -m benchmarks epilogues``: what a function of the sum costs beside the bare einsum, two launches and the peers.

Of each case these are timed in turn, a round once each, and ratios are medians over rounds (:mod:`feinsum.timing.races`):
the *bare* kernel, the *fused* one with the same configuration, *two* launches, of which the second makes the function of
what the first stored, a *copy* of the output, and numpy, torch, torch.compile and jax where these are installed, on the
same device.  A kernel that also reads what the output holds moves those bytes besides, half of what a copy of it moves, so
that for updates ``bytes`` compares the fused kernel with the bare one and half the copy together.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

import feinsum as fe
from benchmarks.cases import describe
from benchmarks.peers import installed_here
from benchmarks.selection import select
from feinsum.compile.executable import Executable, build
from feinsum.compile.realize import realize
from feinsum.registry import find_space
from feinsum.space import Configuration, TransformSpace
from feinsum.timing.races import Race, run_race

GELU, UPDATE, STEP = "gelu(v + b[j])", "v + out", "alpha*v + beta*out"
SCALARS = {"alpha": 0.75, "beta": 0.5}
BEYOND_CACHES = ((65536, 64, 512), (524_288, 16, 64))
"""Rows, terms of a sum and columns of which the results, 134 MB, are in no cache when a second launch reads them."""
_LATE_S = 5.0
"""Peers whose first call takes longer are not timed: there would be one round and no more."""
_LAUNCHES = {"cpu": 1, "gpu": 20}
"""Of a way for each sample: on a GPU, launches and what waits for them are long beside a kernel."""


@dataclass(frozen=True)
class Case:
    """An einsum and what is made of its sums.

    :ivar bare: the einsum, without.
    :ivar sizes: of its long axes.
    """

    name: str
    bare: fe.BatchedEinsum
    text: str
    sizes: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def fused(self) -> fe.BatchedEinsum:
        """The einsum with its epilogue."""
        return self.bare.then(self.text, **({"b": self.row} if self.row else {}))

    @cached_property
    def row(self) -> fe.Array | None:
        """What the epilogue reads besides the output."""
        letter = self.bare.indexing.output[-1]
        return fe.array("b", self.bare.index_sizes[letter], self.bare.dtype) if "b[" in self.text else None

    @property
    def updates(self) -> bool:
        return "out" in self.text

    @property
    def scalars(self) -> dict[str, float]:
        return {name: value for name, value in SCALARS.items() if name in self.text}

    def arrays(self) -> dict[str, Any]:
        """Random inputs and an output."""
        rng, lengths = np.random.default_rng(0), self.bare.resolve(self.sizes)
        shapes = {
            a.name: tuple(lengths[x] for x in letters)
            for (a,), letters in zip(self.bare.args[0], self.bare.indexing.inputs, strict=True)
        }
        shapes["out"] = tuple(lengths[x] for x in self.bare.indexing.output)
        if self.row is not None:
            shapes["b"] = shapes["out"][-1:]
        return {name: rng.random(shape, self.bare.dtype) - self.bare.dtype.type(0.5) for name, shape in shapes.items()}

    def operands(self, arrays: Mapping[str, Any]) -> list[Any]:
        """The operands of the einsum, in order."""
        return [arrays[array.name] for (array,) in self.bare.args[0]]


def layer(text: str, rows: int, summed: int, columns: int) -> Case:
    """``ik,kj->ij`` in float32."""
    x, W = fe.array("x", (rows, summed), "float32"), fe.array("W", (summed, columns), "float32")
    return Case(f"{rows}x{summed}x{columns}", fe.einsum("ik,kj->ij", x, W), text)


def cases(side: str) -> Iterator[Case]:
    """Layers of networks, updates by them, those of a scheme (ADER of order 6), and steps as of conjugate gradients."""
    for text in (GELU, UPDATE):
        for lengths in ((8192, 512, 64), (2048, 512, 512), (8192, 64, 512), (65536, 16, 64), *BEYOND_CACHES):
            yield layer(text, *lengths)
    few, many = (20_000, 100_000) if side == "gpu" else (4000, 20_000)
    for name, elements in (("ader_volume_o6", many), ("ader_neigh_o6", few)):
        (found,) = select([name])
        for dtype in found["dtypes"]:
            yield Case(f"{name} {dtype}", describe(found, side, dtype, long=True), UPDATE, {"E": elements})
    for n in (16, 32):
        A, x = fe.array("A", ("E", n, n)), fe.array("x", ("E", n))
        yield Case(f"A[e] x[e], {n}x{n}", fe.einsum("eij,ej->ei", A, x), STEP, {"E": 400 * many // n**2})
    A, x = fe.array("A", (32, 32)), fe.array("x", ("E", 32))
    yield Case("A x[e], 32x32", fe.einsum("ij,ej->ei", A, x), STEP, {"E": 10 * many})


@dataclass(frozen=True)
class Contest:
    """A case on a device."""

    case: Case
    device: fe.Device
    busy: bool = False
    """Whether other programs run, see ``--busy``."""

    @property
    def launches(self) -> int:
        return _LAUNCHES[self.device.profile.kind]

    def _build(self, e: fe.BatchedEinsum, space: TransformSpace, configuration: Configuration) -> Executable:
        sizes = {name: n for name, n in self.case.sizes.items() if name in e.long_axes}
        return build(self.device.context, realize(e, sizes, space, configuration, self.device.profile))

    def _elementwise(self, text: str | None) -> Executable:
        """The launch that makes an epilogue of sums that are there, or copies them."""
        letters = "".join(self.case.bare.indexing.output)
        shape = [self.case.bare.index_sizes[x] for x in letters]
        e = fe.einsum(f"{letters}->{letters}", fe.array("sums", shape, self.case.bare.dtype))
        if text is not None:
            e = e.then(text, **({"b": self.case.row} if self.case.row else {}))
        copies = find_space("permutation")
        problem = copies.problem(e, {n: self.case.sizes[n] for n in e.long_axes}, self.device.profile)
        return self._build(e, copies, copies.default(problem))

    def ways(self) -> dict[str, list[tuple[Executable, dict[str, str]]]]:
        """The kernels of each, and what their arguments are: the space and configuration that `generate` would take."""
        kernel = fe.generate(self.case.bare, self.device, sizes=self.case.sizes)
        found, configuration = find_space(kernel.space), dict(kernel.configuration)
        bare, fused = (self._build(e, found, configuration) for e in (self.case.bare, self.case.fused))
        copy = self._elementwise(None)
        return {
            "bare": [(bare, {})],
            "fused": [(fused, {})],
            "two": [(bare, {"out": "sums"}), (self._elementwise(self.case.text), {})],
            "copy": [(copy, {})],
        }

    def samplers(self) -> dict[str, Callable[[], float]]:
        """What times each way once."""
        import pyopencl as cl

        arrays = self.case.arrays()
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        values = {**arrays, "sums": arrays["out"]}
        buffers = {name: cl.Buffer(self.device.context, flags, hostbuf=value) for name, value in values.items()}
        ways = {name: self._ours(stages, buffers) for name, stages in self.ways().items()}
        if self.busy:
            return ways
        for name, run in peers(self.case, arrays, self.device.profile.kind):
            begin = time.perf_counter()
            run()()
            if (seconds := time.perf_counter() - begin) > _LATE_S:
                print(f"{name} takes {seconds:.0f} s for {self.case.name}, and is left out")
            else:
                ways[name] = timed(run, self.launches)
        return ways

    def _ours(self, stages: list[tuple[Executable, dict[str, str]]], buffers: Mapping[str, Any]) -> Callable[[], float]:
        calls = []
        for executable, names in stages:
            own = {a: buffers[names.get(a, a)] for a in (x.name for x in executable.program.arguments) if a in buffers}
            values = {**self.case.sizes, **self.case.scalars}
            lengths = {x.name: values[x.name] for x in executable.program.arguments if x.kind in ("length", "scalar")}
            calls.append((executable, {**own, **executable.scratch(self.device.context, lengths)}, lengths))

        def run() -> Callable[[], object]:
            for executable, own, lengths in calls:
                executable.enqueue(self.device.queue, own, lengths)
            return self.device.queue.finish

        return timed(run, self.launches, time.process_time if self.busy else time.perf_counter)

    def told(self, race: Race) -> dict[str, Any]:
        """A line of results: seconds of each way, and the ratios that are asked for."""
        seconds = {name: float(np.median([r[name] for r in race.rounds if name in r])) for name in race.names}
        whole = [r for r in race.rounds if {"bare", "fused", "copy"} <= r.keys()]
        fused = {name: 1 / race.compare(name, "fused").ratio for name in race.names if name != "fused"}
        line = {
            "case": self.case.name,
            "epilogue": self.case.text,
            "device": self.device.id,
            "seconds": seconds,
            "fused_over_bare": 1 / fused["bare"],
            "two_over_fused": fused["two"],
            "peers_over_fused": {name: fused[name] for name in fused if name not in ("bare", "two", "copy")},
            "rounds": len(race.rounds),
        }
        if self.case.updates:
            line["fused_over_bytes"] = float(np.median([r["fused"] / (r["bare"] + r["copy"] / 2) for r in whole]))
        return line


def timed(
    run: Callable[[], Callable[[], object]], launches: int, clock: Callable[[], float] = time.perf_counter
) -> Callable[[], float]:
    """What returns the seconds of a run: `run` begins one and returns what waits for it.  The first is not counted."""

    def sample() -> float:
        begin = clock()
        for _ in range(launches):
            wait = run()
        wait()
        return (clock() - begin) / launches

    run()()
    return sample


Peer = tuple[str, Callable[[], Callable[[], object]]]


def peers(case: Case, arrays: Mapping[str, Any], kind: str) -> Iterator[Peer]:
    """What else is installed that computes it on such a device, with a name each."""
    if kind == "cpu" and case.updates:
        yield "numpy", _numpy(case, arrays)
    for name, peer in installed_here(["torch", "jax"]):
        if peer.has_device(kind):
            yield from (_torch if name == "torch" else _jax)(case, arrays, kind, peer)


def _at_once() -> None:
    """What is done when it returns needs no waiting for."""


def _numpy(case: Case, arrays: Mapping[str, Any]) -> Callable[[], Callable[[], object]]:
    operands, out = case.operands(arrays), arrays["out"].copy()
    alpha, beta = (case.scalars.get(name, 1) for name in ("alpha", "beta"))
    path = np.einsum_path(case.bare.subscripts, *operands, optimize="optimal")[0]
    one_matrix = case.bare.subscripts in ("ik,kj->ij", "ij,ej->ei")

    def value() -> Any:
        if case.bare.subscripts == "eij,ej->ei":
            return np.matmul(operands[0], operands[1][:, :, None])[:, :, 0]
        if one_matrix:
            return operands[0] @ operands[1] if "k" in case.bare.subscripts else operands[1] @ operands[0].T
        return np.einsum(case.bare.subscripts, *operands, optimize=path)

    def run() -> Callable[[], object]:
        made = value()
        if case.scalars:
            np.multiply(made, alpha, out=made)
            np.multiply(out, beta, out=out)
        np.add(out, made, out=out)
        return _at_once

    return run


def _torch(case: Case, arrays: Mapping[str, Any], kind: str, peer: Any) -> Iterator[Peer]:
    """torch as it is called, with its own calls of a BLAS for updates, and compiled."""
    import torch

    given = [peer.adopt(value, kind) for value in case.operands(arrays)]
    out, row = (peer.adopt(arrays[x].copy(), kind) if x in arrays else None for x in ("out", "b"))
    alpha, beta = (case.scalars.get(name, 1) for name in ("alpha", "beta"))

    def call(out: Any, row: Any, *given: Any) -> Any:
        if row is not None:
            return torch.nn.functional.gelu(torch.addmm(row, *given))
        match case.bare.subscripts:
            case "ik,kj->ij":
                return out.addmm_(*given)
            case "ij,ej->ei":
                return out.addmm_(given[1], given[0].T, alpha=alpha, beta=beta)
            case "eij,ej->ei":
                return out[:, :, None].baddbmm_(given[0], given[1][:, :, None], alpha=alpha, beta=beta)
        return out.add_(torch.einsum(case.bare.subscripts, *given))

    def running(called: Callable[..., Any]) -> Callable[[], Callable[[], object]]:
        def run() -> Callable[[], object]:
            called(out, row, *given)
            return peer.wait  # type: ignore[no-any-return]

        return run

    yield "torch", running(call)
    compiled = torch.compile(call)
    with suppress(Exception):  # where it cannot compile, there is none
        compiled(out, row, *given)
        yield "torch.compile", running(compiled)


def _jax(case: Case, arrays: Mapping[str, Any], kind: str, peer: Any) -> Iterator[Peer]:
    import jax

    given = [peer.adopt(value, kind) for value in case.operands(arrays)]
    row = peer.adopt(arrays["b"], kind) if case.row is not None else None
    held = [peer.adopt(arrays["out"], kind)]
    scalars = case.scalars

    def call(out: Any, row: Any, *given: Any) -> Any:
        value = jax.numpy.einsum(case.bare.subscripts, *given, optimize="optimal")
        if row is not None:
            return jax.nn.gelu(value + row, approximate=False)
        return scalars.get("alpha", 1) * value + scalars.get("beta", 1) * out

    called = jax.jit(call, donate_argnums=(0,) if case.updates else ())

    def run() -> Callable[[], object]:
        made = called(held[0], row, *given)
        held[0] = made if case.updates else held[0]
        return made.block_until_ready

    yield "jax", run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="as `feinsum --device` takes it")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each case (default: 5)")
    parser.add_argument("--cases", default="", help="those alone whose name or epilogue has this text")
    parser.add_argument(
        "--busy",
        action="store_true",
        help="other programs run: time of the processor, all cores together; no peers, whose threads wait by spinning",
    )
    parser.add_argument("--out", help="a file to which a line of JSON is added for each case")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    device = fe.device(arguments.device)
    print(f"{'epilogue':18} {'of':22} {'bare':>10} {'fused':>6} {'bytes':>6} {'two':>6}  others, over fused", flush=True)
    for case in cases(device.profile.kind):
        if arguments.cases not in f"{case.name} {case.text}":
            continue
        contest = Contest(case, device, arguments.busy)
        # All ways are timed in all rounds: which one is the fastest is not the question.
        line = contest.told(run_race(contest.samplers(), seconds=arguments.seconds, looks=(64,)))
        others = " ".join(f"{name} {ratio:.2f}" for name, ratio in line["peers_over_fused"].items())
        added = f"{line['fused_over_bytes']:6.3f}" if case.updates else " " * 6
        print(
            f"{case.text:18} {case.name:22} {line['seconds']['bare'] * 1e3:7.3f} ms {line['fused_over_bare']:6.3f} {added}"
            f" {line['two_over_fused']:6.2f}  {others}",
            flush=True,
        )
        if arguments.out:
            with open(arguments.out, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
