"""Memory that cannot be had: mmap's OSError, numpy's ValueError and OpenCL's codes become one MemoryError with a size."""

from __future__ import annotations

import math
import sys
from typing import Any

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB")


def shortage(what: str, size: int) -> MemoryError:
    """The error of an allocation that failed.

    >>> shortage("an array", 40000**3 * 8)
    MemoryError('cannot allocate 466 TiB for an array')
    """
    unit = min(max(size.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    return MemoryError(f"cannot allocate {size / 2 ** (10 * unit):.3g} {_UNITS[unit]} for {what}")


def array_shortage(shape: tuple[int, ...], dtype: Any) -> MemoryError:
    """The error for an array; see :func:`shortage`."""
    return shortage(f"an array with shape {shape} and data type {dtype}", math.prod(shape) * dtype.itemsize)


def new_device_buffer(context: Any, size: int, hostbuf: Any = None) -> Any:
    """A new :class:`pyopencl.Buffer` that kernels may write to.

    :param hostbuf: the memory that it lies over; None for memory of the device.
    :raises MemoryError: naming the size, if the device has not so much memory or takes no buffer so large.
    """
    import pyopencl as cl

    flags = cl.mem_flags.READ_WRITE
    try:
        if hostbuf is not None:
            return cl.Buffer(context, flags | cl.mem_flags.USE_HOST_PTR, hostbuf=hostbuf)
        return cl.Buffer(context, flags, size)
    except (cl.MemoryError, cl.LogicError, OverflowError, TypeError) as error:
        code = getattr(error, "code", None)
        refused = size > 0 and code == cl.status_code.INVALID_BUFFER_SIZE
        if refused or isinstance(error, cl.MemoryError) or size > sys.maxsize:  # TypeError: more than size_t holds
            raise shortage(f"a buffer on {context.devices[0].name}", size) from None
        raise
