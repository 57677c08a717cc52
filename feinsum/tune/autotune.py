"""Autotuning: try configurations of the spaces that match an einsum, and remember every one.

Builds run in worker processes, several at a time, and so does the proving and timing, one at a time.  On a CPU device
builds pause while a variant is timed, since both want the same cores.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from feinsum.canonicalization import CanonicalEinsum, canonicalize_einsum
from feinsum.database import Database, TuningRecord
from feinsum.devices import Device
from feinsum.devices import device as choose_device
from feinsum.einsum import BatchedEinsum
from feinsum.errors import TransformError
from feinsum.registry import matching_spaces
from feinsum.search.sampler import Sampler, make_sampler
from feinsum.space import TransformSpace
from feinsum.timing import PROTOCOL
from feinsum.tune.report import TuningReport
from feinsum.tune.trial import Built, Outcome, Trial
from feinsum.tune.versions import library_versions
from feinsum.tune.worker import Worker

if TYPE_CHECKING:
    import pyopencl as cl

BUILD_TIMEOUT_S = 60.0
MEASURE_TIMEOUT_S = 60.0
_GENERIC_TRIALS = 6
"""Trials given to the generic space where others match: enough to stand in for them."""
_HOPELESS = 3.0
"""A variant this many times slower than the best gets no more repetitions."""

Progress = Callable[[int, "int | None", "TuningRecord | None", "TuningRecord"], None]


@dataclass
class _Contestant:
    """A space with its sampler and the number of trials it may have."""

    space: TransformSpace
    sampler: Sampler
    trials: float
    asked: int = 0


@dataclass(frozen=True)
class _Task:
    """One einsum at one set of lengths on one device, and what its records have in common."""

    canonical: CanonicalEinsum
    sizes: Mapping[str, int]
    pattern_sizes: Mapping[str, int]
    device: Device
    seed: int

    def trial(self, space: TransformSpace, configuration: Mapping[str, Any]) -> Trial:
        return Trial(
            self.canonical.key, self.sizes, self.device.id, space.name, space.version, dict(configuration), self.seed
        )

    def record(self, trial: Trial, outcome: Outcome) -> TuningRecord:
        e = self.canonical.einsum
        lengths = e.sizes_from(self.sizes)
        profile = self.device.profile
        return TuningRecord(
            einsum_key=self.canonical.key,
            pattern_key=self.canonical.pattern.key,
            sizes=self.sizes,
            pattern_sizes=self.pattern_sizes,
            device=profile.id,
            architecture=profile.architecture,
            driver=profile.driver,
            space=trial.space,
            space_version=trial.version,
            configuration=trial.configuration,
            status=outcome.status,
            message=outcome.message,
            flops=e.flops(lengths),
            bytes=e.min_bytes(lengths),
            protocol=PROTOCOL,
            samples_s=outcome.samples_s,
            versions=library_versions(),
            seed=self.seed,
        )


def autotune(
    e: BatchedEinsum,
    device: Device | str | cl.Device | cl.CommandQueue | None = None,
    database: Database | str | os.PathLike[str] | None = None,
    sizes: Mapping[str, int] | None = None,
    space: str | None = None,
    *,
    trials: int | None = None,
    timeout: float | None = None,
    sampler: str | None = None,
    seed: int = 0,
    workers: int | None = None,
    progress: bool | Progress = True,
) -> TuningReport:
    """Try configurations for an einsum on a device and record each of them.

    Configurations that the database already knows, on this device and driver, are not tried again.

    :param device: see :func:`feinsum.device`.
    :param database: the store of records; None is that of the user, see :class:`Database`.
    :param sizes: the lengths of long axes to tune at.
    :param space: the name of the only space to search; None searches all that match.
    :param trials: how many configurations to try; None is as many as there are, or as `timeout` lets.
    :param timeout: seconds after which no trial is begun.  Without `trials` and `timeout`, it is 60 seconds.
    :param sampler: see :func:`feinsum.search.make_sampler`.
    :param seed: of the search and of the inputs.
    :param workers: processes that build; by default one a core, four at most.
    :param progress: whether to show a progress bar on a terminal; or a function that is called after each trial with
        the number done, the number planned, the best record and the last.
    :raises TransformError: if no space of that name applies.
    :raises ShapeError: if a long axis has no length in `sizes`.
    """
    if trials is None and timeout is None:
        timeout = 60.0
    chosen = choose_device(device)
    task = make_task(e, sizes, chosen, seed)
    start = time.monotonic()
    with contextlib.ExitStack() as stack:
        store = database if isinstance(database, Database) else stack.enter_context(Database(database))
        contestants = _contestants(task, store, space, trials, sampler)
        report = _notify(stack, progress, e, trials, timeout)
        records: list[TuningRecord] = []
        best = _best_known(task, store, contestants)
        runner = stack.enter_context(_Runner(task, workers, best))
        interrupted = False
        try:
            for record, contestant in runner.run(contestants, trials, timeout):
                store.add(record)
                records.append(record)
                contestant.sampler.tell(record.configuration, record.median_s)
                if record.median_s is not None and (best is None or record.median_s < (best.median_s or 0)):
                    best = runner.best = record
                report(len(records), trials, best, record)
        except KeyboardInterrupt:
            interrupted = True
        location = store.location
    return TuningReport(
        einsum=e,
        sizes=dict(sizes or {}),
        device=chosen.profile,
        records=tuple(records),
        best=best,
        database=location,
        seconds=time.monotonic() - start,
        interrupted=interrupted,
    )


def make_task(e: BatchedEinsum, sizes: Mapping[str, int] | None, device: Device, seed: int) -> _Task:
    """The task of tuning `e` at these sizes."""
    canonical = canonicalize_einsum(e)
    lengths = e.resolve(sizes)
    return _Task(canonical, canonical.renaming.lengths(lengths), canonical.pattern.renaming.lengths(lengths), device, seed)


def _contestants(
    task: _Task, store: Database, only: str | None, trials: int | None, sampler: str | None
) -> list[_Contestant]:
    e = task.canonical.einsum
    matching = [s for s in matching_spaces(e) if only in (None, s.name)]
    if not matching:
        raise TransformError(f"no transform space{f' named {only!r}' if only else ''} applies to '{e.subscripts}'")
    contestants = []
    special = sum(s.rank > 0 for s in matching)
    for s in matching:
        problem = s.problem(e, e.sizes_from(task.sizes), task.device.profile)
        share = trials or 10**6
        if special and s.rank == 0:
            share = min(_GENERIC_TRIALS, share)
        elif special:
            share = max(1, (share - (_GENERIC_TRIALS if len(matching) > special else 0)) // special)
        tried = store.configurations_tried(
            task.canonical.key, task.sizes, task.device.id, s.name, s.version, task.device.profile.driver, PROTOCOL
        )
        contestants.append(
            _Contestant(
                s,
                make_sampler(
                    sampler,
                    s.parameters(problem),
                    partial(s.refusal, problem),
                    seed=task.seed,
                    trials=share if trials else None,
                    start=_first(s, problem),
                    known=[(c, r.median_s) for c, r in tried.items()],
                ),
                share,
            )
        )
    return contestants


def _first(s: TransformSpace, problem: Any) -> list[dict[str, Any]]:
    try:
        return [s.default(problem)]
    except TransformError:
        return []


def _best_known(task: _Task, store: Database, contestants: list[_Contestant]) -> TuningRecord | None:
    return store.best(
        task.canonical.key,
        task.sizes,
        task.device.id,
        driver=task.device.profile.driver,
        spaces=[(c.space.name, c.space.version) for c in contestants],
    )


class _Runner:
    """Worker processes that build ahead and measure one by one."""

    def __init__(self, task: _Task, workers: int | None, best: TuningRecord | None) -> None:
        self._task = task
        self.best = best
        count = workers or min(4, os.cpu_count() or 1)
        self._builders = [Worker() for _ in range(count)]
        self._idle = list(self._builders)
        self._measurer = Worker()
        self._pool = ThreadPoolExecutor(count)
        self._overlaps = task.device.profile.kind != "cpu"

    def __enter__(self) -> _Runner:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in (*self._builders, self._measurer):
            worker.close()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def run(
        self, contestants: list[_Contestant], trials: int | None, timeout: float | None
    ) -> Iterator[tuple[TuningRecord, _Contestant]]:
        """Trials until the budget is spent or the spaces are exhausted."""
        end = time.monotonic() + (timeout if timeout is not None else float("inf"))
        ahead = 2 * len(self._builders)
        pending: list[tuple[Trial, _Contestant, Future[Built | Outcome]]] = []
        asked = 0
        while True:
            while len(pending) < ahead and (trials is None or asked < trials) and time.monotonic() < end:
                asking = _ask(contestants)
                if asking is None:
                    break
                contestant, configuration = asking
                asked += 1
                trial = self._task.trial(contestant.space, configuration)
                pending.append((trial, contestant, self._pool.submit(self._build, trial)))
            if not pending:
                return
            batch = pending[:1] if self._overlaps else pending
            pending = pending[len(batch) :]
            for _, _, future in batch:
                future.result()
            for trial, contestant, future in batch:
                yield self._task.record(trial, self._measure(trial, future.result())), contestant

    def _build(self, trial: Trial) -> Built | Outcome:
        worker = self._idle.pop()
        try:
            return worker.build(trial, BUILD_TIMEOUT_S)
        finally:
            self._idle.append(worker)

    def _measure(self, trial: Trial, built: Built | Outcome) -> Outcome:
        if isinstance(built, Outcome):
            return built
        give_up = _HOPELESS * self.best.median_s if self.best is not None and self.best.median_s else 1e9
        return self._measurer.measure(trial, built, MEASURE_TIMEOUT_S, give_up_s=give_up)


def _ask(contestants: list[_Contestant]) -> tuple[_Contestant, dict[str, Any]] | None:
    """The next configuration of the space that has used the smallest part of its trials."""
    for contestant in sorted(contestants, key=lambda c: c.asked / c.trials):
        if contestant.asked < contestant.trials:
            configuration = contestant.sampler.ask()
            if configuration is not None:
                contestant.asked += 1
                return contestant, configuration
            contestant.trials = 0.5  # exhausted
            contestant.asked = 1
    return None


def _notify(
    stack: contextlib.ExitStack, progress: bool | Progress, e: BatchedEinsum, trials: int | None, timeout: float | None
) -> Progress:
    """What to call after each trial."""
    if callable(progress):
        return progress
    if not progress:
        return lambda *_: None
    from feinsum.tune.progress import progress_bar

    return stack.enter_context(progress_bar(e, trials, timeout))
