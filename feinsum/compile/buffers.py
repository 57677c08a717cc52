"""Arrays of a caller as buffers of a kernel, and back: numpy arrays are copied, device arrays stay where they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np


def library_of(value: Any) -> str | None:
    """Whose array a value is: ``"numpy"`` or ``"pyopencl"``; None for anything else."""
    import pyopencl.array as cla

    if isinstance(value, np.ndarray | np.generic):
        return "numpy"
    return "pyopencl" if isinstance(value, cla.Array) else None


def empty_arrays(queue: Any, shape: tuple[int, ...], dtypes: Sequence[np.dtype[Any]]) -> list[Any]:
    """A new :class:`pyopencl.array.Array` of each type."""
    import pyopencl.array as cla

    return [cla.empty(queue, shape, dtype) for dtype in dtypes]


def input_buffer(value: Any, queue: Any, owned: list[Any]) -> Any:
    """A :class:`pyopencl.Buffer` with the elements of an array, C-contiguous.

    A device array that is contiguous and begins where its buffer does is used where it is; anything else is copied.

    :param owned: takes the copies of device arrays, whose events the kernel must wait for.
    """
    import pyopencl as cl

    if library_of(value) == "pyopencl":
        if value.flags.c_contiguous and value.offset == 0:
            return value.base_data
        value = value.copy(queue=queue) if value.flags.c_contiguous else _contiguous(value, queue)
        owned.append(value)
        return value.base_data
    flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
    return cl.Buffer(queue.context, flags, hostbuf=np.ascontiguousarray(value))


def output_buffer(result: Any, queue: Any) -> Any:
    """A buffer for a result: the one of a device array, or else a new one; see :func:`deliver`."""
    import pyopencl as cl

    if not isinstance(result, np.ndarray) and result.offset == 0:
        return result.base_data
    return cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, math.prod(result.shape) * np.dtype(result.dtype).itemsize)


def deliver(result: Any, buffer: Any, queue: Any, done: Any) -> None:
    """Bring what was written to the buffer of :func:`output_buffer` to its array, once the event `done` has happened.

    A numpy array has it on return; a device array has it when its events have happened.
    """
    import pyopencl as cl

    if isinstance(result, np.ndarray):
        cl.enqueue_copy(queue, result, buffer, wait_for=[done])
        return
    if buffer is not result.base_data:  # a slice that does not begin where its buffer does
        done = cl.enqueue_copy(
            queue, result.base_data, buffer, byte_count=result.nbytes, dst_offset=result.offset, wait_for=[done]
        )
    result.add_event(done)


def fill_with_zeros(result: Any, queue: Any, wait_for: Sequence[Any]) -> None:
    """Set a contiguous array to zero."""
    import pyopencl as cl

    if isinstance(result, np.ndarray):
        result.fill(0)
    elif result.size:
        zero = np.uint8(0)
        done = cl.enqueue_fill_buffer(
            queue, result.base_data, zero, result.offset, result.nbytes, wait_for=wait_for or None
        )
        result.add_event(done)


def share_memory(a: Any, b: Any) -> bool:
    """Whether two arrays of one library may overlap; a strided one is taken to have all bytes in between."""
    if isinstance(a, np.ndarray):
        return bool(np.may_share_memory(a, b))
    if not a.size or not b.size or a.base_data != b.base_data:
        return False
    (a_first, a_end), (b_first, b_end) = _span(a), _span(b)
    return a_first < b_end and b_first < a_end


def _span(value: Any) -> tuple[int, int]:
    """The first byte of a device array in its buffer, and the one after the last."""
    reach = [(n - 1) * stride for n, stride in zip(value.shape, value.strides, strict=True)]
    first = value.offset + sum(r for r in reach if r < 0)
    return first, value.offset + sum(r for r in reach if r > 0) + value.dtype.itemsize


def _contiguous(value: Any, queue: Any) -> Any:
    """A C-contiguous copy of a strided device array, through the host, as pyopencl copies none."""
    import pyopencl as cl
    import pyopencl.array as cla

    raw = np.empty(value.base_data.size, np.uint8)
    cl.enqueue_copy(queue, raw, value.base_data, wait_for=value.events)
    strided = np.ndarray(value.shape, value.dtype, buffer=raw, offset=value.offset, strides=value.strides)
    return cla.to_device(queue, np.ascontiguousarray(strided))
