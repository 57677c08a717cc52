"""Files of SQLite through Python's own module: readers of a store need not wait for SQLAlchemy to load (0.15 s)."""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path

from feinsum.database import schema

SMALLEST = 512
"""Bytes of the smallest page; SQLite takes a shorter file for an empty one and would overwrite it."""
READ_AND_WRITE = "mode=rw"
_PATIENCE_S = 1.0
"""How long to wait for another process's lock just to see whether SQLAlchemy is needed."""


def connect_sqlite(path: Path, mode: str, timeout_s: float) -> sqlite3.Connection:
    """A connection for any one thread at a time.

    :param mode: a parameter of the URI, as of :func:`choose_mode`.
    :param timeout_s: how long it waits for another process's lock, in seconds.
    """
    # isolation_level None: transactions begin where we say so, not where the sqlite3 module guesses.
    return sqlite3.connect(
        f"{path.as_uri()}?{mode}", uri=True, timeout=timeout_s, isolation_level=None, check_same_thread=False
    )


def choose_mode(path: Path, timeout_s: float) -> str:
    """How a file can be opened: for writing, else for reading.

    SQLite reads a WAL database only where there is a -shm file or one can be made.  Where neither holds and no -wal file
    waits to be folded in, the file is whole and nobody is writing to it, which ``immutable`` promises to SQLite.
    """
    if _is_writable_store(path) and _is_writable_store(path.parent):
        return READ_AND_WRITE
    try:
        with closing(connect_sqlite(path, "mode=ro", timeout_s)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error as error:
        wal = path.with_name(path.name + "-wal")
        if not re.search("unable to open|readonly", str(error)) or (wal.exists() and wal.stat().st_size > 0):
            raise
        return "immutable=1"
    return "mode=ro"


def is_current(path: Path) -> bool:
    """Whether a file is a store with the tables of this feinsum, so that nothing has to be done before it is read."""
    try:
        if path.stat().st_size < SMALLEST:
            return False
        with closing(connect_sqlite(path, choose_mode(path, _PATIENCE_S), _PATIENCE_S)) as connection:
            return connection.execute("SELECT version FROM feinsum_schema").fetchall() == [(len(schema.MIGRATIONS),)]
    except (OSError, sqlite3.Error):
        return False


def _is_writable_store(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
