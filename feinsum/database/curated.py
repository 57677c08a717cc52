"""Curated records: files of JSON Lines under ``feinsum.tuning_db``, one a device, reviewed like code.

The files are read only for the device that is asked for, once, and are looked up in memory.  What counts is the device
that a record names; the name of its file only says where to look for it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Unpack

from feinsum.database import jsonl
from feinsum.database.frozen import FrozenMapping
from feinsum.database.record import TuningRecord
from feinsum.database.selection import Selection, Where, order, winners

_log = logging.getLogger(__name__)

Problem = tuple[str, Mapping[str, int]]


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


class CuratedRecords:
    """The records in a directory of JSON Lines, in memory once read.

    :param root: the directory; by default the one that is part of feinsum.

    A line that is no record is passed over, with a warning in the log.
    """

    def __init__(self, root: Traversable | None = None) -> None:
        self._given = root
        self._read: dict[str, dict[Problem, list[TuningRecord]]] = {}

    @cached_property
    def _root(self) -> Traversable:
        return files("feinsum.tuning_db") if self._given is None else self._given

    def query(self, *, status: str | None = "ok", limit: int | None = None, **where: Unpack[Where]) -> list[TuningRecord]:
        """As :meth:`Database.query`."""
        selection = Selection(status=status, **where)
        return sorted(self._select(selection), key=order)[:limit]

    def winners(self, **where: Unpack[Where]) -> list[TuningRecord]:
        """As :meth:`Database.winners`."""
        return winners(self._select(Selection(status="ok", **where)))

    def best(
        self,
        einsum_key: str,
        sizes: Mapping[str, int],
        device: str,
        *,
        driver: str | None = None,
        spaces: Iterable[tuple[str, int]] | None = None,
        protocol: int | None = None,
    ) -> TuningRecord | None:
        """As :meth:`Database.best`."""
        found = self._file(file_name(device)).get((einsum_key, FrozenMapping(sizes)))
        if not found:
            return None
        selection = Selection(device=device, driver=driver, spaces=spaces, protocol=protocol, status="ok")
        return next((record for record in found if selection.accepts(record)), None)

    def _select(self, selection: Selection) -> list[TuningRecord]:
        if selection.device is None:
            names = [entry.name for entry in self._root.iterdir() if entry.name.endswith(".jsonl")]
        else:
            names = [file_name(selection.device)]
        problems = (records for name in names for records in self._file(name).values())
        return [record for records in problems for record in records if selection.accepts(record)]

    def _file(self, name: str) -> dict[Problem, list[TuningRecord]]:
        """The records of a file by problem, each list best first; nothing where there is no such file."""
        if name not in self._read:
            found: dict[Problem, dict[str, TuningRecord]] = {}
            path = self._root / name
            if path.is_file():
                with path.open("rb") as file:
                    for number, entry in jsonl.read(file):
                        if isinstance(entry, TuningRecord):
                            found.setdefault((entry.einsum_key, entry.sizes), {})[entry.id] = entry
                        else:
                            _log.warning("line %d of the curated records %s: %s", number, name, entry.reason)
            self._read[name] = {problem: sorted(many.values(), key=order) for problem, many in found.items()}
        return self._read[name]
