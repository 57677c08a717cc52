"""Other systems and installations: wheels, checkouts, and systems without Linux's calls."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from feinsum import _checkout
from feinsum._checkout import how_to_install


def test_extras_are_installed_without_an_index_that_has_feinsum(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout is installed by its path; beside a wheel its packages are, with their bounds."""
    assert how_to_install("cpu") == f"`pip install '.[cpu]'` in {_checkout.ROOT}"
    monkeypatch.setattr(_checkout, "is_checkout", lambda: False)
    assert how_to_install("cpu") == "`pip install intel-opencl-rt intel-cmplr-lib-rt`"
    assert how_to_install("postgres") == "`pip install 'psycopg[binary]>=3.1'`"


def test_no_message_asks_for_feinsum_from_an_index() -> None:
    """No index has it, so ``pip install feinsum[...]`` fails."""
    for path in (_checkout.ROOT / "feinsum").rglob("*.py"):
        assert not re.search(r"pip install '?feinsum", path.read_text(encoding="utf-8")), path


_WITHOUT_POSIX = """
import os, signal, sys
for name in ("SIGKILL", "SIGHUP", "SIGSTOP", "SIGCONT"):
    delattr(signal, name)
for name in ("sched_getaffinity", "sched_setaffinity", "memfd_create", "getuid", "pread", "pwrite", "O_CLOEXEC", "killpg",
             "fork", "register_at_fork"):
    if hasattr(os, name):
        delattr(os, name)
sys.modules |= dict.fromkeys(("fcntl", "resource", "pwd"))
"""
"""What Windows lacks, taken away from every process that finds it as ``sitecustomize``."""

_DESCRIBED = """
import feinsum as fe
e = fe.einsum("ij,ej->ei", fe.array("D", (20, 20)), fe.array("u", ("E", 20)))
print(fe.canonicalize_einsum(e).key, fe.query(e))
assert fe.match_einsum(fe.generate_loopy(e)).einsum
from feinsum.devices.host import processors_allowed
from feinsum.devices.json_store import cache_directory, locked
assert processors_allowed() >= 1
with locked(cache_directory() / "a.lock", 0, 0.1) as ours:
    assert not ours
from feinsum.space.attempts import attempt
with attempt(cache_directory(), "key") as attempted:
    assert not attempted.died
import feinsum.tune.autotune, feinsum.tune.batch, feinsum.tune.cluster
"""


@pytest.fixture
def without_posix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that start now run as on Windows."""
    (tmp_path / "sitecustomize.py").write_text(_WITHOUT_POSIX)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), str(_checkout.ROOT))))


@pytest.mark.usefixtures("without_posix")
def test_einsums_are_described_and_matched_where_posix_calls_are_missing() -> None:
    """As on Windows, without fcntl and resource: nothing is locked there, and records can be asked for."""
    subprocess.run([sys.executable, "-c", _DESCRIBED], check=True)


@pytest.mark.usefixtures("without_posix")
def test_devices_are_listed_where_posix_calls_are_missing() -> None:
    """The processes that ask drivers do without them, too."""
    listed = subprocess.run(
        [sys.executable, "-m", "feinsum", "devices", "--refresh", "--json"], check=True, capture_output=True, text=True
    )
    assert any(device["usable"] for device in json.loads(listed.stdout))
