"""Ctrl-C or a time limit while feinsum imports what it needs: it ends the call, and the next one works."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import pytest

from feinsum.interrupts import deferred, load_module


@pytest.fixture(autouse=True)
def usual_course() -> Iterator[None]:
    """Interrupts are exceptions, also where the shell ignores them for tests in the background, or another test does not
    want them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


INTERRUPTED = """
import os, signal, sys
import feinsum as fe
from feinsum.registry import spaces

class Interrupting:
    def find_spec(self, name, path, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), NUMBER)

def ring(number, frame):
    raise KeyboardInterrupt

NUMBER = getattr(signal, sys.argv[3])
signal.signal(NUMBER, ring)
e = fe.einsum("ij,j->i", fe.array("A", (3, "N")), fe.array("x", "N"))
device = fe.device("cpu")
sys.meta_path.insert(0, Interrupting())
try:
    eval(sys.argv[2])
except KeyboardInterrupt:
    print(sys.argv[1].partition(".")[0] in sys.modules)
print(type(fe.generate(e, device).t_unit).__name__)
"""


@pytest.mark.parametrize("limit", ["SIGINT", "SIGALRM"])
@pytest.mark.parametrize(
    ("module", "call"),
    [
        ("islpy._isl", "fe.generate(e, device)"),
        ("islpy._isl", "fe.generate_loopy(e)"),
        ("islpy._isl", "spaces()"),
        ("pyopencl._cl", "device.queue"),
    ],
)
def test_a_call_after_one_that_was_interrupted_works(module: str, call: str, limit: str) -> None:
    """Modules of nanobind cannot be imported again once their import was interrupted, so it comes to its end."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, module, call, limit],
        env={**os.environ, "FEINSUM_CACHE_BYTES": "0"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.stdout.splitlines(), done.returncode) == (["True", "TranslationUnit"], 0), done.stderr


def test_an_interrupt_waits_for_the_end() -> None:
    """And takes the usual course there, as the next one does at once."""
    done = []

    def interrupted(number: int) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        done.append(number)

    def protected(number: int) -> None:
        with deferred():
            interrupted(number)

    with pytest.raises(KeyboardInterrupt):
        protected(1)
    with pytest.raises(KeyboardInterrupt):
        interrupted(2)
    assert done == [1]


def test_several_signals_wait_and_none_is_lost() -> None:
    """Each handler runs, though an earlier one raises, and all are in place again."""
    numbers, ran = (signal.SIGUSR1, signal.SIGALRM), list[int]()

    def ring(number: int, frame: object) -> None:
        ran.append(number)
        raise TimeoutError

    def protected() -> None:
        with deferred():
            for number in (*numbers, *numbers):
                os.kill(os.getpid(), number)
            assert not ran

    before = [signal.signal(number, ring) for number in numbers]
    try:
        with pytest.raises(TimeoutError):
            protected()
        assert ran == list(numbers)
        assert [signal.getsignal(number) for number in numbers] == [ring, ring]
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def test_threads_that_import_parts_of_one_package_do_not_disturb_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would hold what the other waits for, and Python then gives one of them a module that is half imported."""
    package = tmp_path / "slow_package"
    package.mkdir()
    (tmp_path / "slow_events.py").write_text("import threading\nbegun, go_on = threading.Event(), threading.Event()\n")
    (package / "__init__.py").write_text(
        "import time\nfrom slow_events import begun, go_on\n"
        "begun.set()\ngo_on.wait(0.3)\ntime.sleep(0.1)\nfrom slow_package.first import one\n"
    )
    (package / "first.py").write_text("from slow_events import go_on\ngo_on.set()\nimport slow_package\none = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    with ThreadPoolExecutor(1) as pool:
        whole = pool.submit(load_module, "slow_package")
        assert import_module("slow_events").begun.wait(60)
        assert load_module("slow_package.first").one == whole.result().one == 1
