"""Autotuning: try configurations of the spaces that match an einsum, and remember every one.

Builds, proofs and timings run in worker processes (:mod:`feinsum.tune.runner`), so that no trial can hurt the tuner; each
is recorded as soon as it is done.
"""

from __future__ import annotations

import contextlib
import logging
import numbers
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from feinsum.apart import run_in_thread
from feinsum.contraction import ContractionSchedule
from feinsum.database import Database, TuningRecord
from feinsum.devices import Device
from feinsum.devices import device as choose_device
from feinsum.einsum import BatchedEinsum
from feinsum.errors import SearchError
from feinsum.registry import name_everywhere
from feinsum.space import Configuration, TransformSpace
from feinsum.timing import FINAL_PROTOCOL
from feinsum.tune import final
from feinsum.tune.budget import Budget
from feinsum.tune.final import Final
from feinsum.tune.recorder import keep_record, noting_others, refute, require_writable
from feinsum.tune.report import TuningReport
from feinsum.tune.runner import Engine, TrialRunner
from feinsum.tune.step_tuning import StepTuning, TuneStep
from feinsum.tune.subject import Tunable, make_subject
from feinsum.tune.task import Task, make_task
from feinsum.tune.trial import Outcome, Trial
from feinsum.tune.tuning_search import TuningSearch

if TYPE_CHECKING:
    import pyopencl as cl

logger = logging.getLogger(__name__)

Progress = Callable[[int, "int | None", "TuningRecord | None", "TuningRecord"], None]


@dataclass(frozen=True)
class Effort:
    """The effort of a run of the tuner; all fields but `begin` and those of a batch are parameters of :func:`autotune`.

    :ivar begin: see :class:`feinsum.tune.jobs.Job`.
    :ivar label: what comes before the name of the subject in a progress bar.
    :ivar watch: called after each trial, besides `progress`.
    """

    trials: int | None = None
    timeout: float | None = None
    sampler: str | None = None
    seed: int | None = None
    steps: str = "auto"
    schedule: ContractionSchedule | None = None
    first: Sequence[tuple[str, Configuration]] = ()
    begin: Sequence[Configuration] = ()
    progress: bool | Progress = False
    label: str = ""
    watch: Progress | None = None


def autotune(
    e: BatchedEinsum | Tunable,
    device: Device | str | cl.Device | cl.CommandQueue | None = None,
    database: Database | str | os.PathLike[str] | None = None,
    sizes: Mapping[str, int] | None = None,
    space: str | TransformSpace | None = None,
    *,
    trials: int | None = None,
    timeout: float | None = None,
    sampler: str | None = None,
    seed: int | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    trial_timeout: float = 60.0,
    steps: str = "auto",
    schedule: ContractionSchedule | None = None,
    first: Sequence[tuple[str, Configuration]] = (),
    progress: bool | Progress = True,
) -> TuningReport:
    """Try configurations for an einsum, or a program, on a device and record each of them.

    Configurations that the database already knows, on this device and driver, are not tried again.  At the end the best
    ten are timed again, in turns; see :mod:`feinsum.tune.final`.

    An einsum of three or more operands may be evaluated in steps, which are einsums with records of their own.  Where they
    are known, chains of the best of them are tried first; `steps` says whether to tune them, too.

    :param e: an einsum, or a :class:`feinsum.Program` with numbers to :func:`tune <feinsum.program>`.
    :param device: see :func:`feinsum.device`.
    :param database: the store of records; None is that of the user, see :class:`Database`.
    :param sizes: the lengths of long axes to tune at; of a program those of its arguments.
    :param space: the only space to search, or its name; None searches all that match.
    :param trials: how many configurations to try; None is as many as there are, or as `timeout` lets.
    :param timeout: seconds of the run, that final included; without `trials` and `timeout`, 60.  Trials that are not done
        by then are stopped and not recorded.  A run may take longer by the rest of the current trial and half a second of
        samples, if nothing right is known yet, and by the time in which a space finds its first configuration: a third of
        ``FEINSUM_CANDIDATE_TIMEOUT`` at most, which is 60 s unless given.
    :param sampler: see :func:`feinsum.search.make_sampler`.
    :param seed: of the search, and of the inputs and a length with which variants are proved; records keep the latter.  By
        default that of the search is 0, and the other is drawn for every run.
    :param workers: processes that build; by default one a core, four at most.
    :param scheduler: the address of a scheduler of dask.distributed whose workers do the trials, as in
        ``tcp://node1:8786``; see :mod:`feinsum.tune.cluster`.  The device is then one of theirs.
    :param trial_timeout: seconds that building a configuration may take, and also proving it, and timing it; one that takes
        longer is recorded as such.
    :param steps: ``"auto"``: tune the steps for two fifths of `timeout` if chains turn out to be in reach of the best,
        unless `trials` is given; ``"always"``: tune them before all else; ``"never"``.
    :param schedule: an order of contraction of your own, whose chain of the best known steps is tried before all else; if
        steps are tuned, they are those of this order.  `read_schedule` of the immediate language reads one from a text.
    :param first: configurations to try before all else, each with the name of its space, in the letters in which records of
        the space have them; chains among them.  `attempts` of the immediate language makes some of a text.
    :param progress: whether to show a progress bar on a terminal; or a function that is called after each trial with
        the number done, the number planned, the best record and the last.
    :raises SearchError: if there is no such sampler, or a number is out of range.
    :raises SubscriptError: if the schedule does not evaluate the einsum.
    :raises TransformError: if no space of that name applies, or worker processes do not know it.
    :raises ShapeError: if a long axis has no length in `sizes`, or any axis is empty.
    :raises DeviceError: if no worker process can be started.
    :raises DatabaseError: if the store cannot be written; the message says where the last record is.
    """
    subject = make_subject(e, sizes)
    if schedule is not None and isinstance(e, BatchedEinsum):
        schedule.check(e.indexing)
    _check_range("trials", trials, 1)
    _check_range("timeout", timeout, 0)
    _check_range("workers", workers, 1)
    _check_range("trial_timeout", trial_timeout, 0)
    only = None if space is None else name_everywhere(space)
    seconds = 60.0 if trials is None and timeout is None else timeout
    effort = Effort(trials, seconds, sampler, seed, steps, schedule, first, progress=progress)
    with contextlib.ExitStack() as stack:
        engine = stack.enter_context(make_engine(scheduler, device, workers, trial_timeout))
        store = database if isinstance(database, Database) else stack.enter_context(Database(database))
        stack.enter_context(noting_others(store.location))
        return tune_on(engine, subject, store, sizes, only, effort)


