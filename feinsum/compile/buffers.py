"""Arrays of a caller as buffers of a kernel, and back: the one module that knows the libraries of arrays.

Device arrays stay where they are; one that does not begin where its buffer does is a sub-buffer where the alignment of the
device allows one.  numpy arrays stay where they are on devices that compute in the host's memory
(:mod:`feinsum.compile.host_buffers`), and are copied to others.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from feinsum.compile.filling import enqueue_fill
from feinsum.compile.host_buffers import LEAST_RESULT_BYTES, computes_in_host_memory, is_aligned, show_to_host, wrap
from feinsum.compile.pages import LEAST_BYTES, large_pages
from feinsum.compile.strided import copy_strided
from feinsum.errors import ValidationError


def library_of(value: Any) -> str | None:
    """The library of an array: ``"numpy"`` or ``"pyopencl"``; None for anything else."""
    import pyopencl.array as cla

    if isinstance(value, np.ndarray | np.generic):
        return "numpy"
    return "pyopencl" if isinstance(value, cla.Array) else None


def check_queue(queue: Any, context: Any) -> None:
    """Check that something is a queue of a context.

    :raises ValidationError: if it is not.
    """
    import pyopencl as cl

    if not isinstance(queue, cl.CommandQueue):
        raise ValidationError(f"queue is {queue!r}; pass a pyopencl.CommandQueue of the kernel's device")
    if queue.context != context:
        raise ValidationError("queue belongs to another context than the kernel; pass one of the kernel's device")


def checked_events(wait_for: Any, context: Any) -> list[Any]:
    """Events to wait for, as a list of its own.

    :raises ValidationError: if there are other things among them, or events of another context.
    """
    import pyopencl as cl

    if isinstance(wait_for, cl.Event) or not isinstance(wait_for, Iterable):
        raise ValidationError(f"wait_for is a {type(wait_for).__name__}; pass a list of events")
    events = list(wait_for)
    for k, event in enumerate(events):
        if not isinstance(event, cl.Event):
            raise ValidationError(f"wait_for[{k}] is {event!r}; pass events of pyopencl")
        if event.context != context:
            raise ValidationError(f"wait_for[{k}] belongs to another context than the kernel; wait for it beforehand")
    return events


class Room:
    """Makes device arrays of one shape and type, ten times as fast as :class:`pyopencl.array.Array` does."""

    def __init__(self, queue: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        import pyopencl as cl
        import pyopencl.array as cla

        self._like = cla.Array(queue, shape, dtype, data=cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 1))
        self._like.base_data = None
        self._context, self._flags, self._buffer = queue.context, cl.mem_flags.READ_WRITE, cl.Buffer
        self._bytes = math.prod(shape) * dtype.itemsize
        self._pages = large_pages(queue.context) if self._bytes >= LEAST_BYTES else None

    def fits(self, value: Any) -> bool:
        """Whether an array is like those made here, whole and contiguous."""
        like = self._like
        return (
            value.__class__ is like.__class__
            and value.shape == like.shape
            and value.strides == like.strides
            and value.dtype == like.dtype
            and not value.offset
        )

    def make(self, queue: Any, allocator: Any = None) -> Any:
        """A new array on a queue of the same context.

        :param allocator: makes its buffer, as of :class:`pyopencl.array.Array`; None for a buffer of its own.
        """
        made = copy.copy(self._like)
        made.queue, made.events, made.allocator = queue, [], allocator
        if self._bytes and allocator is None:
            if self._pages is None:
                made.base_data = self._buffer(self._context, self._flags, self._bytes)
            else:
                made.base_data = self._pages.new_buffer(self._bytes)
        elif self._bytes:
            made.base_data = allocator(self._bytes)
        return made


def upload(value: np.ndarray[Any, Any], queue: Any) -> Any:
    """A device array with the elements of a C-contiguous numpy array."""
    import pyopencl.array as cla

    return cla.to_device(queue, value)


def download(value: Any) -> Any:
    """The elements of a device array, contiguous in either order, as a numpy array in that order."""
    return value.T.get().T if value.flags.f_contiguous and not value.flags.c_contiguous else value.get()


def input_buffer(value: Any, queue: Any, alignment: int, *, overwritten: bool = False) -> tuple[Any, Any]:
    """A :class:`pyopencl.Buffer` with the elements of an array, C-contiguous, and the copy that was made of it, if any.

    The kernel must wait for the events of a copy that is a device array; both must live until it has ended.

    :param alignment: the buffer has to begin at a multiple of so many bytes.
    :param overwritten: whether an array of numpy shares memory with a result, and so has to be copied.
    """
    if isinstance(value, np.ndarray):
        copy = None if value.flags.c_contiguous else np.ascontiguousarray(value)
        contiguous = value if copy is None else copy
        buffer = wrap(contiguous, queue.context, alignment) if copy is not None or not overwritten else None
        return (_copy_of(contiguous, queue), contiguous) if buffer is None else (buffer, copy)
    if isinstance(value, np.generic):
        return _copy_of(np.asarray(value), queue), None
    if value.flags.c_contiguous:
        whole = whole_buffer(value)
        if whole is not None:
            return whole, None
    value = copy_strided(value, queue)
    return value.base_data, value


def why_copied(value: Any, context: Any, alignment: int) -> str:
    """The reason why an array cannot be used where it is."""
    if isinstance(value, np.ndarray):
        if not computes_in_host_memory(context):
            return "is on the host"
        if value.flags.c_contiguous and is_aligned(value, alignment):
            return "shares memory with the result"
    if not value.flags.c_contiguous:
        return "is strided"
    return "begins where no buffer may"


def _copy_of(value: np.ndarray[Any, Any], queue: Any) -> Any:
    """A buffer with the elements of a contiguous numpy array."""
    import pyopencl as cl

    pages = large_pages(queue.context)
    if not pages.pay(value.nbytes):
        return cl.Buffer(queue.context, cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR, hostbuf=value)
    buffer = pages.new_buffer(value.nbytes)
    cl.enqueue_copy(queue, buffer, value)
    return buffer


def whole_buffer(value: Any) -> Any:
    """The buffer that a contiguous device array fills; None if it is part of one and the device allows no sub-buffer."""
    import pyopencl as cl

    if value.offset == 0:
        return value.base_data
    if value.offset % _alignment(value.context):
        return None
    try:
        return value.base_data.get_sub_region(value.offset, value.nbytes)
    except (cl.Error, AttributeError):  # a part of a part, or shared virtual memory
        return None


def _alignment(context: Any) -> int:
    """Where sub-buffers may begin, in bytes."""
    return max(int(device.mem_base_addr_align) // 8 for device in context.devices)


@dataclass(frozen=True)
class Output:
    """Where a kernel writes a result, see :func:`output_buffer`.

    :ivar in_place: whether the buffer is the memory of the array.
    """

    array: Any
    buffer: Any
    in_place: bool

    def fetch(self, queue: Any, wait_for: Sequence[Any]) -> list[Any]:
        """Copy the content of the array to the buffer, for a kernel that updates it; returns events to wait for."""
        import pyopencl as cl

        if self.in_place:
            return []
        if isinstance(self.array, np.ndarray):
            if self.array.nbytes:
                cl.enqueue_copy(queue, self.buffer, self.array)
            return []
        size, start = self.array.nbytes, self.array.offset
        return [
            cl.enqueue_copy(
                queue, self.buffer, self.array.base_data, byte_count=size, src_offset=start, wait_for=list(wait_for) or None
            )
        ]

    def deliver(self, queue: Any, done: Any) -> None:
        """Copy the results to the array, once the event `done` has happened.

        A numpy array has it on return; a device array has it when its events have happened.
        """
        import pyopencl as cl

        if isinstance(self.array, np.ndarray):
            if self.in_place:
                show_to_host(self.buffer, queue, done)
            else:
                cl.enqueue_copy(queue, self.array, self.buffer, wait_for=[done])
            return
        if not self.in_place:
            size, start = self.array.nbytes, self.array.offset
            done = cl.enqueue_copy(
                queue, self.array.base_data, self.buffer, byte_count=size, dst_offset=start, wait_for=[done]
            )
        # The launch has waited for all events there were.
        self.array.events[:] = [done]


def output_buffer(result: Any, queue: Any, alignment: int) -> Output:
    """Where a kernel writes a result: the memory of its array, or else a new buffer.

    :param alignment: the buffer has to begin at a multiple of so many bytes.
    """
    if not isinstance(result, np.ndarray):
        whole = whole_buffer(result)
    else:
        whole = wrap(result, queue.context, alignment) if result.nbytes >= LEAST_RESULT_BYTES else None
    if whole is not None:
        return Output(result, whole, in_place=True)
    size = math.prod(result.shape) * np.dtype(result.dtype).itemsize
    return Output(result, large_pages(queue.context).new_buffer(size), in_place=False)


def fill_with_zeros(result: Any, queue: Any, wait_for: Sequence[Any]) -> None:
    """Set a contiguous array to zero."""
    if isinstance(result, np.ndarray):
        result.fill(0)
    elif result.size:
        result.add_event(enqueue_fill(queue, result.base_data, 0, result.offset, result.nbytes, wait_for))


def device_elements(value: Any, queue: Any) -> np.ndarray[Any, Any]:
    """The elements of a device array of any strides."""
    return np.asarray(copy_strided(value, queue).get(queue) if not value.flags.c_contiguous else value.get(queue))


def put_values(values: np.ndarray[Any, Any], result: Any, queue: Any) -> None:
    """Store values in an array of numpy, or in a contiguous one of the device."""
    import pyopencl as cl

    if isinstance(result, np.ndarray):
        result[...] = values
    elif values.size:
        cl.enqueue_copy(queue, result.base_data, np.ascontiguousarray(values), dst_offset=result.offset)


def share_memory(a: Any, b: Any) -> bool:
    """Whether two arrays of one library may overlap; a strided one is taken to have all bytes in between."""
    if isinstance(a, np.ndarray):
        return bool(np.may_share_memory(a, b))
    if not a.size or not b.size:
        return False
    (a_whole, a_first, a_end), (b_whole, b_first, b_end) = _buffer_span(a), _buffer_span(b)
    return bool(a_whole == b_whole) and a_first < b_end and b_first < a_end


def is_part(buffer: Any) -> bool:
    """Whether the buffer of a device array is part of another."""
    return getattr(buffer, "associated_memobject", None) is not None


def _buffer_span(value: Any) -> tuple[Any, int, int]:
    """The whole buffer that a device array lies in, its first byte there, and the one after the last."""
    whole, begin = value.base_data, value.offset
    if is_part(whole):
        whole, begin = whole.associated_memobject, begin + whole.offset
    reach = [(n - 1) * stride for n, stride in zip(value.shape, value.strides, strict=True)]
    return whole, begin + sum(r for r in reach if r < 0), begin + sum(r for r in reach if r > 0) + value.dtype.itemsize
