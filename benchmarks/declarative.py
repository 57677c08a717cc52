"""``python -m benchmarks declarative``: programs of the declarative language beside torch, JAX and numba, in one run.

Of each program the built kernel, what it is measured against, and what peers make of the same are timed in turns.  What it
is measured against is the kernel of :func:`feinsum.generate` for a program that is an einsum, or a tile of one; a copy of
the same array, or the time of its bytes at the measured peak if that is less, for what reads one and writes one; the
matrix product alone where more is made of it.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

import feinsum as fe
from benchmarks.cases.declarative import Case, cases
from benchmarks.measure import Contest, Sampler, clock_of, hold, peer_samplers, sampler
from benchmarks.peers import peer_versions
from benchmarks.report import PEAK_COPY
from feinsum.timing.races import Race

PEERS = {"cpu": ("torch", "jax", "numba"), "gpu": ("torch", "jax")}


def samplers(case: Case, device: fe.Device, arguments: argparse.Namespace) -> dict[str, Sampler]:
    """What times the program, what it is measured against, and each peer once."""
    import pyopencl.array as cla

    queue, arrays, database = device.queue, case.arrays(), arguments.database
    timed = partial(sampler, finish=queue.finish, clock=clock_of(arguments))
    held = {name: cla.to_device(queue, value) for name, value in arrays.items()}
    built = fe.build(fe.program(case.text, "declarative"), device=device, database=database)
    result = built(held)
    computed = result.get()
    found = {"program": timed(lambda: built(held, out=result))}
    # What is measured against stores into the same array: where an array lies counts.
    if case.against in ("generate", "bare"):
        operands = [fe.array(name, case.shapes[name], "float32") for name in "AB"]
        kernel = fe.generate(fe.einsum("ik,kj->ij", *operands), device, database)
        own = {name: held[name] for name in "AB"}
        found[case.against] = timed(lambda: kernel(own, out=result))
        if case.against == "bare":
            rows = fe.array("A", ("M", *case.shapes["A"][1:]), "float32")
            other = fe.generate(fe.einsum("ik,kj->ij", rows, operands[1]), device, database, {"M": case.shapes["A"][0]})
            found["open"] = timed(lambda: other(own, out=result))
    elif case.against == "copy":
        copy = fe.generate(fe.einsum("ij->ij", fe.array("A", case.shapes["A"], "float32")), device, database)
        found["copy"] = timed(lambda: copy({"A": held["A"]}, out=result))
    if (work := case.work()) and not arguments.busy:
        near = partial(np.allclose, b=computed, rtol=1e-2, atol=1e-2 * float(np.abs(computed).max()))
        found |= peer_samplers(PEERS[device.profile.kind], work, device, near)
    return found


def told(device: fe.Device, case: Case, race: Race, seconds: Mapping[str, float]) -> dict[str, Any]:
    """How many times as fast as each other way the program is."""
    ratios = {name: race.compare("program", name).ratio for name in race.names if name != "program"}
    if case.against == "copy":
        arrays = list(case.arrays().values())
        moved = sum(value.nbytes for value in arrays) + arrays[0].nbytes
        ratios[PEAK_COPY] = moved / device.peaks.copy_bytes_per_s / seconds["program"]
    return {"lengths": case.lengths, "ratios": ratios, "against": case.against, "bar": case.bar}


def contest(device: fe.Device, _: argparse.Namespace) -> Contest:
    """The programs at the sizes for a device."""
    kind = device.profile.kind
    return Contest("declarative", cases(kind != "cpu"), samplers, partial(told, device), peer_versions(PEERS[kind]))


def main() -> None:
    hold(__doc__, contest, database={"help": "where records of einsums and programs are"})
