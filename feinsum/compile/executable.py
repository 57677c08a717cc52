"""A program built for one context: ready to be enqueued."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from feinsum.compile.program import Program, evaluate
from feinsum.devices.opencl import build_binary, build_program
from feinsum.errors import TransformError

logger = logging.getLogger(__name__)


def build(context: Any, program: Program, binary: bytes | None = None) -> Executable:
    """Compile the source of a program for the devices of a context.

    :param context: a :class:`pyopencl.Context` of one device.
    :param binary: what :attr:`Executable.binary` was in another process with the same device and driver; tried first.
    :raises TransformError: with the head of the compiler's log, if the source does not build.
    """
    import pyopencl as cl

    if binary is not None:
        try:
            return Executable(program, build_binary(context, binary))
        except cl.Error as error:
            logger.info("the stored binary does not build (%s); compiling the source", error)
    try:
        return Executable(program, build_program(context, program.source))
    except cl.Error as error:
        raise TransformError(f"the OpenCL compiler refuses the kernel: {str(error).strip()[:2000]}") from None


class Executable:
    """A built program; thread-safe.

    :ivar program: what was built.
    """

    def __init__(self, program: Program, built: Any) -> None:
        import pyopencl as cl

        self.program = program
        self._built = built
        self._scratch = [a for a in program.arguments if a.kind == "scratch"]
        self._dtypes = {a.name: np.dtype(a.dtype) for a in program.arguments}
        self._lock = threading.Lock()
        self._kernels = [cl.Kernel(built, launch.kernel) for launch in program.launches]
        for kernel, launch in zip(self._kernels, program.launches, strict=True):
            kernel.set_scalar_arg_dtypes(
                [self._dtypes[name] if self._is_length(name) else None for name in launch.arguments]
            )

    def _is_length(self, name: str) -> bool:
        return any(a.name == name and a.kind == "length" for a in self.program.arguments)

    @property
    def binary(self) -> bytes:
        """The device's machine code, from which the same driver builds faster than from source."""
        import pyopencl as cl

        return bytes(self._built.get_info(cl.program_info.BINARIES)[0])

    @property
    def private_bytes(self) -> tuple[int, ...]:
        """Private memory of a work-item of each launch, as the driver reports it."""
        import pyopencl as cl

        return tuple(
            int(kernel.get_work_group_info(cl.kernel_work_group_info.PRIVATE_MEM_SIZE, kernel.context.devices[0]))
            for kernel in self._kernels
        )

    def scratch(self, context: Any, lengths: Mapping[str, int]) -> dict[str, Any]:
        """Buffers for the memory that the launches share, at the given lengths."""
        import pyopencl as cl

        sizes = {
            a.name: self._dtypes[a.name].itemsize * math.prod(evaluate(x, lengths) for x in a.shape) for a in self._scratch
        }
        return {name: cl.Buffer(context, cl.mem_flags.READ_WRITE, max(size, 1)) for name, size in sizes.items()}

    def enqueue(
        self, queue: Any, buffers: Mapping[str, Any], lengths: Mapping[str, int], wait_for: Sequence[Any] | None = None
    ) -> list[Any]:
        """Enqueue every launch, in order.

        :param buffers: a :class:`pyopencl.Buffer` for each input, output and scratch argument.
        :param lengths: a value for each length.
        :param wait_for: events that must have happened first.
        :returns: the event of each launch; empty where no work-group has anything to do.
        """
        import pyopencl as cl

        events: list[Any] = []
        with self._lock:
            for kernel, launch in zip(self._kernels, self.program.launches, strict=True):
                groups = tuple(evaluate(extent, lengths) for extent in launch.groups)
                if 0 in groups:
                    continue
                kernel.set_args(*(buffers[name] if name in buffers else lengths[name] for name in launch.arguments))
                events.append(
                    cl.enqueue_nd_range_kernel(
                        queue,
                        kernel,
                        tuple(count * size for count, size in zip_longest(groups, launch.group_size, fillvalue=1)),
                        tuple(size for _, size in zip_longest(groups, launch.group_size, fillvalue=1)),
                        wait_for=events[-1:] or wait_for,
                    )
                )
        return events
