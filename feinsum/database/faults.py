"""Explanations of a database's errors, in one line that says what to do."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from feinsum.database.location import VARIABLE, Location
from feinsum.errors import DatabaseError, UnknownStoreError


@contextmanager
def reporting(where: Location) -> Iterator[None]:
    """Raise errors of a database as a :class:`DatabaseError` of one line."""
    try:
        yield
    except _errors() as error:
        # A traceback shows the cause, too, which may repeat a part of the URL.
        cause = error if where.without_secrets(str(error)) == str(error) else None
        kind = UnknownStoreError if "not a database" in str(error) else DatabaseError
        raise kind(_explain_fault(where, error)) from cause


def _errors() -> tuple[type[Exception], ...]:
    """The exceptions of SQLite's module and of files, and those of SQLAlchemy if it was imported."""
    if "sqlalchemy" not in sys.modules:
        return sqlite3.Error, OSError
    from sqlalchemy.exc import DBAPIError, TimeoutError

    return sqlite3.Error, OSError, DBAPIError, TimeoutError


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
"""The meanings of messages of SQLite and PostgreSQL, with a remedy."""


def _explain_fault(where: Location, error: Exception) -> str:
    text = where.without_secrets(one_line(error))
    advice = next((advice for symptom, advice in _CAUSES if symptom in text), "")
    return f"store {where}: {text}" + (f": {advice}" if advice else "")


def one_line(error: Exception) -> str:
    """The first line of what the database said; SQLAlchemy wraps that."""
    cause = getattr(error, "orig", None) or error
    return (str(cause).strip() or type(cause).__name__).splitlines()[0]
