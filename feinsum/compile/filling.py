"""Fill parts of buffers of any length with one byte."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from feinsum.devices import build_program

_REACH = 1 << 31
"""Bytes from the start of a buffer that every driver fills: NVIDIA's 580 hangs, or loses the queue, beyond them."""
_WORK_ITEMS = 1 << 20
_SOURCE = """
__kernel void fill(__global uchar *bytes, ulong start, ulong size, uchar value)
{
    for (ulong i = get_global_id(0); i < size; i += get_global_size(0))
        bytes[start + i] = value;
}
"""


def enqueue_fill(queue: Any, buffer: Any, value: int, start: int, size: int, wait_for: Sequence[Any] = ()) -> Any:
    """Set `size` bytes of a buffer, from byte `start` on, to `value`; returns the event."""
    import pyopencl as cl

    if start + size < _REACH:
        return cl.enqueue_fill_buffer(queue, buffer, np.uint8(value), start, size, wait_for=list(wait_for) or None)
    return enqueue_fill_kernel(queue, buffer, value, start, size, wait_for)


def enqueue_fill_kernel(queue: Any, buffer: Any, value: int, start: int, size: int, wait_for: Sequence[Any] = ()) -> Any:
    """Fill as :func:`enqueue_fill` does, by a kernel of ours, whose positions have 64 bits."""
    import pyopencl as cl

    kernel = cl.Kernel(_fill_program(queue.context), "fill")
    arguments = (buffer, np.uint64(start), np.uint64(size), np.uint8(value))
    return kernel(queue, (min(size, _WORK_ITEMS),), None, *arguments, wait_for=list(wait_for) or None)


@functools.lru_cache(maxsize=1)
def _fill_program(context: Any) -> Any:
    return build_program(context, _SOURCE)
