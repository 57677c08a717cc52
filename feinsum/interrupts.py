"""Interrupts: Ctrl-C waits while binary modules are imported.

Modules built with nanobind, such as islpy and pyopencl, must not be interrupted while they are imported: imported again,
they lack parts or end the process.  An import takes a second at most, save from slow disks.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from types import ModuleType

from feinsum.caches import go_round_damage

_importing = threading.RLock()


@contextmanager
def deferred() -> Iterator[None]:
    """A context that an interrupt does not leave before its end, where it takes the usual course.

    In other threads than the main one, nothing changes: they are never interrupted.
    """
    handler = signal.getsignal(signal.SIGINT)
    if handler is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            signal.raise_signal(signal.SIGINT)


def load(name: str) -> ModuleType:
    """A module; if nobody imported it yet, it is imported without interruption; damaged caches do not matter to it.

    One thread imports at a time: Python 3.11 to 3.14 let a thread import ``a.b`` while another is half through ``a``.
    """
    with _importing, nullcontext() if name in sys.modules else deferred():
        go_round_damage()
        return import_module(name)
