"""The tables of a store, and the steps by which an older store becomes a present one.

A row holds the record as one line of JSON, which is authoritative, beside the columns by which it is looked up.  Keys of
einsums are looked up by hash: they are too long for an index of PostgreSQL.  The version of a store is the number of steps
it has taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from feinsum.errors import DatabaseError

if TYPE_CHECKING:
    import sqlalchemy as sa

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE feinsum_records (
            id TEXT NOT NULL PRIMARY KEY, problem TEXT NOT NULL, einsum TEXT NOT NULL, pattern TEXT NOT NULL,
            device TEXT NOT NULL, architecture TEXT NOT NULL, driver TEXT NOT NULL, space TEXT NOT NULL,
            space_version BIGINT NOT NULL, protocol BIGINT NOT NULL, status TEXT NOT NULL,
            median_s DOUBLE PRECISION, created TEXT NOT NULL, body TEXT NOT NULL)""",
        # Holds every column that a look-up of the best record filters by, so that it reads one row of the table.
        """CREATE INDEX feinsum_records_by_problem ON feinsum_records
            (problem, device, status, median_s, space, space_version, driver, protocol)""",
        "CREATE INDEX feinsum_records_by_einsum ON feinsum_records (einsum, device, status, median_s)",
        "CREATE INDEX feinsum_records_by_pattern ON feinsum_records (pattern, device, status, median_s)",
    ),
)
"""Statements that SQLite and PostgreSQL both take; a step once released never changes."""

_ADVISORY_LOCK = 0x6665696E73756D  # "feinsum"; PostgreSQL's CREATE TABLE IF NOT EXISTS still fails when two race


def migrate(engine: sa.Engine, writable: bool, where: str) -> None:
    """Bring a store up to date, in one transaction that other processes wait for.

    :raises DatabaseError: if a newer feinsum made the store, it is another program's, or it needs a migration and
        cannot be written.
    """
    with engine.connect() as connection:
        version = _schema_version(connection, where)
    if version == len(MIGRATIONS):
        return
    if not writable:
        raise DatabaseError(
            f"{where} is read-only and has version {version} of the schema, not {len(MIGRATIONS)};"
            " open it once where it can be written, or copy it"
        )
    with engine.connect().execution_options(writes=True) as connection, connection.begin():
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})")
        version = _schema_version(connection, where)  # another process may have been first
        if version == 0:
            connection.exec_driver_sql("CREATE TABLE feinsum_schema (version BIGINT NOT NULL)")
            connection.exec_driver_sql("INSERT INTO feinsum_schema (version) VALUES (0)")
        for step in MIGRATIONS[version:]:
            for statement in step:
                connection.exec_driver_sql(statement)
        connection.exec_driver_sql(f"UPDATE feinsum_schema SET version = {len(MIGRATIONS)}")


def _schema_version(connection: sa.Connection, where: str) -> int:
    """The number of steps taken; 0 for a store without tables."""
    import sqlalchemy as sa

    tables = set(sa.inspect(connection).get_table_names())
    if "feinsum_schema" not in tables:
        if connection.dialect.name == "sqlite" and tables:
            raise DatabaseError(
                f"{where} is a SQLite database of another program (it has a table {min(tables)!r}); name another file"
            )
        return 0
    version: int | None = connection.exec_driver_sql("SELECT version FROM feinsum_schema").scalar()
    if version is None:
        raise DatabaseError(f"{where} does not say its version: its table is empty; restore it from a copy")
    if version > len(MIGRATIONS):
        raise DatabaseError(
            f"{where} has version {version} of the schema, but this feinsum knows versions up to {len(MIGRATIONS)};"
            " update feinsum, or name another store"
        )
    return version
