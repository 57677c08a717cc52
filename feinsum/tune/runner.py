"""The processes of a tuning run: several build ahead, one proves and times.

On a CPU device builds are stopped while a variant is timed, since both want the same cores, and go on afterwards.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from queue import LifoQueue
from statistics import median
from typing import Any, Protocol

from feinsum.devices import DeviceProfile
from feinsum.timing.races import Race
from feinsum.tune.budget import Budget
from feinsum.tune.final import Rounds
from feinsum.tune.trial import CompiledTrial, Outcome, Trial
from feinsum.tune.worker import Worker

_HOPELESS = 1.5
"""A variant that is so many times slower than the best gets no more repetitions."""
_SECONDS = 0.15
"""Seconds for the samples of a trial; variants near the best get more in the final."""
_FAIR_ROUNDS = 2
"""The least rounds of a comparison: one in each direction."""
_FEWEST_ROUNDS, _USUAL_ROUNDS = 4, 16
"""The rounds of a comparison for which there is time: at least, and the number among which its seconds are divided."""
_OVERHEAD = 2.0
"""The most time of a comparison, as a multiple of that of its samples: outputs are checked after every round."""
_KEPT = 64
"""The number of right variants whose programs are kept, the latest ones."""


class Engine(Protocol):
    """An engine that does trials.

    :ivar profile: the device they are done on.
    :ivar best_s: the median of the fastest variant so far, in seconds; None while there is none.
    :ivar trial_s: the least time in which a variant was proved and timed, in seconds; 0.0 before the first.
    :ivar refuted: the variants found wrong in a comparison, and how, by the id of the trial.
    """

    profile: DeviceProfile
    best_s: float | None
    trial_s: float
    refuted: dict[str, Outcome]

    def run(
        self, next_trial: Callable[[], Trial | None], budget: Budget | None = None
    ) -> Generator[tuple[Trial, Outcome], None, None]:
        """Do trials, in the order in which they are handed out, until there is none left or the time is up.

        :param next_trial: hands out the next trial, some of them ahead of what has come back; or None.
        :param budget: the available time; trials not done by then are stopped and have no outcome.
        """

    def compare(self, trials: Sequence[Trial], seconds: float, budget: Budget | None = None) -> Rounds:
        """Time variants in rounds, see :mod:`feinsum.timing.races`.

        :param seconds: for the samples of all variants in all rounds.
        :param budget: the time there is; rounds that do not fit in it do not count.
        :return: the samples of every round in seconds, by the id of the trial; those that fail are in none, those that are
            seen to be slower than another in no later one, and there is no round at all if the time was too short to be
            fair to each.
        """


class TrialRunner:
    """Worker processes for the trials of one device; a context manager that ends them.

    :param workers: processes that build; None for one a core, four at most.
    :param trial_timeout_s: seconds that building, proving and timing may each take for one trial.
    :param word: for the device, where the id of the profile is that of several.
    :ivar best_s, trial_s, refuted: see :class:`Engine`.
    """

    def __init__(
        self, profile: DeviceProfile, workers: int | None, trial_timeout_s: float, word: str | None = None
    ) -> None:
        word = word or profile.id
        count = workers or min(4, os.cpu_count() or 1)
        self.profile = profile
        self.best_s: float | None = None
        self.trial_s = 0.0
        self.refuted: dict[str, Outcome] = {}
        self._timeout_s = trial_timeout_s
        self._builders = [Worker("build", word) for _ in range(count)]
        self._idle: LifoQueue[Worker] = LifoQueue()
        for worker in self._builders:
            self._idle.put(worker)
        self._measurer = Worker("measure", word)
        self._pool = ThreadPoolExecutor(count + 1)
        self._started: Future[None] | None = None
        self._building: dict[str, Worker] = {}
        self._handing_over = threading.Lock()
        self._kept: OrderedDict[str, CompiledTrial] = OrderedDict()
        self._shares_cores = profile.kind == "cpu"
        self._device = threading.Lock()

    def __enter__(self) -> TrialRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for worker in (*self._builders, self._measurer):
            worker.close()
        self._pool.shutdown()

    def run(
        self, next_trial: Callable[[], Trial | None], budget: Budget | None = None
    ) -> Generator[tuple[Trial, Outcome], None, None]:
        """See :class:`Engine`; up to two trials a builder are built ahead.

        :raises DeviceError: if no worker can be started.
        """
        budget = budget or Budget()
        pending: deque[tuple[Trial, Future[CompiledTrial | Outcome]]] = deque()
        try:
            while True:
                while len(pending) < 2 * len(self._builders) and (trial := next_trial()) is not None:
                    self._started = self._started or self._pool.submit(self._measurer.start)
                    pending.append((trial, self._pool.submit(self._build, trial)))
                if not pending or not _done(pending[0][1], budget.search_patience_s):
                    return
                trial, future = pending.popleft()
                built = future.result()
                with self._device:
                    outcome = self._measure(trial, built, budget)
                if outcome is None:
                    return
                yield trial, outcome
        finally:
            self._abandon(pending)

    def attempt(self, trial: Trial) -> Outcome:
        """Do one trial; threads may do so at once, and while one measures the others build."""
        built = self._build(trial)
        with self._device:
            return self._measure(trial, built, Budget()) or Outcome("timeout")

    def compare(self, trials: Sequence[Trial], seconds: float, budget: Budget | None = None) -> Rounds:
        """See :class:`Engine`.

        :raises DeviceError: if no worker can be started.
        """
        budget = budget or Budget()
        futures = [(trial, self._pool.submit(self._build_again, trial)) for trial in trials]
        try:
            if not all(_done(future, budget.patience_s) for _, future in futures):
                return []
            variants = {trial.id: (trial, future.result()) for trial, future in futures}
        finally:
            self._abandon(futures)
        with self._device:
            return self._race(variants, seconds, budget)

    def _race(
        self, variants: Mapping[str, tuple[Trial, CompiledTrial | Outcome]], seconds: float, budget: Budget
    ) -> Rounds:
        """The rounds of a race: a few however long they take, then as many as there is time for."""
        race, rounds, failed = Race(tuple(variants)), list[dict[str, list[float]]](), set[str]()
        share_s, end = seconds / _USUAL_ROUNDS / max(len(variants), 1), time.monotonic() + _OVERHEAD * seconds
        while not race.over:
            start = time.monotonic()
            found = self._round([variants[name] for name in race.order], share_s, budget)
            if found is None:
                return rounds if len(rounds) >= _FAIR_ROUNDS else []
            rounds.append(found)
            failed |= set(race.running) - set(found)
            race.add({name: median(samples) for name, samples in found.items()})
            now = time.monotonic()
            if len(rounds) >= _FAIR_ROUNDS and budget.patience_s < now - start:
                break
            if len(rounds) >= _FEWEST_ROUNDS and now >= end:
                break
        return [{name: samples for name, samples in found.items() if name not in failed} for found in rounds]

    def _round(
        self, variants: Sequence[tuple[Trial, CompiledTrial | Outcome]], seconds: float, budget: Budget
    ) -> dict[str, list[float]] | None:
        """The samples of one round, of those that do not fail; None if the time was up before its end."""
        samples_s: dict[str, list[float]] = {}
        for trial, built in variants:
            outcome = self._measure(trial, built, budget, seconds)
            if outcome is None:
                return None
            if outcome.status == "ok":
                samples_s[trial.id] = list(outcome.samples_s)
            elif outcome.status == "wrong":
                self.refuted[trial.id] = outcome
        return samples_s

    def _build(self, trial: Trial) -> CompiledTrial | Outcome:
        worker = self._idle.get()
        self._building[trial.id] = worker
        try:
            return worker.build(trial, self._timeout_s)
        finally:
            with self._handing_over:
                del self._building[trial.id]
                self._idle.put(worker)

    def _build_again(self, trial: Trial) -> CompiledTrial | Outcome:
        return self._kept.get(trial.id) or self._build(trial)

    def _abandon(self, trials: Iterable[tuple[Trial, Future[CompiledTrial | Outcome]]]) -> None:
        """Stop building these trials."""
        for trial, future in trials:
            if not future.cancel():
                with self._handing_over:  # or else its worker might be building for another run by now
                    worker = self._building.get(trial.id)
                    if worker is not None:
                        worker.abandon()

    def _measure(
        self, trial: Trial, built: CompiledTrial | Outcome, budget: Budget, seconds: float | None = None
    ) -> Outcome | None:
        """Prove and time a variant; None if the time was up before that was done.

        :param seconds: for samples; None for those of a trial.
        """
        if isinstance(built, Outcome):
            return built
        if self._started is not None:
            self._started.result()
        start = time.monotonic()
        outcome = self._prove_and_time(trial, built, budget, seconds)
        if outcome.status == "interrupted":
            outcome = self._prove_and_time(trial, built, budget, seconds)
        if outcome.status == "interrupted":
            outcome = replace(outcome, status="launch-failed")
        if outcome.status == "timeout" and not budget.patience_s:
            return None
        if outcome.status == "ok" and seconds is None:
            # The first prepares the case that all are checked with, and the fastest trials are those of a final.
            spent_s = time.monotonic() - start
            self.trial_s = min(self.trial_s or spent_s, spent_s)
            self._keep(trial, built)
        return outcome

    def _prove_and_time(self, trial: Trial, built: CompiledTrial, budget: Budget, seconds: float | None) -> Outcome:
        outcome = self._measurer.prove(trial, built, min(self._timeout_s, budget.patience_s))
        if outcome is not None:
            return outcome
        give_up_s = math.inf if self.best_s is None else _HOPELESS * self.best_s
        limit_s = min(self._timeout_s, budget.patience_s)
        with self._quiet():
            return self._measurer.time(trial, limit_s, give_up_s=give_up_s, seconds=seconds or _SECONDS)

    def _keep(self, trial: Trial, built: CompiledTrial) -> None:
        """Keep a variant that may enter a final, which then need not build it again."""
        self._kept[trial.id] = built
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        """A context in which no process of ours but the device uses the cores that it needs."""
        stopped = self._builders if self._shares_cores else []
        for worker in stopped:
            worker.pause()
        try:
            yield
        finally:
            for worker in stopped:
                worker.resume()


def _done(future: Future[Any], within_s: float) -> bool:
    """Whether there is a result, after waiting for it."""
    return bool(wait([future], None if within_s == math.inf else within_s).done)
