"""Device arrays side by side in one array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest

import feinsum as fe
from feinsum.compile.stacks import merged_axes, stack_into

COUNT, SHAPE = 3, (37, 5, 6)


def parts(device: fe.Device, dtype: str) -> list[Any]:
    """Arrays of one shape: whole, turned around, and a part of a larger one behind its start."""
    rng = np.random.default_rng(1)
    whole = cla.to_device(device.queue, rng.standard_normal(SHAPE).astype(dtype))
    turned = cla.to_device(device.queue, rng.standard_normal(SHAPE[::-1]).astype(dtype)).T
    padded = cla.to_device(device.queue, rng.standard_normal((40, 2, 7, 9)).astype(dtype))
    return [whole, turned, padded[3:, 1, 2:, :6]]


@pytest.mark.parametrize("axis", [0, 1, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_arrays_of_any_strides_are_stacked(cpu: fe.Device, dtype: str, axis: int) -> None:
    """Along any axis; the event of the launch is that of the result."""
    arrays = parts(cpu, dtype)
    wanted = np.stack([on_host(cpu, one) for one in arrays], axis)
    to = cla.empty(cpu.queue, wanted.shape, dtype)
    stack_into(to, axis, arrays, cpu.queue)
    assert len(to.events) == 1
    np.testing.assert_array_equal(to.get(), wanted)


def on_host(device: fe.Device, array: Any) -> Any:
    """The elements of an array of any strides."""
    size = array.dtype.itemsize
    memory = cla.Array(device.queue, (array.base_data.size // size,), array.dtype, data=array.base_data).get()
    return np.lib.stride_tricks.as_strided(memory[array.offset // size :], array.shape, array.strides).copy()


def test_a_stack_waits_for_whoever_writes_what_it_reads(cpu: fe.Device) -> None:
    """On another queue; nothing is done of arrays without elements."""
    arrays = parts(cpu, "float32")
    to = cla.empty(cpu.queue, (COUNT, *SHAPE), "float32")
    begun = cl.UserEvent(cpu.context)
    arrays[0].events.append(begun)
    stack_into(to, 0, arrays, cl.CommandQueue(cpu.context))
    (done,) = to.events
    assert done.command_execution_status != cl.command_execution_status.COMPLETE
    begun.set_status(cl.command_execution_status.COMPLETE)
    done.wait()
    empty = cla.empty(cpu.queue, (2, 0, 4), "float32")
    stack_into(empty, 0, [cla.empty(cpu.queue, (0, 4), "float32")] * 2, cpu.queue)
    assert not empty.events


def test_axes_that_are_one_in_all_arrays_are_merged() -> None:
    """And axes of length 1 left out; some may have to stay."""
    assert merged_axes((4, 5, 6), ((30, 6, 1), (30, 6, 1))) == ((120,), [(1,), (1,)], (2,))
    assert merged_axes((4, 1, 6), ((6, 99, 1), (12, 99, 2))) == ((24,), [(1,), (2,)], (2,))
    assert merged_axes((4, 5), ((1, 4), (5, 1))) == ((4, 5), [(1, 4), (5, 1)], (0, 1))
    assert merged_axes((4, 5, 6), ((30, 6, 1),), frozenset({2})) == ((20, 6), [(6, 1)], (1, 2))
    assert merged_axes((), ((), ())) == ((1,), [(0,), (0,)], ())
