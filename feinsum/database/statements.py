"""The SQL of a store, through SQLAlchemy Core."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from feinsum.database.record import TuningRecord, identify
from feinsum.database.schema import RECORDS
from feinsum.database.selection import Selection

_C = RECORDS.c
_OK: sa.ColumnElement[str] = sa.literal_column("'ok'")
_ZERO: sa.ColumnElement[int] = sa.literal_column("0")
_ONE: sa.ColumnElement[int] = sa.literal_column("1")
_PLAIN = ("device", "architecture", "driver", "space", "space_version", "protocol", "status")


def digest(key: str, sizes: Mapping[str, int] | None = None) -> str:
    """A hash of a key, or of a problem: a key and the lengths of its indices."""
    text = key if sizes is None else key + json.dumps(dict(sizes), sort_keys=True)
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def row(record: TuningRecord) -> dict[str, Any]:
    """The columns of a record."""
    body = record.to_json()
    return {
        "id": identify(body),
        "problem": digest(record.einsum_key, record.sizes),
        "einsum": digest(record.einsum_key),
        "pattern": digest(record.pattern_key),
        "median_s": record.median_s,
        "created": record.created,
        "body": body,
        **{name: getattr(record, name) for name in _PLAIN},
    }


def insert(dialect: str) -> sa.Insert:
    """Insert rows and pass over those whose id is known."""
    if dialect == "postgresql":
        from sqlalchemy.dialects import postgresql  # 40 ms that those without such a store need not wait

        return postgresql.insert(RECORDS).on_conflict_do_nothing(index_elements=["id"])
    return sqlite.insert(RECORDS).on_conflict_do_nothing(index_elements=["id"])


def conditions(selection: Selection) -> list[sa.ColumnElement[bool]]:
    """`selection` as conditions of SQL."""
    found = [_C[name] == getattr(selection, name) for name in _PLAIN if getattr(selection, name) is not None]
    if selection.einsum_key is not None and selection.sizes is not None:
        found.append(_C.problem == digest(selection.einsum_key, selection.sizes))
    elif selection.einsum_key is not None:
        found.append(_C.einsum == digest(selection.einsum_key))
    if selection.pattern_key is not None:
        found.append(_C.pattern == digest(selection.pattern_key))
    if selection.spaces is not None:
        found.append(
            sa.or_(sa.false(), *(sa.and_(_C.space == name, _C.space_version == v) for name, v in selection.spaces))
        )
    return found


def select(selection: Selection, limit: int | None = None) -> sa.Select[Any]:
    """The bodies of the records that meet `selection`, best first (see :func:`feinsum.database.selection.order`)."""
    failures_by_date = sa.case((_C.status == "ok", ""), else_=_C.created)
    ordered = (
        (_C.median_s, _C.id) if selection.status == "ok" else (_C.status != "ok", _C.median_s, failures_by_date, _C.id)
    )
    return sa.select(_C.body).where(*conditions(selection)).order_by(*ordered).limit(limit)


def select_lines(selection: Selection, dialect: str) -> sa.Select[Any]:
    """The bodies that meet `selection` in the order of their code points, whatever the server's language."""
    body = sa.collate(_C.body, "C") if dialect == "postgresql" else _C.body
    return sa.select(_C.body).where(*conditions(selection)).order_by(body)


def select_winners(selection: Selection) -> sa.Select[Any]:
    """The bodies of the quickest records, one for every problem, device and driver."""
    rank = sa.func.row_number().over(partition_by=(_C.problem, _C.device, _C.driver), order_by=(_C.median_s, _C.id))
    ranked = (
        sa.select(_C.body, _C.median_s, _C.id, rank.label("rank"))
        .where(_C.status == "ok", *conditions(selection))
        .subquery()
    )
    return sa.select(ranked.c.body).where(ranked.c.rank == 1).order_by(ranked.c.median_s, ranked.c.id)


@lru_cache(maxsize=64)
def select_best(spaces: int | None, driver: bool, protocol: bool) -> sa.Select[Any]:
    """The quickest body for parameters ``problem, device, driver, protocol, space_0, version_0, ...``.

    :param spaces: how many spaces the parameters name; None if records of every space count.
    """
    found = [_C.problem == sa.bindparam("problem"), _C.device == sa.bindparam("device"), _C.status == _OK]
    if driver:
        found.append(_C.driver == sa.bindparam("driver"))
    if protocol:
        found.append(_C.protocol == sa.bindparam("protocol"))
    if spaces is not None:
        pairs = (
            sa.and_(_C.space == sa.bindparam(f"space_{k}"), _C.space_version == sa.bindparam(f"version_{k}"))
            for k in range(spaces)
        )
        found.append(sa.or_(sa.false(), *pairs))
    return sa.select(_C.body).where(*found).order_by(_C.median_s, _C.id).limit(_ONE).offset(_ZERO)


@lru_cache(maxsize=64)
def best_on_sqlite(spaces: int | None, driver: bool, protocol: bool) -> str:
    """The text of :func:`select_best`, with named parameters.

    Executed by sqlite3 itself it takes 18 us on two cores of Zen 5; through an open connection of SQLAlchemy Core 43 us.
    """
    return str(select_best(spaces, driver, protocol).compile(dialect=sqlite.dialect(paramstyle="named")))


def count() -> sa.Select[Any]:
    """The number of records by device, space, version and status."""
    columns = (_C.device, _C.space, _C.space_version, _C.status)
    return sa.select(*columns, sa.func.count()).group_by(*columns).order_by(*columns)


def count_problems() -> sa.Select[int, int]:
    """The number of different einsums, and of einsums with sizes."""
    return sa.select(sa.func.count(_C.einsum.distinct()), sa.func.count(_C.problem.distinct()))