def _check_range(name: str, value: float | None, least: int) -> None:
    if value is not None and not isinstance(value, numbers.Real):
        what = "a number" if name in ("trials", "workers") else "a number of seconds"
        raise SearchError(f"{name} is {value!r}, which is not {what}")
    if value is not None and not value >= least:
        raise SearchError(f"{name} is {value}; it is {least} or more")


def tune_on(
    engine: Engine,
    what: BatchedEinsum | Tunable,
    store: Database,
    sizes: Mapping[str, int] | None,
    space: str | None,
    effort: Effort,
) -> TuningReport:
    """:func:`autotune` with processes that run already, and a store that is open."""
    start, budget = time.monotonic(), Budget(effort.timeout)
    task = make_task(what, sizes, engine.profile, effort.seed)
    require_writable(store)
    order, sampler = (effort.begin, effort.schedule, effort.first), effort.sampler
    search = run_in_thread(TuningSearch, task, store, space, effort.trials, sampler, *order)
    tuning = StepTuning(effort.steps, effort.trials, effort.timeout, _step_tuner(engine, store, search, effort, budget))
    records: list[TuningRecord] = []
    decided, interrupted = None, False
    logger.info(
        "tuning '%s' on %s; %d configurations are known from %s",
        task.subject.name,
        engine.profile.id,
        len(search.known),
        store.location,
    )
    with contextlib.ExitStack() as stack:
        report = _notify(stack, task.subject.name, effort)
        try:
            for record in _search_with_steps(task, search, engine, effort.trials, budget, tuning):
                keep_record(store, record)
                records.append(record)
                _log_trial(len(records), record)
                report(len(records), effort.trials, search.best, record)
            decided = _final(task, search, engine, records, budget, store)
        except KeyboardInterrupt:
            interrupted = True
    if decided is not None:
        keep_record(store, decided.winner)
    return TuningReport(
        subject=task.subject,
        sizes=dict(sizes or {}),
        device=engine.profile,
        records=tuple(records),
        best=search.best if decided is None else decided.winner,
        database=store.location,
        seconds=time.monotonic() - start,
        interrupted=interrupted,
        final=decided,
        steps=tuple(tuning.reports),
    )


def _step_tuner(engine: Engine, store: Database, search: TuningSearch, effort: Effort, budget: Budget) -> TuneStep:
    """Tunes a step as if it were alone, after which the engine goes on with what it did before."""

    def tune_step(step: BatchedEinsum, lengths: dict[str, int], seconds: float | None) -> TuningReport:
        share_s = None if seconds is None else min(seconds, budget.search_left_s)
        alone = replace(effort, timeout=share_s, steps="never", schedule=None, first=(), begin=(), progress=False)
        done = tune_on(engine, step, store, lengths, None, alone)
        engine.best_s = None if search.best is None else search.best.median_s
        if done.interrupted:
            raise KeyboardInterrupt
        return done

    return tune_step


