"""Settings of the whole process that are switched off while some thread makes a kernel.

Python's collector of cyclic garbage looks through the hundred thousands of objects of loopy again and again, though all of
them live on: a tenth of the time in which a first kernel is made.

loopy 2025.2 makes calls that islpy deprecates; where warnings are errors, as in many test suites, it could make no kernel.
"""

from __future__ import annotations

import gc
import re
import threading
import warnings
from collections.abc import Callable
from types import TracebackType


class Pause:
    """A context in which something is off, in any number of threads; when the last one leaves, it is as it was.

    :param is_on: whether it is on.
    :param switch: puts it on or off.
    """

    def __init__(self, is_on: Callable[[], bool], switch: Callable[[bool], object]) -> None:
        self._is_on, self._switch = is_on, switch
        self._lock = threading.Lock()
        self._inside = 0
        self._was_on = False

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._was_on = self._is_on()
                self._switch(False)
            self._inside += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._switch(self._was_on)


collector_paused = Pause(gc.isenabled, lambda on: gc.enable() if on else gc.disable())

_UNHEEDED = ("ignore", re.compile(""), DeprecationWarning, None, 0)


def _heed(on: bool) -> None:
    warnings.filters[:] = [*([] if on else [_UNHEEDED]), *(f for f in warnings.filters if f is not _UNHEEDED)]  # type: ignore[index]


deprecations_paused = Pause(lambda: all(f is not _UNHEEDED for f in warnings.filters), _heed)
