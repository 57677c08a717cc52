"""``python -m benchmarks forms``: kernels in the style of a form compiler, as given and with their einsums transformed.

Each kernel of :mod:`benchmarks.cases.forms` gets a loop over cells (``fe.add_loop``).  *Given* is what loopy makes of
that; *transformed* has its sums transformed (``fe.extract_operands``, ``fe.transform``) and what is left spread over the
device (``fe.spread_loops``).  Both are called in turns, by loopy's executor with arrays on the device and a pool for
temporaries, and once more as bare launches with buffers that are there.  Results are compared before.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import loopy as lp
import numpy as np

import feinsum as fe
from benchmarks.cases.forms import FORMS, form_data, form_kernel
from benchmarks.measure import Contest, Sampler, clock_of, hold, sampler
from feinsum.compile.codegen import generate_program
from feinsum.compile.executable import build
from feinsum.timing.races import Race


@dataclass(frozen=True)
class FormCase:
    """A cell, a form and an order, on a device."""

    form: tuple[str, str, int]
    device: fe.Device
    cells: int

    @property
    def name(self) -> str:
        return " ".join(map(str, self.form))

    @cached_property
    def given(self) -> lp.TranslationUnit:
        """The kernel with the loop over cells around it."""
        t_unit = form_kernel(*self.form)
        arguments = t_unit.default_entrypoint.arg_dict
        return fe.add_loop(t_unit, "e", "E", [name for name in ("A", "coords", "w_0") if name in arguments])

    @cached_property
    def transformed(self) -> tuple[lp.TranslationUnit, list[str]]:
        """The same with its sums transformed and all else spread, and the subscripts of the sums."""
        found = []
        t_unit = fe.extract_operands(self.given, epilogues=True)
        for match in fe.find_einsums(t_unit, epilogues=True):
            if match.einsum.indexing.summed:
                found.append(match.einsum.subscripts)
                chosen = " or ".join(f"id:{insn_id}" for insn_id in match.insn_ids)
                t_unit = fe.transform(t_unit, self.device, insn_match=chosen, sizes={"E": self.cells}, epilogues=True)
        return fe.spread_loops(t_unit, self.device.profile.kind), found

    def called(self, t_unit: lp.TranslationUnit, data: Mapping[str, Any]) -> Callable[[], object]:
        """A call by loopy's executor, with memory for temporaries out of a pool."""
        import pyopencl.array as cla
        from pyopencl.tools import ImmediateAllocator, MemoryPool

        queue = self.device.queue
        executor, pool = t_unit.executor(self.device.context), MemoryPool(ImmediateAllocator(queue))
        arrays = {name: cla.to_device(queue, value) for name, value in data.items()}
        return lambda: executor(queue, E=self.cells, allocator=pool, **arrays)

    def launched(self, t_unit: lp.TranslationUnit, data: Mapping[str, Any]) -> Callable[[], object]:
        """The launches alone."""
        import pyopencl as cl

        executable, lengths = build(self.device.context, generate_program(t_unit)), {"E": self.cells}
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        buffers = {name: cl.Buffer(self.device.context, flags, hostbuf=value) for name, value in data.items()}
        buffers |= executable.scratch(self.device.context, lengths)
        return partial(executable.enqueue, self.device.queue, buffers, lengths)

    def check(self, data: Mapping[str, Any]) -> None:
        """Compare what both compute."""
        results = []
        for t_unit in (self.given, self.transformed[0]):
            arrays = {name: value.copy() for name, value in data.items()}
            _, (result,) = t_unit.executor(self.device.context)(self.device.queue, E=self.cells, **arrays)
            results.append(result)
        np.testing.assert_allclose(results[1], results[0], rtol=1e-11, atol=1e-12 * np.abs(results[0]).max())


def samplers(case: FormCase, device: fe.Device, arguments: argparse.Namespace) -> dict[str, Sampler]:
    """What times each way once."""
    data = form_data(case.given, case.cells)
    case.check(data)
    # A call of what is given changes A, which is added to: numbers stay finite, and none depends on another call.
    return {
        f"{name}{more}": sampler(way(t_unit, data), device.queue.finish, clock_of(arguments))
        for name, t_unit in (("given", case.given), ("transformed", case.transformed[0]))
        for more, way in (("", case.called), (" launches", case.launched))
    }


def told(case: FormCase, race: Race, seconds: Mapping[str, float]) -> dict[str, Any]:
    """How many times as fast what is transformed is."""
    named = {"call": "", "launches": " launches"}
    ratios = {name: race.compare("transformed" + more, "given" + more).ratio for name, more in named.items()}
    return {"cells": case.cells, "einsums": " ".join(case.transformed[1]), "ratios": ratios}


def contest(device: fe.Device, options: argparse.Namespace) -> Contest:
    """All forms, with so many cells."""
    return Contest("forms", (FormCase(form, device, options.cells) for form in FORMS), samplers, told)


def main() -> None:
    hold(__doc__, contest, cells={"type": int, "default": 20_000, "help": "(default: 20000)"})
