"""Kernels of SeisSol as programs of the immediate language, beside `generate` and beside one launch per instruction.

    python -m benchmarks seissol                              # orders 4 and 6, float64, on the CPU
    python -m benchmarks seissol --order 4 5 6 7 --dtype float32 --case volume local
    python -m benchmarks seissol --print volume --order 6     # the program

A program is the plan of its einsum (:func:`feinsum.plan`), for arrays as numpy has them.  Each is compared with numpy, and
timed in paired rounds on device arrays: raised (`language`), the einsum alone (`generate`), each instruction in a launch of
its own (`launches`), and with --numpy `numpy.einsum` along the best path.  The time of a call is that until its results are
there.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import feinsum as fe
from feinsum.timing.races import Race

WORKLOADS = {
    "volume": "dkl,elq,edqp->ekp",
    "local": "fkm,fml,elq,efqp->ekp",
    "neighbour": "km,mn,nl,elq,eqp->ekp",
    "premultiplied": "kl,elq,eqp->ekp",
    "plasticity": "kl,elp->ekp",
    "viscoelastic": "ekqm,eqmp->ekp",
    "fused": "kl,eslq,eqp->eskp",
}
"""Einsums of one element e: basis k and l, basis of a face m and n, quantities q and p, d dimensions, f faces, s runs."""
ORDERS = (4, 5, 6, 7)


@dataclass(frozen=True)
class Workload:
    """A kernel at one order of convergence.

    :ivar elements: as many as make arrays of `--megabytes`.
    """

    name: str
    order: int
    dtype: str
    megabytes: float = 64.0

    @property
    def lengths(self) -> dict[str, int]:
        """Of the indices of one element."""
        n = self.order
        basis, face = n * (n + 1) * (n + 2) // 6, n * (n + 1) // 2
        quantities = 6 if self.name == "plasticity" else 9
        lengths = {"k": basis, "l": basis, "m": face, "n": face, "q": quantities, "p": quantities, "d": 3, "f": 4, "s": 8}
        return lengths | ({"m": 3} if self.name == "viscoelastic" else {})

    @property
    def einsum(self) -> fe.BatchedEinsum:
        """With the elements as long axis E."""
        terms = WORKLOADS[self.name].partition("->")[0].split(",")
        sizes: dict[str, Any] = {**self.lengths, "e": "E"}
        arrays = [fe.array("ABCDF"[k], tuple(sizes[x] for x in term), self.dtype) for k, term in enumerate(terms)]
        return fe.einsum(WORKLOADS[self.name], *arrays)

    @property
    def elements(self) -> int:
        """How many there are."""
        each = self.einsum.array_bytes({"E": 2}) - self.einsum.array_bytes({"E": 1})
        return max(1, int(self.megabytes * 2**20 / each))

    @property
    def program(self) -> fe.Program:
        """The plan of the einsum."""
        return fe.plan(self.einsum, order="C", name=self.name)

    def arrays(self, elements: int | None = None) -> dict[str, Any]:
        """Random operands."""
        rng = np.random.default_rng(0)
        sizes = {"E": self.elements if elements is None else elements}
        return {
            a.name: rng.uniform(-1, 1, [s if isinstance(s, int) else sizes[str(s)] for s in a.shape]).astype(self.dtype)
            for a in self.einsum.arrays
        }

    def shape(self, elements: int) -> tuple[int, ...]:
        """Of the result."""
        return tuple(elements if x == "e" else self.lengths[x] for x in WORKLOADS[self.name].partition("->")[2])


def in_program(e: fe.BatchedEinsum, name: str, value: Any) -> Any:
    """An array as a plan of ``order="C"`` has it: the axis of elements in front, and the others in reverse."""
    letters = {a.name: term for a, term in zip(e.arrays, e.indexing.inputs, strict=True)}.get(name, e.indexing.output)
    first = int(letters[0] == "e")
    return value.transpose((*range(first), *reversed(range(first, len(letters)))))


def check(workload: Workload, device: fe.Device, elements: int = 37) -> float:
    """The largest difference from numpy, beside the bound that rounding has, raised and instruction by instruction.

    The bound is gamma_K times the sum of absolute values, K the number of operations behind an entry of the result.
    """
    e, arrays = workload.einsum, workload.arrays(elements)
    exact = [a.astype(np.longdouble if workload.dtype == "float64" else np.float64) for a in arrays.values()]
    wanted = np.einsum(e.subscripts, *exact)
    scale = np.einsum(e.subscripts, *map(np.abs, exact))
    lengths = workload.lengths
    terms = sum(lengths[x] for x in e.indexing.summed) + len(arrays)
    unit = np.finfo(workload.dtype).eps / 2
    worst = 0.0
    for route in ("auto", "general"):
        out = np.full(workload.shape(elements), np.nan, workload.dtype)
        given = {name: in_program(e, name, value) for name, value in arrays.items()}
        fe.build(workload.program, device=device, route=route)(**given, out=in_program(e, "out", out))
        worst = max(worst, float(np.max(np.abs(out - wanted) / (terms * unit / (1 - terms * unit) * scale))))
    return worst


def samplers(workload: Workload, device: fe.Device, numpy_too: bool) -> dict[str, Callable[[], float]]:
    """What times each candidate once."""
    import pyopencl.array as cla

    e, arrays, queue = workload.einsum, workload.arrays(), device.queue
    on_device = {name: cla.to_device(queue, value) for name, value in arrays.items()}
    out = cla.empty(queue, workload.shape(workload.elements), np.dtype(workload.dtype))
    given = {name: in_program(e, name, value) for name, value in on_device.items()} | {"out": in_program(e, "out", out)}
    kernel = fe.generate(e, device, sizes={"E": workload.elements})
    candidates: dict[str, Callable[[], Any]] = {"generate": lambda: kernel(on_device, out=out)}
    for name, route in (("language", "auto"), ("launches", "general")):
        built = fe.build(workload.program, device=device, route=route)
        candidates[name] = lambda built=built: built(**given)  # type: ignore[misc]
    if numpy_too:
        path = np.einsum_path(e.subscripts, *arrays.values(), optimize="optimal")[0]
        candidates["numpy"] = lambda: np.einsum(e.subscripts, *arrays.values(), optimize=path)

    def timed(call: Callable[[], Any]) -> Callable[[], float]:
        def sample() -> float:
            start = time.perf_counter()
            call()
            queue.finish()
            return time.perf_counter() - start

        return sample

    found = {name: timed(call) for name, call in candidates.items()}
    for sample in found.values():
        sample()
        sample()
    return found


def measure(workload: Workload, device: fe.Device, seconds: float, numpy_too: bool) -> Mapping[str, Any]:
    """A race of all candidates, in which none is dropped."""
    taken = samplers(workload, device, numpy_too)
    race = Race(tuple(taken), looks=(1 << 30,))
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(race.rounds) < 8:
        race.add({name: taken[name]() for name in race.order})
    medians = {name: float(np.median([r[name] for r in race.rounds])) for name in taken}
    flops = workload.einsum.flops({"E": workload.elements})
    ratios = {other: race.compare("language", other).ratio for other in taken if other != "language"}
    return {
        "case": workload.name,
        "order": workload.order,
        "dtype": workload.dtype,
        "elements": workload.elements,
        "device": device.id,
        "rounds": len(race.rounds),
        "median_s": medians,
        "gflops": flops / medians["language"] / 1e9,
        "times_as_fast_as": ratios,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", nargs="+", default=list(WORKLOADS), choices=list(WORKLOADS))
    parser.add_argument("--order", nargs="+", type=int, default=[4, 6])
    parser.add_argument("--dtype", nargs="+", default=["float64"], choices=["float32", "float64"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each race")
    parser.add_argument("--megabytes", type=float, default=64.0, help="of the arrays of each case")
    parser.add_argument("--numpy", action="store_true", help="time numpy.einsum with the best path as well")
    parser.add_argument("--print", dest="shown", choices=list(WORKLOADS), help="print the program and nothing else")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.shown:
        for order in arguments.order:
            print(Workload(arguments.shown, order, arguments.dtype[0]).program)
        return
    device = fe.device(arguments.device)
    for name in arguments.case:
        for order in arguments.order:
            for dtype in arguments.dtype:
                workload = Workload(name, order, dtype, arguments.megabytes)
                error = check(workload, device)
                if not error < 1:
                    raise SystemExit(f"{name} of order {order} is wrong: {error:.3g} times the bound")
                row = measure(workload, device, arguments.seconds, arguments.numpy)
                _print(row, error, as_json=arguments.json)


def _print(row: Mapping[str, Any], error: float, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({**row, "error": error}), flush=True)
        return
    ratios = ", ".join(f"{ratio:.3g} of {other}" for other, ratio in row["times_as_fast_as"].items())
    millis = row["median_s"]["language"] * 1e3
    print(
        f"{row['case']:<14} order {row['order']} {row['dtype']}: {millis:8.3f} ms, {row['gflops']:6.1f} GFLOP/s,"
        f" {ratios} ({row['rounds']} rounds, error {error:.2g} of the bound)",
        flush=True,
    )


if __name__ == "__main__":
    main()
