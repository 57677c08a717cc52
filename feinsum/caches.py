"""Caches of other libraries: a damaged file, or a full disk, costs time and nothing else.

pyopencl and loopy keep SQLite files in ``~/.cache/pytools`` and raise whatever SQLite raises, so that one damaged file
would make every kernel impossible.  Here such a file counts as missing: its name goes to the log, and its dictionary lives
in memory until the process ends.

loopy 2025.2 opens six caches as it is imported, and so makes six files where there are none.  pytools 2026.1 tells SQLite
that nothing has to reach the disk at once, but only after it made the table, so that a first import would wait for the
disk 24 times: some milliseconds with a good one, much more where home directories come over a network.  So SQLite is told
before that.
"""

from __future__ import annotations

import functools
import logging
import sqlite3
import threading
from collections.abc import Callable
from typing import Any

from feinsum.effects import replace

_log = logging.getLogger(__name__)

_SCHEMA = "CREATE TABLE dict (keyhash TEXT NOT NULL PRIMARY KEY, key_value TEXT NOT NULL)"
"""The schema of pytools 2025.1 to 2026.1 (``persistent_dict.py``)."""


def tolerate_damaged_caches() -> None:
    """Let the persistent dictionaries of pytools, in all of this process, do without files that cannot be used."""
    replace("pytools.persistent_dict:_PersistentDictBase.__init__", _open_once)
    replace("pytools.persistent_dict:_PersistentDictBase._exec_sql_fn", _executed)
    replace("pytools.persistent_dict:WriteOncePersistentDict._fetch_uncached", _fetch_once)


def _open_once(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def opened(self: Any, *arguments: Any, **options: Any) -> None:
        self._is_new = True
        try:
            init(self, *arguments, **options)
        except (OSError, sqlite3.DatabaseError) as error:
            _go_round(self, error)

    return opened


def _executed(execute: Callable[[Any, Callable[[], Any]], Any]) -> Callable[[Any, Callable[[], Any]], Any]:
    @functools.wraps(execute)
    def executed(self: Any, statement: Callable[[], Any]) -> Any:
        try:
            if vars(self).pop("_is_new", False):
                self.conn.execute("PRAGMA synchronous = OFF")
            return execute(self, statement)
        except sqlite3.IntegrityError:  # a key that is there already, which the caller wants to know
            raise
        except sqlite3.DatabaseError as error:
            _go_round(self, error)
            return execute(self, statement)

    return executed


def _fetch_once(fetch: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    @functools.wraps(fetch)
    def fetched(self: Any, key: str) -> Any:
        try:
            return fetch(self, key)
        except (KeyError, MemoryError):
            raise
        except Exception as error:  # bytes that are no pickle may raise anything
            _go_round(self, error)
            raise KeyError(key) from error

    return fetched


@functools.lru_cache(maxsize=16)
def _warn_once(directory: str, why: str) -> None:
    """Warn once for a directory, which has a file for every cache."""
    _log.warning("caches in %s cannot be used (%s), which only costs time; delete damaged ones", directory, why)


def _go_round(cache: Any, error: Exception) -> None:
    """Give a dictionary an empty table in memory, and name the file that it did without."""
    _log.info("doing without the damaged cache %s: %s", cache.filename, error)
    _warn_once(cache.container_dir, str(error))
    cache.mutex = threading.Lock()
    cache.conn = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    cache.conn.execute(_SCHEMA)
