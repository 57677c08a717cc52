"""Results of many megabytes lie in large pages where the device computes in the host's memory."""

from __future__ import annotations

import mmap
from pathlib import Path
from threading import Thread

import numpy as np
import pyopencl as cl
import pytest

from feinsum.compile.buffers import Room, whole_buffer
from feinsum.compile.pages import LEAST_BYTES, LargePages
from feinsum.devices import Device

SWITCH = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def flags_at(address: int) -> str:
    """What Linux knows of the memory at an address: its VmFlags."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        head = line.split(maxsplit=1)[0]
        if "-" in head:
            first, _, last = head.partition("-")
            inside = int(first, 16) <= address < int(last, 16)
        elif inside and head == "VmFlags:":
            return line
    return ""


@pytest.mark.skipif(not (SWITCH.exists() and hasattr(mmap, "MADV_HUGEPAGE")), reason="the system has no such pages")
def test_a_large_result_asks_for_large_pages(cpu: Device) -> None:
    """The flag ``hg`` is set on the memory of the new buffer, and not on a small one's."""
    if "[never]" in SWITCH.read_text():
        pytest.skip("the system was told to have no large pages")
    array = Room(cpu.queue, (4 * LEAST_BYTES,), np.dtype("uint8")).make(cpu.queue)
    view, _ = cl.enqueue_map_buffer(cpu.queue, array.base_data, cl.map_flags.READ, 0, array.shape, np.uint8)
    assert " hg" in flags_at(view.ctypes.data + 2 * LEAST_BYTES)
    view.base.release(cpu.queue)


def test_a_large_buffer_has_whole_pages(cpu: Device) -> None:
    """The last one too, so that Linux lets the first begin where one may begin."""
    pages = LargePages(cpu.context)
    if not pages.pay(LEAST_BYTES):
        pytest.skip("the system has no such pages")
    assert pages.new_buffer(LEAST_BYTES - 1).size == LEAST_BYTES - 1
    assert pages.new_buffer(3 * LEAST_BYTES - 1).size == 3 * LEAST_BYTES


def test_part_of_a_large_array_is_used_where_it_is(cpu: Device) -> None:
    """No copy of it is made, as its buffer is no part of another."""
    array = Room(cpu.queue, (3, LEAST_BYTES), np.dtype("uint8")).make(cpu.queue)
    array.set(np.arange(3, dtype=np.uint8).repeat(LEAST_BYTES).reshape(3, -1))
    found = np.zeros(LEAST_BYTES, np.uint8)
    part = whole_buffer(array[2])
    assert part is not None
    cl.enqueue_copy(cpu.queue, found, part)
    assert (found == 2).all()


@pytest.mark.parametrize("size", [0, 1, LEAST_BYTES - 1, LEAST_BYTES, LEAST_BYTES + 4097])
def test_an_array_is_whole_whatever_its_size(cpu: Device, size: int) -> None:
    """What is written to it is read again."""
    array = Room(cpu.queue, (size,), np.dtype("uint8")).make(cpu.queue)
    if size:
        cl.enqueue_fill_buffer(cpu.queue, array.base_data, np.uint8(7), 0, size)
    assert (array.get() == np.full(size, 7, np.uint8)).all()


def test_a_buffer_that_is_in_use_elsewhere_is_not_waited_for(cpu: Device) -> None:
    """The mapping goes by a queue of its own, so a buffer is made while something enqueued before has not begun."""
    gate = cl.UserEvent(cpu.context)
    source = cl.Buffer(cpu.context, cl.mem_flags.READ_WRITE, 1)
    blocked = cl.enqueue_fill_buffer(cpu.queue, source, np.uint8(0), 0, 1, wait_for=[gate])
    kernel_build = Thread(target=LargePages(cpu.context).new_buffer, args=(LEAST_BYTES,), daemon=True)
    kernel_build.start()
    kernel_build.join(60)
    waited, finished = kernel_build.is_alive(), blocked.command_execution_status == cl.command_execution_status.COMPLETE
    gate.set_status(cl.command_execution_status.COMPLETE)
    blocked.wait()
    kernel_build.join()
    assert not waited
    assert not finished
