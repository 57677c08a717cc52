"""Queries: the records of an einsum."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, SupportsIndex, overload

from feinsum.canonicalization import canonicalize_einsum
from feinsum.database import Database, TuningRecord, open_stores
from feinsum.devices import Device
from feinsum.devices import device as choose_device
from feinsum.einsum import BatchedEinsum

if TYPE_CHECKING:
    import pyopencl as cl


class QueryResult(list[TuningRecord]):
    """Records, best first: a list that shows itself as a table.

    :ivar letters: the indices of the einsum that was asked about, by those of its canonical form.
    :ivar mine: the ids of those that are in the user's store, and not among the curated ones.
    """

    def __init__(
        self, records: Iterable[TuningRecord] = (), letters: Mapping[str, str] | None = None, mine: Iterable[str] = ()
    ) -> None:
        super().__init__(records)
        self.letters = dict(letters or {})
        self.mine = frozenset(mine)

    @overload
    def __getitem__(self, at: SupportsIndex) -> TuningRecord: ...
    @overload
    def __getitem__(self, at: slice) -> QueryResult: ...
    def __getitem__(self, at: SupportsIndex | slice) -> TuningRecord | QueryResult:
        """A record, or some of them, which show themselves like all of them."""
        if isinstance(at, slice):
            return QueryResult(super().__getitem__(at), self.letters, self.mine)
        return super().__getitem__(at)

    def __repr__(self) -> str:
        from feinsum.report.displays import records_text

        return records_text(self, self.letters)

    def _repr_html_(self) -> str:
        from feinsum.report.displays import records_html

        return records_html(self, self.letters)


def query(
    e: BatchedEinsum,
    device: Device | str | cl.Device | cl.CommandQueue | None = None,
    database: Database | str | os.PathLike[str] | None = None,
    status: str | None = "ok",
    *,
    mine: bool = False,
) -> QueryResult:
    """The records of an einsum at whatever lengths of its long axes, best first.

    :param device: only records of this device (see :func:`feinsum.device`); None for all devices.
    :param database: a store to read besides the curated records; None is that of the user.
    :param status: only records of this status; None for all.
    :param mine: leave out the curated records.
    """
    chosen = None if device is None else choose_device(device).id
    canonical = canonicalize_einsum(e)
    stores = open_stores(database)
    curated = {r.id for r in stores.curated.query(einsum_key=canonical.key, device=chosen, status=status)}
    found = stores.query(einsum_key=canonical.key, device=chosen, status=status)
    own = [r.id for r in found if r.id not in curated]
    return QueryResult((r for r in found if not mine or r.id not in curated), canonical.renaming.inverse.indices, own)
