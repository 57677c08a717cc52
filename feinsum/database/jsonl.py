"""Records as JSON Lines: one record a line, keys in order, lines in order: equal sets of records are equal files.

A file may come from anywhere: a line that is no record is refused with its number and the reason, and the others are read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, AnyStr, NamedTuple

from feinsum.database.record import TuningRecord
from feinsum.errors import DatabaseError

LINE_LIMIT = 1 << 20
"""Bytes of a line; a record with the largest number of samples takes about a third."""

PathLike = str | os.PathLike[str]


class RefusedLine(NamedTuple):
    """A line that is no record."""

    line: int
    """Counted from 1."""
    reason: str


@dataclass(frozen=True)
class ImportReport:
    """The outcome of an import: records `added`, `known` before, and `refused` with reasons."""

    added: int
    known: int
    refused: tuple[RefusedLine, ...] = ()

    def __str__(self) -> str:
        head = f"{self.added} records added, {self.known} known before, {len(self.refused)} lines refused"
        return "\n".join([head, *(f"line {line}: {reason}" for line, reason in self.refused)])


def read_records(source: PathLike | IO[Any]) -> Iterator[tuple[int, TuningRecord | RefusedLine]]:
    """Each line that is not blank: its number, and its record or why it is none.

    :raises DatabaseError: if the file cannot be opened or read.
    """
    try:
        with _opened_text(source) as file:
            for number, line in numbered_lines(file):
                yield number, parse_line(number, line)
    except OSError as error:
        raise DatabaseError(f"cannot read {error.filename or source}: {error.strerror}") from None


def parse_line(number: int, line: str | bytes | None) -> TuningRecord | RefusedLine:
    """The record of a line, or why it is none; None stands for a line that was too long to be held."""
    if line is None:
        return RefusedLine(number, f"longer than {LINE_LIMIT} bytes")
    try:
        return TuningRecord.from_json(line)
    except DatabaseError as error:
        return RefusedLine(number, str(error))


@contextmanager
def _opened_text(source: PathLike | IO[Any]) -> Iterator[IO[Any]]:
    if isinstance(source, (str, os.PathLike)):
        with open(source, "rb") as file:
            yield file
    else:
        yield source


def numbered_lines(file: IO[AnyStr]) -> Iterator[tuple[int, AnyStr | None]]:
    """The number and the text of each line that is not blank; None where it is too long to be held."""
    number = 0
    while line := file.readline(LINE_LIMIT + 1):
        number += 1
        newline = "\n" if isinstance(line, str) else b"\n"
        if len(line) > LINE_LIMIT and not line.endswith(newline):
            while (rest := file.readline(LINE_LIMIT)) and not rest.endswith(newline):
                pass
            yield number, None
        elif line.strip():
            yield number, line.rstrip(newline)


def write_lines(lines: Iterable[str], target: PathLike | IO[str]) -> int:
    """Write `lines` to a path or a text file; a regular file is whole or stays as it was, and links stay links.

    :return: the number of lines.
    :raises DatabaseError: if the file cannot be written.
    """
    if not isinstance(target, (str, os.PathLike)):
        return _write_to_file(lines, target)
    path = Path(os.path.realpath(target))
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        if path.exists() and not path.is_file():  # a pipe or a device, which is written to and not replaced
            with open(path, "w", encoding="utf-8", newline="\n") as file:
                return _write_to_file(lines, file)
        try:
            with open(part, "x", encoding="utf-8", newline="\n") as file:
                written = _write_to_file(lines, file)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise DatabaseError(f"cannot write {target}: {error.strerror}") from None
    return written


def _write_to_file(lines: Iterable[str], file: IO[str]) -> int:
    written = 0
    for line in lines:
        file.write(line + "\n")
        written += 1
    return written
