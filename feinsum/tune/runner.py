"""The processes of a tuning run: several build ahead, one proves and times.

On a CPU device builds are stopped while a variant is timed, since both want the same cores, and go on afterwards.
"""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from queue import LifoQueue
from typing import Protocol

from feinsum.devices import DeviceProfile
from feinsum.tune.trial import Built, Outcome, Trial
from feinsum.tune.worker import Worker

_HOPELESS = 1.5
"""A variant that is this many times slower than the best gets no more repetitions."""
_SECONDS = 0.15
"""For the samples of a trial; those near the best get more in the final."""


class Engine(Protocol):
    """What does trials.

    :ivar profile: the device they are done on.
    :ivar best_s: the median of the quickest variant so far, in seconds; None while there is none.
    """

    profile: DeviceProfile
    best_s: float | None

    def run(self, next_trial: Callable[[], Trial | None]) -> Generator[tuple[Trial, Outcome], None, None]:
        """Do trials, in the order in which they are handed out, until there is none left.

        :param next_trial: hands out the next trial, some of them ahead of what has come back; or None.
        """

    def compare(self, trials: Sequence[Trial], rounds: int, seconds: float) -> dict[str, list[float]]:
        """Time variants in turns.

        :param seconds: for the samples of one variant in one round.
        :return: the samples of every variant in seconds, by the id of its trial; none of those that fail.
        """


class Runner:
    """Worker processes for the trials of one device; a context manager that ends them.

    :param workers: processes that build; None for one a core, four at most.
    :param trial_timeout_s: what building, proving and timing may each take for one trial.
    :ivar best_s: the median of the quickest variant so far, in seconds; None while there is none.
    """

    def __init__(self, profile: DeviceProfile, workers: int | None, trial_timeout_s: float) -> None:
        count = workers or min(4, os.cpu_count() or 1)
        self.profile = profile
        self.best_s: float | None = None
        self._timeout_s = trial_timeout_s
        self._builders = [Worker("build", profile.id) for _ in range(count)]
        self._idle: LifoQueue[Worker] = LifoQueue()
        for worker in self._builders:
            self._idle.put(worker)
        self._measurer = Worker("measure", profile.id)
        self._pool = ThreadPoolExecutor(count + 1)
        self._started: Future[None] | None = None
        self._shares_cores = profile.kind == "cpu"
        self._device = threading.Lock()

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for worker in (*self._builders, self._measurer):
            worker.close()
        self._pool.shutdown()

    def run(self, next_trial: Callable[[], Trial | None]) -> Generator[tuple[Trial, Outcome], None, None]:
        """See :class:`Engine`; up to two trials a builder are built ahead.

        :raises DeviceError: if no worker can be started.
        """
        pending: deque[tuple[Trial, Future[Built | Outcome]]] = deque()
        try:
            while True:
                while len(pending) < 2 * len(self._builders) and (trial := next_trial()) is not None:
                    self._started = self._started or self._pool.submit(self._measurer.start)
                    pending.append((trial, self._pool.submit(self._build, trial)))
                if not pending:
                    return
                trial, future = pending.popleft()
                built = future.result()
                with self._device:
                    outcome = self._measure(trial, built)
                yield trial, outcome
        finally:
            for _, future in pending:
                future.cancel()

    def attempt(self, trial: Trial) -> Outcome:
        """Do one trial; threads may do so at once, and while one measures the others build."""
        built = self._build(trial)
        with self._device:
            return self._measure(trial, built)

    def compare(self, trials: Sequence[Trial], rounds: int, seconds: float) -> dict[str, list[float]]:
        """See :class:`Engine`.

        :raises DeviceError: if no worker can be started.
        """
        variants = list(zip(trials, self._pool.map(self._build, trials), strict=True))
        samples_s: dict[str, list[float]] = {trial.id: [] for trial in trials}
        with self._device:
            for turn in range(rounds):
                for trial, built in variants if turn % 2 == 0 else reversed(variants):
                    if trial.id in samples_s:
                        outcome = self._measure(trial, built, seconds)
                        samples_s[trial.id] += outcome.samples_s
                        if outcome.status != "ok":
                            del samples_s[trial.id]
        return samples_s

    def _build(self, trial: Trial) -> Built | Outcome:
        worker = self._idle.get()
        try:
            return worker.build(trial, self._timeout_s)
        finally:
            self._idle.put(worker)

    def _measure(self, trial: Trial, built: Built | Outcome, seconds: float | None = None) -> Outcome:
        """Prove and time a variant; `seconds` for samples, or else those of a trial."""
        if isinstance(built, Outcome):
            return built
        if self._started is not None:
            self._started.result()
        wrong = self._measurer.prove(trial, built, self._timeout_s)
        if wrong is not None:
            return wrong
        give_up_s = math.inf if self.best_s is None else _HOPELESS * self.best_s
        with self._quiet():
            return self._measurer.time(trial, self._timeout_s, give_up_s=give_up_s, seconds=seconds or _SECONDS)

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        """While the context lasts, nothing of ours but the device has the cores that it needs."""
        stopped = self._builders if self._shares_cores else []
        for worker in stopped:
            worker.pause()
        try:
            yield
        finally:
            for worker in stopped:
                worker.resume()
