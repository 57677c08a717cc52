"""Launches of a kernel on CUDA arrays, prepared: all that lengths decide is worked out once."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from typing import Any

import numpy as np

from feinsum.compile.executable import Executable, Geometry
from feinsum.errors import DeviceError, TransformError, ValidationError
from feinsum.interop.cuda.cuda_driver import INVALID_CONTEXT, LoadedPtx, bindings, context_of
from feinsum.interop.cuda.cuda_ptx import PtxEntry, for_cuda
from feinsum.kernel.kernel import Kernel

MOST_GROUPS = (2**31 - 1, 65535, 65535)
"""Work-groups of a grid along each axis (CUDA C++ Programming Guide, table of compute capabilities)."""


@dataclass(frozen=True)
class GridPart:
    """Some of the work-groups of a launch: how many along each axis, and how many come before them."""

    groups: tuple[int, int, int]
    before: tuple[int, int, int]


def launch_parts(groups: Sequence[int], most: Sequence[int] = MOST_GROUPS) -> list[GridPart]:
    """A launch in parts that grids of CUDA hold.

    >>> [(part.groups, part.before) for part in launch_parts((7, 5), most=(9, 3, 3))]
    [((7, 3, 1), (0, 0, 0)), ((7, 2, 1), (0, 3, 0))]
    """
    whole = [*groups, 1, 1][:3]
    starts = [range(0, length, limit) for length, limit in zip(whole, most, strict=True)]
    found = []
    for a, b, c in product(*starts):
        counts = [min(limit, n - k) for n, k, limit in zip(whole, (a, b, c), most, strict=True)]
        found.append(GridPart((counts[0], counts[1], counts[2]), (a, b, c)))
    return found


class Arguments:
    """The memory from which a kernel's arguments are read as it is launched: eight bytes for each.

    :ivar values: that memory; a view of it is set in half the time that the array of ctypes takes.
    :ivar address: of the array of their addresses, as ``cuLaunchKernel`` takes it.
    """

    def __init__(self, count: int) -> None:
        memory = (ctypes.c_uint64 * count)()
        self.values = memoryview(memory).cast("B").cast("Q")
        first = ctypes.addressof(memory)
        self._addresses = (ctypes.c_void_p * count)(*(first + 8 * k for k in range(count)))
        self.address = ctypes.addressof(self._addresses)


def as_word(value: Any, dtype: np.dtype[Any]) -> int:
    """An argument that is a number as an unsigned word of eight bytes, of which the kernel reads the first ones.

    >>> hex(as_word(-2, np.dtype("int32")))
    '0xfffffffe'
    """
    return int.from_bytes(np.array(value, dtype).tobytes(), "little")


class CudaLaunch:
    """One launch of a kernel, in parts if need be; thread-safe.

    :param function: as ``cuLaunchKernel`` takes it.
    :param sources: where the pointer of each argument is among those of a call; or the word that it always is.
    """

    def __init__(
        self, function: Any, geometry: Geometry, entry: PtxEntry, sources: Sequence[tuple[bool, int]], device: int
    ) -> None:
        size = (*geometry.local_size, 1, 1)[:3]
        groups = [n // m for n, m in zip(geometry.global_size, geometry.local_size, strict=True)]
        self._device = device
        self._parts, self._shared = launch_parts(groups), entry.shared_bytes
        self._arguments = Arguments(len(sources) + 3)
        self._pointers = [(k, place) for k, (varies, place) in enumerate(sources) if varies]
        for k, (varies, word) in enumerate(sources):
            if not varies:
                self._arguments.values[k] = word
        self._first_before = len(sources)
        self._lock = threading.Lock()
        driver = bindings()
        self._address = self._arguments.address
        self._success, self._as_stream = driver.CUresult.CUDA_SUCCESS, lru_cache(maxsize=64)(driver.CUstream)
        self._calls: list[tuple[tuple[int, int, int], Callable[..., tuple[Any, ...]]]] = [
            (part.before, partial(driver.cuLaunchKernel, function, *part.groups, *size, self._shared))
            for part in self._parts
        ]

    @property
    def prepared(self) -> list[Callable[[Any], object]]:
        """A function that only launches it, with the arguments of the last call, on a stream of ``cuda.bindings``."""
        return [lambda stream, launch=launch: launch(stream, self._address, 0) for _, launch in self._calls]  # type: ignore[misc]

    def enqueue(self, pointers: Sequence[int], stream: int) -> None:
        """Launch it.

        :raises DeviceError: if the driver refuses.
        """
        words, handle, address = self._arguments.values, self._as_stream(stream), self._address
        with self._lock:
            for k, place in self._pointers:
                words[k] = pointers[place]
            for before, launch in self._calls:
                if len(self._calls) > 1:
                    first = self._first_before
                    words[first], words[first + 1], words[first + 2] = before
                [status] = launch(handle, address, 0)
                if status is not self._success:
                    self._again(status, launch, handle)

    def _again(self, status: Any, launch: Callable[..., tuple[Any, ...]], stream: Any) -> None:
        """Launch what the driver refused, where this thread merely had no context yet."""
        if int(status) == INVALID_CONTEXT:
            with context_of(self._device):
                [status] = launch(stream, self._address, 0)
        if int(status):
            raise DeviceError(f"CUDA's driver cannot launch the kernel: {getattr(status, 'name', status)}")


@dataclass(frozen=True)
class BoundLaunches:
    """A kernel for arrays of certain lengths on one device.

    :ivar scratch_bytes: of the memory that the launches share, each a new array after those of inputs and outputs.
    """

    launches: tuple[CudaLaunch, ...]
    alignments: tuple[int, ...]
    scratch_bytes: tuple[int, ...]
    empty: bool

    def enqueue(self, pointers: Sequence[int], stream: int) -> None:
        """Launch all, in order.

        :param pointers: of inputs, outputs and scratch memory.
        """
        for launch in self.launches:
            launch.enqueue(pointers, stream)


class CudaProgram:
    """An executable in the form that CUDA loads; made once for each."""

    def __init__(self, executable: Executable) -> None:
        text, self._entries = for_cuda(executable.binary.decode(errors="replace"))
        self._library = LoadedPtx(text)
        self._executable = executable

    def bind(self, kernel: Kernel, lengths: Mapping[str, int], device: int, scalars: Mapping[str, Any]) -> BoundLaunches:
        """The launches for arrays of certain lengths.

        :param lengths: the length of each index of the kernel's einsum.
        :param scalars: the numbers that epilogues take, by their names in the einsum.
        :raises ValidationError: if one of them is of more than eight bytes.
        """
        large = [name for name, value in scalars.items() if value.dtype.itemsize > 8]
        if large:
            raise ValidationError(f"'{large[0]}' is complex128; kernels on CUDA arrays take numbers of eight bytes at most")
        bound = kernel.bind(lengths)
        if bound.empty:
            return BoundLaunches((), bound.alignments, (), True)
        executable = self._executable
        scratch = executable.scratch_bytes(bound.values)
        values = {**bound.values, **{kernel.scalar_names[name]: value for name, value in scalars.items()}}
        places = {name: k for k, name in enumerate((*bound.inputs, *bound.outputs, *scratch))}
        dtypes = {a.name: np.dtype(a.dtype) for a in executable.program.arguments}
        launches = []
        for geometry in executable.geometry(bound.values):
            entry = self._entries[geometry.kernel]
            sources = [
                (True, places[name]) if name in places else (False, as_word(values[name], dtypes[name]))
                for name in geometry.arguments
            ]
            if len(sources) != entry.parameters:
                raise TransformError(f"'{geometry.kernel}' has {entry.parameters} parameters, and {len(sources)} arguments")
            function = self._library.kernel(geometry.kernel, entry.shared_bytes, device)
            launches.append(CudaLaunch(function, geometry, entry, sources, device))
        return BoundLaunches(tuple(launches), bound.alignments, tuple(max(size, 1) for size in scratch.values()), False)
