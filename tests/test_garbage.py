"""Making a kernel pauses Python's collector of garbage, and leaves it as it was."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

from feinsum.generate.garbage import collector_paused


@pytest.fixture(autouse=True)
def enabled() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def test_the_collector_pauses_until_the_last_thread_is_done() -> None:
    """However the threads overlap, and also where one fails."""
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with collector_paused():
            entered.set()
            leave.wait(60)

    def failing() -> None:
        with collector_paused():
            thread.start()
            assert entered.wait(60)
            raise ZeroDivisionError

    thread = threading.Thread(target=other)
    with pytest.raises(ZeroDivisionError):
        failing()
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()


def test_a_collector_that_is_off_stays_off() -> None:
    """As its user wants it."""
    gc.disable()
    with collector_paused():
        pass
    assert not gc.isenabled()
