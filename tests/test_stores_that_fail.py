"""Stores that fail: kernels are made without them, tuning is not, and secrets in their URLs stay secret."""

from __future__ import annotations

import logging
import socket
import sys
import traceback
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import numpy as np
import postgres
import pytest
from records import make_record

import feinsum as fe
from feinsum.database import locate, open_stores
from feinsum.devices import Device

STORES, ENGINE, ANSWERS = (
    import_module(f"feinsum.{name}") for name in ("database.stores", "database.engine", "generate.answers")
)
E = fe.einsum("ij,ej->ei", fe.array("A", (6, 5)), fe.array("u", ("E", 5)))
ARRAYS = {"A": np.arange(30.0).reshape(6, 5), "u": np.ones((3, 5))}
NOTE = "going on with curated records only"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No store failed before, none was opened, and no kernel was made."""
    monkeypatch.setattr(STORES, "_failed", {})
    monkeypatch.setattr(STORES, "_SHARED", opened := {})
    monkeypatch.setattr(ANSWERS, "_held", type(ANSWERS._held)())
    yield
    for database in opened.values():
        database.close()


@pytest.fixture(params=["refuses", "hangs", "no driver", "no database", "text", "damaged", "directory", "not below a file"])
def failing(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a store that cannot be opened."""
    path = tmp_path / "store.sqlite"
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        url = f"postgresql://me:secret@127.0.0.1:{server.getsockname()[1]}/records"
        match request.param:
            case "refuses":
                yield url
            case "hangs":
                server.listen()
                monkeypatch.setattr(ENGINE, "_LIMITS", {"connect_timeout": 2})
                yield url
            case "no driver":
                monkeypatch.setitem(sys.modules, "psycopg", None)
                yield url
            case "no database":
                yield postgres.new_database().replace("feinsum_", "missing_")
            case "text":
                path.write_text("these are no records\n" * 100)
                yield str(path)
            case "damaged":
                with fe.Database(path) as database:
                    database.add(make_record())
                content = path.read_bytes()
                path.write_bytes(content[:4096] + bytes(len(content) - 4096))
                yield str(path)
            case "directory":
                path.mkdir()
                yield str(path)
            case _:
                path.touch()
                yield str(path / "below" / "store.sqlite")


@pytest.mark.postgres
def test_a_store_that_fails_stops_tuning_only(
    failing: str, cpu: Device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The records that come with feinsum and the cost model make kernels; one line says so, without a password."""
    monkeypatch.setenv("FEINSUM_DATABASE", failing)
    for sizes in ({"E": 100}, {"E": 200}):
        assert np.array_equal(fe.generate(E, cpu, sizes=sizes)(**ARRAYS), ARRAYS["u"] @ ARRAYS["A"].T)
    fe.contract("ij,jk->ik", ARRAYS["A"], ARRAYS["u"].T, device=cpu, library=False)
    (note,) = (record.getMessage() for record in caplog.records if NOTE in record.getMessage())
    assert "secret" not in note
    for tuning in (lambda: fe.autotune(E, cpu, sizes={"E": 10}, trials=1), lambda: fe.generate(E, cpu, tune="always")):
        with pytest.raises(fe.DatabaseError):
            tuning()
    with pytest.raises(fe.DatabaseError):
        fe.query(E)


@pytest.mark.postgres
def test_a_server_that_dies_between_calls_is_used_again_when_it_is_back(
    cpu: Device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Kernels that its records chose stay as long as nobody can tell whether there are better ones."""
    place = postgres.new_database()
    fe.autotune(E, cpu, place, {"E": 100}, space="generic", trials=1, progress=False)
    tuned = fe.generate(E, cpu, place, {"E": 100})
    assert tuned.rung == "exact"
    with postgres.killed():
        assert fe.generate(E, cpu, place, {"E": 100}) is tuned
        assert fe.generate(E, cpu, place, {"E": 300}).rung != "lengths"
        assert open_stores(place, tolerant=True).partial
    assert len([record for record in caplog.records if NOTE in record.getMessage()]) == 1
    monkeypatch.setattr(STORES, "_AGAIN_S", 0.0)
    assert fe.generate(E, cpu, place, {"E": 300}).rung == "lengths"
    assert not open_stores(place, tolerant=True).partial


def test_a_store_that_was_closed_is_a_mistake_of_the_caller(cpu: Device, tmp_path: Path) -> None:
    """Not a failure to go on from."""
    with fe.Database(tmp_path / "store.sqlite") as database:
        pass
    with pytest.raises(fe.DatabaseError, match="has been closed"):
        fe.generate(E, cpu, database, {"E": 400})


SECRETS = (
    "postgresql://me@127.0.0.1:1/db?password=s3cr3t",
    "postgresql://127.0.0.1:1/db?sslpassword=s3cr3t&options=-c%20my.key%3Ds3cr3t",
    "postgresql://127.0.0.1:1/db?nonsense=s3cr3t",
    "postgresql://127.0.0.1:1/db?host=x;password=s3cr3t",
    "postgresql://h:5432/db?password=a@s3cr3t",
    *(
        f"postgresql://me:{password}s3cr3t@127.0.0.1:1/db"
        for password in ("", "a@", "a/", "a?", "a#", "a:", "a%40", "1/", "%")
    ),
    "postgresql://me:a@s3cr3t/b@127.0.0.1:1/db?user=you@there",
    "postgresql+psycopg2://me:s3cr3t@127.0.0.1:1/db",
    "postgresql+nonsense://me:s3cr3t@127.0.0.1:1/db",
    "postgresql://me:s3cr3t@[::1/db",
    "postgresql://me:s3cr3t",
    "postgres:me:s3cr3t@host/db",
    "postgresql//me:s3cr3t@host/db",
    "me:s3cr3t@host/db",
    "host=127.0.0.1 password=s3cr3t",
    "mysql://me:a@s3cr3t@host/db",
)


@pytest.mark.parametrize("url", SECRETS)
def test_secrets_of_a_url_are_in_no_message(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Neither in errors and what they came from, nor in logs, nor where a location is printed."""
    caplog.set_level(logging.DEBUG)
    with pytest.raises(fe.DatabaseError) as raised:
        fe.Database(url)
    shown = "".join(traceback.format_exception(raised.value, limit=0)) + caplog.text
    try:
        shown += f"{locate(url)} {locate(url)!r}"
    except fe.DatabaseError as error:
        shown += str(error)
    assert "s3cr3t" not in shown.replace(f'"{url}"', "")


@pytest.mark.parametrize("password", ["a@b", "a/b", "a?b", "a#b", "a%40b", "1/2"])
def test_a_password_is_passed_on_as_it_was_written(password: str) -> None:
    """Whether its special characters were percent-encoded or not."""
    from sqlalchemy import make_url

    url = make_url(locate(f"postgresql://me:{password}@host:5432/records?sslmode=require").url or "")
    found = url.username, url.password, url.host, url.port, url.database
    assert found == ("me", password.replace("%40", "@"), "host", 5432, "records")
