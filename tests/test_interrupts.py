"""Ctrl-C while feinsum imports what it needs: it ends the call, and the next one works."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from feinsum.interrupts import deferred


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
            os.kill(os.getpid(), signal.SIGINT)

e = fe.einsum("ij,j->i", fe.array("A", (3, "N")), fe.array("x", "N"))
device = fe.device("cpu")
sys.meta_path.insert(0, Interrupting())
try:
    eval(sys.argv[2])
except KeyboardInterrupt:
    print(sys.argv[1].partition(".")[0] in sys.modules)
print(type(fe.generate(e, device).t_unit).__name__)
"""


@pytest.mark.parametrize(
    ("module", "call"),
    [
        ("islpy._isl", "fe.generate(e, device)"),
        ("islpy._isl", "fe.generate_loopy(e)"),
        ("islpy._isl", "spaces()"),
        ("pyopencl._cl", "device.queue"),
    ],
)
def test_a_call_after_one_that_was_interrupted_works(module: str, call: str) -> None:
    """Modules of nanobind cannot be imported again once their import was interrupted, so it comes to its end."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, module, call],
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
