"""The validity of an answer of the ladder: records are only ever added, so the last one tells whether there are new ones.

From cheap to dear: the times of the files of a store (5 us), its last record (0.3 ms, without SQLAlchemy),
and which records the ladder would look at (a look-up).
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

from feinsum.candidates.records import Inquiry, Question
from feinsum.database import Database, Stores, open_stores
from feinsum.database.location import VARIABLE, Location, locate
from feinsum.devices import DeviceProfile
from feinsum.errors import require_of_system

_SHARED_HEADER = 48
"""Bytes of the header of SQLite's -shm file, which every commit to the write-ahead log changes."""


class StoreHandle:
    """The store that a call of ``generate`` reads, not opened before records are needed."""

    def __init__(self, database: Database | str | os.PathLike[str] | None) -> None:
        self._database = database
        self.location: Location = locate(database.location if isinstance(database, Database) else database)

    @cached_property
    def stores(self) -> Stores:
        """The store, unless it fails, and the curated records."""
        return open_stores(self._database, tolerant=True)

    def glance(self) -> Any:
        """The times and sizes of the files of the store; equal for unchanged contents only.  None if it is no file."""
        path = self.location.path
        if path is None:
            return None
        name = str(path)
        log = _status(name + "-wal")
        if log is None or not log[1]:  # a reader may have opened an empty log
            return _status(name), None
        return _status(name), log, _head_of_store(name + "-shm")

    def count(self) -> str | None:
        """The identity of the present records: the file, and number and name of the last one; None if it is unknown.

        The name is for a file that is deleted and made again: it may get the place of the former one on the disk.
        """
        path = self.location.path
        if path is None:
            return None
        status = _status(str(path))
        if status is None or not status[1]:
            return "empty"
        try:
            last = _last_row(path)
        except sqlite3.Error:
            return None
        return f"{status[0]}:{last}" if last else "empty"


def evidence(stores: Stores, questions: Iterable[Question], profile: DeviceProfile) -> str:
    """A hash of the records that answer what the ladder asked."""
    inquiry = Inquiry(stores, profile)
    for question in questions:
        inquiry.ask(question)
    return inquiry.digest


def place_key(database: Any) -> Any:
    """A key of a store, which costs less than a :class:`StoreHandle`."""
    if isinstance(database, Database):
        return database.location
    return database if database is not None else variable(VARIABLE), variable("XDG_DATA_HOME")


_variables: Any = getattr(os.environ, "_data", None)
_names: dict[str, Any] = {}


def variable(name: str) -> Any:
    """A key of the value of an environment variable; None if it is not set.

    ``os.environ.get`` raises and catches two errors for a variable that is not set: 0.7 us, a third of a small product.
    """
    if _variables is None:
        return os.environ.get(name)
    key = _names.get(name)
    if key is None:
        key = _names[name] = os.environ.encodekey(name)  # as CPython keeps names
    return _variables.get(key)


def _status(name: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(name)
    except OSError as error:
        require_of_system(error)
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _head_of_store(name: str) -> bytes | None:
    try:
        with open(name, "rb", buffering=0) as file:
            return file.read(_SHARED_HEADER)
    except OSError as error:
        require_of_system(error)
        return None


def _last_row(path: Path) -> str | None:
    mode = "rw" if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK) else "ro"
    connection = sqlite3.connect(f"{path.as_uri()}?mode={mode}", uri=True, timeout=1.0)
    with contextlib.closing(connection):
        found = connection.execute("SELECT rowid, id FROM feinsum_records ORDER BY rowid DESC LIMIT 1").fetchone()
    return None if found is None else f"{found[0]}:{found[1]}"