def make_engine(
    scheduler: str | None, device: Device | str | cl.Device | cl.CommandQueue | None, workers: int | None, timeout_s: float
) -> contextlib.AbstractContextManager[Engine]:
    """The engine that does the trials: processes of this machine, or the workers of a scheduler.

    :raises DeviceError: if there is no such device.
    """
    if scheduler is None:
        chosen = choose_device(device)
        return TrialRunner(chosen.profile, workers, timeout_s, chosen.word)
    from feinsum.tune.cluster import Cluster

    return Cluster(scheduler, device.id if isinstance(device, Device) else device, timeout_s)


def require_scheduler(address: str) -> None:
    """Check once that a scheduler answers, before any request.

    :raises DeviceError: if it does not.
    """
    from feinsum.tune.cluster import connect_scheduler

    connect_scheduler(address).close()


def _search_with_steps(
    task: Task, search: TuningSearch, engine: Engine, trials: int | None, budget: Budget, tuning: StepTuning
) -> Iterator[TuningRecord]:
    """A search that stops to tune steps, and then tries chains of them."""
    start = time.monotonic()
    tuning.consider(task, search, 0.0)
    for record in _search(task, search, engine, trials, budget):
        yield record
        chains = tuning.consider(task, search, time.monotonic() - start)
        if chains:
            yield from _search(task, search, engine, chains, budget)


def _search(task: Task, search: TuningSearch, engine: Engine, trials: int | None, budget: Budget) -> Iterator[TuningRecord]:
    """Do trials until their number or the time is spent or every space is exhausted, and record the outcome of each."""
    asked = 0

    def next_trial() -> Trial | None:
        nonlocal asked
        if (trials is not None and asked >= trials) or not budget.search_left_s:
            return None
        asked += 1
        return search.next_trial()

    def look() -> None:
        engine.best_s = None if search.best is None else search.best.median_s
        budget.patient = search.best is None

    look()
    found: list[TuningRecord] = []
    with contextlib.closing(engine.run(next_trial, budget)) as outcomes:
        for trial, outcome in outcomes:
            record = task.record(trial, outcome)
            search.tell(record)
            found.append(record)
            look()
            budget.reserve(len(final.finalists([*search.known, *found])), engine.trial_s)
            yield record
            if not budget.search_left_s:
                return  # what was built ahead is left for another time


def _final(
    task: Task, search: TuningSearch, engine: Engine, records: Sequence[TuningRecord], budget: Budget, store: Database
) -> Final | None:
    """Time the best again, unless nothing has changed since the last final.

    Configurations found wrong then, as records of an older proof may be, lose their rank.
    """
    finalists = final.finalists([*search.known, *records])
    decided_before = search.best is not None and search.best.protocol == FINAL_PROTOCOL
    if not finalists or (decided_before and not set(finalists) & set(records)):
        return None
    count, seconds = budget.final(len(finalists), engine.trial_s)
    budget.patient = count == 1  # which takes half a second
    logger.info("timing the best %d configurations again, in turns", count)
    contenders = {search.trial(r).id: r for r in finalists[:count]}
    rounds = engine.compare([search.trial(r) for r in contenders.values()], seconds, budget)
    wrong = [contenders[name] for name in contenders if name in engine.refuted]
    for record in wrong:
        refute(store, record, engine.refuted[search.trial(record).id].message, task.proof_seed)
        search.refute(record)
    if wrong:  # others have their chance
        tried = {(r.space, r.configuration) for r in wrong}
        return _final(task, search, engine, [r for r in records if (r.space, r.configuration) not in tried], budget, store)

    def remember(contender: TuningRecord, samples: Sequence[float], message: str) -> TuningRecord:
        return task.record(search.trial(contender), Outcome("ok", message, tuple(samples)), FINAL_PROTOCOL)

    return final.decide(rounds, contenders, search.complexity, remember)


def _log_trial(number: int, record: TuningRecord) -> None:
    time = "" if record.median_s is None else f", {record.median_s * 1e3:.4g} ms"
    logger.info("trial %d, %s %s: %s%s", number, record.space, dict(record.configuration), record.status, time)


def _notify(stack: contextlib.ExitStack, name: str, effort: Effort) -> Progress:
    """The function to call after each trial."""
    told = [effort.watch] if effort.watch is not None else []
    if callable(effort.progress):
        told.append(effort.progress)
    elif effort.progress:
        from feinsum.tune.progress import progress_bar

        told.append(stack.enter_context(progress_bar(f"{effort.label}{name}", effort.trials, effort.timeout)))

    def report(done: int, planned: int | None, best: TuningRecord | None, last: TuningRecord) -> None:
        for each in told:
            each(done, planned, best, last)

    return report
