"""Proving records again: an ``ok`` is as good as the proof of its day.

Kernels are made, proved and timed for a moment by worker processes, as in tuning, but several at once, since their speed
does not matter; those of one problem one after the other, as they share inputs and references.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from feinsum.database import Database, TuningRecord, jsonl
from feinsum.devices import Device
from feinsum.errors import DatabaseError
from feinsum.tune.budget import Budget
from feinsum.tune.recorder import refuted
from feinsum.tune.task import draw_seed
from feinsum.tune.trial import Outcome, Trial
from feinsum.tune.worker import Worker

_SECONDS = 0.02
"""Seconds for the samples of one, which are not used."""


@dataclass(frozen=True)
class Reproof:
    """The new proof of one record.

    :ivar record: as it was.
    :ivar outcome: of building, proving and timing it today.
    :ivar seed: that of the proof.
    """

    record: TuningRecord
    outcome: Outcome
    seed: int

    @property
    def decided(self) -> bool:
        """Whether it is known to be right or wrong; a kernel that did not build or took too long may succeed elsewhere."""
        return self.outcome.status in ("ok", "wrong")

    @property
    def result(self) -> TuningRecord:
        """The record that takes its place: the same, or a wrong one."""
        if self.outcome.status != "wrong":
            return self.record
        return refuted(self.record, self.outcome.message, self.seed)


def prove_again(
    records: Iterable[TuningRecord],
    device: Device,
    *,
    timeout: float | None = None,
    workers: int | None = None,
    seed: int | None = None,
    trial_timeout: float = 60.0,
) -> Iterator[Reproof]:
    """Prove records of a device that are ``ok``; those of others are passed over.

    :param timeout: seconds after which no other record is begun and those under way are abandoned.
    :param workers: processes; by default one a core, four at most.
    :param seed: of inputs and of a length; None draws one.
    :raises DeviceError: if no worker process can be started.
    """
    wanted = [record for record in records if record.status == "ok" and record.device == device.profile.id]
    groups: dict[object, list[TuningRecord]] = {}
    for record in wanted:
        groups.setdefault((record.einsum_key, record.sizes), []).append(record)
    waiting: queue.SimpleQueue[list[TuningRecord]] = queue.SimpleQueue()
    for group in groups.values():
        waiting.put(group)
    found: queue.SimpleQueue[Reproof | BaseException | None] = queue.SimpleQueue()
    budget, drawn = Budget(timeout), draw_seed() if seed is None else seed
    made = [Worker("build", device.profile.id) for _ in range(workers or min(4, os.cpu_count() or 1))]
    stopped = threading.Event()

    def work(worker: Worker) -> None:
        try:
            with contextlib.suppress(queue.Empty):
                while budget.left_s and not stopped.is_set():
                    for record in waiting.get_nowait():
                        done = _prove_record(worker, record, drawn, budget, trial_timeout)
                        if done is None or stopped.is_set():
                            return
                        found.put(done)
        except BaseException as error:
            found.put(error)
        finally:
            found.put(None)

    pool = ThreadPoolExecutor(len(made))
    try:
        for worker in made:
            pool.submit(work, worker)
        running = len(made)
        while running:
            done = found.get()
            if isinstance(done, BaseException):
                raise done
            if done is None:
                running -= 1
            else:
                yield done
    finally:
        stopped.set()
        for worker in made:
            worker.close()
        pool.shutdown()


def _prove_record(worker: Worker, record: TuningRecord, seed: int, budget: Budget, limit_s: float) -> Reproof | None:
    """Build, prove and time the kernel of a record; None if the time was up before that was done."""
    trial = Trial(
        record.einsum_key,
        record.sizes,
        record.device,
        record.space,
        record.space_version,
        dict(record.configuration),
        seed,
    )
    built = worker.build(trial, min(limit_s, budget.left_s))
    outcome = built if isinstance(built, Outcome) else worker.prove(trial, built, min(limit_s, budget.left_s))
    if outcome is None:
        outcome = worker.time(trial, min(limit_s, budget.left_s), seconds=_SECONDS)
    return None if outcome.status != "ok" and not budget.left_s else Reproof(record, outcome, seed)


def record_identity(record: TuningRecord) -> object:
    """The key that a record shares with its replacement when it is found wrong."""
    return replace(refuted(record, "", 0), seed=None)


class Progress:
    """The records proved so far, in a file of JSON Lines to which lines are added one by one.

    :param source: a store, or records.
    :raises DatabaseError: if the file cannot be written.
    """

    def __init__(self, source: Database | Sequence[TuningRecord], path: str | os.PathLike[str]) -> None:
        self._source = source
        self._path = Path(path)
        self.records = source.query(status=None) if isinstance(source, Database) else list(source)
        known = [entry for _, entry in jsonl.read_records(path)] if self._path.exists() else []
        self._done = {record_identity(entry): entry for entry in known if isinstance(entry, TuningRecord)}
        # Once more, as the process that wrote it may have been killed in the middle of a line.
        jsonl.write_lines((record.to_json() for record in self._done.values()), path)

    @property
    def left(self) -> list[TuningRecord]:
        """The records that are ``ok`` and not yet proved."""
        return [record for record in self.records if record.status == "ok" and record_identity(record) not in self._done]

    def note(self, reproof: Reproof) -> None:
        """Remember the new proof of a record; a wrong one loses its rank in a store at once.

        :raises DatabaseError: if it cannot be written.
        """
        if not reproof.decided:
            return
        result = reproof.result
        if isinstance(self._source, Database) and result != reproof.record:
            self._source.replace(reproof.record, result)
        self._done[record_identity(result)] = result
        try:
            with open(self._path, "a", encoding="utf-8", newline="\n") as file:
                file.write(result.to_json() + "\n")
        except OSError as error:
            raise DatabaseError(f"cannot write {self._path}: {error.strerror}") from None

    def finish(self, device: str) -> bool:
        """If all records of the device are proved, let the file take the place of the source, and say so."""
        if any(record.device == device for record in self.left):
            return False
        lines = {self._done.get(record_identity(record), record).to_json() for record in self.records}
        jsonl.write_lines(sorted(lines), self._path)
        return True
