"""Connections to a store, and what their errors mean in one line.

SQLite is opened in WAL mode, in which readers and one writer do not wait for each other, and every transaction that
writes begins with ``BEGIN IMMEDIATE``: a transaction that begins by reading cannot wait for the lock it needs later.
"""

from __future__ import annotations

import os
import random
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import QueuePool

from feinsum.database.location import VARIABLE, Location
from feinsum.errors import DatabaseError

_SMALLEST = 512
"""Bytes of the smallest page; SQLite takes a shorter file for an empty one and would overwrite it."""


def connect(location: Location, timeout_s: float) -> tuple[sa.Engine, bool]:
    """An engine for the store at `location`, and whether it can be written.

    :param timeout_s: how long a connection waits for another process's lock, in seconds.
    """
    if location.path is None:
        return _postgresql(location), True
    path = location.path
    if path.is_dir():
        raise DatabaseError(f"{path} is a directory; name a file in it")
    if path.exists():
        if 0 < path.stat().st_size < _SMALLEST:
            raise DatabaseError(f"{path} is no SQLite database, and is left as it is; name another file")
        writable = _writable(path) and _writable(path.parent)
        return (_sqlite(path, "mode=rw", timeout_s) if writable else _read_only(path, timeout_s)), writable
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatabaseError(f"cannot create {path}: {error.strerror}; name another place with {VARIABLE}") from None
    return _sqlite(path, "mode=rwc", timeout_s), True


def _postgresql(location: Location) -> sa.Engine:
    try:
        url = sa.make_url(location.url or "")
        hurried = "connect_timeout" in url.query or url.drivername != "postgresql+psycopg"
        return sa.create_engine(url, pool_pre_ping=True, connect_args={} if hurried else {"connect_timeout": 10})
    except ModuleNotFoundError as error:
        raise DatabaseError(
            f"PostgreSQL needs the package {error.name}, which is not here: pip install 'feinsum[postgres]'"
        ) from None
    except (SQLAlchemyError, ValueError) as error:
        raise DatabaseError(f"{location} is no URL of a database: {_line(error)}") from None


def _writable(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _read_only(path: Path, timeout_s: float) -> sa.Engine:
    """An engine that only reads.

    SQLite reads a WAL database only where there is a -shm file or one can be made.  Where neither holds and no -wal file
    waits to be folded in, the file is whole and nobody is writing to it, which ``immutable`` promises to SQLite.
    """
    engine = _sqlite(path, "mode=ro", timeout_s)
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("SELECT count(*) FROM sqlite_master")
    except DBAPIError as error:
        engine.dispose()
        wal = path.with_name(path.name + "-wal")
        if not re.search("unable to open|readonly", str(error.orig)) or (wal.exists() and wal.stat().st_size > 0):
            raise
        return _sqlite(path, "immutable=1", timeout_s)
    return engine


def _sqlite(path: Path, mode: str, timeout_s: float) -> sa.Engine:
    def creator() -> sqlite3.Connection:
        # isolation_level None: transactions begin below, not where the sqlite3 module guesses.
        return sqlite3.connect(
            f"{path.as_uri()}?{mode}", uri=True, timeout=timeout_s, isolation_level=None, check_same_thread=False
        )

    engine = sa.create_engine("sqlite+pysqlite://", creator=creator, poolclass=QueuePool)

    @event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        if connection.get_execution_options().get("writes"):
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    if mode.startswith("mode=rw"):
        _use_wal(engine, timeout_s)
    return engine


def _use_wal(engine: sa.Engine, timeout_s: float) -> None:
    """Switch a new file to WAL; SQLite refuses this at once while others have the file open, so try again."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            with engine.connect() as connection:
                if connection.exec_driver_sql("PRAGMA journal_mode").scalar() != "wal":
                    connection.exec_driver_sql("PRAGMA journal_mode = wal")
            return
        except DBAPIError as error:
            if "locked" not in str(error.orig) or time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(0.005, 0.05))


@contextmanager
def reporting(where: Location) -> Iterator[None]:
    """Raise errors of the database as a :class:`DatabaseError` of one line."""
    try:
        yield
    except (DBAPIError, PoolTimeout, sqlite3.Error) as error:
        raise DatabaseError(_explain(where, error)) from error


_CAUSES = (
    ("locked", "another process has kept it locked; end that process and run the same command again"),
    ("not a database", "the file is no SQLite database; move it away, or name another with " + VARIABLE),
    ("malformed", "the file is corrupt; move it away and import an export or merge what 'sqlite3 FILE .recover' saves"),
    ("readonly", "it cannot be written; make it writable, or name another store with " + VARIABLE),
    ("disk is full", "the disk is full; make room and run the same command again, stored records are safe"),
    ("No space left", "the server's disk is full; make room and run the same command again, stored records are safe"),
    ("disk I/O", "the disk is full or broken; make room and run the same command again, stored records are safe"),
    ("unable to open", "it cannot be opened or created; check the directory's permissions, or use " + VARIABLE),
    ("Connection refused", "no server answers there; start it, or check host and port"),
    ("No such file", "no server answers there; start it, or check host and port"),
)
"""What the texts of SQLite and PostgreSQL mean and what to do."""


def _explain(where: Location, error: Exception) -> str:
    text = _line(error)
    advice = next((advice for symptom, advice in _CAUSES if symptom in text), "")
    return f"store {where}: {text}" + (f": {advice}" if advice else "")


def _line(error: Exception) -> str:
    """The first line of what the database said."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return (str(cause).strip() or type(cause).__name__).splitlines()[0]
