"""The SQL of a store, as text with named parameters that SQLite and PostgreSQL both take.

Text needs no SQLAlchemy: readers of an SQLite file need not wait for it to load (0.15 s).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from feinsum.database.record import TuningRecord, identify
from feinsum.database.selection import Selection

_PLAIN = ("device", "architecture", "driver", "space", "space_version", "protocol", "status")
COLUMNS = ("id", "problem", "einsum", "pattern", *_PLAIN, "median_s", "created", "body")
"""The columns of a row, see :mod:`feinsum.database.schema`."""


@dataclass(frozen=True)
class Statement:
    """The text of a statement, and the values of the parameters that stand in it as ``:name``."""

    text: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


def digest(key: str, sizes: Mapping[str, int] | None = None) -> str:
    """A hash of a key, or of a problem: a key and the lengths of its indices."""
    text = key if sizes is None else key + json.dumps(dict(sizes), sort_keys=True)
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def record_row(record: TuningRecord) -> dict[str, Any]:
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


INSERT = f"INSERT INTO feinsum_records ({', '.join(COLUMNS)}) VALUES (:{', :'.join(COLUMNS)}) ON CONFLICT (id) DO NOTHING"
"""Insert a row unless its id is known."""


DELETE = "DELETE FROM feinsum_records WHERE id = :id"
"""Delete a row."""


def select_records(selection: Selection, limit: int | None = None) -> Statement:
    """The bodies of the records that meet `selection`, best first (see :func:`feinsum.database.selection.record_order`)."""
    failures_by_date = "status <> 'ok', median_s, CASE WHEN status = 'ok' THEN '' ELSE created END, id"
    found = _bodies(selection, "median_s, id" if selection.status == "ok" else failures_by_date)
    return found if limit is None else Statement(f"{found.text} LIMIT :most", {**found.parameters, "most": limit})


def select_lines(selection: Selection, *, on_server: bool) -> Statement:
    """The bodies that meet `selection` in the order of their code points, whatever a server's language."""
    return _bodies(selection, 'body COLLATE "C"' if on_server else "body")


def select_winners(selection: Selection) -> Statement:
    """The bodies of the fastest records, one for every problem, device and driver."""
    met, parameters = _conditions(selection)
    return Statement(
        "SELECT body FROM (SELECT body, median_s, id,"
        " row_number() OVER (PARTITION BY problem, device, driver ORDER BY median_s, id) AS place"
        f" FROM feinsum_records WHERE {met}) AS placed WHERE place = 1 ORDER BY median_s, id",
        parameters,
    )


COUNT = Statement(
    "SELECT device, space, space_version, status, substr(created, 1, 7) AS month, count(*) FROM feinsum_records"
    " GROUP BY device, space, space_version, status, month ORDER BY device, space, space_version, status, month"
)
"""The number of records by device, space, version, status and month, as in 2026-11."""

COUNT_PROBLEMS = Statement("SELECT count(DISTINCT einsum), count(DISTINCT problem) FROM feinsum_records")
"""The number of different einsums, and of einsums with sizes."""


def _bodies(selection: Selection, order: str) -> Statement:
    met, parameters = _conditions(selection)
    return Statement(f"SELECT body FROM feinsum_records WHERE {met} ORDER BY {order}", parameters)


def _conditions(selection: Selection) -> tuple[str, dict[str, Any]]:
    """`selection` as a condition of SQL, and its parameters."""
    parameters = {name: x for name in _PLAIN if (x := getattr(selection, name)) is not None}
    if selection.einsum_key is not None and selection.sizes is not None:
        parameters["problem"] = digest(selection.einsum_key, selection.sizes)
    elif selection.einsum_key is not None:
        parameters["einsum"] = digest(selection.einsum_key)
    if selection.pattern_key is not None:
        parameters["pattern"] = digest(selection.pattern_key)
    met = [f"{name} = :{name}" for name in parameters]
    if selection.subscripts is not None:
        # No column has them: this reads what the other conditions leave, and the caller compares.
        met.append("body LIKE :subscripts")
        parameters["subscripts"] = f"%|{selection.subscripts}|%"
    if selection.spaces is not None:
        met.append(_space_condition(selection.spaces, parameters))
    return " AND ".join(met) or "1 = 1", parameters


def _space_condition(spaces: Iterable[tuple[str, int]], parameters: dict[str, Any]) -> str:
    """The condition that the space is one of several, whose names and versions become parameters."""
    pairs = ["1 = 0"]
    for k, (name, version) in enumerate(spaces):
        parameters |= {f"space_{k}": name, f"version_{k}": version}
        pairs.append(f"space = :space_{k} AND space_version = :version_{k}")
    return f"({' OR '.join(pairs)})"
