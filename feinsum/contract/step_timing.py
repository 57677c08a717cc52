"""Tuning the steps of a contraction, and timing numpy's BLAS beside the kernels where it can compute a step."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median

import numpy as np

from feinsum.compile.host_buffers import computes_in_host_memory
from feinsum.contract.evaluate import How
from feinsum.contract.evaluation import Evaluation
from feinsum.contract.library_products import find_product
from feinsum.contract.step_choice import StepChoice, forget_expectations, quicker, remember_times, step_name, untuned
from feinsum.einsum import BatchedEinsum
from feinsum.generate import generate
from feinsum.kernel.kernel import Kernel
from feinsum.timing.races import Race

_FEWEST_ROUNDS, _RACE_S = 3, 0.5
"""The least rounds of a race of kernel and library, and the seconds after which an undecided race stops."""
_FEWEST_CALLS, _COMPARISON_S = 5, 0.03
"""The least calls and the seconds of a comparison while a caller waits for a result."""


def tune_steps(evaluation: Evaluation, how: How, seconds: float) -> None:
    """Tune every step without an exact record, once each, in `seconds` in all, and remember whether kernel or library is
    faster."""
    device = evaluation.device
    pending = {step_name(task.e, task.step.lengths): task for task in evaluation.tasks if task.flops}
    end = time.monotonic() + seconds
    times = {}
    for done, (name, task) in enumerate(pending.items()):
        share = max((end - time.monotonic()) / (len(pending) - done), 0.1)
        kernel = generate(task.e, device, how.database, task.e.sizes_from(task.step.lengths), "missing", timeout=share)
        times[name] = _alternating(task.e, task.step.lengths, kernel, by_library=evaluation.on_host and how.library)
    remember_times(device, times)
    forget_expectations()


def compare_kernel_and_library(
    choice: StepChoice, e: BatchedEinsum, lengths: Mapping[str, int], kernel: Kernel
) -> StepChoice:
    """The faster of numpy's product and an unmeasured kernel for a step; the times are remembered.

    The fastest call of each counts, as other programs disturb short measurements.
    """
    ways = _timed_calls(e, lengths, kernel, by_library=True)
    product = find_product(e.subscripts, e.dtype)
    if product is None or len(ways) < 2:
        return choice
    for way in ways:
        way()
    taken: list[list[float]] = []
    end = time.perf_counter() + _COMPARISON_S
    while len(taken) < _FEWEST_CALLS or time.perf_counter() < end:
        taken.append([_seconds_of_way(way) for way in ways])
    kernel_s, library_s = map(min, zip(*taken, strict=True))
    remember_times(kernel.device, {untuned(step_name(e, lengths)): (library_s, kernel_s)})
    return quicker(product, library_s, kernel_s) or choice


def _alternating(
    e: BatchedEinsum, lengths: Mapping[str, int], kernel: Kernel, *, by_library: bool
) -> tuple[float | None, float]:
    """The median times of numpy's product, if it can do the step, and of the kernel, in a race."""
    ways = _timed_calls(e, lengths, kernel, by_library=by_library)
    for way in ways:
        way()
    race = Race([str(number) for number in range(len(ways))])
    end = time.perf_counter() + _RACE_S
    while not race.over and (len(race.rounds) < _FEWEST_ROUNDS or time.perf_counter() < end):
        race.add({name: _seconds_of_way(ways[int(name)]) for name in race.order})
    kernel_s, *library_s = (median(found[str(number)] for found in race.rounds) for number in range(len(ways)))
    return (library_s[0] if library_s else None), kernel_s


def _timed_calls(
    e: BatchedEinsum, lengths: Mapping[str, int], kernel: Kernel, *, by_library: bool
) -> list[Callable[[], object]]:
    """A call of the kernel with random arrays, and one of numpy's product of them if it can do the step."""
    rng = np.random.default_rng(0)
    arrays = {a.name: np.asarray(4 * rng.random([lengths[x] for x in letters]), a.dtype) for a, letters in e.array_uses}
    scalars = {name: dtype.type(2) for name, dtype in e.scalars.items()}
    out = np.zeros([lengths[x] for x in e.indexing.output], e.dtype) if any(e.updates) else None
    ways: list[Callable[[], object]] = [lambda: kernel({**arrays, **scalars}, out=out)]
    found = find_product(e.subscripts, e.dtype)
    if found is not None and by_library and computes_in_host_memory(kernel.device.context):
        product = found.prepared(lengths)
        ways.append(lambda: product(*(x.astype(e.dtype, copy=False) for x in arrays.values())))
    return ways


def _seconds_of_way(way: Callable[[], object]) -> float:
    start = time.perf_counter()
    way()
    return time.perf_counter() - start
