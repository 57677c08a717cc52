"""``python -m benchmarks tensor``: programs of the tensor language by both routes, beside peers that do the same work.

Of each case the *general* route, the *einsum* route and the einsum that a user of :func:`feinsum.generate` would write are
timed in turn with torch, JAX and numpy, or torch, JAX and CuPy on a GPU, where these are installed: a round times each of
them once, and ratios are medians over rounds (:mod:`feinsum.timing.races`).  What a way computes is compared with numpy
before it is timed.  On a device with matrix units the general route is timed without them too, as *items*.  ``--page FILE``
writes a table of the lines of ``--out`` and measures nothing::

    python -m benchmarks tensor --out benchmarks/results/zen3/tensor.jsonl
    python -m benchmarks tensor --out benchmarks/results/zen3/tensor.jsonl --page benchmarks/results/zen3/tensor.rst
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import feinsum as fe
from benchmarks.declarative import timed
from benchmarks.peers import installed_here
from benchmarks.tensor.cases import PERIOD, Case, cases
from feinsum.languages.tensor.lowering.target import choose_target
from feinsum.languages.tensor.running.kernel import GeneralKernel
from feinsum.timing.races import Race, run_race

OURS = ("general", "items", "einsum", "generate")
Way = tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]]
"""What runs it once, what waits for it, and what runs it and fetches the output as a C-contiguous batch."""


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

        return call, queue.finish, fetch

    for route in ("general", "einsum"):
        with suppress(fe.errors.FeinsumError):
            built = fe.build(fe.program(case.text), device=device, route=route)
            yield route, way(lambda built=built: built(**given, **case.numbers))  # type: ignore[misc]
    if device.profile.matrix_units:
        program = fe.program(case.text)
        function = program.function()
        target = replace(choose_target(function, device.profile), units=())
        items = GeneralKernel(function, program.source, device, target=target)
        yield "items", way(lambda: items.call({**given, **case.numbers}, None, None, None))
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
    for name, peer in installed_here(["torch", "jax", "cupy" if on_gpu else "numpy"]):
        held = {key: peer.adopt(value.T.copy(), "gpu" if on_gpu else "cpu") for key, value in arrays.items()}
        run = _runner(case, name, peer, held)
        yield name, (run, peer.wait, lambda run=run, peer=peer: peer.fetch(run()))


def _runner(case: Case, name: str, peer: Any, held: dict[str, Any]) -> Callable[[], Any]:
    """What runs a case once by a peer, on arrays of its own, in the fastest of its ways."""
    there = SimpleNamespace(**held)
    if name == "jax":  # its arrays do not change, so the output is given away to each run
        inputs = {key: value for key, value in held.items() if key != case.output}
        step = peer.following(
            lambda out, given: case.compute(SimpleNamespace(**given, **{case.output: out})), donate_argnums=0
        )

        def run() -> Any:
            held[case.output] = step(held[case.output], inputs)
            return held[case.output]

        return run
    if name == "torch" and case.in_place:
        import torch

        return partial(case.in_place, torch, there)
    if name == "numpy" and case.name.startswith("gemm") and case.name.endswith("0"):
        return lambda: np.matmul(there.B, there.A, out=there.C)
    return partial(case.compute, there)


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
            for name, (run, finish, fetch) in found:
                output = fetch()
                wanted = np.resize(expected, output.shape)
                error = max(
                    float(np.abs(output[part] - wanted[part]).max() / np.abs(expected).max())
                    for part in (slice(PERIOD), slice(-PERIOD, None))
                )
                if error > 1e3 * np.finfo(case.dtype).eps:
                    raise SystemExit(f"{case.name}: {name} is wrong by {error:.1e}")
                made[name] = timed(run, finish)
    return made


def told(case: Case, race: Race, count: int, device: fe.Device, versions: dict[str, str]) -> dict[str, Any]:
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
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "device": device.id,
        "driver": device.profile.driver,
        "machine": device.profile.name,
        "versions": versions,
        "seconds": seconds,
        "best_peer": best,
        "einsum_over_best": ratio("einsum", best),
        "general_over_best": ratio("general", best),
        "general_over_einsum": ratio("general", "einsum"),
        "einsum_over_generate": ratio("einsum", "generate"),
        "best_over_torch": ratio(mine, "torch"),
        "rounds": len(race.rounds),
    }


WAYS = ("general", "items", "einsum", "torch", "jax", "cupy", "numpy")
RATIOS = {
    "best of ours / torch": "best_over_torch",
    "general / peer": "general_over_best",
    "einsum / peer": "einsum_over_best",
    "general / einsum": "general_over_einsum",
    "einsum / generate": "einsum_over_generate",
}
"""How many times as fast the first is as the second."""


def table(lines: list[dict[str, Any]]) -> str:
    """The results as a table of reStructuredText, times in microseconds."""
    names = [name for name in WAYS if any(name in line["seconds"] for line in lines)]
    rows = [("case", *(f"{name}, µs" for name in names), *RATIOS)]
    for line in lines:
        times = (f"{line['seconds'][name] * 1e6:.0f}" if name in line["seconds"] else "--" for name in names)
        ratios = (f"{line[key]:.2f}" if line[key] is not None else "--" for key in RATIOS.values())
        rows.append((line["case"], *times, *ratios))
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    rule = "  ".join("=" * width for width in widths)
    text = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([rule, text[0], rule, *text[1:], rule])


def page(lines: list[dict[str, Any]]) -> str:
    """The table as a report."""
    about = {f"{line['machine'].strip()} (``{line['device']}``, driver {line['driver']})": None for line in lines}
    peers_of = sorted({f"{name} {version}" for line in lines for name, version in line["versions"].items()})
    dates = sorted({line["date"] for line in lines})
    return "\n".join(
        [
            ".. this file is written by the command that it names",
            "",
            f"Made by ``python -m benchmarks tensor --page`` from {len(lines)} results of"
            f" {' and '.join(dict.fromkeys((dates[0], dates[-1])))}, on {'; '.join(about)}; {', '.join(peers_of)}.",
            "",
            table(lines),
            "",
            *summaries(lines),
            "",
        ]
    )


def summaries(lines: list[dict[str, Any]]) -> Iterator[str]:
    """A sentence for each bar: how many results reach it."""
    programs = [line for line in lines if not line["case"].startswith("gemm")]
    products = [line for line in lines if line not in programs]
    bars = (
        ("batched products: the better route is at least as fast as the best peer", products, 1.0, _best_over_peer),
        ("programs: ours is at least twice as fast as torch", programs, 2.0, lambda line: line["best_over_torch"]),
        ("the general route is at least half as fast as einsums", lines, 0.5, lambda line: line["general_over_einsum"]),
        ("the einsum route is within 5% of ``generate``", lines, 0.95, lambda line: line["einsum_over_generate"]),
    )
    for sentence, own, bar, of in bars:
        counted = {line["case"]: value for line in own if (value := of(line)) is not None}
        missed = [f"{name} {value:.2f}" for name, value in counted.items() if value < bar]
        told = f"- {sentence}: {len(counted) - len(missed)} of {len(counted)}"
        yield told + (f" (not: {'; '.join(missed)})" if missed else "")


def _best_over_peer(line: dict[str, Any]) -> float | None:
    found = [line[key] for key in ("general_over_best", "einsum_over_best") if line[key] is not None]
    return max(found, default=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", help="as `feinsum --device` takes it")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each case")
    parser.add_argument("--mib", type=float, default=64.0, help="of what the instances of a case read and write")
    parser.add_argument("--only", default="", help="cases whose name holds one of these texts, with commas between them")
    parser.add_argument("--out", help="a file to which a line of JSON is added for each case")
    parser.add_argument("--page", help="write a table of the lines of --out to this file, and measure nothing")
    arguments = parser.parse_args()
    if arguments.page:
        known = [json.loads(text) for text in Path(arguments.out).read_text(encoding="utf-8").splitlines()]
        Path(arguments.page).write_text(page(known), encoding="utf-8")
        return
    device = fe.device(arguments.device)
    last = "cupy" if device.profile.kind == "gpu" else "numpy"
    versions = dict(pair for _, peer in installed_here(["torch", "jax", last]) for pair in peer.versions().items())
    lines = []
    for case in cases():
        if not any(text in case.name for text in arguments.only.split(",")):
            continue
        count = max(int(arguments.mib * 2**20) // case.instance_bytes, 1)
        # all ways are timed in all rounds: which one is the fastest is not the question
        race = run_race(ways(case, count, device), seconds=arguments.seconds, looks=(64,))
        lines.append(told(case, race, count, device, versions))
        print(f"{case.name}: " + ", ".join(f"{k} {v * 1e3:.2f}" for k, v in lines[-1]["seconds"].items()), flush=True)
        if arguments.out:
            with open(os.path.expanduser(arguments.out), "a", encoding="utf-8") as file:
                file.write(json.dumps(lines[-1]) + "\n")
    print(table(lines))


if __name__ == "__main__":
    main()
