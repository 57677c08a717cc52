"""Statistics of a store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Stats:
    """Numbers of records in a store.

    :ivar location: its path or URL.
    :ivar schema_version: of its tables.
    :ivar records: all of them.
    :ivar einsums: of how many einsums they are.
    :ivar problems: of how many einsums with their sizes.
    :ivar by_status: status -> records.
    :ivar by_device: id of a device -> records.
    :ivar by_space: ``name@version`` of a space -> records.
    """

    location: str
    schema_version: int
    records: int
    einsums: int
    problems: int
    by_status: Mapping[str, int]
    by_device: Mapping[str, int]
    by_space: Mapping[str, int]

    def __str__(self) -> str:
        lines = [
            f"{self.location} (schema {self.schema_version})",
            f"{self.records} records of {self.einsums} einsums, {self.problems} with sizes",
        ]
        for title, counts in (("status", self.by_status), ("device", self.by_device), ("space", self.by_space)):
            lines += [f"{title} {name}: {number}" for name, number in counts.items()]
        return "\n".join(lines)


def summarise(
    location: str, schema_version: int, counts: Iterable[tuple[str, str, int, str, int]], einsums: int, problems: int
) -> Stats:
    """Add up `counts`: device, space, version, status and number of records."""
    status, devices, spaces = Counter[str](), Counter[str](), Counter[str]()
    for device, space, version, outcome, number in counts:
        status[outcome] += number
        devices[device] += number
        spaces[f"{space}@{version}"] += number
    by_status, by_device, by_space = (dict(sorted(c.items())) for c in (status, devices, spaces))
    return Stats(location, schema_version, status.total(), einsums, problems, by_status, by_device, by_space)
