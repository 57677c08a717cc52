"""``python -m benchmarks epilogues``: the cost of a function of the sum, beside the bare einsum, two launches and peers.

For each case these are timed alternately: the *bare* kernel, the *fused* one with the same configuration, *two* launches,
of which the second computes the function of the stored sum, a *copy* of the output, and numpy, torch, torch.compile and
jax where these are installed, on the same device.  A kernel that also reads what the output holds moves those bytes
besides, half of what a copy of it moves, so that for updates *bytes* compares the fused kernel with the bare one and half
the copy together.

The cases are layers of networks, updates, those of a scheme (ADER of order 6), and steps as of conjugate gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

import feinsum as fe
from benchmarks.cases import describe
from benchmarks.cases.lists import select
from benchmarks.measure import Comparison, Sampler, Way
from benchmarks.peers.base import Work
from feinsum.compile.executable import Executable, build_executable
from feinsum.compile.realize import realize
from feinsum.registry import find_space
from feinsum.timing.races import Race

GELU, UPDATE, STEP = "gelu(v + b[j])", "v + out", "alpha*v + beta*out"
SCALARS = {"alpha": 0.75, "beta": 0.5}
BEYOND_CACHES = ((65536, 64, 512), (524_288, 16, 64))
"""Rows, terms of a sum and columns of which the results, 134 MB, are in no cache when a second launch reads them."""


@dataclass(frozen=True)
class Case:
    """An einsum and what is made of its sums.

    :ivar of: what it is, without the epilogue.
    :ivar bare: the einsum, without.
    :ivar sizes: of its long axes.
    """

    of: str
    bare: fe.BatchedEinsum
    text: str
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.text} of {self.of}"

    @cached_property
    def fused(self) -> fe.BatchedEinsum:
        """The einsum with its epilogue."""
        return self.then(self.bare)

    def then(self, e: fe.BatchedEinsum) -> fe.BatchedEinsum:
        """An einsum of the same output with the epilogue."""
        return e.then(self.text, **({"b": self.row} if self.row else {}))

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
        shapes = {a.name: tuple(lengths[x] for x in letters) for a, letters in self.bare.array_indices.items()}
        shapes["out"] = tuple(lengths[x] for x in self.bare.indexing.output)
        if self.row is not None:
            shapes["b"] = shapes["out"][-1:]
        return {name: rng.random(shape, self.bare.dtype) - self.bare.dtype.type(0.5) for name, shape in shapes.items()}

    def work(self) -> Work:
        """The same for peers, with BLAS's own calls of updates where they have them."""
        names = [array.name for (array,) in self.bare.args[0]]
        subscripts = self.bare.subscripts
        alpha, beta = (self.scalars.get(name, 1) for name in SCALARS)

        def compute(xp: Any, out: Any, b: Any = None, **given: Any) -> Any:
            value = xp.einsum(subscripts, *(given[name] for name in names))
            return xp.gelu(value + b) if b is not None else alpha * value + beta * out

        def by_torch(xp: Any, out: Any, b: Any = None, **given: Any) -> Any:
            x = [given[name] for name in names]
            if b is not None:
                return xp.gelu(xp.torch.addmm(b, *x))
            match subscripts:
                case "ik,kj->ij":
                    return out.addmm_(*x)
                case "ij,ej->ei":
                    return out.addmm_(x[1], x[0].T, alpha=alpha, beta=beta)
                case "eij,ej->ei":
                    return out[:, :, None].baddbmm_(x[0], x[1][:, :, None], alpha=alpha, beta=beta)
            return out.add_(xp.einsum(subscripts, *x))

        def by_numpy(xp: Any, out: Any, **given: Any) -> Any:
            x = [given[name] for name in names]
            match subscripts:
                case "ik,kj->ij":
                    made = x[0] @ x[1]
                case "ij,ej->ei":
                    made = x[1] @ x[0].T
                case "eij,ej->ei":
                    made = np.matmul(x[0], x[1][:, :, None])[:, :, 0]
                case _:
                    made = xp.einsum(subscripts, *x)
            if self.scalars:
                np.multiply(made, alpha, out=made)
                np.multiply(out, beta, out=out)
            return np.add(out, made, out=out)

        special: dict[str, Callable[..., Any]] = {"torch": by_torch, "numpy": by_numpy}
        return Work(self.arrays(), compute, "out" if self.updates else "", special)


