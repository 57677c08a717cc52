"""Calls of a kernel beyond the plain one: memory used where it is, what is copied, lengths without end, geometry."""

from __future__ import annotations

import mmap
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pyopencl.tools
import pytest
from einsums import check_against_numpy, inputs

import feinsum as fe
from feinsum.compile import buffers, scratch
from feinsum.compile.executable import Executable, build_executable
from feinsum.compile.realize import realize
from feinsum.compile.strided import copy_strided
from feinsum.devices import Device
from feinsum.registry import find_space

D, U = fe.array("D", (3, 6, 8)), fe.array("u", ("E", 8))
E = fe.einsum("rij,ej->rei", D, U)


@pytest.fixture(scope="module")
def kernel(cpu: Device, tmp_path_factory: pytest.TempPathFactory) -> fe.Kernel:
    return fe.generate(E, cpu, str(tmp_path_factory.mktemp("calls") / "records.sqlite"))


@pytest.fixture
def queue(cpu: Device) -> cl.CommandQueue:
    """A queue of the user's own."""
    return cl.CommandQueue(cpu.context)


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The buffers of every launch."""
    seen: list[dict[str, Any]] = []
    original = Executable.enqueue

    def enqueue(self: Executable, queue: Any, given: Any, lengths: Any, wait_for: Any = None) -> Any:
        seen.append(dict(given))
        return original(self, queue, given, lengths, wait_for)

    monkeypatch.setattr(Executable, "enqueue", enqueue)
    return seen


def test_parts_that_begin_where_buffers_may_are_used_where_they_are(
    kernel: fe.Kernel, queue: cl.CommandQueue, handed: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Operands and results: a contiguous part of an array becomes a part of its buffer, and nothing is copied."""
    arrays = inputs(E, {"E": 32})
    step = queue.device.mem_base_addr_align // 8 // (8 * 8)  # elements e of u from one possible beginning to the next
    room = cla.zeros(queue, (3, 3, 32, 6), np.float64)
    long = cla.to_device(queue, np.concatenate([np.zeros((2 * step, 8)), arrays["u"], np.zeros((step, 8))]))
    u, out, d = long[2 * step : -step], room[1], cla.to_device(queue, arrays["D"])
    monkeypatch.setattr(buffers, "copy_strided", None)
    assert kernel(D=d, u=u, out=out) is out
    check_against_numpy(E, arrays, room.get()[1])
    assert not room.get()[[0, 2]].any()
    (given,) = handed
    assert given[kernel.array_names["u"]] not in (u.base_data, long.base_data)
    assert given[kernel.array_names["D"]] is d.base_data
    assert "copied" not in kernel.explain()


