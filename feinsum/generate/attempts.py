"""Attempts: a kernel that takes the process down as it is built or checked does so once.

An attempt leaves a note in the cache's directory and removes it however it ends, unless the process dies::

    note absent      -> try here
    note, and locked -> another process is trying at this moment: try here
    note, unlocked   -> a process died trying: try in a process of its own first

The lock is the kernel's (``flock``), so it goes with the process that holds it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from feinsum.devices.store import lock_now, opened

SUFFIX = ".trying"


@contextlib.contextmanager
def attempt(directory: Path | None, key: str) -> Iterator[bool]:
    """Around the making of the kernel `key`; yields whether a process died making it.

    Where there is no directory, or it cannot be written or locked, nothing is noted and nobody is warned.
    """
    path = None if directory is None else directory / (key + SUFFIX)
    note = None if path is None else _lock(path)
    if note is None or path is None:
        yield False
        return
    try:
        died = os.pread(note, 1, 0) != b""
        with contextlib.suppress(OSError):  # the disk is full
            os.pwrite(note, b"!", 0)
        yield died
    finally:
        with contextlib.suppress(OSError):
            os.ftruncate(note, 0)  # for whoever opened the note before it was removed
            path.unlink()
        os.close(note)


def _lock(path: Path) -> int | None:
    """A descriptor of the note, locked; None if it cannot be had."""
    note = opened(path)
    if note is None:
        return None
    try:
        lock_now(note)
    except OSError:
        os.close(note)
        return None
    return note
