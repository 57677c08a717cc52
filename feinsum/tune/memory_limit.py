"""A limit to the memory of a worker process, so that a greedy trial fails by itself before the machine is short of it."""

from __future__ import annotations

import re
from pathlib import Path

_SHARE = 0.6
"""The share of the free memory that one worker may take."""
_FULL = 0.9
"""The share of that limit from which on a worker counts as short of memory."""


def limit_memory() -> None:
    """Let this process take most of the memory that is free now, and no more; only Linux says how much that is."""
    free, held = _free_bytes(), _kilobytes("/proc/self/status", "VmData")
    if free is None or held is None:
        return
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = held + int(_SHARE * free)
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def used_up(pid: int) -> str | None:
    """The memory that a process has, if that is nearly its limit; None if not, or if it is unknown."""
    held, limit = _kilobytes(f"/proc/{pid}/status", "VmData"), _memory_limit(pid)
    if held is None or limit is None or held < _FULL * limit:
        return None
    return f"with {held / 2**30:.1f} of the {limit / 2**30:.1f} GiB that it may have"


def _memory_limit(pid: int) -> int | None:
    """The limit to the memory of a process."""
    try:
        import resource

        limit, _ = resource.prlimit(pid, resource.RLIMIT_DATA)
    except (ImportError, AttributeError, OSError):  # Windows; another system; it has just ended
        return None
    return None if limit == resource.RLIM_INFINITY else limit


def _free_bytes() -> int | None:
    """The free memory on this machine and in the control group of this process."""
    free = _kilobytes("/proc/meminfo", "MemAvailable")
    group = Path("/sys/fs/cgroup")
    try:
        left = int((group / "memory.max").read_text()) - int((group / "memory.current").read_text())
    except (OSError, ValueError):  # another layout, or "max"
        return free
    return left if free is None else min(left, free)


def _kilobytes(path: str, name: str) -> int | None:
    try:
        found = re.search(rf"^{name}:\s+(\d+) kB", Path(path).read_text(), re.MULTILINE)
    except OSError:
        return None
    return None if found is None else int(found[1]) << 10
