"""Turns: processes of one machine that time kernels on the same device do so one after the other, as far as they can wait.

The ranks of a program all meet an einsum that nobody measured at the same moment.  Runs of one would be late by those of
the others, and what is late loses.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from feinsum.devices.naming import slug
from feinsum.devices.store import locked

SUFFIX = ".turn"
_PAUSE_S = 5e-3


@contextlib.contextmanager
def turn(directory: Path | None, device: str, patience_s: float) -> Iterator[bool]:
    """Wait for a turn on a device, so many seconds at most, and hold it; yields whether it is ours.

    Where there is no directory, or it cannot be written or locked, nobody waits.
    """
    if directory is None:
        yield False
        return
    with locked(directory / (slug(device) + SUFFIX), patience_s, _PAUSE_S) as ours:
        yield ours
