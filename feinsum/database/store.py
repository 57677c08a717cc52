"""A working store of records: a file of SQLite, or a database of PostgreSQL that many machines share.

Records are identified by the hash of their content, and are only ever added, except that records found wrong are replaced:
adding is idempotent, and merging stores is taking the union of two sets.  An addition that has returned survives the death
of the process.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import islice
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self, Unpack

from feinsum.database import jsonl, schema, sql, sqlite
from feinsum.database.faults import reporting
from feinsum.database.field_checks import shown_value
from feinsum.database.jsonl import ImportReport, PathLike, RefusedLine
from feinsum.database.location import locate
from feinsum.database.record import TuningRecord, Value, parse_stored
from feinsum.database.selection import Selection, Where, Which
from feinsum.database.sql import Statement
from feinsum.database.stats import Stats, summarise
from feinsum.errors import DatabaseError, UnknownStoreError

if TYPE_CHECKING:
    import sqlalchemy as sa

_BATCH = 1000
"""Records of one transaction of an import or a merge."""


class Database:
    """A store of :class:`TuningRecord`, safe to use from many threads and processes.

    :param url_or_path: the path of a SQLite file, made if there is none; a URL ``postgresql://USER@HOST/DATABASE``; or
        None for the value of the environment variable ``FEINSUM_DATABASE``, or else a file in the user's data directory.
    :param timeout_s: how long to wait for another process that writes to the same SQLite file, in seconds.
    :param create: whether to make a SQLite file that is not there.
    :raises DatabaseError: if the store cannot be opened, is corrupt, is another program's, or was made by a newer
        feinsum.  Every method raises it, with one line that says what to do, if the store fails.

    A file that cannot be written can still be read.
    """

    def __init__(self, url_or_path: PathLike | None = None, *, timeout_s: float = 30.0, create: bool = True) -> None:
        self._location = locate(url_or_path)
        self._timeout_s = timeout_s
        if not create and self._location.path is not None and not self._location.path.exists():
            raise UnknownStoreError(f"there is no store at {self._location}")
        self._closed = False
        self._open()

    def _open(self) -> None:
        path = self._location.path
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._held: sqlite3.Connection | None = None
        self._engine: sa.Engine | None = None
        self._mode: str | None = None
        with reporting(self._location):
            if path is not None and sqlite.is_current(path):
                self._mode = sqlite.choose_mode(path, self._timeout_s)
            else:
                self._engine = self._connected()
        self._file = _file_identity(path)

    def _connected(self) -> sa.Engine:
        """SQLAlchemy's way to the store, which is made or brought up to date if need be."""
        from feinsum.database import engine

        made, path = engine.connect_engine(self._location, self._timeout_s), self._location.path
        try:
            self._mode = None if path is None else sqlite.choose_mode(path, self._timeout_s)
            schema.migrate(made, self.writable, str(self._location))
        except BaseException:
            made.dispose()
            raise
        return made

    @property
    def location(self) -> str:
        """The path of the file, or the URL without its password."""
        return str(self._location)

    @property
    def writable(self) -> bool:
        """Whether records can be added."""
        return self._mode in (None, sqlite.READ_AND_WRITE)

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closed

    @property
    def current(self) -> bool:
        """Whether it is open and its file, if it is one, has not been removed or replaced since."""
        return not self._closed and self._file == _file_identity(self._location.path)

    def add(self, records: TuningRecord | Iterable[TuningRecord]) -> int:
        """Store one record or many, all or none; once this returns they survive the death of the process.

        :return: how many were not known before.
        """
        many = [records] if isinstance(records, TuningRecord) else list(records)
        for record in many:
            if not isinstance(record, TuningRecord):
                raise DatabaseError(f"{shown_value(record)} is no TuningRecord; a store holds nothing else")
        # In order of id: two transactions that insert the same rows in different orders would wait for each other.
        rows = sorted(map(sql.record_row, many), key=itemgetter("id"))
        if not rows:
            return 0
        from sqlalchemy import text

        with self._writing() as connection:
            connection.execution_options(preserve_rowcount=True)
            return connection.execute(text(sql.INSERT), rows).rowcount

    def replace(self, record: TuningRecord, by: TuningRecord) -> None:
        """Replace one record by another: a record that was found wrong has no rank any more.

        Merging another store that still has the old record brings it back.
        """
        from sqlalchemy import text

        with self._writing() as connection:
            connection.execute(text(sql.DELETE), {"id": record.id})
            connection.execute(text(sql.INSERT), [sql.record_row(by)])

    def query(self, *, status: str | None = "ok", limit: int | None = None, **where: Unpack[Where]) -> list[TuningRecord]:
        """The records that meet every condition, best first: ``ok`` by median, then failures by date.

        :param status: one of :data:`feinsum.database.STATUSES`, or None for all.
        :param where: see :class:`Where`.
        """
        selection = Selection(status=status, **where)
        return list(self._records(sql.select_records(selection, limit), selection))

    def winners(self, **where: Unpack[Where]) -> list[TuningRecord]:
        """The fastest record of every einsum with sizes, on every device and driver, fastest first."""
        selection = Selection(status="ok", **where)
        return list(self._records(sql.select_winners(selection), selection))

    def best(self, einsum_key: str, sizes: Mapping[str, int], device: str, **which: Unpack[Which]) -> TuningRecord | None:
        """The fastest record of one einsum with sizes on one device, or None.

        :param which: see :class:`Which`.
        """
        selection = Selection(einsum_key=einsum_key, sizes=sizes, device=device, status="ok", **which)
        body = self._first_body(sql.select_records(selection, limit=1))
        if body is None:
            return None
        record = parse_stored(body, self.location)
        if record and selection.accepts(record):
            return record
        others = list(self._records(sql.select_records(selection), selection))  # the row was spoilt
        return others[0] if others else None

    def configurations_tried(
        self,
        einsum_key: str,
        sizes: Mapping[str, int],
        device: str,
        space: str,
        version: int,
        driver: str,
        protocol: int | None = None,
    ) -> dict[Mapping[str, Value], TuningRecord]:
        """The best record of each configuration of a space that was tried, whatever its outcome.

        The keys are of type :class:`FrozenMapping`, as ``record.configuration`` is.
        """
        found: dict[Mapping[str, Value], TuningRecord] = {}
        for record in self.query(
            status=None,
            einsum_key=einsum_key,
            sizes=sizes,
            device=device,
            space=space,
            space_version=version,
            driver=driver,
            protocol=protocol,
        ):
            found.setdefault(record.configuration, record)
        return found

    def export_jsonl(self, target: PathLike | IO[str], *, status: str | None = None, **where: Unpack[Where]) -> int:
        """Write the records that meet every condition as sorted JSON Lines.

        :param target: a path, or a text file.
        :return: the number of records.
        """
        selection = Selection(status=status, **where)
        statement = sql.select_lines(selection, on_server=self._location.path is None)
        return jsonl.write_lines((record.to_json() for record in self._records(statement, selection)), target)

    def import_jsonl(self, source: PathLike | IO[Any]) -> ImportReport:
        """Add the records of a file of JSON Lines; lines that are no records are refused and the rest is added.

        :param source: a path, or a file open for reading text or bytes.
        """
        return self._take(jsonl.read_records(source))

    def merge(self, other: Database | PathLike) -> ImportReport:
        """Add the records of another store: a database, the path or URL of one, or a path that ends in ``.jsonl``."""
        if isinstance(other, Database):
            return self._take(other._numbered())
        if str(other).endswith(".jsonl"):
            return self.import_jsonl(other)
        with Database(other, timeout_s=self._timeout_s, create=False) as opened:
            return self._take(opened._numbered())

    def stats(self) -> Stats:
        """Numbers of records, in all and by status, device and space."""
        counts = list(self._rows(sql.COUNT))
        [(einsums, problems)] = self._rows(sql.COUNT_PROBLEMS)
        return summarise(self.location, len(schema.MIGRATIONS), counts, einsums, problems)

    def close(self) -> None:
        """Close every connection; using the store afterwards raises :class:`DatabaseError`."""
        self._closed = True
        if self._process != os.getpid():
            return  # the connections are those of the process that forked this one
        with self._lock:
            if self._held is not None:
                self._held.close()
                self._held = None
        if self._engine is not None:
            self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> tuple[type[Database], tuple[str | Path | None]]:
        return Database, (self._location.path or self._location.url,)

    def _repr_html_(self) -> str:
        from feinsum.report.displays import store_html

        return store_html(self)

    def __repr__(self) -> str:
        return f"Database({self.location!r})"

    def _take(self, entries: Iterator[tuple[int, TuningRecord | RefusedLine]]) -> ImportReport:
        """Add records in batches, so that a long import neither holds them all nor keeps other writers waiting."""
        added = known = 0
        refused: list[RefusedLine] = []
        while batch := [entry for _, entry in islice(entries, _BATCH)]:
            records = [entry for entry in batch if isinstance(entry, TuningRecord)]
            refused += [entry for entry in batch if isinstance(entry, RefusedLine)]
            new = self.add(records)
            added += new
            known += len(records) - new
        return ImportReport(added, known, tuple(refused))

    def _numbered(self) -> Iterator[tuple[int, TuningRecord | RefusedLine]]:
        statement = sql.select_lines(Selection(), on_server=self._location.path is None)
        for number, body in enumerate(self._bodies(statement), 1):
            yield number, jsonl.parse_line(number, body)

    def _records(self, statement: Statement, selection: Selection) -> Iterator[TuningRecord]:
        """The records of rows; the columns only find a row, its text must meet the conditions by itself."""
        for body in self._bodies(statement):
            if (record := parse_stored(body, self.location)) and selection.accepts(record):
                yield record

    def _bodies(self, statement: Statement) -> Iterator[str]:
        return (body for (body,) in self._rows(statement))

    def _rows(self, statement: Statement) -> Iterator[tuple[Any, ...]]:
        """The rows of a statement that only reads, as they are needed."""
        self._require_open()
        path = self._location.path
        with reporting(self._location):
            if path is None or self._mode is None:
                from sqlalchemy import text

                with self._live().connect().execution_options(yield_per=_BATCH) as connection:
                    yield from map(tuple, connection.execute(text(statement.text), statement.parameters))
            else:
                with closing(sqlite.connect_sqlite(path, self._mode, self._timeout_s)) as own:
                    yield from own.execute(statement.text, statement.parameters)

    def _first_body(self, statement: Statement) -> str | None:
        """The first row, on SQLite through a connection that stays open: 20 us rather than 200."""
        path = self._location.path
        if path is None or self._mode is None:
            rows = list(self._rows(statement))
        else:
            self._require_open()
            with reporting(self._location), self._lock:
                if self._held is None:
                    self._held = sqlite.connect_sqlite(path, self._mode, self._timeout_s)
                rows = self._held.execute(statement.text, statement.parameters).fetchall()
        return rows[0][0] if rows else None

    def _require_open(self) -> None:
        if self._closed:
            raise DatabaseError(f"the store {self._location} has been closed")
        if self._process != os.getpid():
            # After a fork.  The parent's connections must be neither used nor closed here: SQLite's locks belong to a
            # process, and PostgreSQL's server knows one client.
            self._inherited = (self._engine, self._held)
            self._open()

    def _live(self) -> sa.Engine:
        """SQLAlchemy's way to the store, from the first use on."""
        self._require_open()
        with self._lock:
            if self._engine is None:
                self._engine = self._connected()
            return self._engine

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        self._require_open()
        if not self.writable:
            raise DatabaseError(f"{self._location} is read-only; make it writable, or name another store")
        with reporting(self._location), self._live().connect() as connection:
            connection.execution_options(writes=True)
            with connection.begin():
                yield connection


def _file_identity(path: Path | None) -> tuple[int, int] | None:
    """The identity of a file, which another one of the same name has not."""
    try:
        status = None if path is None else path.stat()
    except OSError:
        return None
    return None if status is None else (status.st_dev, status.st_ino)
