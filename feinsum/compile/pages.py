"""Large pages for new buffers of CPU devices.

The system clears each page of new memory at its first use, one fault a page.  For 48 MB of results, beside a kernel of
2.2 ms, that takes 14 ms in pages of 4 KiB and 3 ms in pages of 2 MiB (two cores of Zen 5, Intel's OpenCL runtime;
``python -m benchmarks costs``, before and after).
"""

from __future__ import annotations

import ctypes
import mmap
from functools import lru_cache
from typing import Any

import numpy as np

LEAST_BYTES = 4 << 20
"""Smaller buffers have few large pages, and the driver may take them from memory that is in use already."""


class LargePages:
    """Asks the system for large pages under the buffers of a context, where its device computes in the host's memory."""

    def __init__(self, context: Any) -> None:
        import pyopencl as cl

        [device, *others] = context.devices
        wanted = not others and device.type & cl.device_type.CPU and hasattr(mmap, "MADV_HUGEPAGE")
        # A queue of its own: to map a buffer on a queue in use is to wait for what is enqueued there.
        self._queue = cl.CommandQueue(context) if wanted else None

    def advise(self, buffer: Any) -> None:
        """Ask for them under a buffer that nothing was written to; a system that has none is not asked twice."""
        if self._queue is None or buffer.size < LEAST_BYTES:
            return
        import pyopencl as cl

        view, _ = cl.enqueue_map_buffer(self._queue, buffer, cl.map_flags.WRITE, 0, (buffer.size,), np.uint8)
        first = -(-view.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE
        last = (view.ctypes.data + buffer.size) // mmap.PAGESIZE * mmap.PAGESIZE
        if _madvise()(first, last - first, mmap.MADV_HUGEPAGE):
            self._queue = None
        view.base.release()


@lru_cache(maxsize=1)
def _madvise() -> Any:
    function = ctypes.CDLL(None).madvise
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return function


@lru_cache(maxsize=16)
def large_pages(context: Any) -> LargePages:
    """The one of a context."""
    return LargePages(context)
