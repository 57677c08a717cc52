"""The timing protocol, on devices whose every run takes as long as the test says."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any

import pyopencl as cl
import pytest

from feinsum import timing
from feinsum.timing import Timing, buffer_sets_needed, time_executable

WARM_UP, PROBES = 2, 1
"""Runs before the first sample: to warm up, and to see how long a run is."""


@dataclass
class Machine:
    """A device, its queue and an executable, with a clock of their own.

    :ivar durations_s: what each run takes, in order.
    :ivar launches: of how many launches a run consists, each of which takes an equal part.
    :ivar profiling: whether events carry times.
    """

    durations_s: Iterator[float]
    launches: int = 1
    profiling: bool = True
    now_s: float = 0.0
    submitted: list[int] = field(default_factory=list)
    pending_s: float = 0.0

    @property
    def properties(self) -> int:
        return int(cl.command_queue_properties.PROFILING_ENABLE) if self.profiling else 0

    def enqueue(self, queue: Any, buffers: dict[str, int], lengths: Any) -> list[Any]:
        assert queue is self
        self.submitted.append(buffers["x"])
        part = next(self.durations_s) / self.launches
        events = []
        for _ in range(self.launches):
            start = self.now_s + self.pending_s
            self.pending_s += part
            profile = SimpleNamespace(start=round(start * 1e9), end=round((start + part) * 1e9))
            events.append(SimpleNamespace(profile=profile))
        return events

    def finish(self) -> None:
        self.now_s += self.pending_s
        self.pending_s = 0.0


def measure(
    monkeypatch: pytest.MonkeyPatch, durations_s: Iterable[float], sets: int = 1, seconds: float = 0.3, **how: Any
) -> tuple[Timing, Machine]:
    """Time a machine whose first runs take 1 ms and the next ones `durations_s`, the last of them for ever."""
    give_up_s = how.pop("give_up_s", math.inf)
    given = list(durations_s)
    machine = Machine(chain(repeat(1e-3, how.pop("before", WARM_UP + PROBES)), given, repeat(given[-1])), **how)
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: machine.now_s))
    buffers = [{"x": k} for k in range(sets)]
    return time_executable(machine, machine, buffers, {}, seconds=seconds, give_up_s=give_up_s), machine


def test_a_timing_is_its_median_and_spread() -> None:
    """The median and the median absolute deviation, which one slow run in ten does not move."""
    samples = (1.0, 1.1, 0.9, 1.0, 1.2, 1.0, 0.8, 1.0, 1.0, 100.0)
    assert Timing(samples).median_s == 1.0
    assert Timing(samples).spread_s == pytest.approx(0.05)
    assert Timing((3.0, 1.0, 2.0, 4.0)).median_s == 2.5


@pytest.mark.parametrize("n", range(1, 201))
def test_the_precision_is_a_confidence_interval_of_the_median(n: int) -> None:
    """Its ends are order statistics which enclose the median of any distribution with a probability of at least 95%."""
    precision = Timing(tuple(float(k) for k in range(1, n + 1))).precision
    if n < 8:
        assert precision == math.inf
        return
    width = round(2 * precision * (n + 1) / 2)
    low = (n + 1 - width) // 2  # the interval is from the sample number `low` to the number `low + width`
    enclosed = sum(math.comb(n, k) for k in range(low, low + width)) / 2**n
    assert enclosed >= 0.95
    tighter = sum(math.comb(n, k) for k in range(low + 2, low + width - 2)) / 2**n
    assert tighter < 0.95


def test_equal_samples_end_a_timing_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as the interval is within one per cent."""
    found, machine = measure(monkeypatch, [1e-3])
    assert len(found.samples_s) == 8
    assert found.median_s == pytest.approx(1e-3)
    assert found.runs_per_sample == 1
    assert len(machine.submitted) == WARM_UP + PROBES + 8


