"""The working store and the curated records read together, as ``generate`` reads them.

Kernels can be made without the working store, so one that fails is noted once and done without, and tried again later.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar, Unpack

from feinsum.database.curated import CuratedRecords
from feinsum.database.jsonl import PathLike
from feinsum.database.location import VARIABLE, Location, locate
from feinsum.database.record import TuningRecord
from feinsum.database.selection import Where, Which, record_order, winners
from feinsum.database.store import Database
from feinsum.errors import DatabaseError

_log = logging.getLogger(__name__)

_CURATED = CuratedRecords()
_SHARED: dict[Location, Database] = {}
"""The databases that this process has open, so that the second ``generate`` does not open one again."""
_failed: dict[str, float] = {}
"""When stores that fail were last tried, by their place; on the clock :func:`time.monotonic`."""
_AGAIN_S = 60.0
"""Seconds for which a store that failed is not tried again: a server that hangs takes as long as its time limit."""

T = TypeVar("T")


@dataclass(frozen=True)
class Stores:
    """Two sources of records at once; the methods are those of :class:`Database`.

    :ivar working: the user's store; None where there is none.
    :ivar curated: the records that come with feinsum.
    :ivar place: the working store as messages name it; empty where there is none.
    :ivar tolerant: whether to do without the working store where it fails.
    """

    working: Database | None
    curated: CuratedRecords
    place: str = field(default="", compare=False)
    tolerant: bool = field(default=False, compare=False)

    @property
    def partial(self) -> bool:
        """Whether a working store is done without at present because it failed."""
        return self.tolerant and self.place in _failed

    def query(self, *, status: str | None = "ok", limit: int | None = None, **where: Unpack[Where]) -> list[TuningRecord]:
        """The records of both, each once, best first; see :meth:`Database.query`."""
        found = {record.id: record for record in self.curated.query(status=status, limit=limit, **where)}
        none: list[TuningRecord] = []
        own = self._ask(lambda store: store.query(status=status, limit=limit, **where), none)
        found |= {record.id: record for record in own}
        return sorted(found.values(), key=record_order)[:limit]

    def winners(self, **where: Unpack[Where]) -> list[TuningRecord]:
        """The fastest record of both for every einsum with sizes, device and driver; see :meth:`Database.winners`."""
        none: list[TuningRecord] = []
        return winners([*self.curated.winners(**where), *self._ask(lambda store: store.winners(**where), none)])

    def best(self, einsum_key: str, sizes: Mapping[str, int], device: str, **which: Unpack[Which]) -> TuningRecord | None:
        """The faster of the two best records; see :meth:`Database.best`."""
        if (spaces := which.get("spaces")) is not None:
            which["spaces"] = tuple(spaces)  # both read it
        found = self.curated.best(einsum_key, sizes, device, **which)
        tuned = self._ask(lambda store: store.best(einsum_key, sizes, device, **which), None)
        if found is None or tuned is None:
            return found or tuned
        return min(found, tuned, key=record_order)

    def is_curated(self, record: TuningRecord) -> bool:
        """Whether a record comes with feinsum."""
        where: Where = {"einsum_key": record.einsum_key, "sizes": record.sizes, "device": record.device}
        return record in self.curated.query(**where)

    def _ask(self, question: Callable[[Database], T], nothing: T) -> T:
        """The answer of the working store; `nothing` where there is no such store, or it is done without."""
        if self.working is None or (self.tolerant and _rests(self.place)):
            return nothing
        try:
            answer = question(self.working)
        except DatabaseError as error:
            if not self.tolerant or self.working.closed:
                raise
            _do_without(self.place, error)
            return nothing
        _failed.pop(self.place, None)
        return answer


def open_stores(
    database: Database | PathLike | None = None, curated: CuratedRecords | None = None, *, tolerant: bool = False
) -> Stores:
    """The stores to read from: `database`, or what names one, and the curated records.

    A database given by path, by URL or by default is opened once in a process and stays open.  The default one is not made
    for reading.

    :param curated: other curated records than those that are part of feinsum.
    :param tolerant: do without a database that fails, now or later, and say so once.
    :raises DatabaseError: unless `tolerant`, if a database that was named, here or by ``FEINSUM_DATABASE``, cannot be
        opened; in any case if its name is malformed.  The one in the user's data directory, which nobody named, is done
        without.
    """
    curated = curated or _CURATED
    if isinstance(database, Database):
        return Stores(database, curated, database.location, tolerant)
    location = locate(database)
    place = str(location)
    named = database is not None or bool(os.environ.get(VARIABLE))
    if not named and location.path is not None and not location.path.exists():
        return Stores(None, curated)
    if tolerant and _rests(place):
        return Stores(None, curated, place, tolerant)
    working = _SHARED.get(location)
    if working is None or not working.current:
        try:
            working = _SHARED[location] = Database(location.path or location.url)
        except DatabaseError as error:
            if named and not tolerant:
                raise
            _do_without(place, error)
            return Stores(None, curated, place, tolerant=True)
        _failed.pop(place, None)
    return Stores(working, curated, place, tolerant)


def _rests(place: str) -> bool:
    """Whether a store failed so recently that it is not tried again."""
    return time.monotonic() - _failed.get(place, -math.inf) < _AGAIN_S


def _do_without(place: str, error: DatabaseError) -> None:
    """Note that a store failed, once until it works again."""
    if place not in _failed:
        _log.warning("going on with curated records only: %s", error)
    _failed[place] = time.monotonic()
