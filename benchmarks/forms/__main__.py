"""``python -m benchmarks forms``: kernels in the style of a form compiler, as given and with their einsums transformed.

Each kernel of :mod:`benchmarks.forms.kernels` gets a loop over cells (``fe.add_loop``).  *Given* is what loopy makes of
that; *transformed* has its sums transformed (``fe.extract_operands``, ``fe.transform``) and what is left spread over the
device (``fe.spread_loops``).  Both are called in turn, by loopy's executor with arrays on the device and a pool for
temporaries, and once more as bare launches with buffers that are there; ratios are medians over rounds
(:mod:`feinsum.timing.races`).  Results are compared before.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import loopy as lp
import numpy as np

import feinsum as fe
from benchmarks.epilogues import timed
from benchmarks.forms.kernels import FORMS, form_data, form_kernel
from feinsum.compile.codegen import generate_program
from feinsum.compile.executable import build
from feinsum.timing.races import run_race


def over_cells(cell: str, form: str, order: int) -> lp.TranslationUnit:
    """The kernel of a form with the loop over cells around it."""
    t_unit = form_kernel(cell, form, order)
    arguments = t_unit.default_entrypoint.arg_dict
    return fe.add_loop(t_unit, "e", "E", [name for name in ("A", "coords", "w_0") if name in arguments])


def transformed(t_unit: lp.TranslationUnit, device: fe.Device, cells: int) -> tuple[lp.TranslationUnit, list[str]]:
    """A kernel with its sums transformed and all else spread, and the subscripts of the sums."""
    found = []
    t_unit = fe.extract_operands(t_unit, epilogues=True)
    for match in fe.find_einsums(t_unit, epilogues=True):
        if match.einsum.indexing.summed:
            found.append(match.einsum.subscripts)
            chosen = " or ".join(f"id:{insn_id}" for insn_id in match.insn_ids)
            t_unit = fe.transform(t_unit, device, insn_match=chosen, sizes={"E": cells}, epilogues=True)
    return fe.spread_loops(t_unit, device.profile.kind), found


def called(
    t_unit: lp.TranslationUnit, device: fe.Device, data: Mapping[str, Any], cells: int
) -> Callable[[], Callable[[], object]]:
    """A call by loopy's executor, with memory for temporaries out of a pool."""
    import pyopencl.array as cla
    from pyopencl.tools import ImmediateAllocator, MemoryPool

    executor, pool = t_unit.executor(device.context), MemoryPool(ImmediateAllocator(device.queue))
    arrays = {name: cla.to_device(device.queue, value) for name, value in data.items()}

    def run() -> Callable[[], object]:
        executor(device.queue, E=cells, allocator=pool, **arrays)
        return device.queue.finish

    return run


def launched(
    t_unit: lp.TranslationUnit, device: fe.Device, data: Mapping[str, Any], cells: int
) -> Callable[[], Callable[[], object]]:
    """The launches alone."""
    import pyopencl as cl

    executable = build(device.context, generate_program(t_unit))
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    buffers = {name: cl.Buffer(device.context, flags, hostbuf=value) for name, value in data.items()}
    buffers |= executable.scratch(device.context, {"E": cells})

    def run() -> Callable[[], object]:
        executable.enqueue(device.queue, buffers, {"E": cells})
        return device.queue.finish

    return run


def check(
    given: lp.TranslationUnit, fast: lp.TranslationUnit, device: fe.Device, data: Mapping[str, Any], cells: int
) -> None:
    """Compare what both compute."""
    results = []
    for t_unit in (given, fast):
        _, (result,) = t_unit.executor(device.context)(device.queue, E=cells, **{k: v.copy() for k, v in data.items()})
        results.append(result)
    np.testing.assert_allclose(results[1], results[0], rtol=1e-11, atol=1e-12 * np.abs(results[0]).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="as `feinsum --device` takes it")
    parser.add_argument("--cells", type=int, default=20_000, help="(default: 20000)")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each kernel (default: 2)")
    parser.add_argument("--forms", default="", help="those alone whose name has this text, as in 'tetrahedron mass 1'")
    parser.add_argument("--out", help="a file to which a line of JSON is added for each kernel")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    device, cells, faster = fe.device(arguments.device), arguments.cells, [0, 0]
    chosen = [form for form in FORMS if arguments.forms in " ".join(map(str, form))]
    print(f"{'kernel':28} {'given':>11} {'transformed':>11} {'given/transformed':>17} {'launches alone':>15}", flush=True)
    for form in chosen:
        given = over_cells(*form)
        data = form_data(given, cells)
        fast, subscripts = transformed(given, device, cells)
        check(given, fast, device, data, cells)
        # A call of what is given changes A, which is added to: numbers stay finite, and none depends on another call.
        ways = {
            f"{name}{more}": timed(way(t_unit, device, data, cells), 1)
            for name, t_unit in (("given", given), ("transformed", fast))
            for more, way in (("", called), (" launches", launched))
        }
        race = run_race(ways, seconds=arguments.seconds, looks=(64,))
        ratios = [race.compare("transformed" + more, "given" + more).ratio for more in ("", " launches")]
        seconds = {name: float(np.median([r[name] for r in race.rounds if name in r])) for name in race.names}
        faster = [n + (ratio > 1) for n, ratio in zip(faster, ratios, strict=True)]
        print(
            f"{' '.join(map(str, form)):28} {seconds['given'] * 1e3:8.3f} ms {seconds['transformed'] * 1e3:8.3f} ms"
            f" {ratios[0]:17.2f} {ratios[1]:15.2f}  {' '.join(subscripts)}",
            flush=True,
        )
        if arguments.out:
            line = {"form": form, "cells": cells, "device": device.id, "seconds": seconds, "ratios": ratios}
            with open(arguments.out, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
    print(f"faster: {faster[0]} of {len(chosen)} calls, {faster[1]} of {len(chosen)} launches alone")


if __name__ == "__main__":
    main()
