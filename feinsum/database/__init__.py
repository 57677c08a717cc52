"""Records of trials, and the stores that keep them: SQLite, PostgreSQL, and curated files of JSON Lines.

Importing this package is light; SQLAlchemy is loaded when a store is made or written, or is PostgreSQL.
"""

from __future__ import annotations

from feinsum.database.curated import CuratedRecords, curate
from feinsum.database.frozen import FrozenMapping
from feinsum.database.jsonl import ImportReport, RefusedLine
from feinsum.database.location import locate
from feinsum.database.record import STATUSES, TuningRecord, utc_now
from feinsum.database.selection import Where
from feinsum.database.stats import Stats
from feinsum.database.store import Database
from feinsum.database.stores import Stores, open_stores
from feinsum.database.trusted import best_known

__all__ = [
    "STATUSES",
    "CuratedRecords",
    "Database",
    "FrozenMapping",
    "ImportReport",
    "RefusedLine",
    "Stats",
    "Stores",
    "TuningRecord",
    "Where",
    "best_known",
    "curate",
    "locate",
    "open_stores",
    "utc_now",
]
