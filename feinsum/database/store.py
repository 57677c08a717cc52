"""A working store of records: a file of SQLite, or a database of PostgreSQL that many machines share.

Records are only ever added, and known by the hash of their content: adding is idempotent, and merging stores is taking
the union of two sets.  An addition that has returned survives the death of the process.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self, Unpack

from feinsum.database import jsonl
from feinsum.database.checks import shown
from feinsum.database.jsonl import ImportReport, PathLike, RefusedLine
from feinsum.database.location import locate
from feinsum.database.record import TuningRecord, Value, parse_stored
from feinsum.database.selection import Selection, Where, Which
from feinsum.database.stats import Stats, summarise
from feinsum.errors import DatabaseError

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
            raise DatabaseError(f"there is no store at {self._location}")
        self._closed = False
        self._open()

    def _open(self) -> None:
        from feinsum.database import engine, schema

        with engine.reporting(self._location):
            self._engine, self._writable = engine.connect(self._location, self._timeout_s)
            try:
                schema.migrate(self._engine, self._writable, str(self._location))
            except BaseException:
                self._engine.dispose()
                raise
        self._file = _identity(self._location.path)
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._held: sa.PoolProxiedConnection | None = None

    @property
    def location(self) -> str:
        """The path of the file, or the URL without its password."""
        return str(self._location)

    @property
    def writable(self) -> bool:
        """Whether records can be added."""
        return self._writable

    @property
    def current(self) -> bool:
        """Whether it is open and its file, if it is one, has not been removed or replaced since."""
        return not self._closed and self._file == _identity(self._location.path)

    def add(self, records: TuningRecord | Iterable[TuningRecord]) -> int:
        """Store one record or many, all or none; once this returns they survive the death of the process.

        :return: how many were not known before.
        """
        from feinsum.database import statements

        many = [records] if isinstance(records, TuningRecord) else list(records)
        for record in many:
            if not isinstance(record, TuningRecord):
                raise DatabaseError(f"{shown(record)} is no TuningRecord; a store holds nothing else")
        # In order of id: two transactions that insert the same rows in different orders would wait for each other.
        rows = sorted(map(statements.row, many), key=itemgetter("id"))
        if not rows:
            return 0
        with self._writing() as connection:
            connection.execution_options(preserve_rowcount=True)
            return connection.execute(statements.insert(connection.dialect.name), rows).rowcount

    def query(self, *, status: str | None = "ok", limit: int | None = None, **where: Unpack[Where]) -> list[TuningRecord]:
        """The records that meet every condition, best first: ``ok`` by median, then failures by date.

        :param status: one of :data:`feinsum.database.STATUSES`, or None for all.
        :param where: see :class:`Where`.
        """
        from feinsum.database import statements

        selection = Selection(status=status, **where)
        return list(self._records(statements.select(selection, limit), selection))

    def winners(self, **where: Unpack[Where]) -> list[TuningRecord]:
        """The quickest record of every einsum with sizes, on every device and driver, quickest first."""
        from feinsum.database import statements

        selection = Selection(status="ok", **where)
        return list(self._records(statements.select_winners(selection), selection))

    def best(self, einsum_key: str, sizes: Mapping[str, int], device: str, **which: Unpack[Which]) -> TuningRecord | None:
        """The quickest record of one einsum with sizes on one device, or None.

        :param which: see :class:`Which`.
        """
        from feinsum.database import statements

        spaces, driver, protocol = which.get("spaces"), which.get("driver"), which.get("protocol")
        pairs = None if spaces is None else tuple(spaces)
        parameters: dict[str, Any] = {"problem": statements.digest(einsum_key, sizes), "device": device}
        for k, (name, version) in enumerate(pairs or ()):
            parameters[f"space_{k}"], parameters[f"version_{k}"] = name, version
        parameters |= {name: x for name, x in (("driver", driver), ("protocol", protocol)) if x is not None}
        shape = None if pairs is None else len(pairs), driver is not None, protocol is not None
        body = self._body_of_best(shape, parameters)
        if body is None:
            return None
        record = parse_stored(body, self.location)
        if record and (record.einsum_key, record.sizes, record.device) == (einsum_key, sizes, device):
            return record
        good = self.query(einsum_key=einsum_key, sizes=sizes, device=device, driver=driver, spaces=pairs, protocol=protocol)
        return good[0] if good else None

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
        """The best record of each configuration of a space that was tried, whatever became of it.

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
        from feinsum.database import statements

        selection = Selection(status=status, **where)
        statement = statements.select_lines(selection, self._live().dialect.name)
        return jsonl.write((record.to_json() for record in self._records(statement, selection)), target)

    def import_jsonl(self, source: PathLike | IO[Any]) -> ImportReport:
        """Add the records of a file of JSON Lines; lines that are no records are refused and the rest is added.

        :param source: a path, or a file open for reading text or bytes.
        """
        return self._take(jsonl.read(source))

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
        from feinsum.database import schema, statements

        with self._reading() as connection:
            counts = [tuple(row) for row in connection.execute(statements.count())]
            einsums, problems = connection.execute(statements.count_problems()).one()
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
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> tuple[type[Database], tuple[str | Path | None]]:
        return Database, (self._location.path or self._location.url,)

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
        from feinsum.database import statements

        statement = statements.select_lines(Selection(), self._live().dialect.name)
        for number, body in enumerate(self._bodies(statement), 1):
            yield number, jsonl.parse(number, body)

    def _records(self, statement: sa.Select[Any], selection: Selection) -> Iterator[TuningRecord]:
        """The records of rows; the columns only find a row, its text must meet the conditions by itself."""
        for body in self._bodies(statement):
            if (record := parse_stored(body, self.location)) and selection.accepts(record):
                yield record

    def _bodies(self, statement: sa.Select[Any]) -> Iterator[str]:
        with self._reading() as connection:
            yield from connection.execution_options(yield_per=_BATCH).execute(statement).scalars()

    def _live(self) -> sa.Engine:
        if self._closed:
            raise DatabaseError(f"the store {self._location} has been closed")
        if self._process != os.getpid():
            # After a fork.  The parent's connections must be neither used nor closed here: SQLite's locks belong to a
            # process, and PostgreSQL's server knows one client.
            self._inherited = (self._engine, self._held)
            self._open()
        return self._engine

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        from feinsum.database import engine

        with engine.reporting(self._location), self._live().connect() as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        from feinsum.database import engine

        live = self._live()
        if not self._writable:
            raise DatabaseError(f"{self._location} is read-only; make it writable, or name another store")
        with engine.reporting(self._location), live.connect() as connection:
            connection.execution_options(writes=True)
            with connection.begin():
                yield connection

    def _body_of_best(self, shape: tuple[int | None, bool, bool], parameters: dict[str, Any]) -> str | None:
        """One row for :meth:`best`, on SQLite through a connection of the driver that stays open."""
        from feinsum.database import engine, statements

        live = self._live()
        if live.dialect.name != "sqlite":
            with self._reading() as connection:
                body: str | None = connection.execute(statements.select_best(*shape), parameters).scalar()
            return body
        with engine.reporting(self._location), self._lock:
            if self._held is None:
                self._held = live.raw_connection()
            cursor = self._held.cursor()
            cursor.execute(statements.best_on_sqlite(*shape), parameters)
            rows = cursor.fetchall()
        return rows[0][0] if rows else None


def _identity(path: Path | None) -> tuple[int, int] | None:
    """What tells a file from another one of the same name."""
    try:
        status = None if path is None else path.stat()
    except OSError:
        return None
    return None if status is None else (status.st_dev, status.st_ino)
