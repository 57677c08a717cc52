"""Curated records: files of JSON Lines under ``feinsum.tuning_db``, one a device, reviewed like code.

A package contributes records through the entry-point group ``feinsum.records``; each entry point names a package, in whose
folder such files lie.  ``profiles.json`` beside them describes the devices, for those who have none of them.

A file is read once, when a query names its device, and a line is parsed when a query names a key that it may hold: 0.13 ms
a record is much where one of hundreds is wanted.  The device that a record names counts; the name of its file only says
where to look for it.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from importlib.metadata import entry_points
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, Unpack

from feinsum.database import jsonl, schema
from feinsum.database.record import TuningRecord
from feinsum.database.selection import Selection, Where, Which, record_order, winners
from feinsum.database.stats import Stats, summarise
from feinsum.devices import DeviceProfile
from feinsum.errors import DatabaseError, DeviceError, told

_log = logging.getLogger(__name__)

ENTRY_POINT_GROUP = "feinsum.records"
PROFILES = "profiles.json"


def file_name(device: str) -> str:
    """The file of curated records of a device.

    >>> file_name("NVIDIA H200 (CUDA)")
    'nvidia-h200-cuda.jsonl'
    """
    return (re.sub(r"[^a-z0-9._]+", "-", device.lower()).strip("-.")[:100] or "device") + ".jsonl"


def curate(records: Iterable[TuningRecord], directory: str | Path, profiles: Iterable[DeviceProfile] = ()) -> list[Path]:
    """Add records to the curated files in `directory`, which is made if there is none, and return the files written.

    :param profiles: of devices that are here; those with records are described in ``profiles.json``, too.
    :raises DatabaseError: if a file cannot be read or written.
    """
    by_file: dict[Path, set[str]] = {}
    devices: set[str] = set()
    for record in records:
        by_file.setdefault(Path(directory) / file_name(record.device), set()).add(record.to_json())
        devices.add(record.device)
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatabaseError(f"cannot create {directory}: {error.strerror}") from None
    for path, lines in by_file.items():
        if path.exists():
            lines |= {entry.to_json() for _, entry in jsonl.read_records(path) if isinstance(entry, TuningRecord)}
        jsonl.write_lines(sorted(lines), path)
    described = [profile for profile in profiles if profile.id in devices]
    return sorted((*by_file, *([_add_profiles(described, Path(directory) / PROFILES)] if described else ())))


def _add_profiles(profiles: Iterable[DeviceProfile], path: Path) -> Path:
    """Add profiles to a file of them, one a line, by id."""
    known = {profile.id: profile.to_json() for profile in (*_profiles_in(path), *profiles)}
    lines = ",\n".join(known[name] for name in sorted(known))
    jsonl.write_lines([f"[{lines}]"], path)
    return path


def _profiles_in(path: Traversable) -> Iterator[DeviceProfile]:
    """The profiles in a file; one that is none is left out, with a warning."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    except (OSError, ValueError, RecursionError) as error:
        _log.warning("%s cannot be read: %s", path, error)
        return
    for entry in entries if isinstance(entries, list) else ():
        try:
            yield DeviceProfile.from_dict(entry)
        except DeviceError as error:
            _log.warning("%s: %s", path, error)


@lru_cache(maxsize=1)
def contributed_folders() -> tuple[Path, ...]:
    """The folders of records of installed packages; a package that cannot be found is left out, with a warning."""
    found: list[Path] = []
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        try:
            spec = find_spec(entry.value)
        except Exception as error:  # whatever a package around it raises
            _log.warning("the records of '%s' cannot be found: %s", entry.value, told(error))
            continue
        if spec is None or spec.submodule_search_locations is None:
            _log.warning("'%s' of the entry point '%s' is no package, so it has no records", entry.value, entry.name)
        else:
            found += map(Path, spec.submodule_search_locations)
    return tuple(found)


class _Line(NamedTuple):
    """A line of a file, not parsed yet; without text if it is too long to be held.

    :ivar may_hold_any: whether it may hold texts that cannot be seen in it.
    """

    number: int
    text: bytes | None
    may_hold_any: bool


