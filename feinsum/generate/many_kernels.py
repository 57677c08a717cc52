"""Many kernels at once: each that is new is made once, however often it is wanted, by several processes side by side.

Transforming and generating code is Python, of which one thread runs at a time, so builders are processes.  They put kernels
into the disk cache, from where this process takes them; it builds, too, and alone makes the kernels that a builder could
not.  A builder takes a second to be ready, so few kernels are made here.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from feinsum.apart import run_in_thread
from feinsum.build.cache import kernel_cache
from feinsum.canonicalization import canonicalize_einsum
from feinsum.database import Database
from feinsum.devices import Device
from feinsum.devices.host import processors_allowed
from feinsum.einsum import BatchedEinsum
from feinsum.errors import FeinsumError
from feinsum.generate import generate, is_stored
from feinsum.interrupts import load_module
from feinsum.kernel.kernel import Kernel
from feinsum.kernel.saving import einsum_data, einsum_from

logger = logging.getLogger(__name__)

_FEW = 4
"""New kernels below which no builder is started: it would not be ready before they are."""
_MOST_BUILDERS = 7
_PATIENCE_S = 60.0
"""How long to wait for the last kernels of the builders before they are made here."""

Wanted = tuple[BatchedEinsum, Mapping[str, int]]


def generate_all(wanted: Sequence[Wanted], device: Device, database: Any = None) -> list[Kernel]:
    """A kernel for each einsum and the lengths expected of its long axes, see :func:`feinsum.generate`."""
    builders = min(processors_allowed() - 1, _MOST_BUILDERS)
    if len(wanted) >= _FEW and builders > 0 and kernel_cache().limit_bytes:
        run_in_thread(_build_new, wanted, device, database, builders)
    return [generate(e, device, database, sizes) for e, sizes in wanted]


def _build_new(wanted: Sequence[Wanted], device: Device, database: Any, builders: int) -> None:
    """Have those made that are not in the disk cache, if they are not few."""
    new = [one for one in _distinct_kernels(wanted) if not is_stored(*one, device, database)]
    if len(new) >= _FEW:
        _build_together(new, device, database, min(builders, len(new) // 2))


def _distinct_kernels(wanted: Sequence[Wanted]) -> list[Wanted]:
    """One of each kernel, whatever the letters of its einsum."""
    found: dict[Any, Wanted] = {}
    for e, sizes in wanted:
        canonical = canonicalize_einsum(e)
        lengths = canonical.renaming.lengths(e.resolve(sizes))
        found.setdefault((canonical.key, tuple(sorted(lengths.items()))), (e, sizes))
    return list(found.values())


def _build_together(new: Sequence[Wanted], device: Device, database: Any, builders: int) -> None:
    """Have kernels made by so many processes and this one; what fails is left for later."""
    left: queue.SimpleQueue[Wanted] = queue.SimpleQueue()
    for one in new:
        left.put(one)
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(_builder(device, database)) for _ in range(builders)]
        feeders = [threading.Thread(target=_feed, args=(process, left), daemon=True) for process in started]
        for feeder in feeders:
            feeder.start()
        for e, sizes in _take_remaining(left):
            with contextlib.suppress(FeinsumError):  # told where it is asked for again
                generate(e, device, database, sizes)
        for feeder in feeders:
            feeder.join(_PATIENCE_S)


def _take_remaining(left: queue.SimpleQueue[Wanted]) -> Iterator[Wanted]:
    """The remaining kernels, one after the other, until the last is taken."""
    with contextlib.suppress(queue.Empty):
        while True:
            yield left.get_nowait()


def _feed(process: subprocess.Popen[str], left: queue.SimpleQueue[Wanted]) -> None:
    """Hand one kernel after the other to a builder, as long as it lives."""
    if process.stdin is None or process.stdout is None:
        return
    process.stdout.readline()  # it is ready
    for e, sizes in _take_remaining(left):
        try:
            process.stdin.write(json.dumps({"einsum": einsum_data(e), "sizes": dict(sizes)}) + "\n")
            process.stdin.flush()
        except OSError:
            return
        if not process.stdout.readline():
            logger.info("a builder ended at '%s'", e.subscripts)
            return


@contextlib.contextmanager
def _builder(device: Device, database: Any) -> Iterator[subprocess.Popen[str]]:
    """A process that runs :func:`make_kernels`; it ends with the context, at the latest."""
    location = database.location if isinstance(database, Database) else database
    first = json.dumps({"device": device.id, "database": None if location is None else os.fspath(location)})
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    process = subprocess.Popen(
        [sys.executable, "-P", "-W", "ignore", "-m", "feinsum.generate.many_kernels"],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.write(first + "\n")
                process.stdin.flush()
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def make_kernels() -> None:
    """Make kernels: a line of JSON with device and store, then one for each einsum, answered by a line when it is there."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # drivers print as they like
    first = json.loads(sys.stdin.readline())
    from feinsum.devices import device as choose_device

    device = choose_device(first["device"])
    device.context  # noqa: B018  # opened while the first kernel is still to come
    load_module("loopy")
    answers.write("ready\n")
    for line in sys.stdin:
        data = json.loads(line)
        with contextlib.suppress(Exception):
            generate(einsum_from(data["einsum"]), device, first["database"], data["sizes"])
        answers.write("done\n")


if __name__ == "__main__":
    make_kernels()
