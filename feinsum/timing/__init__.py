"""Timing: the median of device-event samples, with buffers rotated so that no cache flatters.

Protocol 1: two warm-up runs; then samples until the 95% confidence interval of the median (from order statistics) is
within 1% of it, or the budget is spent.  A run that takes the whole budget is timed once, after one to warm up.
A run shorter than 20 µs is timed in a batch of back-to-back runs.  A device without events is timed by the host clock
around a batch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from feinsum.compile.executable import Executable

PROTOCOL = 1
FINAL_PROTOCOL = 2
"""The protocol of the winner of a final, whose samples alternated with those of the other finalists."""
_SHORT_S = 20e-6
_BATCH_S = 400e-6
_MIN_SAMPLES = 7
_MAX_SAMPLES = 200
_PRECISION = 0.01
_Z = 1.96


@dataclass(frozen=True)
class Timing:
    """The samples of one timing.

    :ivar samples_s: seconds of one run, in order of measurement.
    :ivar runs_per_sample: how many back-to-back runs a sample averages.
    """

    samples_s: tuple[float, ...]
    runs_per_sample: int = 1

    @property
    def median_s(self) -> float:
        """The median of the samples, in seconds."""
        return float(median(self.samples_s))

    @property
    def spread_s(self) -> float:
        """The median absolute deviation of the samples, in seconds."""
        middle = self.median_s
        return float(median(abs(sample - middle) for sample in self.samples_s))

    @property
    def precision(self) -> float:
        """Half the width of the 95% confidence interval of the median, relative to it; infinite below eight samples."""
        ordered = sorted(self.samples_s)
        n = len(ordered)
        low = math.floor(n / 2 - _Z * math.sqrt(n) / 2) - 1
        if low < 0:
            return math.inf
        return (ordered[n - 1 - low] - ordered[low]) / 2 / self.median_s

    def _repr_html_(self) -> str:
        from feinsum.report.displays import timing_html

        return timing_html(self)


class BufferSets(Protocol):
    """Sets of buffers by name, to be taken in turns: a list of them, or an object that makes and judges them."""

    def __len__(self) -> int: ...

    def __getitem__(self, turn: int, /) -> Mapping[str, Any]: ...


def time_executable(
    executable: Executable,
    queue: Any,
    buffer_sets: BufferSets,
    lengths: Mapping[str, int],
    *,
    seconds: float = 0.3,
    give_up_s: float = math.inf,
) -> Timing:
    """Time an executable.

    :param queue: a :class:`pyopencl.CommandQueue`, with profiling where the device has it.
    :param buffer_sets: sets of buffers to rotate through.
    :param lengths: a value for each length argument.
    :param seconds: the budget for samples.
    :param give_up_s: a run that takes longer is not worth repeating: three samples are taken and no more.
    """
    turn = 0

    def run() -> list[Any]:
        nonlocal turn
        turn += 1
        return executable.enqueue(queue, buffer_sets[turn % len(buffer_sets)], lengths)

    begin = time.perf_counter()
    events = run()
    queue.finish()
    first_s = time.perf_counter() - begin
    sample = sampler_of(queue, run, events)
    if first_s > seconds:
        return Timing((sample(1),))
    run()
    queue.finish()
    estimate = sample(1)
    runs = max(1, math.ceil(_BATCH_S / max(estimate, 1e-7))) if estimate < _SHORT_S else 1
    samples: list[float] = []
    start = time.perf_counter()
    while len(samples) < _MAX_SAMPLES:
        samples.append(sample(runs))
        if len(samples) >= 3 and min(samples) > give_up_s:
            break
        if len(samples) >= _MIN_SAMPLES and Timing(tuple(samples)).precision < _PRECISION:
            break
        if len(samples) >= 3 and time.perf_counter() - start > seconds:
            break
    return Timing(tuple(samples), runs)


def buffer_sets_needed(used_bytes: int, set_bytes: int, cache_bytes: int, most_bytes: int) -> int:
    """The number of sets of buffers that keeps a rotation out of the cache: twice its size in all.

    :param used_bytes: bytes of one set that a run reads or writes; few of an array of which a diagonal is wanted.
    :param set_bytes: bytes of one set.
    :param cache_bytes: the last-level cache of the device.
    :param most_bytes: what all sets together may take.
    """
    wanted = math.ceil(2 * cache_bytes / max(used_bytes, 1))
    return max(1, min(wanted, 64, most_bytes // max(set_bytes, 1)))


def sampler_of(queue: Any, run: Callable[[], list[Any]], events: Sequence[Any]) -> Callable[[int], float]:
    """A function that does a number of runs in a row and returns the seconds of one, by the events of runs if they tell it.

    :param events: those of a run that is over.
    """
    return _event_sampler(queue, run) if _carry_times(queue, events) else _host_sampler(queue, run)


def _carry_times(queue: Any, events: Sequence[Any]) -> bool:
    import pyopencl as cl

    if not queue.properties & cl.command_queue_properties.PROFILING_ENABLE:
        return False
    return bool(events) and events[-1].profile.end > events[0].profile.start


def _event_sampler(queue: Any, run: Callable[[], list[Any]]) -> Callable[[int], float]:
    def sample(runs: int) -> float:
        events = [event for _ in range(runs) for event in run()]
        queue.finish()
        return float(events[-1].profile.end - events[0].profile.start) * 1e-9 / runs

    return sample


def _host_sampler(queue: Any, run: Callable[[], list[Any]]) -> Callable[[int], float]:
    def sample(runs: int) -> float:
        start = time.perf_counter()
        for _ in range(runs):
            run()
        queue.finish()
        return (time.perf_counter() - start) / runs

    return sample
