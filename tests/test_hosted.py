"""numpy arrays are used where they are by devices that compute in their memory, and copied where that would be wrong."""

from __future__ import annotations

import mmap
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest
from einsums import check_against_numpy, inputs

import feinsum as fe
from feinsum.compile import executable as executable_module
from feinsum.compile.alignment import loosened, required_alignments
from feinsum.compile.host_buffers import computes_in_host_memory, is_aligned, new_array, show_to_host, wrap
from feinsum.compile.kernel_program import KernelArgument, KernelLaunch, KernelProgram
from feinsum.compile.pages import large_pages
from feinsum.devices import Device
from feinsum.devices.opencl import build_program

E = fe.einsum("rij,ej->rei", fe.array("D", (3, 6, 8)), fe.array("u", ("E", 8)))


def at(offset: int, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same numbers, so many bytes after the beginning of a page."""
    raw = np.empty(values.nbytes + 2 * mmap.PAGESIZE, np.uint8)
    start = -raw.ctypes.data % mmap.PAGESIZE + offset
    moved = raw[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    moved[...] = values
    return moved


@pytest.fixture(scope="module")
def kernel(cpu: Device, tmp_path_factory: pytest.TempPathFactory) -> fe.Kernel:
    return fe.generate(E, cpu, str(tmp_path_factory.mktemp("hosted") / "records.sqlite"))


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every array that was copied."""
    from feinsum.compile import buffers

    seen: list[Any] = []
    original = buffers._copy_of
    monkeypatch.setattr(buffers, "_copy_of", lambda value, queue: seen.append(value) or original(value, queue))
    return seen


_ADDRESSES = """
__kernel void addresses(__global uchar const *read, __global uchar *written, __global ulong *found)
{
    found[0] = (ulong) read; found[1] = (ulong) written; written[0] = read[0] + 1;
}
"""


@pytest.mark.parametrize("offset", [0, 1, 8, 16, 64, 128])
@pytest.mark.parametrize("read_only", [False, True])
def test_a_kernel_sees_the_address_of_an_array(offset: int, read_only: bool, cpu: Device) -> None:
    """Wherever it begins, and whether or not the host may write to it: nothing is copied, by the driver neither."""
    assert computes_in_host_memory(cpu.context)
    read, written = at(offset, np.full(100_000, 6, np.uint8)), at(offset, np.zeros(100_000, np.uint8))
    read.flags.writeable = not read_only
    found = cl.Buffer(cpu.context, cl.mem_flags.WRITE_ONLY, 16)
    program = cl.Kernel(build_program(cpu.context, _ADDRESSES), "addresses")
    buffers = wrap(read, cpu.context, 1), wrap(written, cpu.context, 1)
    show_to_host(buffers[1], cpu.queue, program(cpu.queue, (1,), None, *buffers, found))
    addresses = np.empty(2, np.uint64)
    cl.enqueue_copy(cpu.queue, addresses, found)
    assert list(addresses) == [read.ctypes.data, written.ctypes.data]
    assert written[0] == 7


@pytest.mark.parametrize("offset", [0, 4, 8, 16, 24, 64])
def test_operands_and_results_stay_where_they_are(
    offset: int, kernel: fe.Kernel, copies: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that begin where the kernel needs it; others are copied, and `explain` says so."""
    arrays = {name: at(offset, values) for name, values in inputs(E, {"E": 1000}).items()}
    for values in arrays.values():
        values.flags.writeable = False
    out = at(offset, np.zeros((3, 1000, 6)))
    monkeypatch.setattr(cl, "enqueue_copy", None if offset % 64 == 0 else cl.enqueue_copy)
    assert kernel(arrays, out=out) is out
    check_against_numpy(E, arrays, out)
    check_against_numpy(E, arrays, kernel(arrays))
    monkeypatch.undo()
    assert bool(copies) == (offset % 8 != 0)
    assert ("'u', which begins where no buffer may" in kernel.explain()) == (offset % 8 != 0)


def test_results_are_memory_of_the_callers(kernel: fe.Kernel) -> None:
    """Small and large, written to and kept after the kernel and its operands are gone."""
    for length in (2, 2000, 60_000):
        arrays = inputs(E, {"E": length})
        found = kernel(arrays)
        assert type(found) is np.ndarray
        assert found.flags.writeable
        assert found.flags.c_contiguous
        expected = found.copy()
        kernel(inputs(E, {"E": length}, seed=1))
        np.testing.assert_array_equal(found, expected)
        check_against_numpy(E, arrays, found)
        found += 1


@pytest.mark.parametrize("length", [7, 200])
def test_results_over_operands_are_right(length: int, cpu: Device, store: str, copies: list[Any]) -> None:
    """The whole, or a part: what is overwritten is copied before."""
    e = fe.einsum("ij,jk->ik", fe.array("A", ("N", "M")), fe.array("B", ("M", "N")))
    kernel = fe.generate(e, cpu, store)
    whole = np.random.default_rng(0).uniform(-1, 1, 2 * length * length)
    for begin in (0, length):
        a = whole[: length * length].reshape(length, length).copy()
        room = whole.copy()
        given = room[begin : begin + length * length].reshape(length, length)
        given[...] = a
        out = room[: length * length].reshape(length, length)
        expected = given @ a
        copies.clear()
        kernel(A=given, B=a, out=out)
        np.testing.assert_allclose(out, expected, atol=1e-12)
        assert [copy.shape for copy in copies] == [given.shape]
    assert "'A', which shares memory with the result" in kernel.explain()


def test_threads_may_read_one_array(kernel: fe.Kernel) -> None:
    """At the same time, each into a result of its own."""
    arrays = inputs(E, {"E": 5000})
    with ThreadPoolExecutor(6) as pool:
        for found in pool.map(lambda _: kernel(arrays), range(24)):
            check_against_numpy(E, arrays, found)


@pytest.mark.parametrize("nbytes", [1, 1000, 1 << 15, 1 << 20, 5 << 20])
@pytest.mark.parametrize("alignment", [1, 8, 64, 128])
def test_new_arrays_begin_where_kernels_need_it(nbytes: int, alignment: int) -> None:
    """Unless they are so small that results are copied to them."""
    made = new_array((nbytes,), np.dtype(np.uint8), alignment)
    made[...] = 3
    assert (made.shape, made.nbytes) == ((nbytes,), nbytes)
    assert nbytes < 1 << 15 or is_aligned(made, alignment)


def program(source: str) -> KernelProgram:
    arguments = tuple(
        KernelArgument(name, "input", dtype, (4,))
        for name, dtype in (("a", "float32"), ("b", "complex128"), ("c", "float64"))
    )
    return KernelProgram(source, arguments, (KernelLaunch("f", ("a", "b", "c"), (1,), (1,)),))


@pytest.mark.parametrize(
    ("source", "alignments"),
    [
        ("__global float const *__restrict__ a; vload8(0, a + first)", (4, 16, 8)),
        ("__builtin_nontemporal_store(x, (__global double8 *) (c + to));", (4, 16, 64)),
        ("x = *(__global const float4 *)&a[3]; y = *(__global float2 *) a;", (16, 16, 8)),
        ("__global float4 const *p = q;", (16, 16, 16)),
        ("(__global double4 *) (somewhere + to)", (32, 32, 32)),
        ("(__local double2 *) (c + to)", (4, 16, 8)),
    ],
)
def test_alignment_is_read_from_the_source(source: str, alignments: tuple[int, ...]) -> None:
    """That of the elements, of the vectors as which an array is read or written, or of the largest if it may be any."""
    assert tuple(required_alignments(program(source)).values()) == alignments


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_vectors_are_stored_where_results_begin(
    dtype: str, cpu: Device, store: str, copies: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels that write past the caches presume whole vectors, and numpy's results begin 16 bytes past a line."""
    e = fe.einsum("ij,ej->ei", fe.array("D", (8, 8), dtype), fe.array("u", ("E", 8), dtype))
    kernel = fe.generate(e, cpu, store, {"E": 1 << 20})
    assert "__builtin_nontemporal_store" in kernel.source
    whole = inputs(e, {"E": 6000})
    step = np.dtype(dtype).itemsize
    contract = fe.contract_expression("ij,ej->ei", (8, 8), (6000, 8), dtype=dtype, device=cpu, library=False)
    contract(whole["D"], whole["u"])  # builds the kernel, whose proof copies
    copies.clear()
    for offset in (0, step, 8, 16, 32, 40, 64):
        out, arrays = at(offset, np.zeros((6000, 8), dtype)), {name: at(offset, x) for name, x in whole.items()}
        with monkeypatch.context() as patched:
            patched.setattr(cl, "enqueue_copy", None)
            check_against_numpy(e, arrays, kernel(arrays, out=out))
            check_against_numpy(e, arrays, contract(arrays["D"], arrays["u"], out=out))
    assert not [copy for copy in copies if copy.nbytes > 1 << 15]


def test_results_between_elements_are_brought_there(cpu: Device, store: str) -> None:
    """A result that is not aligned for its own type, or is small, is written to a buffer and copied."""
    e = fe.einsum("ij,ej->ei", fe.array("D", (8, 8)), fe.array("u", ("E", 8)))
    kernel = fe.generate(e, cpu, store, {"E": 1 << 20})
    for offset, length in ((4, 6000), (8, 3), (9, 6000)):
        arrays = inputs(e, {"E": length})
        out = at(offset, np.zeros((length, 8)))
        check_against_numpy(e, arrays, kernel({name: at(offset, x) for name, x in arrays.items()}, out=out))


def test_a_loosened_program_declares_the_alignment_of_its_vectors() -> None:
    """Vectors that the alignment suits stay as they are."""
    source = "__builtin_nontemporal_store(x, (__global double8 *) (c + to)); y = *(__global float4 const *) a;"
    found = loosened(program(source), 16)
    assert found.source.startswith("typedef double8 feinsum_double8_at_16 __attribute__((aligned(16)));\n")
    assert "_store((feinsum_double8_at_16) (x), (__global feinsum_double8_at_16 *) (c + to));" in found.source
    assert "(__global float4 const *) a" in found.source
    assert tuple(required_alignments(found).values()) == (16, 16, 8)


def test_launches_do_not_wait_for_a_kernel_that_is_loosened(
    cpu: Device, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its compiler takes a second, in which other threads go on with the kernel that there is."""
    e = fe.einsum("ej,ij->ei", fe.array("u", ("E", 8)), fe.array("D", (8, 8)))
    executable = fe.generate(e, cpu, store, {"E": 100})._executable
    begun, released = threading.Event(), threading.Event()
    made = executable_module.build_executable

    def build(*arguments: Any) -> Any:
        begun.set()
        assert released.wait(60)
        return made(*arguments)

    monkeypatch.setattr(executable_module, "build_executable", build)
    with ThreadPoolExecutor() as pool:
        first, second = (pool.submit(executable.loosened, 8) for _ in range(2))
        assert begun.wait(60)
        kernel = fe.generate(e, cpu, store, {"E": 100})
        arrays = inputs(e, {"E": 100})
        launched = pool.submit(kernel, **arrays)
        try:
            check_against_numpy(e, arrays, launched.result(60))
        finally:
            released.set()
        assert first.result() is second.result()


@pytest.mark.parametrize("length", [40_000, 1 << 22], ids=["past the memory", "past size_t"])
def test_what_does_not_fit_is_a_memory_error_that_names_the_size(cpu: Device, length: int) -> None:
    """As numpy's einsum tells it, wherever the result is to lie, and whichever layer refuses it."""
    x = np.ones(length)
    with pytest.raises(MemoryError, match=r"cannot allocate [\d.]+ [TPEZ]iB for "):
        fe.contract("i,j,k->ijk", x, x, x, device=cpu)
    there = cla.to_device(cpu.queue, x)
    with pytest.raises(MemoryError, match=r"cannot allocate [\d.]+ [TPEZ]iB for a buffer on "):
        fe.contract("i,j,k->ijk", there, there, there)
    with pytest.raises(MemoryError, match=r"cannot allocate [\d.]+ [TPEZ]iB for a buffer on "):
        large_pages(cpu.context).new_buffer(8 * length**3)
