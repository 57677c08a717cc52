"""What can go wrong with a store gets one clear line, and records that were acknowledged are never lost."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import postgres
import pytest
from records import KEY, SIZES, make_record

from feinsum import DatabaseError
from feinsum.database import Database, locate

BACKENDS = ("sqlite", pytest.param("postgres", marks=pytest.mark.postgres))
PROCESSES = 32
EACH = 10


@pytest.fixture(params=BACKENDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The place of a store that nobody has opened yet."""
    return postgres.new_database() if request.param == "postgres" else str(tmp_path / "new" / "store.sqlite")


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A SQLite store of a thousand records, closed."""
    path = tmp_path / "store.sqlite"
    with Database(path) as database:
        database.add(make_record(median_s=float(k)) for k in range(1, 1001))
    return path


@contextlib.contextmanager
def one_clear_line(text: str) -> Iterator[None]:
    """Expect an error of one line that holds `text`."""
    with pytest.raises(DatabaseError) as error:
        yield
    assert text in str(error.value)
    assert "\n" not in str(error.value)


@contextlib.contextmanager
def unprivileged() -> Iterator[None]:
    """Whoever runs the tests, permissions count within."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def start_and_write(place: str, number: int, barrier: Any) -> None:
    """The work of one of many processes: open the new store at the same moment as the others, then write to it."""
    barrier.wait()
    with Database(place) as database:
        for k in range(EACH):
            assert database.add(make_record(driver=f"process {number}", median_s=k + 1.0)) == 1
        # Everybody adds the same records too, in an order of their own.
        shared = [make_record(driver="shared", median_s=k + 1.0) for k in range(EACH)]
        database.add(shared[number % EACH :] + shared[: number % EACH])