class _File:
    """The lines of a file, parsed as they are needed.

    A line that is no record is passed over, with a warning in the log.
    """

    def __init__(self, path: Traversable) -> None:
        self._name = path.name
        self._waiting: list[_Line] = []
        self._records: dict[str, TuningRecord] = {}
        if path.is_file():
            with path.open("rb") as file:
                self._waiting = [
                    _Line(number, text, not _is_plain_line(text)) for number, text in jsonl.numbered_lines(file)
                ]

    def holding(self, texts: Sequence[bytes]) -> list[TuningRecord]:
        """All records whose lines hold these texts, and perhaps others."""
        found = self._waiting
        for text in texts:  # most lines leave at the first
            found = [line for line in found if line.may_hold_any or text in (line.text or b"")]
        if found:
            numbers = {line.number for line in found}
            for line in found:
                self._parse(line.number, line.text)
            # What two threads parse at once is there once nevertheless.
            self._waiting = [line for line in self._waiting if line.number not in numbers]
        return list(self._records.values())

    def _parse(self, number: int, line: bytes | None) -> None:
        entry = jsonl.parse_line(number, line)
        if isinstance(entry, TuningRecord):
            self._records[entry.id] = entry
        else:
            _log.warning("line %d of the curated records %s: %s", number, self._name, entry.reason)


def _is_plain_line(line: bytes | None) -> bool:
    """Whether texts are in a line as they are: where JSON writes each character as itself, without ``\\u003e``."""
    return line is not None and line.startswith(b"{") and b"\\" not in line


class CuratedRecords:
    """The records in a directory of JSON Lines.

    :param root: the directory; by default the one that is part of feinsum, and those of installed packages.
    """

    def __init__(self, root: Traversable | None = None) -> None:
        self._given = root
        self._files: dict[str, _File] = {}

    @property
    def _roots(self) -> Sequence[Traversable]:
        return (self._own, *contributed_folders()) if self._given is None else (self._given,)

    @cached_property
    def _own(self) -> Traversable:
        return files("feinsum.tuning_db")

    def profiles(self) -> list[DeviceProfile]:
        """The devices that are described beside the records, each once."""
        return list({profile.id: profile for root in self._roots for profile in _profiles_in(root / PROFILES)}.values())

    def stats(self) -> Stats:
        """Numbers of the records, as :meth:`Database.stats`."""
        found = self.query(status=None)
        counts = [(r.device, r.space, r.space_version, r.status, r.created[:7], 1) for r in found]
        einsums, problems = {r.einsum_key for r in found}, {(r.einsum_key, *sorted(r.sizes.items())) for r in found}
        return summarise("curated records", len(schema.MIGRATIONS), counts, len(einsums), len(problems))

    def query(self, *, status: str | None = "ok", limit: int | None = None, **where: Unpack[Where]) -> list[TuningRecord]:
        """See :meth:`Database.query`."""
        return sorted(self._select(Selection(status=status, **where)), key=record_order)[:limit]

    def winners(self, **where: Unpack[Where]) -> list[TuningRecord]:
        """See :meth:`Database.winners`."""
        return winners(self._select(Selection(status="ok", **where)))

    def best(self, einsum_key: str, sizes: Mapping[str, int], device: str, **which: Unpack[Which]) -> TuningRecord | None:
        """See :meth:`Database.best`."""
        selection = Selection(einsum_key=einsum_key, sizes=sizes, device=device, status="ok", **which)
        return min(self._select(selection), key=record_order, default=None)

    def _select(self, selection: Selection) -> Iterator[TuningRecord]:
        keys = (key for key in (selection.einsum_key, selection.pattern_key) if key is not None)
        texts = [json.dumps(key, ensure_ascii=False).encode() for key in keys]
        if selection.subscripts is not None:
            texts.append(f"|{selection.subscripts}|".encode())
        for root in self._roots:
            if selection.device is None:
                names = [entry.name for entry in root.iterdir() if entry.name.endswith(".jsonl")]
            else:
                names = [file_name(selection.device)]
            for name in names:
                at = f"{root}/{name}"
                if at not in self._files:
                    self._files[at] = _File(root / name)
                yield from filter(selection.accepts, self._files[at].holding(texts))
