"""Memory between guard bands, and digests of memory, which reveal stores where a kernel must not write.

::

    | band | what the kernel is given | band |
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np

from feinsum.compile.filling import enqueue_fill
from feinsum.devices import build_program

_BAND_BYTES = 64 << 10
"""The bytes in front and behind: several rows or tiles, so that a miss by one stays within; sub-buffers may begin there."""
_LANES, _CPU_LANES = 1 << 16, 1 << 8
"""Work-items of a digest: on a CPU each has one piece of the memory, elsewhere they read side by side."""
_AT_ONCE = 32
"""Digests that are made before they are read: half a megabyte each on a GPU."""
_SOURCE = """
__kernel void digest(
    __global uchar const *bytes, ulong size, ulong first, ulong step, ulong most, __global ulong *sums, ulong place)
{
    __global ulong const *words = (__global ulong const *) bytes;
    ulong sum = get_global_id(0) + 1, i = get_global_id(0) * first;
    for (ulong k = 0; k < most && i < size / 8; ++k, i += step) {
        sum = (sum ^ words[i]) * 0x9E3779B97F4A7C15UL;
        sum ^= sum >> 29;
    }
    if (get_global_id(0) == 0)
        for (ulong k = size / 8 * 8; k < size; ++k)
            sum = (sum ^ bytes[k]) * 0x9E3779B97F4A7C15UL;
    sums[place + get_global_id(0)] = sum;
}
"""


class GuardedBuffer:
    """A buffer between guard bands.

    :param size: bytes of the buffer.
    :param band: the byte that the bands are filled with.
    :ivar whole: the buffer with its bands.
    :ivar view: the part between the bands, at least a byte of it, to be given to a kernel.
    """

    def __init__(self, queue: Any, size: int, band: int) -> None:
        import pyopencl as cl

        self._queue, self._size, self._band = queue, size, band
        self.whole = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, size + 2 * _BAND_BYTES)
        self.view = self.whole.get_sub_region(_BAND_BYTES, max(1, size))
        self.renew_bands()

    def renew_bands(self) -> None:
        """Fill the bands again."""
        for start in (0, _BAND_BYTES + self._size):
            fill_buffer(self._queue, self.whole, self._band, start, _BAND_BYTES)

    def fill(self, value: int) -> None:
        """Set every byte between the bands."""
        fill_buffer(self._queue, self.whole, value, _BAND_BYTES, self._size)

    def put(self, values: np.ndarray[Any, Any]) -> None:
        """Copy an array between the bands."""
        import pyopencl as cl

        if values.size:
            cl.enqueue_copy(self._queue, self.whole, np.ascontiguousarray(values), dst_offset=_BAND_BYTES)

    def read(self) -> tuple[np.ndarray[Any, Any], bool]:
        """The bytes between the bands, and whether the bands are as they were."""
        import pyopencl as cl

        raw = np.empty(self.whole.size, np.uint8)
        cl.enqueue_copy(self._queue, raw, self.whole)
        intact = bool((raw[:_BAND_BYTES] == self._band).all() and (raw[-_BAND_BYTES:] == self._band).all())
        return raw[_BAND_BYTES:-_BAND_BYTES], intact


def fill_buffer(queue: Any, buffer: Any, value: int, start: int, size: int) -> None:
    """Set `size` bytes from `start` on; where the host shares the memory, it is eight times as fast as the driver."""
    import pyopencl as cl

    if not size:
        return
    if not queue.device.host_unified_memory:
        enqueue_fill(queue, buffer, value, start, size)
        return
    flags = cl.map_flags.WRITE_INVALIDATE_REGION
    mapped, _ = cl.enqueue_map_buffer(queue, buffer, flags, start, (size,), np.uint8, is_blocking=True)
    with mapped.base:
        mapped[:] = value


def digests(queue: Any, buffers: Sequence[Any]) -> list[bytes]:
    """A digest of the content of each buffer, without moving it to the host.

    Every step of a sum is invertible, so that one word that differs always shows.
    """
    import pyopencl as cl

    kernel = cl.Kernel(_guard_program(queue.context), "digest")  # a kernel object has one set of arguments
    lanes = _CPU_LANES if queue.device.type & cl.device_type.CPU else _LANES
    room = cl.Buffer(queue.context, cl.mem_flags.WRITE_ONLY, _AT_ONCE * lanes * 8)
    found: list[bytes] = []
    for start in range(0, len(buffers), _AT_ONCE):
        part = buffers[start : start + _AT_ONCE]
        for place, buffer in enumerate(part):
            numbers = (buffer.size, *_lane_walk(queue, buffer.size // 8, lanes))
            kernel(queue, (lanes,), None, buffer, *map(np.uint64, numbers), room, np.uint64(place * lanes))
        sums = np.empty((len(part), lanes), np.uint64)
        cl.enqueue_copy(queue, sums, room)
        found += [own.tobytes() for own in sums]
    return found


def _lane_walk(queue: Any, words: int, lanes: int) -> tuple[int, int, int]:
    """Where the second lane begins, how far apart the words of a lane are, and how many it has at most."""
    import pyopencl as cl

    most = -(-words // lanes)
    return (most, 1, most) if queue.device.type & cl.device_type.CPU else (1, lanes, most)


def finite_byte() -> int:
    """An unforeseeable byte which, repeated, is a finite number of any type."""
    return 0x10 + secrets.randbelow(0x60)


@functools.lru_cache(maxsize=1)
def _guard_program(context: Any) -> Any:
    return build_program(context, _SOURCE)
