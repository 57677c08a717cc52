"""Noise: arrays on a device that only have to hold numbers, made without drawing each of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from feinsum.einsum import BatchedEinsum
from feinsum.errors import DeviceError
from feinsum.timing import buffer_sets_needed
from feinsum.validate.reference import drawn_arrays, random_numbers

if TYPE_CHECKING:
    from feinsum.devices import DeviceProfile

_DRAWN = 1 << 16
"""Numbers that are drawn; larger arrays repeat them."""


def noisy_sets(
    e: BatchedEinsum, lengths: Mapping[str, int], queue: Any, profile: DeviceProfile, most_bytes: int
) -> list[dict[str, Any]]:
    """Sets of inputs and outputs as buffers by name, as many as keep the inputs out of the caches of a device.

    The outputs of all sets are the same buffers: callers use the memory of a result again, or read what it holds, so that
    what is stored past the caches is missed there.

    :param lengths: of every index.
    :param most_bytes: what all sets take together, at most; there is always one.
    :raises DeviceError: if there is no room for them.
    """
    import pyopencl as cl

    sizes = e.sizes_from(lengths)
    count = buffer_sets_needed(e.min_bytes(sizes), e.array_bytes(sizes), profile.cache_bytes, most_bytes)
    arrays = {name: (letters, dtype) for name, letters, dtype in drawn_arrays(e)}
    shapes = {name: (math.prod(lengths[x] for x in letters), dtype) for name, (letters, dtype) in arrays.items()}
    length = math.prod(lengths[x] for x in e.indexing.output)
    try:
        outputs = {name: _noise(queue, length, dtype) for name, dtype in zip(e.output_names, e.dtypes, strict=True)}
        return [{name: _noise(queue, *shape) for name, shape in shapes.items()} | outputs for _ in range(count)]
    except cl.Error as error:
        raise DeviceError(f"there is no room for {count} sets of arrays: {error}") from None


def _noise(queue: Any, count: int, dtype: np.dtype[Any]) -> Any:
    """A buffer of so many numbers: a few drawn ones, copied over and over."""
    import pyopencl as cl

    from feinsum.compile.pages import large_pages

    total = count * dtype.itemsize
    buffer = large_pages(queue.context).new_buffer(max(1, total))
    drawn = random_numbers(np.random.default_rng(0), (min(count, _DRAWN),), dtype)
    filled = drawn.nbytes
    if filled:
        cl.enqueue_copy(queue, buffer, drawn)
    while filled < total:
        size = min(filled, total - filled)
        cl.enqueue_copy(queue, buffer, buffer, src_offset=0, dst_offset=filled, byte_count=size)
        filled += size
    return buffer
