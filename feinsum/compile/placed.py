"""Arrays of any strides as buffers in which elements lie as a kernel wants them, and back.

A kernel of a language says where element (i, j, ...) lies: at ``i s_0 + j s_1 + ...`` from the first.  An array that lies
so is used where it is, gaps and all, if the device computes in the memory of the host, and copied as it is to others; one
that does not is laid out anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from feinsum.compile.buffers import device_elements, library_of, whole_buffer
from feinsum.compile.host_buffers import show_to_host, wrap
from feinsum.compile.strided import copy_strided
from feinsum.errors import ValidationError


@dataclass(frozen=True, eq=False)
class Placed:
    """A buffer with the elements of arrays.

    :ivar offset: where the first element lies, in elements.
    :ivar kept: what has to live as long as the kernel runs.
    :ivar copied: why the elements were copied; empty where they are used where they are.
    :ivar hosts: arrays of the host to write back: the array, and the elements as the buffer has them.
    :ivar shown: whether the buffer is memory of the host.
    """

    buffer: Any
    offset: int = 0
    kept: tuple[Any, ...] = ()
    copied: str = ""
    memory: Any = None
    hosts: tuple[tuple[Any, Any], ...] = ()
    shown: bool = False
    devices: tuple[Any, ...] = ()
    events: tuple[Any, ...] = field(default=())

    def deliver(self, queue: Any, done: Any) -> None:
        """Bring what a kernel wrote to the arrays it came from."""
        import pyopencl as cl

        if self.memory is not None and self.memory.size:
            if self.shown:
                show_to_host(self.buffer, queue, done)
            else:
                cl.enqueue_copy(queue, self.memory, self.buffer, wait_for=[done], is_blocking=True)
        for array, laid_out in self.hosts:
            array[...] = laid_out
        for array in self.devices:
            array.add_event(done)


def span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from the first to the last of an array, both counted."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def place_arrays(
    arrays: Sequence[Any], strides: Sequence[Sequence[int]], fits: bool, queue: Any, written: bool, name: str
) -> tuple[Placed, list[int]]:
    """A buffer with arrays of one type, and where in it each of them begins, in elements.

    :param strides: where the elements of each array are to lie; its own, in elements, where it `fits`.
    :param fits: whether the arrays lie as they should.
    :param written: whether the kernel writes to them.
    :raises ValidationError: if they lie on another device, or where no kernel can get at them.
    """
    if not arrays:
        return Placed(_empty(queue)), []
    if library_of(arrays[0]) == "pyopencl":
        return _place_device_arrays(arrays, strides, fits, queue, written, name)
    lengths = [span(array.shape, own) for array, own in zip(arrays, strides, strict=True)]
    if fits and len(arrays) == 1 and lengths[0]:
        return _wrapped_memory(_flat_elements(arrays[0], lengths[0]), queue, "is on the host"), [0]
    if fits and (found := _one_memory(arrays)) is not None:
        whole, begins = found
        return _wrapped_memory(whole, queue, "is on the host"), begins
    return _concatenated_copies(arrays, strides, lengths, queue, "lie apart" if fits else "lies in another order")


def _empty(queue: Any) -> Any:
    import pyopencl as cl

    return cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 16)


def _flat_elements(array: Any, length: int) -> Any:
    """The memory of an array, gaps included, as an array of one axis."""
    return np.lib.stride_tricks.as_strided(array, (length,), (array.itemsize,), writeable=bool(array.flags.writeable))


def _one_memory(arrays: Sequence[Any]) -> tuple[Any, list[int]] | None:
    """The array of which all are parts, and where each begins in it; None if there is none, or it has gaps."""
    root = arrays[0]
    while isinstance(root.base, np.ndarray):
        root = root.base
    size = arrays[0].itemsize
    if root is arrays[0] or root.dtype != arrays[0].dtype or not (root.flags.c_contiguous or root.flags.f_contiguous):
        return None
    begins = []
    for array in arrays:
        own = array
        while isinstance(own.base, np.ndarray):
            own = own.base
        begin = array.ctypes.data - root.ctypes.data
        if own is not root or begin % size:
            return None
        begins.append(begin // size)
    return root.reshape(-1, order="A"), begins


def _wrapped_memory(memory: Any, queue: Any, why: str) -> Placed:
    import pyopencl as cl

    if not memory.size:
        return Placed(_empty(queue))
    buffer = wrap(memory, queue.context, 1) if memory.flags.aligned else None
    if buffer is not None:
        return Placed(buffer, kept=(memory,), memory=memory, shown=True)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    return Placed(cl.Buffer(queue.context, flags, hostbuf=memory), copied=why, memory=memory)


def _concatenated_copies(
    arrays: Sequence[Any], strides: Sequence[Any], lengths: Sequence[int], queue: Any, why: str
) -> tuple[Any, Any]:
    """Copies of arrays, one behind the other."""
    begins = [int(begin) for begin in np.cumsum([0, *lengths])]
    memory = np.zeros(begins[-1], arrays[0].dtype)
    hosts = []
    for array, own, begin in zip(arrays, strides, begins, strict=False):
        steps = tuple(stride * array.itemsize for stride in own)
        laid_out = np.lib.stride_tricks.as_strided(memory[begin:], array.shape, steps)
        if array.size:
            laid_out[...] = array
            hosts.append((array, laid_out))
    placed = _wrapped_memory(memory, queue, why)
    return (
        Placed(
            placed.buffer, 0, (*placed.kept, memory), why if memory.size else "", placed.memory, tuple(hosts), placed.shown
        ),
        begins[:-1],
    )


def _is_packed(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether strides are those of order F, without gaps."""
    packed = np.cumprod([1, *shape])
    return all(n <= 1 or own == step for n, own, step in zip(shape, strides, packed, strict=False))


