"""Temporaries: arrays that a call of the einsum route writes and reads again."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from feinsum.compile.buffers import Room
from feinsum.compile.host_buffers import SHARED_BYTES, new_array
from feinsum.compile.stacks import stack_into


class Temporaries(threading.local):
    """C-contiguous arrays by name, a set for each thread, kept for calls in which they have the same shapes.

    Whoever writes to one on the device waits for its events, among which those of its readers have to be.
    """

    def __init__(self) -> None:
        self._held: dict[str, Any] = {}

    def take(self, shapes: Mapping[str, tuple[int, ...]], dtype: np.dtype[Any], queue: Any) -> dict[str, Any]:
        """The arrays of these shapes, with any content.

        :param queue: of the device on which they are to be; None for arrays of numpy.
        """
        for name, shape in shapes.items():
            held = self._held.get(name)
            if held is None or held.shape != shape or isinstance(held, np.ndarray) != (queue is None):
                self._held.pop(name, None)  # before there is another
                new = new_array(shape, dtype, SHARED_BYTES) if queue is None else Room(queue, shape, dtype).make(queue)
                self._held[name] = new
        return {name: self._held[name] for name in shapes}


def stack(to: Any, axis: int, parts: Sequence[Any], queue: Any, wait_for: Sequence[Any]) -> None:
    """Write arrays of one shape to one with an axis more: ``to[:, k] = parts[k]`` where the axis is 1.

    :param queue: for arrays of the device.
    """
    if not isinstance(to, np.ndarray):
        stack_into(to, axis, parts, queue, wait_for)
        return
    for k, part in enumerate(parts):
        to[(slice(None),) * axis + (k,)] = part
