"""The processes of a tuning run: several build ahead, one proves and times.

On a CPU device builds are stopped while a variant is timed, since both want the same cores, and go on afterwards.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from feinsum.devices import DeviceProfile
from feinsum.tune.trial import Built, Outcome, Trial
from feinsum.tune.worker import Worker

_HOPELESS = 1.5
"""A variant that is this many times slower than the best gets no more repetitions."""
_SECONDS = 0.15
"""For the samples of a trial; those near the best get more in the final."""


class Runner:
    """Worker processes for the trials of one device; a context manager that ends them.

    :param workers: processes that build; None for one a core, four at most.
    :param trial_timeout_s: what building, proving and timing may each take for one trial.
    :ivar best_s: the median of the quickest variant so far, in seconds; None while there is none.
    """

    def __init__(self, profile: DeviceProfile, workers: int | None, trial_timeout_s: float) -> None:
        count = workers or min(4, os.cpu_count() or 1)
        self.best_s: float | None = None
        self._timeout_s = trial_timeout_s
        self._builders = [Worker("build", profile.id) for _ in range(count)]
        self._idle = list(self._builders)
        self._measurer = Worker("measure", profile.id)
        self._pool = ThreadPoolExecutor(count)
        self._shares_cores = profile.kind == "cpu"

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for worker in (*self._builders, self._measurer):
            worker.close()
        self._pool.shutdown()

    def run(self, next_trial: Callable[[], Trial | None]) -> Iterator[tuple[Trial, Outcome]]:
        """Do trials, in the order in which they are handed out, until there is none left.

        :param next_trial: hands out the next trial, up to two a builder ahead of what has come back; or None.
        :raises DeviceError: if no worker can be started.
        """
        pending: deque[tuple[Trial, Future[Built | Outcome]]] = deque()
        while True:
            while len(pending) < 2 * len(self._builders) and (trial := next_trial()) is not None:
                pending.append((trial, self._pool.submit(self._build, trial)))
            if not pending:
                return
            trial, future = pending.popleft()
            built = future.result()
            yield trial, built if isinstance(built, Outcome) else self._measure(trial, built)

    def _build(self, trial: Trial) -> Built | Outcome:
        worker = self._idle.pop()
        try:
            return worker.build(trial, self._timeout_s)
        finally:
            self._idle.append(worker)

    def _measure(self, trial: Trial, built: Built) -> Outcome:
        wrong = self._measurer.prove(trial, built, self._timeout_s)
        if wrong is not None:
            return wrong
        give_up_s = math.inf if self.best_s is None else _HOPELESS * self.best_s
        with self._quiet():
            return self._measurer.time(trial, self._timeout_s, give_up_s=give_up_s, seconds=_SECONDS)

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