def _place_device_arrays(
    arrays: Sequence[Any], strides: Sequence[Any], fits: bool, queue: Any, written: bool, name: str
) -> tuple[Placed, list[int]]:
    first = arrays[0]
    for array in arrays:
        if array.context != queue.context:
            raise ValidationError(f"{name} lies on another device, or in another context, than the kernel runs in")
    events = tuple(event for array in arrays for event in array.events)
    size = first.dtype.itemsize
    if fits and all(array.base_data is first.base_data and array.offset % size == 0 for array in arrays):
        if len(arrays) == 1 and (whole := whole_buffer(first)) is not None:
            return Placed(whole, devices=(first,), events=events), [0]
        if len(arrays) > 1 or first.offset:
            begins = [array.offset // size for array in arrays]
            return Placed(first.base_data, devices=tuple(arrays), events=events), begins
    if not any(array.size for array in arrays):
        return Placed(_empty(queue)), [0] * len(arrays)
    if written and fits and len(arrays) > 1:
        raise ValidationError(f"{name} is written, and its arrays lie in several buffers; make them parts of one")
    if written:
        wanted = tuple(stride * size for stride in strides[0])
        raise ValidationError(
            f"{name} lies with strides of {first.strides} bytes, and the kernel wants {wanted}: make it in order F, "
            "as pyopencl.array.empty(queue, shape, dtype, order='F') does"
            + (", all of one buffer" if len(arrays) > 1 else "")
        )
    if len(arrays) > 1 or not _is_packed(first.shape, strides[0]):
        lengths = [span(array.shape, own) for array, own in zip(arrays, strides, strict=True)]
        why = "lie apart" if fits else "lies in another order"
        placed, begins = _concatenated_copies(
            [device_elements(array, queue) for array in arrays], strides, lengths, queue, why
        )
        return replace(placed, hosts=()), begins
    copy = copy_strided(first.T, queue)
    return Placed(copy.base_data, kept=(copy,), copied="lies in another order", events=tuple(copy.events)), [0]
