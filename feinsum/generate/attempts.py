"""Attempts: a kernel that takes the process down as it is built or checked does so once.

An attempt leaves a note in the cache's directory and removes it however it ends, unless the process dies::

    note absent            -> try here
    note, and locked       -> another process is trying at this moment: try here
    note, unlocked         -> a process died trying: try in a process of its own first
    note with a verdict    -> that one failed, too: never try again

The lock is the kernel's (``flock``), so it goes with the process that holds it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from feinsum.devices.store import lock_now, opened

SUFFIX = ".trying"
_LONGEST = 4096
"""Bytes of a note."""


@dataclass
class Attempt:
    """The making of a kernel.

    :ivar died: whether a process died making it.
    :ivar verdict: why it is not to be tried again; empty if it is.
    :ivar stays: whether the note stays, with that verdict.
    """

    died: bool = False
    verdict: str = ""
    stays: bool = False


@contextlib.contextmanager
def attempt(directory: Path | None, key: str) -> Iterator[Attempt]:
    """Around the making of the kernel `key`.

    Where there is no directory, or it cannot be written or locked, nothing is noted and nobody is warned.
    """
    path = None if directory is None else directory / (key + SUFFIX)
    note = None if path is None else _lock(path)
    if note is None or path is None:
        yield Attempt()
        return
    content = b""
    with contextlib.suppress(OSError):  # the disk is full, or fails
        content = os.pread(note, _LONGEST, 0)
        os.pwrite(note, b"!", 0)
    found = Attempt(content != b"", content[1:].decode(errors="replace"))
    try:
        yield found
    finally:
        with contextlib.suppress(OSError):
            if found.stays:
                os.pwrite(note, found.verdict.encode()[:_LONGEST], 1)
            else:
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
