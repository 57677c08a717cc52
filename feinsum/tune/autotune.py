"""Autotuning: try configurations of the spaces that match an einsum, and remember every one.

Builds, proofs and timings run in worker processes (:mod:`feinsum.tune.runner`), so that no trial can hurt the tuner; each
is recorded as soon as it is done.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from feinsum.canonicalization import CanonicalEinsum, canonicalize_einsum
from feinsum.database import Database, TuningRecord
from feinsum.devices import Device
from feinsum.devices import device as choose_device
from feinsum.einsum import BatchedEinsum
from feinsum.errors import ShapeError, TransformError
from feinsum.registry import matching_spaces
from feinsum.search.sampler import Sampler, make_sampler
from feinsum.space import TransformSpace
from feinsum.timing import PROTOCOL
from feinsum.tune.report import TuningReport
from feinsum.tune.runner import Runner
from feinsum.tune.trial import Outcome, Trial
from feinsum.tune.versions import library_versions

if TYPE_CHECKING:
    import pyopencl as cl

_GENERIC_TRIALS = 6
"""Trials given to the generic space where others match: enough to stand in for them."""

Progress = Callable[[int, "int | None", "TuningRecord | None", "TuningRecord"], None]


@dataclass
class _Contestant:
    """A space with its sampler, and how many configurations it was asked for."""

    space: TransformSpace
    sampler: Sampler
    asked: int = 0
    exhausted: bool = False


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
    trial_timeout: float = 60.0,
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
    :param trial_timeout: seconds that building a configuration may take, and also proving and timing it; one that takes
        longer is recorded as such.
    :param progress: whether to show a progress bar on a terminal; or a function that is called after each trial with
        the number done, the number planned, the best record and the last.
    :raises TransformError: if no space of that name applies.
    :raises ShapeError: if a long axis has no length in `sizes`, or any axis is empty.
    :raises DeviceError: if no worker process can be started.
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
        best = _best_known(task, store, contestants.values())
        runner = stack.enter_context(Runner(chosen.profile, workers, trial_timeout))
        interrupted = False
        try:
            for trial, outcome in runner.run(_trials(task, contestants, trials, timeout)):
                record = task.record(trial, outcome)
                store.add(record)
                records.append(record)
                contestants[trial.space].sampler.tell(trial.configuration, record.median_s)
                best = _better(best, record)
                runner.best_s = None if best is None else best.median_s
                report(len(records), trials, best, record)
                if timeout is not None and time.monotonic() - start > timeout:
                    break  # what was built ahead is left for another time
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
    """The task of tuning `e` at these sizes.

    :raises ShapeError: if a long axis has no length, or any axis is empty.
    """
    lengths = e.resolve(sizes)
    for letter, length in lengths.items():
        if length == 0:
            raise ShapeError(f"index '{letter}' of '{e.subscripts}' is empty, so there is nothing to tune")
    canonical = canonicalize_einsum(e)
    return _Task(canonical, canonical.renaming.lengths(lengths), canonical.pattern.renaming.lengths(lengths), device, seed)


def _contestants(
    task: _Task, store: Database, only: str | None, trials: int | None, sampler: str | None
) -> dict[str, _Contestant]:
    """The spaces to search, by name, with samplers that know what was tried before."""
    e, profile = task.canonical.einsum, task.device.profile
    matching = [s for s in matching_spaces(e) if only in (None, s.name)]
    if not matching:
        raise TransformError(f"no transform space{f' named {only!r}' if only else ''} applies to '{e.subscripts}'")
    share = None if trials is None else max(1, trials // max(1, sum(s.rank > 0 for s in matching)))
    contestants = {}
    for s in matching:
        problem = s.problem(e, e.sizes_from(task.sizes), profile)
        tried = store.configurations_tried(
            task.canonical.key, task.sizes, profile.id, s.name, s.version, profile.driver, PROTOCOL
        )
        made = make_sampler(
            sampler,
            s.parameters(problem),
            partial(s.refusal, problem),
            seed=task.seed,
            trials=share,
            start=_first(s, problem),
            known=[(c, r.median_s) for c, r in tried.items()],
        )
        contestants[s.name] = _Contestant(s, made)
    return contestants


def _first(s: TransformSpace, problem: Any) -> list[dict[str, Any]]:
    try:
        return [s.default(problem)]
    except TransformError:
        return []


def _best_known(task: _Task, store: Database, contestants: Iterable[_Contestant]) -> TuningRecord | None:
    return store.best(
        task.canonical.key,
        task.sizes,
        task.device.id,
        driver=task.device.profile.driver,
        spaces=[(c.space.name, c.space.version) for c in contestants],
    )


def _trials(
    task: _Task, contestants: Mapping[str, _Contestant], trials: int | None, timeout: float | None
) -> Callable[[], Trial | None]:
    """What hands out the trials of a run, until their number or the time is spent or every space is exhausted."""
    end = time.monotonic() + (timeout if timeout is not None else math.inf)
    asked = 0

    def next_trial() -> Trial | None:
        nonlocal asked
        if (trials is not None and asked >= trials) or time.monotonic() >= end:
            return None
        asking = _ask(contestants.values())
        if asking is None:
            return None
        asked += 1
        contestant, configuration = asking
        return task.trial(contestant.space, configuration)

    return next_trial


def _better(best: TuningRecord | None, record: TuningRecord) -> TuningRecord | None:
    if record.median_s is None:
        return best
    return record if best is None or best.median_s is None or record.median_s < best.median_s else best


def _ask(contestants: Iterable[_Contestant]) -> tuple[_Contestant, dict[str, Any]] | None:
    """The next configuration of the space that was asked least; None when all are exhausted.

    The generic space gets a few trials, and more only when nothing else is left.
    """
    while left := [c for c in contestants if not c.exhausted]:
        special = [c for c in left if c.space.rank > 0]
        generic = [c for c in left if c.space.rank == 0 and c.asked < _GENERIC_TRIALS]
        contestant = min([*special, *generic] or left, key=lambda c: c.asked if c.space.rank > 0 else 2 * c.asked)
        configuration = contestant.sampler.ask()
        if configuration is not None:
            contestant.asked += 1
            return contestant, configuration
        contestant.exhausted = True
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
