"""Turns: processes of one machine that time kernels on the same device do so one after the other, as far as they can wait.

The ranks of a program all meet an einsum that nobody measured at the same moment.  Runs of one would be late by those of
the others, and what is late loses.

The lock is the kernel's (``flock``), so it goes with the process that holds it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from feinsum.devices.naming import slug
from feinsum.generate.attempts import opened

SUFFIX = ".turn"
_PAUSE_S = 5e-3


@contextlib.contextmanager
def turn(directory: Path | None, device: str, patience_s: float) -> Iterator[bool]:
    """Wait for a turn on a device, so many seconds at most, and hold it; yields whether it is ours.

    Where there is no directory, or it cannot be written or locked, nobody waits.
    """
    lock = None if directory is None else opened(directory / (slug(device) + SUFFIX))
    if lock is None:
        yield False
        return
    try:
        yield _taken(lock, time.monotonic() + patience_s)
    finally:
        os.close(lock)


def _taken(lock: int, end: float) -> bool:
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                return False
            time.sleep(_PAUSE_S)
        except OSError:
            return False
        else:
            return True
