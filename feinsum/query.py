"""Queries: what is known about an einsum."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, SupportsIndex, overload

from feinsum.canonicalization import canonicalize_einsum
from feinsum.database import Database, TuningRecord, open_stores
from feinsum.devices import Device
from feinsum.devices import device as choose_device
from feinsum.einsum import BatchedEinsum

if TYPE_CHECKING:
    import pyopencl as cl


class QueryResult(list[TuningRecord]):
    """Records, best first: a list that shows itself as a table."""

    @overload
    def __getitem__(self, at: SupportsIndex) -> TuningRecord: ...
    @overload
    def __getitem__(self, at: slice) -> QueryResult: ...
    def __getitem__(self, at: SupportsIndex | slice) -> TuningRecord | QueryResult:
        """A record, or some of them, which show themselves like all of them."""
        return QueryResult(super().__getitem__(at)) if isinstance(at, slice) else super().__getitem__(at)

    def __repr__(self) -> str:
        from feinsum.report.displays import records_text

        return records_text(self)

    def _repr_html_(self) -> str:
        from feinsum.report.displays import records_html

        return records_html(self)


def query(
    e: BatchedEinsum,
    device: Device | str | cl.Device | cl.CommandQueue | None = None,
    database: Database | str | os.PathLike[str] | None = None,
    status: str | None = "ok",
) -> QueryResult:
    """The records of an einsum at whatever lengths of its long axes, best first.

    :param device: only records of this device (see :func:`feinsum.device`); None for all devices.
    :param database: a store to read besides the curated records; None is that of the user.
    :param status: only records of this status; None for all.
    """
    chosen = None if device is None else choose_device(device).id
    return QueryResult(open_stores(database).query(einsum_key=canonicalize_einsum(e).key, device=chosen, status=status))
