"""A program built for one context: ready to be enqueued."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import Any

import numpy as np

from feinsum.compile.alignment import loosened, required_alignments
from feinsum.compile.kernel_program import KernelLaunch, KernelProgram, evaluate_extent
from feinsum.compile.pages import large_pages
from feinsum.compile.scratch import kept_scratch
from feinsum.devices.opencl import build_binary, build_program
from feinsum.ending import calling
from feinsum.errors import TransformError

logger = logging.getLogger(__name__)

_REMEMBERED = 256
"""Sets of lengths whose geometry an executable remembers."""


@dataclass(frozen=True)
class Geometry:
    """One launch at given lengths.

    :ivar kernel: the name of the OpenCL kernel.
    :ivar arguments: the names of its arguments, in order.
    :ivar global_size, local_size: work-items in all and of a group, along each axis.
    """

    kernel: str
    arguments: tuple[str, ...]
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]


def build_executable(context: Any, program: KernelProgram, binary: bytes | None = None) -> Executable:
    """Compile the source of a program for the devices of a context.

    :param context: a :class:`pyopencl.Context` of one device.
    :param binary: what :attr:`Executable.binary` was in another process with the same device and driver; tried first.
    :raises TransformError: with the head of the compiler's log, if the source does not build.
    """
    import pyopencl as cl

    if binary is not None:
        try:
            with calling:
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

    def __init__(self, program: KernelProgram, built: Any) -> None:
        import pyopencl as cl

        self.program = program
        self._built = built
        self._enqueue = cl.enqueue_nd_range_kernel
        self._scratch = [a for a in program.arguments if a.kind == "scratch"]
        self._dtypes = {a.name: np.dtype(a.dtype) for a in program.arguments}
        self._lengths = tuple(a.name for a in program.arguments if a.kind == "length")
        values = {a.name for a in program.arguments if a.kind in ("length", "scalar")}
        self._known: dict[tuple[int, ...], list[tuple[Any, Geometry]]] = {}
        self._loosened: dict[int, Executable] = {}
        self._lock, self._loosening = threading.Lock(), threading.Lock()
        self._kernels = {launch.kernel: cl.Kernel(built, launch.kernel) for launch in program.launches}
        for launch in program.launches:
            self._kernels[launch.kernel].set_scalar_arg_dtypes(
                [self._dtypes[name] if name in values else None for name in launch.arguments]
            )

    @property
    def context(self) -> Any:
        """The context that it was built for."""
        return next(iter(self._kernels.values())).context

    @property
    def has_scratch(self) -> bool:
        """Whether launches share memory, see :meth:`scratch`."""
        return bool(self._scratch)

    @cached_property
    def alignments(self) -> Mapping[str, int]:
        """The alignment of each array, in bytes."""
        return required_alignments(self.program)

    def loosened(self, alignment: int) -> Executable:
        """The same kernel for arrays that begin at multiples of `alignment` bytes; compiled when first asked for.

        Where the driver refuses vectors of such an alignment it is this kernel, whose arrays are copied.
        """
        if alignment not in self._loosened:
            with self._loosening:  # not the lock of launches, for which other threads would wait as long as compilers take
                if alignment not in self._loosened:
                    try:
                        self._loosened[alignment] = build_executable(self.context, loosened(self.program, alignment))
                    except TransformError as error:
                        logger.info("arrays that begin between vectors are copied: %s", error)
                        self._loosened[alignment] = self
        return self._loosened[alignment]

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
            for kernel in self._kernels.values()
        )

    def geometry(self, lengths: Mapping[str, int]) -> tuple[Geometry, ...]:
        """The launches at the given lengths, without those that have nothing to do."""
        return tuple(geometry for _, geometry in self._launches(lengths))

    def _launches(self, lengths: Mapping[str, int]) -> list[tuple[Any, Geometry]]:
        """Each launch with its kernel; worked out once for a set of lengths."""
        key = tuple([lengths[name] for name in self._lengths])
        known = self._known.get(key)
        if known is None:
            found = ((self._kernels[launch.kernel], _geometry(launch, lengths)) for launch in self.program.launches)
            known = [(kernel, geometry) for kernel, geometry in found if 0 not in geometry.global_size]
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[key] = known
        return known

    def scratch(self, context: Any, lengths: Mapping[str, int]) -> dict[str, Any]:
        """New buffers for the memory that the launches share, at the given lengths."""
        sizes = self.scratch_bytes(lengths)
        return {name: large_pages(context).new_buffer(max(size, 1)) for name, size in sizes.items()}

    def kept_scratch(self, queue: Any, lengths: Mapping[str, int]) -> dict[str, Any]:
        """Buffers for the launches that this thread enqueues next on `queue`; calls before and after them may use the same
        ones."""
        return kept_scratch(queue, self.scratch_bytes(lengths))

    def scratch_bytes(self, lengths: Mapping[str, int]) -> dict[str, int]:
        """How much memory the launches share, by name."""
        return {
            a.name: self._dtypes[a.name].itemsize * math.prod(evaluate_extent(x, lengths) for x in a.shape)
            for a in self._scratch
        }

    def enqueue(
        self, queue: Any, buffers: Mapping[str, Any], lengths: Mapping[str, Any], wait_for: Sequence[Any] | None = None
    ) -> list[Any]:
        """Enqueue every launch, in order.

        :param buffers: a :class:`pyopencl.Buffer` for each input, output and scratch argument.
        :param lengths: a value for each length and each scalar.
        :param wait_for: events that must have happened first.
        :returns: the event of each launch; empty where no work-group has anything to do.
        """
        events: list[Any] = []
        values = {**lengths, **buffers}
        launches = self._launches(lengths)
        # A kernel object has one set of arguments.  They are set anew each time: to know that they are still those of the
        # last call the buffers would have to be kept alive.
        with self._lock:
            for kernel, geometry in launches:
                kernel.set_args(*[values[name] for name in geometry.arguments])
                before = events[-1:] or wait_for
                events.append(self._enqueue(queue, kernel, geometry.global_size, geometry.local_size, wait_for=before))
        return events


def _geometry(launch: KernelLaunch, lengths: Mapping[str, int]) -> Geometry:
    groups = [evaluate_extent(extent, lengths) for extent in launch.groups]
    sizes = list(zip_longest(groups, launch.group_size, fillvalue=1))
    global_size = tuple(count * size for count, size in sizes)
    return Geometry(launch.kernel, launch.arguments, global_size, tuple(size for _, size in sizes))
