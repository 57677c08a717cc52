"""Times of a few candidates for one einsum, whose runs alternate for some milliseconds.

The kernel is wanted now.  The arrays hold noise, so nothing is proved; there is no time for a confidence interval, and no
record is made.  Tuning runs have finals instead (:mod:`feinsum.timing.races`).
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from statistics import median
from typing import TYPE_CHECKING, Any

from feinsum.timing import sampler_of

if TYPE_CHECKING:
    from feinsum.compile.executable import Executable

_ROUNDS = 7
_SAMPLE_S = 300e-6
"""Shorter runs are repeated for this long in one sample."""
_LATE, _HOST_S = 3.0, 1e-3
"""An executable is dropped if an early run takes longer than `_LATE` times the fastest one and `_HOST_S` more."""


def time_candidates(
    executables: Sequence[Executable],
    queue: Any,
    sets: Sequence[Mapping[str, Any]],
    parameters: Mapping[str, Any],
    *,
    seconds: float,
) -> list[float]:
    """The median time of each executable, in seconds; infinite of one that fails, or whose early run says that it has lost.

    :param queue: a :class:`pyopencl.CommandQueue`, with profiling where the device has it.
    :param sets: sets of inputs and outputs by name.  Consecutive runs, of any executable, take different sets, so
        that none finds in the caches what the one before it read.
    :param parameters: a value for each length and each scalar.
    :param seconds: no round begins after this time, except for the first two.
    """
    import pyopencl as cl

    running: dict[int, _CandidateRuns] = {}
    turns = cycle(sets)
    for k, executable in enumerate(executables):
        with contextlib.suppress(cl.Error):
            running[k] = _CandidateRuns(executable, queue, turns, parameters)
    limit_s = _LATE * min((runs.early_s for runs in running.values()), default=0.0) + _HOST_S
    running = {k: runs for k, runs in running.items() if runs.early_s <= limit_s}
    samples: dict[int, list[float]] = {k: [] for k in running}
    start = time.perf_counter()
    for number in range(_ROUNDS):
        if number > 1 and time.perf_counter() - start > seconds:
            break
        for k in running if number % 2 == 0 else reversed(running):
            samples[k].append(running[k].sample())
    return [median(samples[k]) if k in samples else math.inf for k in range(len(executables))]


class _CandidateRuns:
    """The runs of one executable.

    :ivar early_s: what an early one took by the host's clock, in seconds.
    """

    def __init__(
        self, executable: Executable, queue: Any, sets: Iterator[Mapping[str, Any]], parameters: Mapping[str, Any]
    ) -> None:
        scratch = executable.scratch(queue.context, parameters)

        def run() -> list[Any]:
            return executable.enqueue(queue, {**next(sets), **scratch}, parameters)

        # The first run loads the kernel, and waits for what was asked before it.
        run()
        queue.finish()
        start = time.perf_counter()
        events = run()
        queue.finish()
        self.early_s = time.perf_counter() - start
        self._sample_of = sampler_of(queue, run, events)
        self._count = 0

    def sample(self) -> float:
        """Seconds of one run."""
        if self._count == 0:
            self._count = max(1, math.ceil(_SAMPLE_S / max(self._sample_of(1), 1e-7)))
        return self._sample_of(self._count)
