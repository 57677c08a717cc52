"""A kernel given as text, built and launched with buffers and scalars in order, for the languages."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from feinsum.devices import Device
from feinsum.devices.opencl import build_program
from feinsum.ending import calling
from feinsum.errors import TransformError

_CORRECT_DIVISION, _UNOPTIMISED = "-cl-fp32-correctly-rounded-divide-sqrt", "-cl-opt-disable"


class Launcher:
    """A kernel built for a device; thread-safe.

    :param dtypes: of each argument the type of a number, or None for a buffer.
    :param optimised: whether the compiler may optimise the kernel.
    """

    def __init__(
        self, device: Device, source: str, name: str, dtypes: Sequence[np.dtype[Any] | None], optimised: bool = True
    ) -> None:
        import pyopencl as cl

        self.device, self.name = device, name
        rounds = device.cl_device.single_fp_config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT
        options = [*([_CORRECT_DIVISION] if rounds else []), *([] if optimised else [_UNOPTIMISED])]
        try:
            with calling:
                self._kernel = cl.Kernel(build_program(device.context, source, options), name)
        except cl.Error as error:
            raise TransformError(f"the OpenCL compiler refuses the kernel: {str(error).strip()[:2000]}") from None
        self._kernel.set_scalar_arg_dtypes(list(dtypes))
        self._lock = threading.Lock()

    def enqueue(self, queue: Any, arguments: Sequence[Any], groups: int, work_items: int, wait_for: Sequence[Any]) -> Any:
        """Launch work-groups of one dimension; the event of their end.

        :param arguments: buffers and numbers of numpy, in order.
        """
        import pyopencl as cl

        with calling, self._lock:
            self._kernel.set_args(*arguments)
            return cl.enqueue_nd_range_kernel(
                queue, self._kernel, (groups * work_items,), (work_items,), wait_for=list(wait_for) or None
            )


def new_table(queue: Any, values: Any) -> Any:
    """A buffer with 64-bit integers."""
    import pyopencl as cl

    table = np.ascontiguousarray(values, np.int64)
    if not table.size:
        return cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 8)
    return cl.Buffer(queue.context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=table)


def new_bytes(queue: Any, size: int) -> Any:
    """A buffer for kernels to write and read."""
    import pyopencl as cl

    return cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, max(size, 1))


def new_words(queue: Any, count: int) -> Any:
    """A buffer of 32-bit zeros."""
    import pyopencl as cl

    zeros = np.zeros(count, np.int32)
    return cl.Buffer(queue.context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=zeros)


def read_words(queue: Any, buffer: Any, count: int) -> Any:
    """The content of such a buffer."""
    import pyopencl as cl

    words = np.empty(count, np.int32)
    cl.enqueue_copy(queue, words, buffer)
    return words
