"""What is switched off while some thread makes a kernel.

Python's collector of cyclic garbage looks through the hundred thousands of objects of loopy again and again, though all of
them live on: a tenth of the time in which a first kernel is made.

loopy 2025.2 makes calls that islpy deprecates; where warnings are errors, as in many test suites, it could make no kernel.
Filters of warnings are those of all threads, and ``warnings.catch_warnings`` of any thread puts back those that it found;
so they stay as they are, and islpy's own ``warn`` is replaced, once, by one that is silent in threads that make a kernel.
"""

from __future__ import annotations

import gc
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Any

from feinsum.apart import when_left_behind
from feinsum.interrupts import load


class Pause:
    """A context in which something is off, in any number of threads; when the last one leaves, it is as it was.

    A thread that hangs and is left behind (:mod:`feinsum.apart`) has left it.

    :param is_on: whether it is on.
    :param switch: puts it on or off.
    """

    def __init__(self, is_on: Callable[[], bool], switch: Callable[[bool], object]) -> None:
        self._is_on, self._switch = is_on, switch
        self._lock = threading.Lock()
        self._inside: Counter[int] = Counter()
        self._was_on = False
        when_left_behind(lambda thread: self._leave(thread, self._inside[thread]))

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._was_on = self._is_on()
                self._switch(False)
            self._inside[threading.get_ident()] += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._leave(threading.get_ident(), 1)

    def _leave(self, thread: int, depth: int) -> None:
        """Leave it so many times, unless the thread was left behind in it."""
        with self._lock:
            if not self._inside[thread]:
                del self._inside[thread]
                return
            self._inside[thread] -= depth
            if not self._inside[thread]:
                del self._inside[thread]
            if not self._inside:
                self._switch(self._was_on)


collector_paused = Pause(gc.isenabled, lambda on: gc.enable() if on else gc.disable())


class _Depth(threading.local):
    """How many contexts of :data:`deprecations_paused` this thread is in."""

    inside = 0


class _DeprecationsPaused:
    """A context in which islpy warns this thread of nothing that is deprecated; other threads are warned as before."""

    def __init__(self) -> None:
        self._depth, self._lock = _Depth(), threading.Lock()
        self._told: Callable[..., None] = warnings.warn

    def __enter__(self) -> None:
        self._depth.inside += 1
        islpy = vars(load("islpy._monkeypatch"))
        with self._lock:
            if (told := islpy.get("warn", warnings.warn)) != self._warn:
                self._told, islpy["warn"] = told, self._warn

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._depth.inside -= 1

    def _warn(self, message: Any, category: Any = None, stacklevel: int = 1, source: Any = None) -> None:
        if not self._depth.inside:
            self._told(message, category, stacklevel + 1, source)


deprecations_paused = _DeprecationsPaused()
