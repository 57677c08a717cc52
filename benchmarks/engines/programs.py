"""An einsum through the immediate language, as an engine: its plan, raised, beside `generate` and a launch a step.

All three are called with device arrays, one after the other in every round, so that ratios are of times next to each other.
The time of a call is that until its result is there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.engines.ours import einsum_of
from benchmarks.engines.problem import Problem, Values
from benchmarks.peers.base import CORES, Engine

if TYPE_CHECKING:
    import feinsum as fe

LANGUAGE = "language"
BESIDE = ("generate", "launches")
"""What the language is timed beside: the kernel called with arrays, and the plan with a launch for each instruction."""
_ROUTES = {LANGUAGE: "auto", "launches": "general"}
_LEAST_ROUNDS = 3


def in_program(e: fe.BatchedEinsum, name: str, value: Any) -> Any:
    """An array as a plan of ``order="C"`` has it: the axis of elements in front, and the others in reverse."""
    letters = {a.name: term for a, term in zip(e.arrays, e.indexing.inputs, strict=True)}.get(name, e.indexing.output)
    first = int(letters[0] == e.indexing.output[0])
    return value.transpose((*range(first), *reversed(range(first, len(letters)))))


def plan_of_elements(e: fe.BatchedEinsum) -> fe.Program:
    """The plan of an einsum of elements, for arrays as numpy has them."""
    import feinsum as fe

    return fe.plan(e, order="C")


def calls(
    e: fe.BatchedEinsum, device: fe.Device, database: Any, sizes: Mapping[str, int], arrays: Mapping[str, Any], out: Any
) -> dict[str, Callable[[], Any]]:
    """What computes an einsum in each of the three ways, from device arrays."""
    import feinsum as fe

    kernel = fe.generate(e, device, database, sizes)
    program = plan_of_elements(e)
    given = {name: in_program(e, name, value) for name, value in arrays.items()} | {"out": in_program(e, "out", out)}
    found: dict[str, Callable[[], Any]] = {"generate": lambda: kernel(arrays, out=out)}
    for name, route in _ROUTES.items():
        built = fe.build(program, device=device, database=database, route=route)
        found[name] = lambda built=built: built(given)  # type: ignore[misc]
    return found


class Language(Engine):
    """An einsum of one output as a program."""

    packages = ("numpy", "pyopencl")
    sides = ("cpu", "gpu")

    def take(self, problem: Problem, **how: Any) -> dict[str, Any]:
        """Plan and build.

        :param how: ``database``, see :func:`feinsum.generate`.
        """
        import pyopencl.array as cla

        import feinsum as fe

        self._calls: dict[str, Callable[[], Any]] = {}
        e, sizes = einsum_of(problem)
        device = fe.device(problem.device)
        self._queue, self.problem = device.queue, problem
        arrays = {name: cla.to_device(self._queue, values) for name, values in problem.inputs().items()}
        self._out = cla.empty(self._queue, tuple(problem.lengths[x] for x in problem.output), e.dtype)
        start = time.perf_counter()
        self._calls = calls(e, device, how.get("database"), sizes, arrays, self._out)
        return {"generate_s": time.perf_counter() - start}

    def first(self) -> dict[str, Any]:
        """Run all three once; each has to be right."""
        for name in (*BESIDE, LANGUAGE):
            self._out.set(np.full(self._out.shape, np.nan, self._out.dtype))
            self._timed(name)
            if (error := self.problem.error(self.outputs())) > 1:
                raise ValueError(f"'{name}' is wrong: {error:.3g} times the error of rounding")
        return {}

    def turn(self, seconds: float) -> dict[str, Any]:
        """See :class:`Engine`; `beside` has the samples of the others in the same rounds."""
        names = (LANGUAGE, *BESIDE)
        for name in names:
            self._timed(name)
        samples: dict[str, list[float]] = {name: [] for name in names}
        start = time.perf_counter()
        cpu_s = 0.0
        while len(samples[LANGUAGE]) < _LEAST_ROUNDS or time.perf_counter() - start < seconds:
            for name in names if len(samples[LANGUAGE]) % 2 else reversed(names):
                start_cpu = time.process_time()
                samples[name].append(self._timed(name))
                cpu_s += (time.process_time() - start_cpu) * (name == LANGUAGE)
        own = samples.pop(LANGUAGE)
        return {"samples_s": own, "beside": samples, "cpu_s": cpu_s / len(own) / CORES}

    def outputs(self) -> list[Values]:
        return [self._out.get()]

    def _timed(self, name: str) -> float:
        start = time.perf_counter()
        self._calls[name]()
        self._queue.finish()
        return time.perf_counter() - start
