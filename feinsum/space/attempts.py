"""Attempts: a kernel that takes the process down as it is built or checked does so once, and so does a space when asked.

An attempt leaves a note in the cache's directory and removes it however it ends, unless the process dies::

    note absent            -> try here
    note, and locked       -> another process is trying at this moment: try here
    note, unlocked         -> a process died trying: try in a process of its own first
    note with a verdict    -> that one failed, too: never try again

The lock is the kernel's (``flock``), so it goes with the process that holds it.

Spaces that come with feinsum are not noted when they are asked, which is done often.  Another one at which a process died
is left out for an hour, as a machine may have killed the process for a reason of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from feinsum.devices.json_store import cache_directory, lock_now, open_lock_file

logger = logging.getLogger(__name__)

SUFFIX = ".trying"
_OURS = "feinsum.transforms."
_LEFT_OUT_S = 3600.0
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

    Without a directory that can be written and locked, nothing is noted and no process is warned.
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
                os.ftruncate(note, 0)  # for processes that opened the note before it was removed
                path.unlink()
        os.close(note)


def _lock(path: Path) -> int | None:
    """A descriptor of the note, locked; None if it cannot be had."""
    note = open_lock_file(path)
    if note is None:
        return None
    try:
        lock_now(note)
    except OSError:
        os.close(note)
        return None
    return note


def asking(code: str) -> AbstractContextManager[object]:
    """Around a question to a space, or the import of a module of spaces; an end of the process in between is noted.

    :param code: the module of the space, with its name and version, or the module.
    """
    return contextlib.nullcontext() if code.startswith(_OURS) else attempt(cache_directory() / "spaces", _attempt_key(code))


@lru_cache(maxsize=256)
def is_deadly(code: str) -> bool:
    """Whether a process died in the last hour when it asked, or imported, that code; it is told once.

    :param code: as for :func:`asking`.
    """
    if code.startswith(_OURS):
        return False
    with attempt(cache_directory() / "spaces", _attempt_key(code)) as noted:
        now = time.time()
        died_s = _seconds_of_text(noted.verdict, now) if noted.died else -_LEFT_OUT_S
        noted.stays = noted.died and now - died_s < _LEFT_OUT_S
        noted.verdict = f"{died_s:.0f}"
    if noted.stays:
        logger.warning(
            "'%s' is left out for an hour, as a process died in it; a change of its version or file ends that", code
        )
    return noted.stays


def _attempt_key(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()[:32]


def _seconds_of_text(text: str, default: float) -> float:
    try:
        return float(text)
    except ValueError:
        return default
