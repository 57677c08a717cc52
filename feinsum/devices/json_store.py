"""The memory of feinsum between processes: JSON files in directories of the user, written whole or not at all; and locks.

A file is data only; one that is missing, cut short or not JSON is the same as none, so that a reader measures again.  A
lock is the kernel's (``flock``), so it goes with the process that holds it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import tempfile
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from feinsum.effects import set_variable
from feinsum.errors import require_of_system

_log = logging.getLogger(__name__)

_LITTLE_BYTES = 1 << 16
"""Less than a compiler writes for one kernel."""


def cache_directory() -> Path:
    """A writable directory for data that can be made again: the user's cache directory, or a private temporary one."""
    import platformdirs

    return _writable_directory(platformdirs.user_cache_path("feinsum"))


def data_directory() -> Path:
    """A writable directory for data that took time to measure: the user's data directory, or a private temporary one."""
    import platformdirs

    return _writable_directory(platformdirs.user_data_path("feinsum"))


def provide_cache() -> None:
    """Give this process, and those it starts, a cache directory that can be written.

    In a home directory that is read-only pyopencl calls no kernel and PoCL lists no device, for want of their own caches.
    """
    import platformdirs

    cache = platformdirs.user_cache_path("feinsum")
    if _writable_directory(cache) != cache:
        set_variable("XDG_CACHE_HOME", str(private_temporary_directory()))


def unwritable() -> str:
    """Which of the directories that compilers and caches write to has no room, and why; empty if both have."""
    try:
        for directory in (cache_directory(), tempfile.gettempdir()):
            with tempfile.TemporaryFile(dir=directory) as file:
                file.write(bytes(_LITTLE_BYTES))
    except FileNotFoundError as error:  # there is no directory at all for temporary files
        return str(error.strerror)
    except OSError as error:
        return f"nothing can be written to {directory}: {error.strerror}"
    return ""


def read_json(path: Path) -> object:
    """The value stored at `path`; None if there is none or it cannot be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        require_of_system(error)
        if not isinstance(error, FileNotFoundError):
            _log.info("ignoring %s: %s", path, error)
        return None


def write_json(path: Path, value: object) -> None:
    """Store `value` at `path`.  Readers see the old file or the new one; a full or read-only disk is only logged."""
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, suffix=".tmp", delete=False) as file:
            temporary = file.name
            json.dump(value, file, indent=1, sort_keys=True)
        os.replace(temporary, path)
    except OSError as error:
        _log.warning("%s is not remembered: %s", path, error)
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


@contextlib.contextmanager
def locked(path: Path, patience_s: float, pause_s: float) -> Iterator[bool]:
    """Hold the lock of a file, which is made if there is none; yields whether it is ours.

    :param patience_s: how long to wait for it at most; there is no wait if the file cannot be written or locked.
    :param pause_s: how long to wait before the next try.
    """
    lock = open_lock_file(path)
    if lock is None:
        yield False
        return
    try:
        yield _take_lock(lock, time.monotonic() + patience_s, pause_s)
    finally:
        os.close(lock)


def open_lock_file(path: Path) -> int | None:
    """A descriptor of a file to lock, made if there is none; None if it cannot be had."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
    except OSError:
        return None


def lock_now(descriptor: int) -> None:
    """Take the lock of an open file, which goes with the process.

    :raises BlockingIOError: if another process has it.
    :raises OSError: if the file system or the operating system (Windows) has no such locks.
    """
    try:
        import fcntl
    except ModuleNotFoundError:
        raise OSError(errno.ENOSYS, "there is no flock") from None
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _take_lock(lock: int, end: float, pause_s: float) -> bool:
    while True:
        try:
            lock_now(lock)
        except BlockingIOError:
            if time.monotonic() > end:
                return False
            time.sleep(pause_s)
        except OSError:
            return False
        else:
            return True


def _writable_directory(path: Path) -> Path:
    with contextlib.suppress(OSError):
        path.mkdir(parents=True, exist_ok=True)
        if os.access(path, os.W_OK | os.X_OK):
            return path
    path = private_temporary_directory() / path.name
    path.mkdir(exist_ok=True)
    return path


@lru_cache(maxsize=1)
def private_temporary_directory() -> Path:
    """The temporary directory of this user's processes; a new one if another user owns it, who could plant libraries."""
    if not hasattr(os, "getuid"):  # on Windows the temporary directory is the user's own
        return Path(tempfile.mkdtemp(prefix="feinsum-"))
    path = Path(tempfile.gettempdir()) / f"feinsum-{os.getuid()}"
    with contextlib.suppress(OSError):
        path.mkdir(mode=0o700, exist_ok=True)
        status = path.lstat()
        if not path.is_symlink() and status.st_uid == os.getuid() and not status.st_mode & 0o022:
            return path
    return Path(tempfile.mkdtemp(prefix="feinsum-"))
