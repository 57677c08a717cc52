"""Large pages for new buffers of CPU devices.

The system clears each page of new memory at its first use, one fault a page.  For 48 MB of results, beside a kernel of
2.3 ms, that takes 10 ms in pages of 4 KiB, 1.5 to 2.2 ms in pages of 2 MiB where up to two of them are cut off at the
ends, and 1.2 ms in whole ones, which is 40 GB/s, about what the memory takes (two cores of Zen 5, Intel's OpenCL runtime).
Linux lets a mapping begin with a large page if its length is a multiple of one (from 6.7), and that driver maps a large
buffer as it is, so buffers are made as long as that.

Filling the pages beforehand (``MADV_POPULATE_WRITE``), in one thread or two, is slower than letting the kernel do it.  To
reuse the memory of discarded results would cost nothing, but commands in somebody else's queue may still read them: a
driver postpones the end of a buffer until then, and tells nobody (Intel's counts no references of commands).
"""

from __future__ import annotations

import ctypes
import mmap
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from feinsum.compile.shortage import new_device_buffer

LEAST_BYTES = 4 << 20
"""Smaller buffers have few large pages, and the driver may take them from memory that is in use already."""
_MOST_BYTES = 32 << 20
"""The largest page for which buffers are rounded up to whole pages; some processors have pages of 512 MiB."""


class LargePages:
    """Makes buffers for a context, on large pages where its device computes in the host's memory and there are any."""

    def __init__(self, context: Any) -> None:
        import pyopencl as cl

        [device, *others] = context.devices
        self._context, self._page = context, large_page_bytes()
        wanted = not others and device.type & cl.device_type.CPU and self._page > 0
        # A queue of its own: mapping a buffer on a queue in use waits for the commands there.
        self._queue = cl.CommandQueue(context) if wanted else None
        self._most = device.max_mem_alloc_size

    def pay(self, size: int) -> bool:
        """Whether a buffer of so many bytes is to have some."""
        return self._queue is not None and LEAST_BYTES <= size <= self._most - self._page

    def new_buffer(self, size: int) -> Any:
        """A new :class:`pyopencl.Buffer` of `size` bytes, or up to the end of its last large page."""
        import pyopencl as cl

        if not self.pay(size):
            return new_device_buffer(self._context, size)
        length = -(-size // self._page) * self._page
        buffer = new_device_buffer(self._context, length)
        view, _ = cl.enqueue_map_buffer(self._queue, buffer, cl.map_flags.WRITE, 0, (length,), np.uint8)
        first = -(-view.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE
        last = (view.ctypes.data + length) // mmap.PAGESIZE * mmap.PAGESIZE
        if _madvise()(first, last - first, mmap.MADV_HUGEPAGE):
            self._queue = None  # a system that has none is not asked twice
        view.base.release()
        return buffer


@lru_cache(maxsize=1)
def large_page_bytes() -> int:
    """The size of a large page; 0 where there are none to ask for, or they are so large that a part of one is too much."""
    try:
        allowed = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
        size = int(Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size").read_text())
    except (OSError, ValueError):
        return 0
    return 0 if "[never]" in allowed or not hasattr(mmap, "MADV_HUGEPAGE") or size > _MOST_BYTES else size


@lru_cache(maxsize=1)
def _madvise() -> Any:
    function = ctypes.CDLL(None).madvise
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return function


@lru_cache(maxsize=16)
def large_pages(context: Any) -> LargePages:
    """The one of a context."""
    return LargePages(context)