def test_noisy_samples_are_taken_until_the_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the budget, and never more than two hundred."""
    noise = [1e-3 * (1 + (k * 7 % 10) / 10) for k in range(1000)]
    found, _ = measure(monkeypatch, noise, seconds=0.1)
    assert 60 < len(found.samples_s) < 75
    assert found.precision > 0.01
    assert len(measure(monkeypatch, noise, seconds=100.0)[0].samples_s) == 200


def test_long_runs_are_sampled_three_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the budget, and no more than that where it is spent."""
    assert len(measure(monkeypatch, [2.0])[0].samples_s) == 3


def test_a_run_that_takes_the_whole_budget_is_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One run to warm up and one to time: a variant that slow is no candidate."""
    found, machine = measure(monkeypatch, [2.0], before=0)
    assert found.samples_s == (2.0,)
    assert len(machine.submitted) == 2


def test_hopeless_variants_are_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three samples above the limit end the timing; one below it keeps it going."""
    assert len(measure(monkeypatch, [1.5e-3], give_up_s=1e-3)[0].samples_s) == 3
    assert len(measure(monkeypatch, [1.5e-3, 0.5e-3, 1.5e-3], give_up_s=1e-3)[0].samples_s) > 3


def test_short_runs_are_timed_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample is the mean over back-to-back runs of 400 µs in all."""
    found, machine = measure(monkeypatch, [5e-6], before=0)
    assert found.runs_per_sample == 80
    assert found.median_s == pytest.approx(5e-6)
    assert len(machine.submitted) == WARM_UP + PROBES + 80 * len(found.samples_s)
    assert measure(monkeypatch, [21e-6], before=0)[0].runs_per_sample == 1


def test_buffers_are_rotated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run uses the next set, in turn, also within a batch."""
    _, machine = measure(monkeypatch, [5e-6], sets=3, before=0)
    assert all(other == (one + 1) % 3 for one, other in zip(machine.submitted, machine.submitted[1:], strict=False))


def test_all_launches_of_a_run_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the start of the first to the end of the last."""
    assert measure(monkeypatch, [3e-3], launches=3)[0].median_s == pytest.approx(3e-3)


@pytest.mark.parametrize("duration_s", [1e-3, 5e-6])
def test_a_device_without_events_is_timed_by_the_clock(monkeypatch: pytest.MonkeyPatch, duration_s: float) -> None:
    """Around a batch where runs are short."""
    found, _ = measure(monkeypatch, [duration_s], profiling=False, before=0)
    assert found.median_s == pytest.approx(duration_s)
    assert found.runs_per_sample == (1 if duration_s > 20e-6 else 80)


def test_events_that_carry_no_times_are_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some drivers report zeros; then the clock counts."""

    class Zeros(Machine):
        def enqueue(self, queue: Any, buffers: dict[str, int], lengths: Any) -> list[Any]:
            super().enqueue(queue, buffers, lengths)
            return [SimpleNamespace(profile=SimpleNamespace(start=0, end=0))]

    machine = Zeros(repeat(1e-3))
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: machine.now_s))
    assert time_executable(machine, machine, [{"x": 0}], {}).median_s == pytest.approx(1e-3)


def test_enough_buffers_defeat_a_cache() -> None:
    """Twice the cache in all, 64 sets at most, and no more memory than there is."""
    assert buffer_sets_needed(10 << 20, 10 << 20, 32 << 20, 1 << 30) == 7
    assert buffer_sets_needed(1 << 30, 1 << 30, 32 << 20, 8 << 30) == 1
    assert buffer_sets_needed(100, 100, 32 << 20, 1 << 30) == 64
    assert buffer_sets_needed(10 << 20, 10 << 20, 32 << 20, 30 << 20) == 3
    assert buffer_sets_needed(10 << 20, 10 << 20, 32 << 20, 5 << 20) == 1
    assert buffer_sets_needed(10 << 20, 10 << 20, 0, 1 << 30) == 1
    assert buffer_sets_needed(0, 0, 32 << 20, 1 << 30) == 64


def test_diagonals_of_large_arrays_take_no_more_memory_than_there_is() -> None:
    """The diagonal is small, so many sets would be wanted; each is a whole matrix."""
    assert buffer_sets_needed(24_000, 72_000_000, 32 << 20, 1 << 30) == 14
