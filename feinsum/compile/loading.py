"""Loading loopy without waiting for a disk.

loopy 2025.2 opens six caches as it is imported, and so makes six files where there are none.  pytools 2026.1
(``persistent_dict.py``) tells SQLite that nothing has to reach the disk at once, but only after it made the table, so that
a first import waits for the disk 24 times: some milliseconds with a good one, much more where home directories come over
a network.
"""

from __future__ import annotations

import sqlite3
import sys
from contextlib import nullcontext
from typing import Any

from feinsum.compile.pause import Pause
from feinsum.interrupts import load


class _Quick:
    """The module sqlite3, with connections that wait for no disk."""

    def __getattr__(self, name: str) -> Any:
        return getattr(sqlite3, name)

    @staticmethod
    def connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = sqlite3.connect(*arguments, **options)
        connection.execute("PRAGMA synchronous = OFF")
        return connection


def _is_waiting() -> bool:
    from pytools import persistent_dict

    return not isinstance(vars(persistent_dict).get("sqlite3"), _Quick)


def _wait(on: bool) -> None:
    from pytools import persistent_dict

    vars(persistent_dict)["sqlite3"] = sqlite3 if on else _Quick()


_waiting_paused = Pause(_is_waiting, _wait)


def load_loopy() -> None:
    """Import loopy, or wait until another thread has; anybody may import it afterwards."""
    with nullcontext() if "loopy" in sys.modules else _waiting_paused:
        load("loopy")
