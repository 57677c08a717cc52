"""numpy arrays as buffers where they are, on devices that compute in the memory of the host.

A buffer over an array (``CL_MEM_USE_HOST_PTR``) takes a microsecond.  A copy moves the array through memory twice, and
needs new pages besides.

Kernels that report addresses showed which arrays a runtime uses in place (2026-11).  PoCL 3.1 takes any array.  Intel's
runtime (2026.2) takes any array if kernels may write to the buffer; it copies an array that they only read when the buffer
is made, unless the array begins at a multiple of 128 bytes.  So all buffers here may be written to; operands are ``const``
in the kernels.

The standard defines the host's view of such a buffer only while it is mapped, so results are mapped when the kernel is
done: 8 us (Intel) and 15 us (PoCL) on two cores of Zen 5, whatever the length.  Reading a copy is faster below 32 KiB.
"""

from __future__ import annotations

import mmap
from functools import lru_cache
from typing import Any

import numpy as np

from feinsum.compile.pages import LEAST_BYTES, large_page_bytes
from feinsum.compile.shortage import array_shortage, new_device_buffer

LEAST_RESULT_BYTES = 32 << 10
"""Smaller results are copied from a buffer of the device."""
SHARED_BYTES = 64
"""The alignment at which other libraries use arrays in place, in bytes, as JAX does (XLA; seen with jax 0.10)."""


@lru_cache(maxsize=16)
def computes_in_host_memory(context: Any) -> bool:
    """Whether the device of a context computes in the memory of numpy arrays.

    Processors do.  GPUs that share memory with the host count as if they did not, since we could not try what their drivers
    copy, and when.
    """
    import pyopencl as cl

    [device, *others] = context.devices
    return not others and bool(device.type & cl.device_type.CPU) and bool(device.host_unified_memory)


def wrap(value: np.ndarray[Any, Any], context: Any, alignment: int) -> Any:
    """A :class:`pyopencl.Buffer` over the memory of a C-contiguous array that is not empty; None if it is to be copied.

    The array must live, and keep its content, until the last kernel that was given the buffer has ended.

    :param alignment: kernels take it for granted that the buffer begins at a multiple of so many bytes.
    """
    if not computes_in_host_memory(context) or not value.flags.c_contiguous or not is_aligned(value, alignment):
        return None
    return new_device_buffer(context, value.nbytes, value if value.flags.writeable else _as_writable_array(value))


def is_aligned(value: np.ndarray[Any, Any], alignment: int) -> bool:
    """Whether an array begins at a multiple of so many bytes."""
    if alignment <= value.dtype.alignment:
        return bool(value.flags.aligned)
    return bool(value.ctypes.data % alignment == 0)


class _Exported:
    """A read-only array's memory presented as writable, as pyopencl demands; nothing writes to it."""

    def __init__(self, value: np.ndarray[Any, Any]) -> None:
        self.value = value
        described = dict(value.__array_interface__)
        described["data"] = (described["data"][0], False)
        self.__array_interface__ = described


def _as_writable_array(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.asarray(_Exported(value))


def new_array(shape: tuple[int, ...], dtype: np.dtype[Any], alignment: int) -> np.ndarray[Any, Any]:
    """An array without content, for a kernel to write; on whole large pages where it is large, see :mod:`.pages`.

    :param alignment: a power of two up to the size of a page; the array begins at a multiple of so many bytes if it is not
        so small that it is copied.
    :raises MemoryError: naming the size, if there is not so much memory.
    """
    try:
        return _new_array(shape, dtype, alignment)
    except (MemoryError, OSError, OverflowError, ValueError):  # OSError: of mmap; ValueError: numpy's, beyond 2⁶³ bytes
        raise array_shortage(shape, dtype) from None


def _new_array(shape: tuple[int, ...], dtype: np.dtype[Any], alignment: int) -> np.ndarray[Any, Any]:
    size = dtype.itemsize
    for length in shape:
        size *= length
    page = large_page_bytes() if size >= LEAST_BYTES else 0
    if page:
        whole = mmap.mmap(-1, -(-size // page) * page, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        whole.madvise(mmap.MADV_HUGEPAGE)
        return np.frombuffer(whole, dtype, size // dtype.itemsize).reshape(shape)
    if alignment <= dtype.alignment or size < LEAST_RESULT_BYTES:
        return np.empty(shape, dtype)
    raw = np.empty(size + alignment, np.uint8)
    start = -raw.ctypes.data % alignment
    return raw[start : start + size].view(dtype).reshape(shape)


def show_to_host(buffer: Any, queue: Any, done: Any) -> None:
    """Wait for an event, and let the host see what kernels wrote to a buffer of :func:`wrap`."""
    import pyopencl as cl

    mapped, _ = cl.enqueue_map_buffer(
        queue, buffer, cl.map_flags.READ, 0, (buffer.size,), np.uint8, wait_for=[done], is_blocking=True
    )
    mapped.base.release(queue)
