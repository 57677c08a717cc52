"""``python -m benchmarks epilogues``: what a function of the sum costs beside the bare einsum, two launches and the peers.

Of each case these are timed in turns: the *bare* kernel, the *fused* one with the same configuration, *two* launches, of
which the second makes the function of what the first stored, a *copy* of the output, and numpy, torch, torch.compile and
jax where these are installed, on the same device.  A kernel that also reads what the output holds moves those bytes
besides, half of what a copy of it moves, so that for updates *bytes* compares the fused kernel with the bare one and half
the copy together.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import feinsum as fe
from benchmarks.cases.epilogues import Case, cases
from benchmarks.measure import Contest, Sampler, clock_of, hold, peer_samplers, sampler
from benchmarks.peers import peer_versions
from feinsum.compile.executable import Executable, build
from feinsum.compile.realize import realize
from feinsum.registry import find_space
from feinsum.space import Configuration, TransformSpace
from feinsum.timing.races import Race

PEERS = ("numpy", "torch", "jax")

Stages = list[tuple[Executable, dict[str, str]]]
"""Kernels in order, and what their arguments are called among the arrays of a case."""


def _build(case: Case, device: fe.Device, e: fe.BatchedEinsum, space: TransformSpace, c: Configuration) -> Executable:
    sizes = {name: n for name, n in case.sizes.items() if name in e.long_axes}
    return build(device.context, realize(e, sizes, space, c, device.profile))


def _elementwise(case: Case, device: fe.Device, text: str | None) -> Executable:
    """The launch that makes an epilogue of sums that are there, or copies them."""
    letters = "".join(case.bare.indexing.output)
    shape = [case.bare.index_sizes[x] for x in letters]
    e = fe.einsum(f"{letters}->{letters}", fe.array("sums", shape, case.bare.dtype))
    if text is not None:
        e = e.then(text, **({"b": case.row} if case.row else {}))
    copies = find_space("permutation")
    problem = copies.problem(e, {n: case.sizes[n] for n in e.long_axes}, device.profile)
    return _build(case, device, e, copies, copies.default(problem))


def ways(case: Case, device: fe.Device) -> dict[str, Stages]:
    """The kernels of each, by the space and configuration that `generate` would take."""
    kernel = fe.generate(case.bare, device, sizes=case.sizes)
    found, configuration = find_space(kernel.space), dict(kernel.configuration)
    bare, fused = (_build(case, device, e, found, configuration) for e in (case.bare, case.fused))
    return {
        "bare": [(bare, {})],
        "fused": [(fused, {})],
        "two": [(bare, {"out": "sums"}), (_elementwise(case, device, case.text), {})],
        "copy": [(_elementwise(case, device, None), {})],
    }


def samplers(case: Case, device: fe.Device, arguments: argparse.Namespace) -> dict[str, Sampler]:
    """What times each way once."""
    import pyopencl as cl

    arrays = case.arrays()
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    values = {**arrays, "sums": arrays["out"]}
    buffers = {name: cl.Buffer(device.context, flags, hostbuf=value) for name, value in values.items()}
    found = {
        name: sampler(_launches(case, device, stages, buffers), device.queue.finish, clock_of(arguments))
        for name, stages in ways(case, device).items()
    }
    if arguments.busy:
        return found
    # numpy has no gelu, and makes updates by hand
    return found | peer_samplers(PEERS if case.updates else PEERS[1:], case.work(), device)


def _launches(case: Case, device: fe.Device, stages: Stages, buffers: Mapping[str, Any]) -> Callable[[], None]:
    calls = []
    values = {**case.sizes, **case.scalars}
    for executable, names in stages:
        arguments = executable.program.arguments
        own = {x.name: buffers[names.get(x.name, x.name)] for x in arguments if x.name in buffers}
        lengths = {x.name: values[x.name] for x in arguments if x.kind in ("length", "scalar")}
        calls.append((executable, {**own, **executable.scratch(device.context, lengths)}, lengths))

    def run() -> None:
        for executable, own, lengths in calls:
            executable.enqueue(device.queue, own, lengths)

    return run


def told(case: Case, race: Race, seconds: Mapping[str, float]) -> dict[str, Any]:
    """The ratios that are asked for."""
    others = [name for name in race.names if name not in ("fused", "bare", "copy")]
    over = {f"{name}/fused": race.compare("fused", name).ratio for name in others}
    ratios = {"fused/bare": race.compare("bare", "fused").ratio}
    if case.updates:
        whole = [r for r in race.rounds if {"bare", "fused", "copy"} <= r.keys()]
        ratios["bytes"] = float(np.median([r["fused"] / (r["bare"] + r["copy"] / 2) for r in whole]))
    return {"epilogue": case.text, "of": case.of, "ratios": ratios | over}


def contest(device: fe.Device, _: argparse.Namespace) -> Contest:
    """All cases at the sizes for a device."""
    return Contest("epilogues", cases(device.profile.kind), samplers, told, peer_versions(PEERS))


def main() -> None:
    hold(__doc__, contest)
