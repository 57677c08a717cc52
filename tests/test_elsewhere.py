"""Other systems and installations: wheels, checkouts, and systems without Linux's calls."""

from __future__ import annotations

import re
import subprocess
import sys

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


_ELSEWHERE = """
import os, sys
for name in ("sched_getaffinity", "sched_setaffinity", "memfd_create", "getuid", "pread", "pwrite", "O_CLOEXEC"):
    if hasattr(os, name):
        delattr(os, name)
sys.modules |= dict.fromkeys(("fcntl", "resource", "pwd"))
import feinsum as fe
e = fe.einsum("ij,ej->ei", fe.array("D", (20, 20)), fe.array("u", ("E", 20)))
print(fe.canonicalize_einsum(e).key, fe.query(e))
from feinsum.devices.host import processors_allowed
from feinsum.devices.store import cache_directory, locked
assert processors_allowed() >= 1
with locked(cache_directory() / "a.lock", 0, 0.1) as ours:
    assert not ours
from feinsum.generate.attempts import attempt
with attempt(cache_directory(), "key") as attempted:
    assert not attempted.died
"""


def test_einsums_are_described_where_posix_calls_are_missing() -> None:
    """As on Windows, without fcntl and resource: nothing is locked there, and records can be asked for."""
    subprocess.run([sys.executable, "-c", _ELSEWHERE], check=True)