def layer(text: str, rows: int, summed: int, columns: int) -> Case:
    """``ik,kj->ij`` in float32."""
    x, W = fe.array("x", (rows, summed), "float32"), fe.array("W", (summed, columns), "float32")
    return Case(f"{rows}x{summed}x{columns}", fe.einsum("ik,kj->ij", x, W), text)


def cases(side: str) -> Iterator[Case]:
    """All of them, at sizes for the kind of device."""
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


Stages = list[tuple[Executable, dict[str, str]]]
"""Kernels in order, and the names of their arguments among the arrays of a case."""


def ways(case: Case, device: fe.Device) -> dict[str, Stages]:
    """The kernels of each, by the space and configuration that `generate` would take."""

    def made(e: fe.BatchedEinsum, name: str, configuration: Any = None) -> Executable:
        space, sizes = find_space(name), {n: case.sizes[n] for n in e.long_axes}
        chosen = configuration or space.default(space.problem(e, sizes, device.profile))
        return build_executable(device.context, realize(e, sizes, space, chosen, device.profile))

    letters = "".join(case.bare.indexing.output)
    shape = [case.bare.index_sizes[x] for x in letters]
    copy = fe.einsum(f"{letters}->{letters}", fe.array("sums", shape, case.bare.dtype))
    kernel = fe.generate(case.bare, device, sizes=case.sizes)
    bare, fused = (made(e, kernel.space, dict(kernel.configuration)) for e in (case.bare, case.fused))
    return {
        "bare": [(bare, {})],
        "fused": [(fused, {})],
        "two": [(bare, {"out": "sums"}), (made(case.then(copy), "permutation"), {})],
        "copy": [(made(copy, "permutation"), {})],
    }


class Epilogues(Comparison):
    command = "epilogues"
    peers = dict.fromkeys(("cpu", "gpu"), ("numpy", "torch", "jax"))

    def cases(self) -> Iterator[Case]:
        return cases(self.device.profile.kind)

    def samplers(self, case: Case) -> dict[str, Sampler]:
        """The functions that time each way once."""
        import pyopencl as cl

        arrays = case.arrays()
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        values = {**arrays, "sums": arrays["out"]}
        buffers = {name: cl.Buffer(self.device.context, flags, hostbuf=value) for name, value in values.items()}
        found = {
            name: self.timed(self._launches(case, stages, buffers)) for name, stages in ways(case, self.device).items()
        }
        return found | self.beside(case.work(), without="" if case.updates else "numpy")  # which has no gelu

    def _launches(self, case: Case, stages: Stages, buffers: Mapping[str, Any]) -> Way:
        calls = []
        values = {**case.sizes, **case.scalars}
        for executable, names in stages:
            arguments = executable.program.arguments
            own = {x.name: buffers[names.get(x.name, x.name)] for x in arguments if x.name in buffers}
            lengths = {x.name: values[x.name] for x in arguments if x.kind in ("length", "scalar")}
            calls.append((executable, {**own, **executable.scratch(self.device.context, lengths)}, lengths))

        def run() -> None:
            for executable, own, lengths in calls:
                executable.enqueue(self.device.queue, own, lengths)

        return run

    def told(self, case: Case, race: Race, seconds: Mapping[str, float]) -> dict[str, Any]:
        """The ratios that are asked for."""
        others = [name for name in race.names if name not in ("fused", "bare", "copy")]
        over = {f"{name}/fused": race.compare("fused", name).ratio for name in others}
        ratios = {"fused/bare": race.compare("bare", "fused").ratio}
        if case.updates:
            whole = [r for r in race.rounds if {"bare", "fused", "copy"} <= r.keys()]
            ratios["bytes"] = float(np.median([r["fused"] / (r["bare"] + r["copy"] / 2) for r in whole]))
        return {"epilogue": case.text, "of": case.of, "ratios": ratios | over}


main = Epilogues.main
