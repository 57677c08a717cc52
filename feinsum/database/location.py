"""Where the working store is: a file of SQLite, or a URL of PostgreSQL."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from feinsum.errors import DatabaseError

VARIABLE = "FEINSUM_DATABASE"
"""The environment variable that names the store used where none is given."""


@dataclass(frozen=True)
class Location:
    """A store's place: `path` of a SQLite file, or else a `url` for SQLAlchemy."""

    path: Path | None = None
    url: str | None = None

    def __str__(self) -> str:
        """The path, or the URL without its password."""
        return str(self.path) if self.url is None else re.sub(r"(?<=://)([^/@:]*):[^/@]*@", r"\1:***@", self.url)


def locate(url_or_path: str | os.PathLike[str] | None = None) -> Location:
    """Where `url_or_path` says the store is.

    :param url_or_path: the path of a SQLite file, a URL that begins with ``sqlite:///`` or ``postgresql://``, or None:
        the value of ``FEINSUM_DATABASE``, or else a file in the user's data directory.
    :raises DatabaseError: if it is a URL of another kind, or a database in memory.

    >>> str(locate("postgresql://me:secret@host/records"))
    'postgresql+psycopg://me:***@host/records'
    """
    if url_or_path is None:
        url_or_path = os.environ.get(VARIABLE) or _default()
    text = os.fspath(url_or_path)
    if text in ("", ":memory:", "sqlite://", "sqlite:///:memory:"):
        raise DatabaseError(f"{text!r} names no file; a store outlives its connections, so give the path of a file")
    scheme, separator, rest = text.partition("://")
    if not separator:
        return Location(path=Path(text).expanduser().absolute())
    if scheme.partition("+")[0] == "sqlite" and rest.startswith("/") and "?" not in rest:
        return Location(path=Path(rest[1:]).expanduser().absolute())
    if scheme in ("postgresql", "postgres"):
        return Location(url=f"postgresql+psycopg://{rest}")
    if scheme.startswith("postgresql+"):
        return Location(url=text)
    raise DatabaseError(
        f"{Location(url=text)} is no store; give the path of a file, sqlite:///PATH or postgresql://USER@HOST/DATABASE"
    )


def _default() -> Path:
    from platformdirs import user_data_path

    return user_data_path("feinsum", appauthor=False) / "records.sqlite"
