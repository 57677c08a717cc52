"""A kernel that kills the process that makes it does so once."""

from __future__ import annotations

import multiprocessing as mp
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from plugins import install

import feinsum as fe
from feinsum.devices import Device
from feinsum.space.attempts import SUFFIX, attempt
from feinsum.tune.task import make_task
from feinsum.tune.trial import Outcome, Trial

KILLER = '''
import ctypes

from feinsum.rewrites import spread
from feinsum.space import space


@space(pattern="abc,c->ba", version=1, parameters={"width": (16,)})
def killer(t_unit, match, problem, *, width):
    """Takes the process along that transforms it."""
    ctypes.string_at(0)
'''
SPITEFUL = """
import ctypes, os
from feinsum.space import space

@space(pattern="abc,c->ba", version=1, parameters={"way": ("segfault", "abort", "exit")}, rank=9)
def spiteful(t_unit, match, problem, *, way):
    '''Takes the process along, each configuration in its way.'''
    if way == "segfault":
        ctypes.string_at(0)
    if way == "abort":
        os.abort()
    os._exit(7)
"""
PROGRAM = """
import logging, sys
import numpy as np
import feinsum as fe

logging.basicConfig(level="WARNING", stream=sys.stdout)
e = fe.einsum("abc,c->ba", fe.array("A", (5, 6, 7)), fe.array("x", 7))
kernel = fe.generate(e, "cpu", tune="never")
A, x = np.ones((5, 6, 7)), np.ones(7)
print(np.array_equal(kernel(A=A, x=x), np.einsum("abc,c->ba", A, x)), kernel.configuration)
"""
TRANSFORMING = """
import feinsum as fe
e = fe.einsum("abc,c->ba", fe.array("A", (5, 6, 7)), fe.array("x", 7))
fe.transform(fe.generate_loopy(e), "cpu")
"""


@pytest.fixture
def environment(tmp_path: Path, cpu: Device) -> dict[str, str]:
    """Of a process that finds the deadly space, and has a cache of its own and a store where that space is praised."""
    install(tmp_path, "killers_package", KILLER)
    task = make_task(fe.einsum("abc,c->ba", fe.array("A", (5, 6, 7)), fe.array("x", 7)), None, cpu)
    origin = Trial(task.subject.canonical.key, task.sizes, cpu.profile.id, "killer", 1, {"width": 16})
    praise = task.record(origin, Outcome("ok", samples_s=(1e-9, 1e-9, 1e-9)))
    fe.Database(tmp_path / "records.sqlite").add(praise)
    known = Path("feinsum", "devices")  # what is known of the drivers is not asked again
    shutil.copytree(os.environ["XDG_CACHE_HOME"] / known, tmp_path / "cache" / known)
    root = str(Path(__file__).parents[1])
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (root, str(tmp_path), os.environ.get("PYTHONPATH")))),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "FEINSUM_DATABASE": str(tmp_path / "records.sqlite"),
    }


def follow(environment: dict[str, str], program: str = PROGRAM) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def test_the_process_after_the_one_that_died_gets_a_kernel(environment: dict[str, str]) -> None:
    """The first is taken down by its default; the second has that tried elsewhere, says so, and takes the next choice."""
    assert follow(environment).returncode == -signal.SIGSEGV
    second = follow(environment)
    assert second.returncode == 0, second.stderr
    assert "a process died making this kernel" in second.stdout
    assert "was killed by SIGSEGV" in second.stdout
    assert second.stdout.splitlines()[-1].startswith("True ")


@pytest.mark.slow
@pytest.mark.parametrize("program", [PROGRAM, TRANSFORMING])
def test_each_configuration_takes_down_one_process(tmp_path: Path, environment: dict[str, str], program: str) -> None:
    """Whatever the way in which it does; the file may be written anew meanwhile, with the same in it."""
    own = {**environment, "FEINSUM_DATABASE": str(tmp_path / "none.sqlite"), "FEINSUM_TRANSFORMS": str(tmp_path / "own.py")}
    own["PYTHONPATH"] = str(Path(__file__).parents[1])
    ends = []
    for _ in range(6):
        (tmp_path / "own.py").write_text(SPITEFUL)
        ends.append(follow(own, program).returncode)
    assert 0 < sum(status != 0 for status in ends) <= 3
    assert ends[3:] == [0, 0, 0]


ASKED = {
    "its pattern": 'pattern=lambda e: ctypes.string_at(0), parameters={"way": (1, 2)}',
    "its parameters": 'pattern="abc,c->ba", parameters=lambda p: os._exit(7)',
    "its constraint": 'pattern="abc,c->ba", parameters={"way": (1, 2)}, constraint=lambda p, c: os.abort()',
    "its file": 'pattern="abc,c->ba", parameters={"way": os._exit(3)}',
}


@pytest.mark.slow
@pytest.mark.parametrize("asked", ASKED)
def test_a_space_that_ends_the_process_when_it_is_asked_does_so_once(
    asked: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    """It is left out then, until it changes or an hour has passed."""
    file, cache = tmp_path / "own.py", tmp_path / "cache"
    own = {**environment, "FEINSUM_DATABASE": str(tmp_path / "none.sqlite"), "FEINSUM_TRANSFORMS": str(file)}
    own["PYTHONPATH"] = str(Path(__file__).parents[1])
    deadly = f"""
import ctypes, os
from feinsum.space import space

@space(version=1, rank=9, {ASKED[asked]})
def deadly(t_unit, match, problem, *, way):
    'Ends the process.'
    return t_unit
"""
    file.write_text(deadly)
    ends = [follow(own) for _ in range(3)]
    assert ends[0].returncode != 0
    assert [end.returncode for end in ends[1:]] == [0, 0], ends[1].stderr
    assert "is left out for an hour, as a process died in it" in ends[1].stdout
    notes = list((cache / "feinsum" / "spaces").iterdir())
    assert len(notes) == 1
    notes[0].write_text(f"!{time.time() - 3601:.0f}")
    shutil.rmtree(cache / "feinsum" / "kernels")  # where the answer is kept
    assert follow(own).returncode != 0
    file.write_text(deadly.replace("way", "other"))
    assert follow(own).returncode != 0


def test_an_attempt_that_ends_well_leaves_nothing(tmp_path: Path) -> None:
    """Neither does one that ends by an exception."""
    with attempt(tmp_path, "key") as note:
        assert not note.died
    with pytest.raises(KeyboardInterrupt), attempt(tmp_path, "key"):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_was_killed_is_told_of(tmp_path: Path) -> None:
    """Once: the attempt after it, if that ends well, clears its name."""
    process = mp.get_context("spawn").Process(target=die, args=(tmp_path,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    with attempt(tmp_path, "other") as note:
        assert not note.died
    with attempt(tmp_path, "key") as note:
        assert note.died
    with attempt(tmp_path, "key") as note:
        assert not note.died


def die(directory: Path) -> None:
    with attempt(directory, "key"):
        os.kill(os.getpid(), signal.SIGKILL)


def test_one_that_goes_on_in_another_process_is_no_death(tmp_path: Path) -> None:
    """Two processes may make the same kernel at the same time."""
    with attempt(tmp_path, "key") as first, attempt(tmp_path, "key") as second:
        assert not first.died
        assert not second.died


def test_a_file_in_the_way_is_the_same_as_no_note(tmp_path: Path) -> None:
    """As where the directory of the cache is a file."""
    (tmp_path / "file").write_text("")
    with attempt(tmp_path / "file", "key") as note:
        assert not note.died
    assert not list(tmp_path.glob(f"*{SUFFIX}"))
