"""Damaged caches of other libraries and full disks: told by their names, gone round where possible, never remembered."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

GENERATE = """
import numpy as np, feinsum as fe
e = fe.einsum("ij,jk->ik", fe.array("A", (8, 8)), fe.array("B", (8, 8)))
print(fe.generate(e, "cpu")(A=np.eye(8), B=np.ones((8, 8))).sum())
"""

LIMITED = """
import os, resource, sys
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
os.execv(sys.argv[2], sys.argv[2:])
"""


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home directory in which a kernel was made, so that every library has its caches."""
    used = tmp_path_factory.mktemp("used")
    run = python(used, GENERATE)
    assert run.stdout == "64.0\n", run.stderr
    assert list((used / "pytools").glob("pdict-*loopy*")), "loopy has no caches any more: feinsum.caches can go"
    return used


@pytest.fixture
def home(used: Path, tmp_path: Path) -> Path:
    """A copy of it to damage."""
    return shutil.copytree(used, tmp_path / "home")


def python(home: Path, *arguments: str, limit_bytes: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run a script, or the command line, with a home directory; with a limit no file can be longer, as on a full disk.

    The limit is set by a process of its own, as JAX warns of forks of a process that has it.
    """
    script = ["-m", "feinsum", *arguments[1:]] if arguments[0] == "feinsum" else ["-c", *arguments]
    environment = {**os.environ, "HOME": str(home), "TMPDIR": str(home / "tmp")}
    environment |= {f"XDG_{kind}_HOME": str(home) for kind in ("CACHE", "DATA", "STATE", "CONFIG")}
    environment.pop("OCL_ICD_VENDORS", None)
    (home / "tmp").mkdir(exist_ok=True)
    command = [sys.executable, *script]
    if limit_bytes is not None:
        command = [sys.executable, "-c", LIMITED, str(limit_bytes), *command]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def forget(home: Path) -> None:
    """Remove what feinsum remembers, so that it asks the drivers and makes its kernels again."""
    shutil.rmtree(home / "feinsum")


def overwrite(file: Path) -> None:
    file.write_bytes(b"this was a database once" * 100)


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:6000])


def spoil_rows(file: Path) -> None:
    """What SQLite does not notice, as it has no checksums."""
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE dict SET key_value = ?", (b"\x80\x05garbage",))
    connection.close()


@pytest.mark.parametrize("damage", [overwrite, truncate, spoil_rows])
def test_damaged_caches_of_other_libraries_are_gone_round(home: Path, damage: Callable[[Path], None]) -> None:
    """The device works, the kernel is made, and the log names the place."""
    forget(home)
    for file in (home / "pytools").iterdir():
        damage(file)
    listed = python(home, "feinsum", "devices")
    assert (listed.returncode, " no " in listed.stdout) == (0, False), listed.stdout
    made = python(home, GENERATE)
    assert made.stdout == "64.0\n", made.stderr
    assert str(home / "pytools") in made.stderr


def test_a_directory_of_caches_that_is_none_is_gone_round(home: Path) -> None:
    """Where nothing can be opened at all."""
    forget(home)
    shutil.rmtree(home / "pytools")
    (home / "pytools").write_text("no directory")
    assert python(home, GENERATE).stdout == "64.0\n"


def test_a_failure_that_is_not_the_drivers_is_not_remembered(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is stored of a device that could not be tried, so that the next process tries it."""
    from feinsum.devices import probe

    forget(home)
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    working = probe._answered

    def broken(task: str, *others: Any) -> probe._ProbeAnswer:
        own = probe._ProbeAnswer(None, "DatabaseError: file is not a database", driver=False)
        return own if task == "check" else working(task, *others)

    monkeypatch.setattr(probe, "_answered", broken)
    assert {finding.why for finding in probe.probe().findings} == {"DatabaseError: file is not a database"}
    monkeypatch.setattr(probe, "_answered", working)
    assert "" in {finding.why for finding in probe.probe().findings}


@pytest.mark.parametrize(
    ("question", "drivers"),
    [([{"platform": "none", "version": "1", "name": "none", "driver": "1", "index": 0}], True), ([1, 2], False)],
    ids=["device that is not there", "mistake of ours"],
)
def test_workers_tell_failures_of_drivers_from_others(tmp_path: Path, question: list[Any], drivers: bool) -> None:
    """Whatever is raised that neither pyopencl nor feinsum raises is no driver's."""
    file = tmp_path / "answer.json"
    command = [sys.executable, "-m", "feinsum.devices.probe_worker", "check", json.dumps(question), str(file)]
    subprocess.run(command, check=True)
    assert json.loads(file.read_text())["driver"] is drivers


MEASURE = """
from feinsum.cli import main
from feinsum.devices import peaks

peaks._ATTEMPTS = 1  # other tests keep the machine busy
main(["devices", "--measure"])
"""


def test_measuring_probes_again(home: Path) -> None:
    """What was remembered is not believed by somebody who asks for fresh figures."""
    (file,) = (home / "feinsum/devices").glob("*.json")
    file.write_text(file.read_text().replace('"why": ""', '"why": "it was damaged then"'))
    assert "it was damaged then" in python(home, "feinsum", "devices").stdout
    measured = python(home, MEASURE)
    assert (measured.returncode, "it was damaged then" in measured.stdout) == (0, False)


def test_a_full_disk_is_told_as_one(home: Path) -> None:
    """And not as a missing driver, whose cure would be to install another one."""
    forget(home)
    listed = python(home, "feinsum", "devices", limit_bytes=0)
    assert listed.returncode != 0
    assert "files cannot be written" in listed.stderr
    assert "pip install" not in listed.stderr
    again = python(home, "feinsum", "devices")
    assert (again.returncode, " no " in again.stdout) == (0, False)


def test_a_kernel_is_made_on_a_full_disk(home: Path) -> None:
    """Where the drivers are known: no cache is needed for it."""
    made = python(home, GENERATE.replace("(8, 8)", "(9, 9)").replace("eye(8)", "eye(9)"), limit_bytes=0)
    assert made.stdout == "81.0\n", made.stderr


def test_the_schema_is_that_of_pytools(tmp_path: Path) -> None:
    """A dictionary gone round works as one on disk: it stores, fetches, and tells of keys it has."""
    script = f"""
from feinsum.caches import tolerate_damaged_caches
tolerate_damaged_caches()
from pytools.persistent_dict import ReadOnlyEntryError, WriteOncePersistentDict
d = WriteOncePersistentDict("test", container_dir={str(tmp_path)!r}, safe_sync=False)
d["a"] = 1
open(d.filename, "wb").write(b"damaged" * 1000)
d.clear_in_mem_cache()
for value in (2, 3):
    try:
        d["b"] = value
    except ReadOnlyEntryError:
        print("it is there")
print(d["b"], len(d))
"""
    run = python(tmp_path, script)
    assert run.stdout == "it is there\n2 1\n", run.stderr
