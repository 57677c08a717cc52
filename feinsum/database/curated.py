"""Curated records: files of JSON Lines under ``feinsum.tuning_db``, one a device, reviewed like code.

A file is read once, when a query names its device, and a line is parsed when a query names a key that it may hold: 0.13 ms
a record is much where one of hundreds is wanted.  The device that a record names counts; the name of its file only says
where to look for it.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import NamedTuple, Unpack

from feinsum.database import jsonl
from feinsum.database.record import TuningRecord
from feinsum.database.selection import Selection, Where, Which, order, winners

_log = logging.getLogger(__name__)


def file_name(device: str) -> str:
    """The file of curated records of a device.

    >>> file_name("NVIDIA H200 (CUDA)")
    'nvidia-h200-cuda.jsonl'
    """
    return (re.sub(r"[^a-z0-9._]+", "-", device.lower()).strip("-.")[:100] or "device") + ".jsonl"


def curate(records: Iterable[TuningRecord], directory: str | Path) -> list[Path]:
    """Add records to the curated files in `directory`, and return the files written.

    :raises DatabaseError: if a file cannot be read or written.
    """
    by_file: dict[Path, set[str]] = {}
    for record in records:
        by_file.setdefault(Path(directory) / file_name(record.device), set()).add(record.to_json())
    for path, lines in by_file.items():
        if path.exists():
            lines |= {entry.to_json() for _, entry in jsonl.read(path) if isinstance(entry, TuningRecord)}
        jsonl.write(sorted(lines), path)
    return sorted(by_file)


class _Line(NamedTuple):
    """A line of a file that nobody has parsed; no text if it is too long to be held.

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
                self._waiting = [_Line(number, text, not _is_plain(text)) for number, text in jsonl.numbered(file)]

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
        entry = jsonl.parse(number, line)
        if isinstance(entry, TuningRecord):
            self._records[entry.id] = entry
        else:
            _log.warning("line %d of the curated records %s: %s", number, self._name, entry.reason)


def _is_plain(line: bytes | None) -> bool:
    """Whether texts are in a line as they are: where JSON writes each character as itself, without ``\\u003e``."""
    return line is not None and line.startswith(b"{") and b"\\" not in line


class CuratedRecords:
    """The records in a directory of JSON Lines.

    :param root: the directory; by default the one that is part of feinsum.
    """

    def __init__(self, root: Traversable | None = None) -> None:
        self._given = root
        self._files: dict[str, _File] = {}

    @cached_property
    def _root(self) -> Traversable:
        return files("feinsum.tuning_db") if self._given is None else self._given

    def query(self, *, status: str | None = "ok", limit: int | None = None, **where: Unpack[Where]) -> list[TuningRecord]:
        """As :meth:`Database.query`."""
        return sorted(self._select(Selection(status=status, **where)), key=order)[:limit]

    def winners(self, **where: Unpack[Where]) -> list[TuningRecord]:
        """As :meth:`Database.winners`."""
        return winners(self._select(Selection(status="ok", **where)))

    def best(self, einsum_key: str, sizes: Mapping[str, int], device: str, **which: Unpack[Which]) -> TuningRecord | None:
        """As :meth:`Database.best`."""
        selection = Selection(einsum_key=einsum_key, sizes=sizes, device=device, status="ok", **which)
        return min(self._select(selection), key=order, default=None)

    def _select(self, selection: Selection) -> Iterator[TuningRecord]:
        if selection.device is None:
            names = [entry.name for entry in self._root.iterdir() if entry.name.endswith(".jsonl")]
        else:
            names = [file_name(selection.device)]
        keys = (key for key in (selection.einsum_key, selection.pattern_key) if key is not None)
        texts = [json.dumps(key, ensure_ascii=False).encode() for key in keys]
        if selection.subscripts is not None:
            texts.append(f"|{selection.subscripts}|".encode())
        for name in names:
            if name not in self._files:
                self._files[name] = _File(self._root / name)
            found = self._files[name].holding(texts)
            yield from filter(selection.accepts, found)