def test_what_must_be_copied_is_copied_on_the_device_and_said(
    cpu: Device, store: str, queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Strided arrays, and those that begin where no buffer may; the cost stands in `explain` until the next call."""
    kernel = fe.generate(E, cpu, store)
    arrays = inputs(E, {"E": 20})
    wide = cla.to_device(queue, np.pad(arrays["u"], ((0, 0), (1, 2))))
    odd = cla.to_device(queue, np.concatenate([np.zeros(1), arrays["D"].ravel()]))[1:].reshape(D.shape)
    monkeypatch.setattr(cla.Array, "get", None)
    found = kernel(D=odd, u=wide[:, 1:-2])
    monkeypatch.undo()
    check_against_numpy(E, arrays, found.get())
    lines = [line for line in kernel.explain().splitlines() if "copied" in line]
    assert len(lines) == 2
    assert f"copied    'D', which begins where no buffer may, in the last call: {3 * 6 * 8 * 8} bytes" in lines[0]
    assert f"copied    'u', which is strided, in the last call: {20 * 8 * 8} bytes" in lines[1]
    check_against_numpy(E, arrays, kernel(arrays))
    assert "copied" not in kernel.explain()


@pytest.mark.parametrize("dtype", ["int8", "int16", "float32", "complex64", "complex128"])
def test_strided_copies_of_every_width(dtype: str, queue: cl.CommandQueue) -> None:
    """Any strides, backwards too, of words of one to sixteen bytes; of no axes and of no elements."""
    host = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5).astype(dtype)
    there = cla.to_device(queue, host)
    for at in (np.s_[:], np.s_[1, ::2, 1:3, ::-1], np.s_[:, ::-2, 1:, 2], np.s_[1, 2, 3, 4], np.s_[:, 1:1]):
        part = there[at]
        np.testing.assert_array_equal(copy_strided(part, queue).get(), host[at])
        transposed = copy_strided(part.T, queue)
        assert transposed.flags.c_contiguous
        np.testing.assert_array_equal(transposed.get(), host[at].T)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("float32", "float64"),
        ("int8", "float32"),
        ("uint64", "int16"),
        ("complex64", "complex128"),
        ("complex128", "float32"),
        ("float32", "complex128"),
        ("int8", "complex64"),
    ],
)
def test_strided_copies_convert(given: str, wanted: str, queue: cl.CommandQueue) -> None:
    """As numpy does; of complex numbers the real part."""
    host = np.arange(12).reshape(3, 4).astype(given) * (1 + 2j if given.startswith("c") else 1)
    host = host.astype(given)
    found = copy_strided(cla.to_device(queue, host)[:, ::2], queue, np.dtype(wanted)).get()
    assert found.dtype == wanted
    np.testing.assert_array_equal(found, (host.real if wanted == "float32" else host)[:, ::2].astype(wanted))


def test_results_come_from_the_allocator_of_the_operands(kernel: fe.Kernel, cpu: Device) -> None:
    """A memory pool of the user's, so that memory is not made anew for each call."""
    pool = pyopencl.tools.MemoryPool(pyopencl.tools.ImmediateAllocator(cpu.queue))
    arrays = inputs(E, {"E": 11})
    given = {name: cla.to_device(cpu.queue, values, allocator=pool) for name, values in arrays.items()}
    before = pool.active_blocks
    found = kernel(**given)
    assert pool.active_blocks == before + 1
    assert found.allocator is pool
    check_against_numpy(E, arrays, found.get())


def test_a_result_given_again_and_again_waits_for_its_last_use_only(kernel: fe.Kernel, queue: cl.CommandQueue) -> None:
    """Events do not pile up on it."""
    arrays = inputs(E, {"E": 11})
    given = {name: cla.to_device(queue, values) for name, values in arrays.items()}
    out = cla.empty(queue, (3, 11, 6), np.float64)
    for _ in range(30):
        kernel(**given, out=out)
        assert len(out.events) == 1
    check_against_numpy(E, arrays, out.get())


def test_one_kernel_takes_arrays_of_many_shapes(kernel: fe.Kernel, queue: cl.CommandQueue) -> None:
    """In turns; what it remembers of one is not taken for another, and a wrong one is still refused."""
    for length in (3, 0, 1, 200, 3, 67, 0, 1):
        arrays = inputs(E, {"E": length}, seed=length)
        check_against_numpy(E, arrays, kernel(arrays))
        check_against_numpy(E, arrays, kernel({name: cla.to_device(queue, x) for name, x in arrays.items()}).get())
        with pytest.raises(fe.ShapeError, match="axis 1 of 'u' has length 7 but was described with 8"):
            kernel(arrays, u=np.ones((length, 7)))


def test_the_geometry_of_launches(kernel: fe.Kernel) -> None:
    """Each launch with arguments in order and work-items in all; `array_names` and `length_indices` say what is what."""
    for sizes in (None, {"E": 1}, {"E": 1000}):
        for launch in kernel.geometry(sizes):
            assert f"void __attribute__ ((reqd_work_group_size({', '.join(map(str, launch.local_size))}" in kernel.source
            assert all(total % size == 0 for total, size in zip(launch.global_size, launch.local_size, strict=False))
            assert set(launch.arguments) <= {*kernel.array_names.values(), *kernel.length_indices}
    assert kernel.length_indices == dict.fromkeys(kernel.length_indices, "e")
    assert set(kernel.array_names) == {"D", "u", "out"}
    assert kernel.geometry({"E": 0}) == ()
    with pytest.raises(fe.ShapeError, match="the long axis 'E' of 'rij,ej->rei' has no length"):
        kernel.geometry({})


def sparse(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """Zeros that take no memory before they are written."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    return np.frombuffer(mmap.mmap(-1, size), dtype).reshape(shape)


def test_arrays_of_two_to_the_31_elements_are_indexed_with_64_bits(cpu: Device, store: str) -> None:
    """In a kernel made for few: the last elements of 2 GiB, of which one page is written, are read and counted."""
    rows, columns = 2**16 + 1, 2**15
    if cpu.profile.max_allocation_bytes < rows * columns or not cpu.profile.host_unified_memory:
        pytest.skip("the device takes no array of so many bytes from the host as it is")
    e = fe.einsum("ij->i", fe.array("A", ("N", "M"), "int8"))
    kernel = fe.generate(e, cpu, store, {"N": 100, "M": 100})
    host = sparse((rows, columns), "int8")
    host[-1, -5:] = 3
    flags = cl.mem_flags.READ_ONLY | cl.mem_flags.USE_HOST_PTR
    a = cla.Array(cpu.queue, host.shape, host.dtype, data=cl.Buffer(cpu.context, flags, hostbuf=host))
    found = kernel(A=a).get()
    assert found[-1] == 15
    assert not found[:-1].any()
    assert "long const" not in kernel.source
    wide = kernel.executable_for({"i": rows, "j": columns}).program
    assert {a.dtype for a in wide.arguments if a.kind == "length"} == {"int64"}
    assert "(int) get_group_id" not in wide.source


@pytest.fixture
def chain(cpu: Device) -> Executable:
    """Two launches that share memory."""
    axes = {"A": ("N", 9), "B": (9, 8), "C": (8, "N")}
    e = fe.einsum("ij,jk,kl->il", *(fe.array(name, shape) for name, shape in axes.items()))
    steps = {"schedule": "pairwise", "lane": "last", "items": 16}
    return build_executable(cpu.context, realize(e, {"N": 1000}, find_space("generic"), steps, cpu.profile))


def test_calls_in_turn_share_the_memory_between_their_launches(chain: Executable, queue: cl.CommandQueue) -> None:
    """Where launches of one queue and thread follow each other: new memory takes longer than a small kernel."""
    [first] = chain.kept_scratch(queue, {"N": 1000}).values()
    [less] = chain.kept_scratch(queue, {"N": 10}).values()
    [more] = chain.kept_scratch(queue, {"N": 2000}).values()
    assert less is first
    assert more is not first
    assert more.size >= 2 * first.size
    with ThreadPoolExecutor(1) as pool:
        [other] = pool.submit(chain.kept_scratch, queue, {"N": 10}).result().values()
    assert other is not more
    free = cl.CommandQueue(queue.context, properties=cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE)
    held = [*chain.kept_scratch(free, {"N": 10}).values(), *chain.kept_scratch(free, {"N": 10}).values()]
    assert held[0] is not held[1]


def test_memory_between_launches_is_kept_up_to_a_part_of_that_of_the_device(
    queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What does not fit in is new each time, and no two arrays of a call share it."""
    monkeypatch.setattr(scratch, "_SHARE", int(queue.device.global_mem_size) // 1000)
    for sizes in ({"a": 600, "b": 300, "c": 10}, {"a": 5000, "b": 300, "c": 10}, {"a": 9, "b": 300, "c": 300}):
        once, again = (scratch.kept_scratch(queue, sizes) for _ in range(2))
        assert [name for name in sizes if once[name] is not again[name]] == [n for n, size in sizes.items() if size == 5000]
        assert len({buffer.int_ptr for buffer in once.values()}) == 3
        assert all(once[name].size >= size for name, size in sizes.items())


def test_threads_on_one_queue_do_not_mix_their_results(cpu: Device, store: str) -> None:
    """Kernels of several launches, called at the same time."""
    e = fe.einsum("ij,jk,kl->il", *(fe.array(name, (120, 120)) for name in "ABC"))
    kernel = fe.generate(e, cpu, store)
    given = [inputs(e, {}, seed=seed) for seed in range(4)]
    wanted = [np.einsum("ij,jk,kl->il", *arrays.values()) for arrays in given]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            for found, right in zip(pool.map(kernel, given), wanted, strict=True):
                np.testing.assert_allclose(found, right, rtol=1e-12, atol=1e-10)
