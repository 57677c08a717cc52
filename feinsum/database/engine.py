"""Connections of SQLAlchemy to a store, for writing or making a store and for servers.

SQLite is opened in WAL mode, in which readers and one writer do not wait for each other, and every transaction that
writes begins with ``BEGIN IMMEDIATE``: a transaction that begins by reading cannot wait for the lock it needs later.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import QueuePool

from feinsum._checkout import how_to_install
from feinsum.database import sqlite
from feinsum.database.faults import one_line
from feinsum.database.location import FORMS, VARIABLE, Location
from feinsum.errors import DatabaseError, UnknownStoreError

_DRIVERS = ("postgresql+psycopg", "postgresql+psycopg2")
_LIMITS = {"connect_timeout": 5, "tcp_user_timeout": 10_000}
"""Parameters of libpq, unless the URL has them: seconds to connect, milliseconds in which a host answers at all."""


def connect_engine(location: Location, timeout_s: float) -> sa.Engine:
    """An engine for the store at `location`; a file of SQLite is made if there is none.

    :param timeout_s: how long a connection waits for another process's lock, in seconds.
    """
    if location.path is None:
        return _postgresql(location)
    path = location.path
    if path.is_dir():
        raise UnknownStoreError(f"{path} is a directory; name a file in it")
    if path.exists():
        if 0 < path.stat().st_size < sqlite.SMALLEST:
            raise UnknownStoreError(f"{path} is no SQLite database, and is left as it is; name another file")
        return _sqlite(path, sqlite.choose_mode(path, timeout_s), timeout_s)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatabaseError(f"cannot create {path}: {error.strerror}; name another place with {VARIABLE}") from None
    return _sqlite(path, "mode=rwc", timeout_s)


def _postgresql(location: Location) -> sa.Engine:
    try:
        url = sa.make_url(location.url or "")
        ours = {} if url.drivername not in _DRIVERS else {k: v for k, v in _LIMITS.items() if k not in url.query}
        return sa.create_engine(url, pool_pre_ping=True, connect_args=ours)
    except ModuleNotFoundError as error:
        raise DatabaseError(
            f"PostgreSQL needs the package {error.name}, which is not here: {how_to_install('postgres')}"
        ) from None
    except ValueError:  # whose message repeats what was taken for a port
        raise UnknownStoreError(f"{location} is no URL of a database; {FORMS}") from None
    except SQLAlchemyError as error:
        why = location.without_secrets(one_line(error))
        raise UnknownStoreError(f"{location} is no URL of a database: {why}") from None


def _sqlite(path: Path, mode: str, timeout_s: float) -> sa.Engine:
    engine = sa.create_engine(
        "sqlite+pysqlite://", creator=lambda: sqlite.connect_sqlite(path, mode, timeout_s), poolclass=QueuePool
    )

    @event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        if connection.get_execution_options().get("writes"):
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    if mode.startswith(sqlite.READ_AND_WRITE):
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
