"""Measured times of configurations, kept as text for the training of the cost model: of each record the least sample.

What else runs on a machine only adds to a time, so that of few samples the least says most.

A file of ``benchmarks/landscapes`` is about one device.  Its first line is the profile of the device, every other one
holds what was measured of one space, with the parameters it had, for one einsum at one set of lengths, times in
microseconds::

    {"einsum": KEY, "sizes": {...}, "space": "generic", "version": 1, "parameters": ["lane", "items"],
     "measured": [["last", 64, 235.6], ["longest", 16, 311.2]]}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import LANDSCAPES
from feinsum.database import Database, TuningRecord, jsonl
from feinsum.devices import DeviceProfile
from feinsum.devices.naming import slug
from feinsum.space.chain import STEPS

Configuration = tuple[tuple[str, Any], ...]


class Problem(NamedTuple):
    """One einsum at one set of lengths on one device."""

    device: str
    einsum: str
    sizes: tuple[tuple[str, int], ...]


@dataclass
class Evidence:
    """What was measured.

    :ivar times_s: problem -> space and version -> configuration -> the least time, in seconds.
    """

    profiles: dict[str, DeviceProfile] = field(default_factory=dict)
    times_s: dict[Problem, dict[tuple[str, int], dict[Configuration, float]]] = field(default_factory=dict)

    def add(self, problem: Problem, space: tuple[str, int], configuration: Mapping[str, Any], time_s: float) -> None:
        """Add one time; of an older version of a space nothing is kept where there is a newer one."""
        spaces = self.times_s.setdefault(problem, {})
        newest = max((version for name, version in spaces if name == space[0]), default=space[1])
        if space[1] < newest:
            return
        if space[1] > newest:
            del spaces[space[0], newest]
        known = spaces.setdefault(space, {})
        at = tuple(sorted(configuration.items()))
        known[at] = min(known.get(at, time_s), time_s)

    def of(self, kind: str) -> Evidence:
        """The measurements on devices of a kind whose profile is known."""
        own = {device for device, profile in self.profiles.items() if profile.kind == kind}
        return Evidence(self.profiles, {at: times_s for at, times_s in self.times_s.items() if at.device in own})

    def add_records(self, records: Iterable[TuningRecord]) -> int:
        """Add what worked, and return how much that was."""
        count = 0
        for r in records:
            if r.median_s is not None and STEPS not in r.configuration:  # a chain is learnt of by its steps
                problem = Problem(r.device, r.einsum_key, tuple(r.sizes.items()))
                self.add(problem, (r.space, r.space_version), r.configuration, min(r.samples_s))
                count += 1
        return count


def read_landscapes(folder: Path = LANDSCAPES) -> Evidence:
    """What is kept in a folder."""
    evidence = Evidence()
    for path in sorted(folder.glob("*.jsonl")):
        first, *lines = path.read_text(encoding="utf-8").splitlines()
        profile = DeviceProfile.from_json(first)
        evidence.profiles[profile.id] = profile
        for line in map(json.loads, lines):
            problem = Problem(profile.id, line["einsum"], tuple(line["sizes"].items()))
            for *values, time_us in line["measured"]:
                configuration = dict(zip(line["parameters"], values, strict=True))
                evidence.add(problem, (line["space"], line["version"]), configuration, time_us / 1e6)
    return evidence


def write_landscapes(evidence: Evidence, folder: Path = LANDSCAPES) -> None:
    """Keep all that is known of devices whose profile is known."""
    folder.mkdir(exist_ok=True)
    for device, profile in evidence.profiles.items():
        lines = sorted(
            line for problem in evidence.times_s if problem.device == device for line in _lines(evidence, problem)
        )
        (folder / f"{slug(device)}.jsonl").write_text("\n".join([profile.to_json(), *lines, ""]), encoding="utf-8")


def _lines(evidence: Evidence, problem: Problem) -> Iterator[str]:
    for (space, version), times_s in evidence.times_s[problem].items():
        about = {"einsum": problem.einsum, "sizes": dict(problem.sizes), "space": space, "version": version}
        alike: dict[tuple[str, ...], list[list[Any]]] = {}
        for configuration, t in times_s.items():
            values = [value for _, value in configuration]
            alike.setdefault(tuple(name for name, _ in configuration), []).append([*values, float(f"{t * 1e6:.4g}")])
        for parameters, measured in alike.items():  # those of before a parameter joined the space apart
            line = {**about, "parameters": parameters, "measured": sorted(measured, key=str)}
            yield json.dumps(line, separators=(",", ":"))


def read_records(place: str) -> Iterator[TuningRecord]:
    """The records of a file of JSON Lines, or of a database by path or URL."""
    if place.endswith(".jsonl"):
        for _, entry in jsonl.read_records(place):
            if isinstance(entry, TuningRecord):
                yield entry
        return
    with Database(place) as store:
        yield from store.query()
