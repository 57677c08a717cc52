"""Python's collector of cyclic garbage, paused while a kernel is made.

loopy is loaded and works with some hundred thousand objects that all live on, which the collector looks through again and
again: a tenth of the time in which a first kernel is made.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

_lock = threading.Lock()
_pauses = 0
_was_enabled = False


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """While the context lasts, in any thread, nothing is collected; afterwards the collector is as it was."""
    global _pauses, _was_enabled  # noqa: PLW0603 (the collector is one for the process)
    with _lock:
        if not _pauses:
            _was_enabled = gc.isenabled()
            gc.disable()
        _pauses += 1
    try:
        yield
    finally:
        with _lock:
            _pauses -= 1
            if not _pauses and _was_enabled:
                gc.enable()
