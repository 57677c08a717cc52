"""Memory that the launches of a call share, kept for the next call on the same queue.

New memory costs a fault a page at its first use: three launches that take 0.1 ms take 0.5 ms with 1 MiB of it between them
(two cores of Zen 5, Intel's OpenCL runtime).  An in-order queue finishes earlier commands before the next launch begins, so
all kernels may use the same memory, one call after the other.  Another thread may put launches of another call in between,
so every thread has memory of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from feinsum.compile.pages import large_pages

_QUEUES = 4
"""The number of queues that a thread keeps memory for."""
_SHARE = 64
"""At most one part in this many of a device's memory is kept for a queue; larger buffers are new each time."""
_MOST_BYTES = 256 << 20
"""The most bytes kept for a queue, as every thread keeps as much."""


@dataclass
class _QueueMemory:
    """The memory of a queue.

    :ivar most: how many bytes may be kept; 0 if launches of the queue may overtake each other.
    :ivar buffers: with their lengths in bytes.
    """

    most: int
    buffers: list[tuple[int, Any]] = field(default_factory=list)

    def take(self, context: Any, sizes: Mapping[str, int]) -> dict[str, Any]:
        found = {}
        for place, (name, size) in enumerate(sorted(sizes.items(), key=lambda item: -item[1])):
            held, buffer = self.buffers[place] if place < len(self.buffers) else (0, None)
            if buffer is None or held < size:
                buffer = large_pages(context).new_buffer(max(size, 1))
                if sum(other for other, _ in self.buffers) - held + size <= self.most:
                    self.buffers[place : place + 1] = [(size, buffer)]
            found[name] = buffer
        return found


class _ScratchBuffer(threading.local):
    def __init__(self) -> None:
        self.queues: dict[Any, _QueueMemory] = {}


_memory = _ScratchBuffer()


def kept_scratch(queue: Any, sizes: Mapping[str, int]) -> dict[str, Any]:
    """A buffer of at least so many bytes for each name, for launches that this thread enqueues next on `queue`.

    :param queue: a :class:`pyopencl.CommandQueue`, which is kept too.
    """
    known = _memory.queues.pop(queue, None) or _QueueMemory(_most_scratch_bytes(queue))
    _memory.queues[queue] = known
    while len(_memory.queues) > _QUEUES:
        del _memory.queues[next(iter(_memory.queues))]
    return known.take(queue.context, sizes)


def _most_scratch_bytes(queue: Any) -> int:
    import pyopencl as cl

    if queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE:
        return 0
    return min(int(queue.device.global_mem_size) // _SHARE, _MOST_BYTES)
