"""The lock of a device: processes of one machine that time kernels on the same device do so one after another.

The ranks of a program all meet an einsum without a record at the same moment.  Runs of one process would delay those of
the others' runs, and a candidate that is late loses.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from feinsum.devices.json_store import locked
from feinsum.devices.naming import slug

SUFFIX = ".turn"
_PAUSE_S = 5e-3


@contextlib.contextmanager
def lock_device(directory: Path | None, device: str, patience_s: float) -> Iterator[bool]:
    """Hold the lock of a device, after waiting for `patience_s` seconds at most; yields whether it is held.

    Without a directory, or if it cannot be written or locked, no process waits.
    """
    if directory is None:
        yield False
        return
    with locked(directory / (slug(device) + SUFFIX), patience_s, _PAUSE_S) as ours:
        yield ours
