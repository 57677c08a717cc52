"""Selections of records: the conditions that every store understands alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypedDict

from feinsum.database.field_checks import shown_value
from feinsum.database.frozen import FrozenMapping
from feinsum.database.record import STATUSES, TuningRecord
from feinsum.errors import DatabaseError


class Which(TypedDict, total=False):
    """Conditions on the records of one problem on one device; those not given, or None, are met by every record."""

    driver: str | None
    spaces: Iterable[tuple[str, int]] | None
    """Names and versions of spaces, one of which the record must have."""
    protocol: int | None


class Where(Which, total=False):
    """Conditions, all of which a record must meet; those not given, or None, are met by every record."""

    einsum_key: str | None
    pattern_key: str | None
    subscripts: str | None
    """The subscripts of the pattern, as its key writes them."""
    sizes: Mapping[str, int] | None
    device: str | None
    architecture: str | None
    space: str | None
    space_version: int | None


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The conditions of :class:`Where` and a status, checked.

    :raises DatabaseError: if the status is unknown, or sizes are given without the key whose letters they measure.
    """

    einsum_key: str | None = None
    pattern_key: str | None = None
    subscripts: str | None = None
    sizes: Mapping[str, int] | None = None
    device: str | None = None
    architecture: str | None = None
    driver: str | None = None
    space: str | None = None
    space_version: int | None = None
    spaces: Iterable[tuple[str, int]] | None = None
    protocol: int | None = None
    status: str | None = None

    def __post_init__(self) -> None:
        if self.status is not None and self.status not in STATUSES:
            raise DatabaseError(
                f"status is {shown_value(self.status)}; it is one of {', '.join(STATUSES)}, or None for all"
            )
        if self.sizes is not None:
            if self.einsum_key is None:
                raise DatabaseError("sizes are given without einsum_key, whose letters they measure; give both")
            object.__setattr__(self, "sizes", FrozenMapping(self.sizes))
        if self.spaces is not None:
            object.__setattr__(self, "spaces", tuple((name, version) for name, version in self.spaces))

    def accepts(self, record: TuningRecord) -> bool:
        """Whether `record` meets every condition."""
        if self.spaces is not None and (record.space, record.space_version) not in self.spaces:
            return False
        if self.subscripts is not None and self.subscripts != subscripts_of(record.pattern_key):
            return False
        return all(getattr(self, name) is None or getattr(self, name) == getattr(record, name) for name in _COMPARED)


_COMPARED = tuple(name for name in Selection.__dataclass_fields__ if name not in ("spaces", "subscripts"))


def subscripts_of(key: str) -> str:
    """The subscripts in a key, which are its second part."""
    return "".join(key.split("|")[1:2])


def record_order(record: TuningRecord) -> tuple[bool, float, str, str]:
    """The key by which records are sorted, best first: ok ones by median, then failures, oldest first."""
    failed = record.median_s is None
    return failed, record.median_s or 0.0, record.created if failed else "", record.id


def winners(records: Iterable[TuningRecord]) -> list[TuningRecord]:
    """The fastest record of every einsum with sizes, device and driver, fastest first; all of status ``ok``."""
    found: dict[object, TuningRecord] = {}
    for record in sorted(records, key=record_order):
        found.setdefault((record.einsum_key, record.sizes, record.device, record.driver), record)
    return list(found.values())
