"""Device arrays that are added to blocks of one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl.array as cla
import pytest

import feinsum as fe
from feinsum.compile.block_sums import Bounds, Summand, add_blocks

SHAPE = (37, 5, 6)
BLOCKS: dict[str, list[Bounds]] = {
    "whole arrays": [(None, None, None)] * 2,
    "the end of an axis": [(None, None, None), (None, None, (2, 6))],
    "single rows and columns": [(None, (4, 5), None), (None, None, (0, 1))],
    "blocks along all axes": [((3, 36), (1, 4), (2, 3)), ((0, 1), None, None)],
}


@pytest.mark.parametrize("scale", [0, 1, -0.5])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_are_added(cpu: fe.Device, name: str, dtype: str, scale: float) -> None:
    """Of arrays in any order; a result that is multiplied by zero is not read."""
    rng = np.random.default_rng(7)
    wanted = np.full(SHAPE, np.nan, dtype) if scale == 0 else rng.standard_normal(SHAPE).astype(dtype)
    to = cla.to_device(cpu.queue, wanted)
    wanted = np.zeros(SHAPE, dtype) if scale == 0 else wanted * np.dtype(dtype).type(scale)
    summands = []
    for k, bounds in enumerate(BLOCKS[name]):
        places = tuple(slice(None) if part is None else slice(*part) for part in bounds)
        value = rng.standard_normal(wanted[places].shape).astype(dtype)
        wanted[places] += (k + 2) * value
        summands.append(Summand(placed(cpu, value, k), k + 2, bounds))
    add_blocks(to, scale, summands, cpu.queue)
    assert len(to.events) == 1
    np.testing.assert_allclose(to.get(), wanted, rtol=0, atol=64 * np.finfo(dtype).eps)


def placed(device: fe.Device, value: Any, k: int) -> Any:
    """A device array: whole, or with axes turned around."""
    if k == 0:
        return cla.to_device(device.queue, value)
    return cla.to_device(device.queue, np.ascontiguousarray(value.T)).T


def test_nothing_is_added_to_nothing(cpu: fe.Device) -> None:
    """No kernel runs for a result without elements."""
    to = cla.empty(cpu.queue, (0, 3), "float32")
    add_blocks(to, 1, [Summand(cla.empty(cpu.queue, (0, 3), "float32"), 1, (None, None))], cpu.queue)
    assert not to.events
