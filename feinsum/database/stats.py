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
    :ivar by_month: the month in which they were made, as in ``2026-11`` -> records.
    :ivar months: id of a device -> the first and the last month of its records.
    """

    location: str
    schema_version: int
    records: int
    einsums: int
    problems: int
    by_status: Mapping[str, int]
    by_device: Mapping[str, int]
    by_space: Mapping[str, int]
    by_month: Mapping[str, int]
    months: Mapping[str, tuple[str, str]]

    def __str__(self) -> str:
        return self.told({})

    def told(self, versions: Mapping[str, int]) -> str:
        """The numbers, a line for each.

        :param versions: name of a space -> its present version, where records of another one are to be marked.
        """
        lines = [
            f"{self.location} (schema {self.schema_version})",
            f"{self.records} records of {self.einsums} einsums, {self.problems} with sizes",
        ]
        verdicts = self.verdicts(versions) if versions else {}
        for title, counts in (
            ("status", self.by_status),
            ("device", self.by_device),
            ("month", self.by_month),
            ("space", self.by_space),
        ):
            for name, number in counts.items():
                months = " to ".join(dict.fromkeys(self.months[name])) if title == "device" else ""
                more = verdicts.get(name, "") if title == "space" else f"made in {months}" if months else ""
                lines.append(f"{title} {name}: {number}{', ' if more else ''}{more}")
        return "\n".join(lines)

    def verdicts(self, versions: Mapping[str, int]) -> dict[str, str]:
        """``name@version`` of a space whose records are not looked up -> why: a version of a space says which kernels it
        makes, so another one makes others, or the space is not here.

        :param versions: name of a space -> its present version.
        """
        found = {}
        for kept in self.by_space:
            name, _, version = kept.rpartition("@")
            if name not in versions:
                found[kept] = "there is no such space here"
            elif versions[name] > int(version):
                found[kept] = f"version {versions[name]} of the space makes other kernels; tune again"
            elif versions[name] < int(version):
                found[kept] = f"made by a newer feinsum; here the space has version {versions[name]}"
        return found


def summarise(
    location: str, schema_version: int, counts: Iterable[tuple[str, str, int, str, str, int]], einsums: int, problems: int
) -> Stats:
    """Add up `counts`: device, space, version, status, month and number of records."""
    status, devices, spaces, months = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    spans: dict[str, tuple[str, str]] = {}
    for device, space, version, outcome, month, number in counts:
        status[outcome] += number
        devices[device] += number
        spaces[f"{space}@{version}"] += number
        months[month] += number
        first, last = spans.get(device, (month, month))
        spans[device] = min(first, month), max(last, month)
    by_status, by_device, by_space, by_month = (dict(sorted(c.items())) for c in (status, devices, spaces, months))
    return Stats(
        location, schema_version, status.total(), einsums, problems, by_status, by_device, by_space, by_month, spans
    )