def test_many_processes_create_and_write_the_same_new_store_at_once(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are made once, and of the records of 32 processes none is lost."""
    context = multiprocessing.get_context("forkserver")
    # Imported once, before the processes part: they shall race for the store, not for the interpreter.  Python before
    # 3.12.3 passes no path to the fork server (CPython issue 117378).
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    context.set_forkserver_preload([__name__, "feinsum.database.engine", "feinsum.database.sql", "psycopg"])
    barrier = context.Barrier(PROCESSES)
    many = [context.Process(target=start_and_write, args=(place, number, barrier)) for number in range(PROCESSES)]
    for process in many:
        process.start()
    for process in many:
        process.join()
    assert [process.exitcode for process in many] == [0] * PROCESSES
    with Database(place) as database:
        assert database.stats().records == (PROCESSES + 1) * EACH
        assert len({record.driver for record in database.query()}) == PROCESSES + 1


WRITER = """
import sys
from feinsum.database import Database
from records import make_record
with Database(sys.argv[1]) as database:
    for k in range(1, 10**6):
        record = make_record(median_s=k)
        database.add(record if k % 2 else [record, make_record(median_s=k + 0.5)])
        print(record.id, flush=True)
"""


@pytest.mark.parametrize("after", [1, 30])
def test_killing_a_writer_loses_no_acknowledged_record(place: str, after: int) -> None:
    """``kill -9`` at any moment: the store is intact, and holds every record whose addition had returned."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-c", WRITER, place]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as writer:
        assert writer.stdout is not None
        acknowledged = [writer.stdout.readline().strip() for _ in range(after)]
        time.sleep(0.003 * after)  # so that it dies anywhere in its work
        writer.send_signal(signal.SIGKILL)
        acknowledged += writer.stdout.read().split()
    acknowledged = [identity for identity in acknowledged if len(identity) == 32]
    with Database(place) as database:
        found = {record.id for record in database.query()}
        assert found >= set(acknowledged)
        assert len(acknowledged) >= after
        assert database.add(make_record(median_s=1e-9)) == 1
    if "://" not in place:
        with contextlib.closing(sqlite3.connect(place)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_full_disk_loses_no_acknowledged_record(tmp_path: Path) -> None:
    """The error says what to do; what was stored before stays, and with room again the same addition succeeds."""
    path = tmp_path / "store.sqlite"
    acknowledged = []
    record = make_record()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Database(path) as database:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
        try:
            with one_clear_line("make room and run the same command again, stored records are safe"):
                for k in range(1, 10_000):
                    record = make_record(median_s=float(k))
                    database.add(record)
                    acknowledged.append(record)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert len(acknowledged) > 10
        assert database.query() == acknowledged
        assert database.add(record) == 1
    with Database(path) as database:
        assert database.query() == [*acknowledged, record]


def test_a_locked_store_can_be_read_and_says_who_holds_it_up(stored: Path) -> None:
    """A writer that waits too long gets an error; its record is stored once the lock is gone."""
    record = make_record(median_s=1e-6)
    with Database(stored, timeout_s=0.1) as database, contextlib.closing(sqlite3.connect(stored)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with one_clear_line("database is locked: another process has kept it locked; end that process"):
            database.add(record)
        assert len(database.query()) == 1000
        other.rollback()
        assert database.add(record) == 1
        assert database.best(KEY, SIZES, record.device) == record


@pytest.mark.parametrize("content", [b"no database at all" * 100, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_file_that_is_no_database(tmp_path: Path, content: bytes) -> None:
    """The file is named and left as it is."""
    path = tmp_path / "store.sqlite"
    path.write_bytes(content)
    with one_clear_line(f"store {path}: file is not a database: the file is no SQLite database; move it away"):
        Database(path)
    assert path.read_bytes() == content


def test_a_short_note_is_not_overwritten(tmp_path: Path) -> None:
    """SQLite itself takes any file below 512 bytes for an empty database."""
    path = tmp_path / "notes.txt"
    path.write_text("buy milk")
    with one_clear_line(f"{path} is no SQLite database, and is left as it is"):
        Database(path)
    assert path.read_text() == "buy milk"


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    """As ``mktemp`` makes one, or a disk that was full when the store was made."""
    path = tmp_path / "store.sqlite"
    path.touch()
    with Database(path) as database:
        assert database.add(make_record()) == 1


def test_a_corrupt_store(stored: Path) -> None:
    """A damaged page is found when it is read, and the way to save the rest is told."""
    raw = bytearray(stored.read_bytes())
    raw[8192:-4096] = b"\xa5" * (len(raw) - 12288)
    stored.write_bytes(raw)
    with one_clear_line("the file is corrupt; move it away"), Database(stored) as database:
        database.query(status=None)


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    """A slip in a path does not put our tables among the history of a browser."""
    path = tmp_path / "places.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE moz_places (id)")
    with one_clear_line("is a SQLite database of another program (it has a table 'moz_places'); name another file"):
        Database(path)


def test_a_directory_is_no_store(tmp_path: Path) -> None:
    """And a file is no directory."""
    with one_clear_line(f"{tmp_path} is a directory; name a file in it"):
        Database(tmp_path)
    (tmp_path / "file").touch()
    with one_clear_line("name another place with FEINSUM_DATABASE"):
        Database(tmp_path / "file" / "store.sqlite")


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A directory that another user can reach, which those of pytest are not."""
    import tempfile

    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        os.chmod(directory, 0o755)
        yield Path(directory)


@pytest.mark.parametrize("protect", ["file", "directory", "both"])
def test_a_store_that_cannot_be_written_can_be_read(stored: Path, open_path: Path, protect: str) -> None:
    """A store shared by a colleague: queries work, and an addition says why it does not."""
    path = open_path / "store.sqlite"
    path.write_bytes(stored.read_bytes())
    path.chmod(0o444 if protect != "directory" else 0o666)
    open_path.chmod(0o555 if protect != "file" else 0o777)
    with unprivileged(), Database(path) as database:
        assert not database.writable
        assert len(database.query()) == 1000
        assert database.best(KEY, SIZES, make_record().device) == make_record(median_s=1.0)
        assert database.stats().records == 1000
        with one_clear_line(f"{path} is read-only; make it writable, or name another store"):
            database.add(make_record())


def test_a_store_that_is_being_written_can_be_read_by_others(stored: Path, open_path: Path) -> None:
    """What the writer has not yet folded into the file is seen by a reader who may not write."""
    path = open_path / "store.sqlite"
    path.write_bytes(stored.read_bytes())
    with Database(path) as writer:
        writer.add(make_record(median_s=1e-6))
        path.chmod(0o444)
        with unprivileged(), Database(path) as database:
            assert not database.writable
            assert database.best(KEY, SIZES, make_record().device) == make_record(median_s=1e-6)


def test_a_store_cannot_be_made_in_a_read_only_directory(open_path: Path) -> None:
    """Neither the file nor the directory above it."""
    open_path.chmod(0o555)
    with unprivileged():
        with one_clear_line("unable to open database file: it cannot be opened or created"):
            Database(open_path / "store.sqlite")
        with one_clear_line("Permission denied; name another place with FEINSUM_DATABASE"):
            Database(open_path / "below" / "store.sqlite")


def test_an_old_store_that_cannot_be_written(open_path: Path) -> None:
    """It would need a migration, and says so."""
    path = open_path / "store.sqlite"
    path.touch()
    path.chmod(0o444)
    with unprivileged(), one_clear_line(f"{path} is read-only and has version 0 of the schema"):
        Database(path)


@pytest.mark.postgres
def test_a_server_that_does_not_answer() -> None:
    """Neither host nor database; the password stays out of the message."""
    with one_clear_line("postgresql+psycopg://me:***@127.0.0.1:1/records: connection failed") as _:
        Database("postgresql://me:secret@127.0.0.1:1/records")
    missing = postgres.new_database().replace("feinsum_", "missing_")
    with one_clear_line('database "missing_'):
        Database(missing)


def test_a_driver_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command that installs it is in the message."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with one_clear_line("PostgreSQL needs the package psycopg, which is not here: `pip install"):
        Database("postgresql://host/records")


@pytest.mark.postgres
def test_a_server_that_was_restarted_is_found_again() -> None:
    """A connection cut on the other side is replaced, and the addition succeeds."""
    import psycopg

    place = postgres.new_database()
    with Database(place) as database:
        database.add(make_record())
        with psycopg.connect(place, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        assert database.add(make_record(median_s=2.0)) == 1
        assert len(database.query()) == 2


PLACES = [
    ("/data/store.sqlite", "/data/store.sqlite"),
    ("~/store.sqlite", "HOME/store.sqlite"),
    ("sqlite:////data/store.sqlite", "/data/store.sqlite"),
    ("sqlite:///store.sqlite", "HERE/store.sqlite"),
    (Path("/data/a b%20?.sqlite"), "/data/a b%20?.sqlite"),
    ("postgres://host/records", "postgresql+psycopg://host/records"),
    ("postgresql://me:secret@host:5432/records", "postgresql+psycopg://me:***@host:5432/records"),
    ("postgresql+psycopg2://host/records", "postgresql+psycopg2://host/records"),
]


@pytest.mark.parametrize(("given", "found"), PLACES)
def test_where_a_store_is(given: str | Path, found: str) -> None:
    """A path is a file of SQLite; a URL says which server."""
    found = found.replace("HOME", str(Path.home())).replace("HERE", str(Path.cwd()))
    assert str(locate(given)) == found


@pytest.mark.parametrize("given", ["", ":memory:", "sqlite://", "sqlite:///:memory:"])
def test_a_store_is_not_kept_in_memory(given: str) -> None:
    """Its connections would each have one of their own."""
    with one_clear_line("names no file; a store outlives its connections, so give the path of a file"):
        locate(given)


@pytest.mark.parametrize("given", ["mysql://me:secret@host/records", "http://host/records", "sqlite:///x?mode=ro"])
def test_a_url_of_another_kind_is_refused(given: str) -> None:
    """What is accepted is listed, and no password is repeated."""
    with one_clear_line("is no store; give the path of a file, sqlite:///PATH or postgresql://USER@HOST/DATABASE") as _:
        locate(given)


def test_odd_names_of_files(tmp_path: Path) -> None:
    """Characters that mean something in a URL mean nothing in a path."""
    for name in ("a b.sqlite", "50%20.sqlite", "what?mode=ro.sqlite", "#1.sqlite", "größe.sqlite"):
        with Database(tmp_path / name) as database:
            database.add(make_record())
        assert (tmp_path / name).is_file()


def test_the_store_that_is_used_where_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``FEINSUM_DATABASE``, or else a file in the user's data directory."""
    monkeypatch.setenv("FEINSUM_DATABASE", str(tmp_path / "mine.sqlite"))
    assert locate().path == tmp_path / "mine.sqlite"
    monkeypatch.delenv("FEINSUM_DATABASE")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with Database() as database:
        assert database.location == str(tmp_path / "feinsum" / "records.sqlite")
