"""Batches: tune the jobs of a job file, or a shard of them, and skip those that are done.

Job k of a file, counted from 0, belongs to shard ``1 + k mod n`` of n.  A shard writes to a store of its own beside that of
the batch, so that shards need share nothing; ``feinsum db merge`` brings them together.  A store by URL is shared as it is.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from feinsum.database import Database, TuningRecord, locate
from feinsum.devices import Device
from feinsum.errors import DatabaseError, FeinsumError, JobError
from feinsum.space import TransformSpace
from feinsum.timing import FINAL_PROTOCOL, PROTOCOL
from feinsum.tune.autotune import Effort, Progress, make_engine, require_scheduler, tune_on
from feinsum.tune.device_lanes import in_lanes
from feinsum.tune.jobs import Job
from feinsum.tune.progress import Course
from feinsum.tune.recorder import noting_others
from feinsum.tune.report import TuningReport
from feinsum.tune.runner import Engine
from feinsum.tune.task import Task, make_task

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Shard:
    """Part `number` of `count` of a batch, counted from 1."""

    number: int = 1
    count: int = 1

    @staticmethod
    def parse(text: str) -> Shard:
        """
        :raises JobError: if it does not read like 2/8.

        >>> Shard.parse("2/8")
        Shard(number=2, count=8)
        """
        found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text, re.ASCII)
        if not found or not 1 <= int(found[1]) <= int(found[2]):
            raise JobError(f"the shard is {text!r}; write 1/8, 2/8, ... or 8/8 for the parts of eight")
        return Shard(int(found[1]), int(found[2]))

    def of(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """The jobs of this shard."""
        return jobs[self.number - 1 :: self.count]

    def store(self, database: str | None) -> str | None:
        """Where this shard writes when the batch writes to `database`."""
        location = locate(database)
        if self.count == 1 or location.path is None:
            return database
        path = location.path
        return str(path.with_name(f"{path.stem}.{self.number}-of-{self.count}{path.suffix}"))


_EVERY_S = 60.0
"""Seconds between the lines of a log about one job."""


class _Log:
    """The log of the jobs of a batch: when each begins, and from time to time how far it is.

    :param total: the number of jobs.
    """

    def __init__(self, total: int) -> None:
        self._total, self._begun = total, 0
        self._lock = threading.Lock()

    def begin(self, job: Job) -> str:
        """Log that a job begins; its number among all."""
        with self._lock:
            self._begun += 1
            number = f"{self._begun}/{self._total}"
        budget = [f"{job.trials} trial{'s' * (job.trials != 1)}"] if job.trials is not None else []
        budget += [f"{job.timeout:g} s"] if job.timeout is not None else []
        logger.info("job %s begins, %s: %s", number, " and ".join(budget) or "as long as it takes", job)
        return number

    @staticmethod
    def watch(number: str, job: Job) -> Progress:
        """A function to call after each trial of a job."""
        course, latest = Course(job.timeout), -_EVERY_S

        def told(done: int, planned: int | None, best: TuningRecord | None, last: TuningRecord) -> None:
            nonlocal latest
            text = course.told(done, planned, best, last)
            if course.seconds - latest >= _EVERY_S:
                latest = course.seconds
                lengths = " ".join(f"{name}={length}" for name, length in job.sizes.items())
                logger.info("job %s%s: %s", number, f" at {lengths}" if lengths else "", text)

        return told


@dataclass(frozen=True)
class JobResult:
    """The result of a job: a report, or why there is none.

    :ivar status: "tuned", "done" (by an earlier run), "failed" (also where no configuration is right, or none was tried)
        or "interrupted".
    """

    job: Job
    status: str
    message: str = ""
    report: TuningReport | None = None

    def __str__(self) -> str:
        best = self.report.best if self.report is not None else None
        if best is not None and best.median_s is not None:
            more = f"; {self.message}" if self.message else ""
            return f"{self.job}: {self.status}, {best.median_s * 1e3:.4g} ms by {best.space}{more}"
        return f"{self.job}: {self.status}{f': {self.message}' if self.message else ''}"

    def to_json(self) -> dict[str, Any]:
        """The result as plain data."""
        report = None if self.report is None else self.report.to_json()
        return {"job": str(self.job), "status": self.status, "message": self.message, "report": report}


def run_batch(
    jobs: Sequence[Job],
    database: str | None = None,
    *,
    shard: Shard | None = None,
    scheduler: str | None = None,
    workers: int | None = None,
    trial_timeout: float = 60.0,
    progress: bool | Progress = True,
    tell: Callable[[JobResult], None] = lambda _: None,
    devices: Sequence[Device] = (),
) -> list[JobResult]:
    """Do the jobs of a batch that are not done, one after the other; a job that fails does not end the batch.

    :param database: the store of the batch, as for :class:`Database`.
    :param shard: the part of the jobs to do; all by default.
    :param scheduler: see :func:`feinsum.autotune`, as for `workers`, `trial_timeout` and `progress`.
    :param tell: called with each result as soon as there is one.
    :param devices: do the jobs on these at once, whatever devices they name; equal ones share the jobs, see
        :mod:`feinsum.tune.device_lanes`.
    :return: the results of the jobs, up to one that the user interrupted.
    :raises DatabaseError: if the store fails.
    :raises DeviceError: if no scheduler answers before the first job.
    """
    shard = shard or Shard()
    if scheduler is not None:
        require_scheduler(scheduler)
    at_once = bool(devices)
    log = _Log(len(shard.of(jobs)) * len({device.id for device in devices} or {None}))

    def work(next_job: Callable[[], Job | None], told: Callable[[JobResult], None]) -> None:
        with contextlib.ExitStack() as stack:
            store = stack.enter_context(Database(shard.store(database)))
            others = [stack.enter_context(other) for other in _existing(database) if other.location != store.location]
            engines = _Engines(stack, lambda device: make_engine(scheduler, device, workers, trial_timeout))
            while (job := next_job()) is not None:
                result = _attempted(job, engines, store, others, progress and not at_once, log)
                told(result)
                if result.status == "interrupted":
                    break

    with noting_others(str(locate(shard.store(database)))):
        if at_once:
            return in_lanes(shard.of(jobs), devices, work, tell)
        results: list[JobResult] = []
        rest = iter(shard.of(jobs))

        def told(result: JobResult) -> None:
            results.append(result)
            tell(result)

        work(lambda: next(rest, None), told)
        return results


def _attempted(
    job: Job, engines: _Engines, store: Database, others: Iterable[Database], progress: bool | Progress, log: _Log
) -> JobResult:
    number = log.begin(job)
    try:
        return _do(job, engines.of(job.device), store, others, progress, number)
    except DatabaseError:
        raise
    except FeinsumError as error:
        return JobResult(job, "failed", str(error))
    except KeyboardInterrupt:
        return JobResult(job, "interrupted")


class _Engines:
    """The engine of every device that jobs ask for, made once; one that could not be made is not tried again.

    :param make: makes one for the name of a device.
    """

    def __init__(
        self, stack: contextlib.ExitStack, make: Callable[[str | None], contextlib.AbstractContextManager[Engine]]
    ) -> None:
        self._stack, self._make = stack, make
        self._known: dict[str | None, Engine | FeinsumError] = {}

    def of(self, device: str | None) -> Engine:
        """The engine for a device.

        :raises DeviceError: if there is no such device, or the scheduler is lost.
        """
        if device not in self._known:
            try:
                self._known[device] = self._stack.enter_context(self._make(device))
            except FeinsumError as error:
                self._known[device] = error
        found = self._known[device]
        if isinstance(found, FeinsumError):
            raise found
        return found


def _do(
    job: Job, engine: Engine, store: Database, others: Iterable[Database], progress: bool | Progress, number: str
) -> JobResult:
    task = make_task(job.einsum, job.sizes, engine.profile, job.seed)
    left = min(_trials_left(job, task, known) for known in (store, *others))
    if left <= 0:
        right = any(_best_record(job, task, known) is not None for known in (store, *others))
        return (
            JobResult(job, "done") if right else JobResult(job, "failed", "no configuration that was tried before is right")
        )
    if job.trials is not None:
        job = replace(job, trials=left)
    effort = Effort(
        job.trials,
        job.timeout,
        job.sampler,
        job.seed,
        job.steps,
        begin=job.begin,
        progress=progress,
        label=f"{number} ",
        watch=_Log.watch(number, job),
    )
    report = tune_on(engine, job.einsum, store, job.sizes, job.space, effort)
    return _job_result(job, report)


def _job_result(job: Job, report: TuningReport) -> JobResult:
    """The result of a job that was tried: it failed if nothing right is known after it."""
    if report.interrupted:
        return JobResult(job, "interrupted", report=report)
    if report.best is not None:
        return JobResult(job, "tuned", "" if report.records else "nothing new was tried", report)
    if report.records:
        ended = ", ".join(f"{count} {status}" for status, count in report.failures.items())
        return JobResult(job, "failed", f"no configuration is right: {ended}", report)
    if job.timeout is None:
        return JobResult(job, "failed", "there is no configuration to try", report)
    short = f"{job.timeout:g} s were over before a configuration could be tried; give it more time"
    return JobResult(job, "failed", short, report)


def _trials_left(job: Job, task: Task, store: Database) -> int:
    """How many trials a job still needs; a job that has a time only is done when its final was held."""
    key, device, driver = task.subject.key, task.profile.id, task.profile.driver
    if job.trials is None:
        return 1 if _best_record(job, task, store, FINAL_PROTOCOL) is None else 0
    spaces = _spaces_of_job(job, task)
    tried = (store.configurations_tried(key, task.sizes, device, s.name, s.version, driver, PROTOCOL) for s in spaces)
    return job.trials - sum(map(len, tried))


def _spaces_of_job(job: Job, task: Task) -> list[TransformSpace]:
    return [s for s in task.subject.spaces() if job.space in (None, s.name)]


def _best_record(job: Job, task: Task, store: Database, protocol: int | None = None) -> TuningRecord | None:
    """The fastest record of a job in a store, of the present versions of its spaces."""
    current = [(s.name, s.version) for s in _spaces_of_job(job, task)]
    key, profile = task.subject.key, task.profile
    return store.best(key, task.sizes, profile.id, driver=profile.driver, spaces=current, protocol=protocol)


def _existing(database: str | None) -> list[Database]:
    """The store of the batch, if it is there."""
    path = locate(database).path
    return [Database(database, create=False)] if path is not None and path.exists() else []
