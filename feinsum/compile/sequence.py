"""Kernels of texts that run one after the other: built together, launched with buffers in order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from feinsum.compile.buffers import Output, check_queue, checked_events, output_buffer
from feinsum.compile.host_buffers import LEAST_RESULT_BYTES, computes_in_host_memory, new_array, show_to_host, wrap
from feinsum.compile.pages import large_pages
from feinsum.compile.strided import copy_strided
from feinsum.devices import Device
from feinsum.devices.opencl import build_program
from feinsum.ending import calling
from feinsum.errors import TransformError

_ALIGNMENT = 64


class Text(Protocol):
    """A kernel as text, and how it is launched."""

    @property
    def source(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def groups(self) -> int: ...
    @property
    def work_items(self) -> int: ...


class KernelSequence:
    """Kernels built for a device.

    :raises TransformError: if the compiler refuses one.
    """

    def __init__(self, device: Device, texts: Sequence[Text]) -> None:
        import pyopencl as cl

        self.device, self._texts = device, tuple(texts)
        self._kernels = []
        for text in texts:
            try:
                with calling:
                    self._kernels.append(cl.Kernel(build_program(device.context, text.source), text.name))
            except cl.Error as error:
                raise TransformError(f"the OpenCL compiler refuses {text.name}: {str(error).strip()[:2000]}") from None

    def enqueue(self, number: int, queue: Any, buffers: Sequence[Any], wait_for: Sequence[Any]) -> Any:
        """Launch a kernel; the event of its end."""
        import pyopencl as cl

        text, kernel = self._texts[number], self._kernels[number]
        kernel.set_args(*buffers)
        size = (text.groups * text.work_items,)
        return cl.enqueue_nd_range_kernel(queue, kernel, size, (text.work_items,), wait_for=list(wait_for) or None)


def queue_and_events(device: Device, queue: Any, wait_for: Any) -> tuple[Any, list[Any]]:
    """The queue to use, and what to wait for.

    :raises ValidationError: if these are of another context.
    """
    if queue is not None:
        check_queue(queue, device.context)
    events = [] if wait_for is None else checked_events(wait_for, device.context)
    return device.queue if queue is None else queue, events


def device_array(value: Any, queue: Any, alignment: int = _ALIGNMENT) -> Any:
    """An array on the device: a pyopencl array in C order, or one over, or with a copy of, an array of numpy.

    :param alignment: kernels take it for granted that arrays begin at a multiple of so many bytes; large arrays of numpy
        begin 16 bytes behind a page.
    """
    import pyopencl.array as cla

    if isinstance(value, cla.Array):
        return value if value.flags.c_contiguous and value.offset == 0 else copy_strided(value, queue)
    value = np.ascontiguousarray(value)
    buffer = wrap(value, queue.context, alignment) if value.size else None
    if buffer is None:
        return cla.to_device(queue, value)
    found = cla.Array(queue, value.shape, value.dtype, data=buffer)
    found.host = value  # it has to live as long as the buffer
    return found


def new_device_array(shape: tuple[int, ...], dtype: Any, queue: Any, *, for_host: bool = False) -> Any:
    """An array without content; where it is wanted as one of numpy, in the memory of the host if the device can."""
    import pyopencl.array as cla

    size = math.prod(shape) * np.dtype(dtype).itemsize
    if for_host and size >= LEAST_RESULT_BYTES and computes_in_host_memory(queue.context):
        value = new_array(shape, np.dtype(dtype), _ALIGNMENT)
        buffer = wrap(value, queue.context, _ALIGNMENT)
        if buffer is not None:
            found = cla.Array(queue, shape, dtype, data=buffer)
            found.host = value
            return found
    pages = large_pages(queue.context)
    if pages.pay(size):
        return cla.Array(queue, shape, dtype, data=pages.new_buffer(size))
    return cla.empty(queue, shape, dtype) if size else cla.empty(queue, shape or (1,), dtype)


def result_array(value: Any, queue: Any, alignment: int = _ALIGNMENT) -> tuple[Any, Output | None]:
    """An array on the device for what is to come into an array of the caller, C-contiguous, and what brings it there.

    :param alignment: as of :func:`device_array`.
    :returns: None as the second where there is nothing to bring, as kernels write the array itself.
    """
    import pyopencl.array as cla

    if isinstance(value, cla.Array) and not value.offset:
        return value, None
    if not value.size:
        return new_device_array(value.shape, value.dtype, queue), None
    place = output_buffer(value, queue, alignment)
    return cla.Array(queue, value.shape, value.dtype, data=place.buffer, events=getattr(value, "events", None)), place


def host_array(array: Any, queue: Any, done: Any) -> Any:
    """The content of an array on the device as one of numpy."""
    host = getattr(array, "host", None)
    if host is None:
        return array.get(queue)
    show_to_host(array.data, queue, done)
    return host
