"""``python -m benchmarks tensor``: programs of the tensor language by both routes, beside peers that do the same work.

Of each case the *general* route, the *einsum* route and the einsum that a user of :func:`feinsum.generate` would write are
timed in turns with torch, JAX and numpy, or CuPy on a GPU, where these are installed.  What a way computes is compared with
numpy before it is timed.  On a device with matrix units the general route is timed without them too, as *items*.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

import feinsum as fe
from benchmarks.cases.tensor import PERIOD, Case, cases
from benchmarks.engines.problem import Values
from benchmarks.measure import Contest, Sampler, clock_of, hold, peer_samplers, sampler
from benchmarks.peers import peer_versions
from benchmarks.peers.base import Work
from feinsum.languages.calling.protocols import ProgramCall
from feinsum.languages.tensor.lowering.target import choose_target
from feinsum.languages.tensor.running.kernel import GeneralKernel
from feinsum.timing.races import Race

PEERS = {"cpu": ("torch", "jax", "numpy"), "gpu": ("torch", "jax", "cupy")}
OURS = ("general", "items", "einsum", "generate")


def ours(case: Case, given: Mapping[str, Any], device: fe.Device) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Both routes and `generate`, on arrays of the device."""
    for route in ("general", "einsum"):
        with suppress(fe.errors.FeinsumError):
            yield route, partial(fe.build(fe.program(case.text), device=device, route=route), **given, **case.numbers)
    if device.profile.matrix_units:
        program = fe.program(case.text)
        function = program.function()
        target = replace(choose_target(function, device.profile), units=())
        items = GeneralKernel(function, program.source, device, target=target)
        yield "items", lambda: items.call(ProgramCall({**given, **case.numbers}))
    if case.einsum is not None:
        subscripts, operands, epilogue = case.einsum
        batches = {name: value.T for name, value in given.items()}
        described = [fe.array(name, tuple(reversed(case.shapes[name])), case.dtype) for name in operands]
        e = fe.einsum(subscripts, *described)
        kernel = fe.generate(e.then(epilogue) if epilogue else e, device)
        inputs = {name: batches[name] for name in operands}
        yield "generate", lambda: kernel(inputs, out=batches[case.output], queue=device.queue)


def samplers(case: Case, device: fe.Device, arguments: argparse.Namespace) -> dict[str, Sampler]:
    """What times each way once, after each has been found right."""
    import pyopencl.array as cla

    arrays = case.arrays(max(int(arguments.mib * 2**20) // case.instance_bytes, 1))
    exact = {name: value.T[:PERIOD].astype("float64") for name, value in arrays.items()}
    expected = case.compute(SimpleNamespace(), **exact)

    def is_right(output: Values) -> bool:
        wanted = np.resize(expected, output.shape)
        ends = (slice(PERIOD), slice(-PERIOD, None))
        error = max(float(np.abs(output[part] - wanted[part]).max()) for part in ends) / np.abs(expected).max()
        return bool(error <= 1e3 * np.finfo(case.dtype).eps)

    queue = device.queue
    given = {name: cla.to_device(queue, value) for name, value in arrays.items()}
    made: dict[str, Sampler] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, run in ours(case, given, device):
            given[case.output].set(arrays[case.output], queue)  # every way begins with the same output
            run()
            if not is_right(given[case.output].get(queue).T):
                raise ValueError(f"{case.name}: {name} is wrong")
            made[name] = sampler(run, queue.finish, clock_of(arguments))
        if not arguments.busy:
            work = Work({name: value.T for name, value in arrays.items()}, case.compute, case.output, case.special)
            made |= peer_samplers(PEERS[device.profile.kind], work, device, is_right)
    return made


def told(case: Case, race: Race, seconds: Mapping[str, float]) -> dict[str, Any]:
    """How many times as fast the first of two ways is as the second."""
    peer = min((name for name in race.names if name not in OURS), key=seconds.__getitem__, default="")
    best = min((name for name in OURS if name in seconds), key=seconds.__getitem__)

    def ratio(a: str, b: str) -> float | None:
        return float(race.compare(a, b).ratio) if b in seconds and a in seconds else None

    ratios = {
        "best of ours / torch": ratio(best, "torch"),
        "general / peer": ratio("general", peer),
        "einsum / peer": ratio("einsum", peer),
        "general / einsum": ratio("general", "einsum"),
        "einsum / generate": ratio("einsum", "generate"),
    }
    return {"best_peer": peer, "ratios": ratios}


def contest(device: fe.Device, _: argparse.Namespace) -> Contest:
    """All programs."""
    return Contest("tensor", cases(), samplers, told, peer_versions(PEERS[device.profile.kind]))


def main() -> None:
    hold(__doc__, contest, mib={"type": float, "default": 64.0, "help": "of what the instances of a case read and write"})
