"""Interrupts: Ctrl-C and a caller's time limit wait while binary modules are imported.

Modules built with nanobind, such as islpy and pyopencl, must not be interrupted while they are imported: imported again,
they lack parts or end the process.  An import takes a second at most, save from slow disks.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from importlib import import_module
from types import FrameType, ModuleType
from typing import Any

from feinsum.caches import tolerate_damaged_caches

_importing = threading.RLock()


@contextmanager
def deferred() -> Iterator[None]:
    """A context that no handler of a signal leaves before its end, where the signals that came take their usual course.

    Whatever signal has a handler of Python's: Ctrl-C, and the alarm of a caller's time limit.
    In other threads than the main one, nothing changes: they are never interrupted.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers: dict[int, Callable[[int, FrameType | None], Any]] = {
        number: handler for number in signal.valid_signals() if callable(handler := signal.getsignal(number))
    }
    came: list[int] = []
    over = False

    def receive(number: int, frame: FrameType | None) -> None:
        if over:  # a handler that was put back first has raised, and this one is still in place
            handlers[number](number, frame)
        else:
            came.append(number)

    for number in handlers:
        signal.signal(number, receive)
    try:
        yield
    finally:
        over = True
        with ExitStack() as rest:
            for number in reversed(dict.fromkeys(came)):
                rest.callback(signal.raise_signal, number)
            for number, handler in handlers.items():
                signal.signal(number, handler)


def load_module(name: str) -> ModuleType:
    """A module, imported without interruption if it is new; damaged caches do not matter to it.

    One thread imports at a time: Python 3.11 to 3.14 let a thread import ``a.b`` while another is half through ``a``.
    """
    with _importing, nullcontext() if name in sys.modules else deferred():
        tolerate_damaged_caches()
        return import_module(name)
