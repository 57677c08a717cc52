"""Stores that fail while tuning: one clear line, and no record is lost."""

from __future__ import annotations

import resource
import sqlite3
from pathlib import Path

import pytest

import feinsum as fe
from feinsum.devices import Device
from feinsum.tune.worker import Worker, WorkerLostError

pytestmark = pytest.mark.slow

GEMM = fe.einsum("ij,jk->ik", fe.array("A", ("N", 16)), fe.array("B", (16, 16)))


def tune(cpu: Device, store: str | Path | fe.Database, **how: object) -> fe.TuningReport:
    return fe.autotune(GEMM, cpu, store, {"N": 1000}, "generic", trials=2, workers=1, progress=how.get("progress", False))


def test_records_that_a_full_disk_refuses_are_kept_beside(cpu: Device, store: str) -> None:
    """The message names a file, which can be imported; what was stored before stays."""
    place = Path(fails(cpu, store).rpartition("feinsum db import ")[2])
    assert place.parent == Path(store).parent
    with fe.Database(store) as database:
        (first,) = database.query(status=None)
        assert (database.import_jsonl(place).added, len(tune(cpu, database).records)) == (1, 2)
        assert first in database.query(status=None)


def fails(cpu: Device, store: str) -> str:
    """The message of a run whose disk is full after the first record, as a limit to the size of files makes it."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(*_: object) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (16 << 10, limits[1]))

    try:
        with pytest.raises(fe.DatabaseError, match=r"the disk is full.*the last record is in ") as caught:
            tune(cpu, store, progress=fill)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_records_that_a_locked_store_refuses_are_kept_beside(cpu: Device, store: str) -> None:
    """Another program sits on the lock for longer than one waits."""
    with fe.Database(store, timeout_s=0.2) as database:
        connection = sqlite3.connect(store, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(fe.DatabaseError, match=r"has kept it locked.*the last record is in ") as caught:
            tune(cpu, database)
        connection.execute("ROLLBACK")
        connection.close()
        place = Path(str(caught.value).rpartition("feinsum db import ")[2])
        assert database.import_jsonl(place).added == 1
        assert len(tune(cpu, database).records) == 2


def test_nothing_is_measured_for_a_corrupt_store(cpu: Device, store: str) -> None:
    """It is left as it is."""
    Path(store).write_bytes(b"garbage" * 2000)
    with pytest.raises(fe.DatabaseError, match="the file is no SQLite database; move it away, or name another"):
        tune(cpu, store)
    assert Path(store).read_bytes() == b"garbage" * 2000


def test_nothing_is_measured_for_a_store_that_cannot_be_written(
    cpu: Device, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read-only directory is told before the first trial; root may write everywhere, so access is asked for."""
    fe.Database(store).close()
    monkeypatch.setattr("os.access", lambda *_, **__: False)
    with pytest.raises(fe.DatabaseError, match="is read-only; make it writable, or name another store"):
        tune(cpu, store)


def test_records_go_elsewhere_where_the_directory_takes_no_file(
    cpu: Device, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Into the working directory, and at last to the standard error."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setattr("feinsum.tune.recorder._pending_directories", lambda _: iter([tmp_path / "gone", Path.cwd()]))
    assert str(elsewhere) in fails(cpu, store)


def test_where_there_is_room_nowhere_the_record_is_printed(
    cpu: Device, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the line of JSON that it is."""
    monkeypatch.setattr("feinsum.tune.recorder._pending_directories", lambda _: iter([tmp_path / "gone"]))
    assert fails(cpu, store).endswith("the last record is in the line above")
    assert fe.TuningRecord.from_json(capsys.readouterr().err.splitlines()[-1]).space == "generic"


def test_a_lost_worker_is_logged(cpu: Device, caplog: pytest.LogCaptureFixture) -> None:
    """With a warning if others killed it, as a system does that is short of memory."""
    worker = Worker("measure", cpu.id)
    try:
        worker.start()
        process = worker._process
        assert process is not None
        process.kill()
        with pytest.raises(WorkerLostError, match="the process was killed by SIGKILL"):
            worker._exchange({"do": "prepare", "role": "measure", "device": cpu.id}, 30.0)
    finally:
        worker.close()
    (told,) = [record for record in caplog.records if "is lost" in record.getMessage()]
    assert told.levelname == "WARNING"
    assert f"a worker for {cpu.id} is lost, another takes its place: the process was killed by SIGKILL" in told.getMessage()
