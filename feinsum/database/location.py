"""Where the working store is: a file of SQLite, or a URL of PostgreSQL."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from feinsum.errors import UnknownStoreError

if TYPE_CHECKING:
    from sqlalchemy import URL

VARIABLE = "FEINSUM_DATABASE"
"""The environment variable that names the store used where none is given."""


_USER = re.compile(r"([^:/]+://[^:/?@]*:)(.*)@([^@]*)", re.DOTALL)
"""A URL with a password, which ends at the last ``@``: those who paste one do not write ``%40``."""
_QUERY = re.compile(r"\?(?=[a-z_]+=)")
_PORT = re.compile(r"[^:/]+://[^:/?@]*:(?!\d*(/|$))")
"""The beginning of a URL in which something other than a port follows the first colon."""
_OTHER_FORM = re.compile(r"postgres(ql)?(\+\w+)?(:(?!//)|/.*@)|[\w.-]*:[^/\\]*@|.*\bpassword\s*=", re.DOTALL)
"""Texts that are neither URLs nor likely names of files, and may hold passwords."""
_SHOWN = frozenset(
    ("host", "hostaddr", "port", "user", "dbname", "service", "sslmode", "connect_timeout", "application_name")
)
"""The parameters of a URL whose values are no secrets; ``options`` may hold anything."""
FORMS = "give the path of a file, sqlite:///PATH or postgresql://USER@HOST/DATABASE"
_SHORTEST = 3
"""Characters from which a secret is looked for in messages; a shorter one would be found in words."""


@dataclass(frozen=True)
class Location:
    """A store's place: `path` of a SQLite file, or else a `url` for SQLAlchemy."""

    path: Path | None = None
    url: str | None = None

    def __str__(self) -> str:
        """The path, or the URL without its password and other secrets, as SQLAlchemy renders it."""
        if self.url is None:
            return str(self.path)
        parsed = _parsed_url(self.url)
        if parsed is None:  # it is unknown which part is the password
            return f"{self.url.partition('://')[0]}://***"
        query = {name: value if _is_shown(name, value) else "***" for name, value in parsed.query.items()}
        return parsed.set(query=query).render_as_string(hide_password=True).replace("%2A%2A%2A", "***")

    def __repr__(self) -> str:
        return f"Location({str(self)!r})"

    def without_secrets(self, text: str) -> str:
        """A message of a driver with every secret of the URL replaced by ``***``."""
        for secret in sorted(self._secrets, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    @property
    def _secrets(self) -> set[str]:
        parsed = None if self.url is None else _parsed_url(self.url)
        if parsed is None:
            return set()
        hidden = [value for name, value in parsed.query.items() if not _is_shown(name, value)]
        plain = [*parsed.normalized_query.get("password", ()), *(v for v in hidden if isinstance(v, str))]
        known = {str(parsed.password or ""), *plain}
        return {form for secret in known for form in (secret, quote(secret, safe="")) if len(secret) >= _SHORTEST}


def _is_shown(name: str, value: object) -> bool:
    return name in _SHOWN and "=" not in str(value)


def _parsed_url(url: str) -> URL | None:
    """The parts of a URL; None if SQLAlchemy cannot read it, or might take a part of the password for something else."""
    from sqlalchemy import make_url
    from sqlalchemy.exc import SQLAlchemyError

    try:
        found = make_url(url)
    except (SQLAlchemyError, ValueError):
        return None
    return None if "@" in f"{found.host}{found.database}{found.username}" else found


def _quoted_url(url: str) -> str:
    """A URL whose password has ``@``, ``/``, ``?`` and ``#`` as ``%40`` and so on, so that it ends where it should."""
    head, *query = _QUERY.split(url, maxsplit=1)
    if "@" not in head and _PORT.match(head):  # the ? is a part of the password
        head, query = url, []
    found = _USER.fullmatch(head)
    if found is not None:
        head = f"{found[1]}{re.sub(r'[@/?#:]', lambda match: quote(match[0], safe=''), found[2])}@{found[3]}"
    return "?".join([head, *(part.replace("@", "%40") for part in query)])


def locate(url_or_path: str | os.PathLike[str] | None = None) -> Location:
    """Where `url_or_path` says the store is.

    :param url_or_path: the path of a SQLite file, a URL that begins with ``sqlite:///`` or ``postgresql://``, or None:
        the value of ``FEINSUM_DATABASE``, or else a file in the user's data directory.
    :raises UnknownStoreError: if it is a URL of another kind, or a database in memory.

    >>> str(locate("postgresql://me:secret@host/records"))
    'postgresql+psycopg://me:***@host/records'
    >>> str(locate("postgresql://me:se/cr@t@host/records?sslpassword=another"))
    'postgresql+psycopg://me:***@host/records?sslpassword=***'
    """
    if url_or_path is None:
        url_or_path = os.environ.get(VARIABLE) or _default()
    text = os.fspath(url_or_path)
    if text in ("", ":memory:", "sqlite://", "sqlite:///:memory:"):
        raise UnknownStoreError(f"{text!r} names no file; a store outlives its connections, so give the path of a file")
    scheme, separator, rest = text.partition("://")
    if not separator and isinstance(url_or_path, str) and _OTHER_FORM.match(text):
        raise UnknownStoreError(f"'{text[:8]}***' is no store; {FORMS}")
    if not separator:
        return Location(path=Path(text).expanduser().absolute())
    if scheme.partition("+")[0] == "sqlite" and rest.startswith("/") and "?" not in rest:
        return Location(path=Path(rest[1:]).expanduser().absolute())
    if scheme in ("postgresql", "postgres"):
        return Location(url=_quoted_url(f"postgresql+psycopg://{rest}"))
    if scheme.startswith("postgresql+"):
        return Location(url=_quoted_url(text))
    raise UnknownStoreError(f"{Location(url=_quoted_url(text))} is no store; {FORMS}")


def _default() -> Path:
    from platformdirs import user_data_path

    return user_data_path("feinsum", appauthor=False) / "records.sqlite"
