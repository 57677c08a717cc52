"""The working store and the curated records read together, as ``generate`` reads them."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Unpack

from feinsum.database.curated import CuratedRecords
from feinsum.database.jsonl import PathLike
from feinsum.database.location import VARIABLE, Location, locate
from feinsum.database.record import TuningRecord
from feinsum.database.selection import Where, Which, order, winners
from feinsum.database.store import Database
from feinsum.errors import DatabaseError

_log = logging.getLogger(__name__)

_CURATED = CuratedRecords()
_SHARED: dict[Location, Database] = {}
"""The databases that this process has open, so that the second ``generate`` does not open one again."""


@dataclass(frozen=True)
class Stores:
    """Two sources of records at once; the methods are those of :class:`Database`.

    :ivar working: the user's store; None where there is none.
    :ivar curated: the records that come with feinsum.
    """

    working: Database | None
    curated: CuratedRecords

    def query(self, *, status: str | None = "ok", limit: int | None = None, **where: Unpack[Where]) -> list[TuningRecord]:
        """The records of both, each once, best first; see :meth:`Database.query`."""
        found = {record.id: record for record in self.curated.query(status=status, limit=limit, **where)}
        if self.working is not None:
            found |= {record.id: record for record in self.working.query(status=status, limit=limit, **where)}
        return sorted(found.values(), key=order)[:limit]

    def winners(self, **where: Unpack[Where]) -> list[TuningRecord]:
        """The fastest record of both for every einsum with sizes, device and driver; see :meth:`Database.winners`."""
        found = self.curated.winners(**where)
        if self.working is not None:
            found += self.working.winners(**where)
        return winners(found)

    def best(self, einsum_key: str, sizes: Mapping[str, int], device: str, **which: Unpack[Which]) -> TuningRecord | None:
        """The faster of the two best records; see :meth:`Database.best`."""
        if (spaces := which.get("spaces")) is not None:
            which["spaces"] = tuple(spaces)  # both read it
        found = self.curated.best(einsum_key, sizes, device, **which)
        if self.working is None:
            return found
        tuned = self.working.best(einsum_key, sizes, device, **which)
        if found is None or tuned is None:
            return found or tuned
        return min(found, tuned, key=order)


def open_stores(database: Database | PathLike | None = None, curated: CuratedRecords | None = None) -> Stores:
    """The stores to read from: `database`, or what names one, and the curated records.

    A database given by path, by URL or by default is opened once in a process and stays open.  The default one is not made
    for reading.

    :param curated: other curated records than those that are part of feinsum.
    :raises DatabaseError: if a database that was named, here or by ``FEINSUM_DATABASE``, cannot be opened.  The one in
        the user's data directory, which nobody named, is done without.
    """
    if isinstance(database, Database):
        return Stores(database, curated or _CURATED)
    location = locate(database)
    named = database is not None or bool(os.environ.get(VARIABLE))
    if not named and location.path is not None and not location.path.exists():
        return Stores(None, curated or _CURATED)
    working = _SHARED.get(location)
    if working is None or not working.current:
        try:
            working = _SHARED[location] = Database(location.path or location.url)
        except DatabaseError as error:
            if named:
                raise
            _log.warning("going on with curated records only: %s", error)
            working = None
    return Stores(working, curated or _CURATED)
