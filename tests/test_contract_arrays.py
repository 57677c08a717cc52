"""`contract` and kernels take whatever numpy and pyopencl call an array, or refuse it before anything is launched."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest

import feinsum as fe
from feinsum.devices import Device

A, B = (np.random.default_rng(k).uniform(-1, 1, shape) for k, shape in enumerate([(3, 4), (4, 5)]))


@pytest.fixture(scope="module")
def how(cpu: Device, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A device and a store of its own."""
    return {"device": cpu, "database": str(tmp_path_factory.mktemp("arrays") / "records.sqlite")}


@pytest.fixture
def queue(cpu: Device) -> cl.CommandQueue:
    """A queue of the user's own."""
    return cl.CommandQueue(cpu.context)


class Convertible:
    """What numpy makes an array of, though it is none."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        return A


def read_only(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    x = x.copy()
    x.flags.writeable = False
    return x


def beside(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The numbers of an array in a field that begins at an odd byte."""
    records = np.zeros(x.shape, [("name", "u1"), ("value", x.dtype)])
    records["value"] = x
    return records["value"]


HOST = {
    "read-only": read_only,
    "misaligned": lambda x: np.frombuffer(b"x" + x.tobytes(), np.uint8)[1:].view(x.dtype).reshape(x.shape),
    "field": beside,
    "masked": lambda x: np.ma.masked_array(x, x > 0),
    "matrix": lambda x: x.view(np.matrix),
    "list": np.ndarray.tolist,
    "memoryview": memoryview,
    "convertible": lambda x: Convertible(),
}


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("make", HOST.values(), ids=HOST)
def test_whatever_numpy_takes_is_taken(make: Any, how: dict[str, Any]) -> None:
    """With the result that numpy.einsum has, which knows neither masks nor matrices."""
    found, expected = fe.contract("ij,jk->ki", make(A), B, **how), np.einsum("ij,jk->ki", make(A), B)
    assert type(found) is type(expected) is np.ndarray
    np.testing.assert_allclose(found, expected)


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("library", [True, False])
@pytest.mark.parametrize("make", HOST.values(), ids=HOST)
def test_it_is_taken_again(make: Any, library: bool, how: dict[str, Any]) -> None:
    """A call like an earlier one converts what that one converted: numpy's own products are others for its subclasses."""
    expected = np.einsum("ij,jk->ik", make(A), B)
    expression = fe.contract_expression("ij,jk->ik", A.shape, B.shape, library=library, **how)
    for _ in range(3):
        for found in (fe.contract("ij,jk->ik", make(A), B, library=library, **how), expression(make(A), B)):
            assert type(found) is np.ndarray
            np.testing.assert_allclose(found, expected)


def on_device(x: np.ndarray[Any, Any], queue: cl.CommandQueue) -> cla.Array:
    """An array on a device that lies there as in the memory of the host, gaps, offset and all."""
    whole = x.base if isinstance(x.base, np.ndarray) else x
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    offset = x.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    bytes_ = cla.to_device(queue, np.frombuffer(whole.tobytes(), np.uint8))
    return cla.Array(queue, x.shape, x.dtype, strides=x.strides, data=bytes_.base_data, offset=offset)


@pytest.mark.parametrize("dtype", ["int16", "float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("layout", ["misaligned", "field"])
def test_device_arrays_between_the_places_of_their_type(
    layout: str, dtype: str, queue: cl.CommandQueue, how: dict[str, Any]
) -> None:
    """Are copied byte by byte, also where they are converted."""
    host = HOST[layout]((8 * A).astype(dtype))
    there = on_device(host, queue)
    assert fe.contract("ij->ij", there, **how).get().tobytes() == host.tobytes()
    wide = fe.contract("ij->ji", there, dtype="complex128", **how).get()
    np.testing.assert_array_equal(wide, host.T.astype("complex128"))
    kernel = fe.generate(fe.einsum("ij->j", fe.array("x", ("N", 4), dtype)), how["device"], how["database"])
    np.testing.assert_allclose(kernel(x=there).get(), host.sum(axis=0), rtol=1e-5)


def test_rows_that_are_one_row_are_operands_and_no_results(queue: cl.CommandQueue, how: dict[str, Any]) -> None:
    """A stride of zero."""
    row = cla.to_device(queue, A[0])
    rows = cla.Array(queue, A.shape, A.dtype, strides=(0, 8), data=row.base_data)
    expected = np.broadcast_to(A[0], A.shape) @ B
    np.testing.assert_allclose(fe.contract("ij,jk", rows, cla.to_device(queue, B), **how).get(), expected)
    with pytest.raises(fe.ValidationError, match="out is not contiguous"):
        fe.contract("ij->ij", cla.to_device(queue, A), out=rows, **how)


def test_arrays_of_two_contexts_are_refused(queue: cl.CommandQueue, how: dict[str, Any]) -> None:
    """By number of operand, also those that would have to be copied first."""
    context = cl.Context(queue.context.devices)
    other = cl.CommandQueue(context)
    a = cla.to_device(queue, A)
    for b in (cla.to_device(other, B), cla.to_device(other, np.pad(B, 1))[1:-1, 1:-1]):
        with pytest.raises(fe.ValidationError, match="operand 1 belongs to another context than operand 0; make both with"):
            fe.contract("ij,jk", a, b, database=how["database"])
    theirs = cla.to_device(other, A), cla.to_device(other, B)
    with pytest.raises(fe.ValidationError, match=r"arrays of another context than that of .*; leave out"):
        fe.contract("ij,jk", *theirs, **how)


@pytest.mark.parametrize("dtype", ["bool", "float16", ">f8"])
def test_results_that_devices_have_no_arrays_of_are_refused(
    dtype: str, queue: cl.CommandQueue, how: dict[str, Any]
) -> None:
    """Rather than given in another type; with numpy arrays they are made."""
    with pytest.raises(fe.DTypeError, match=r"the result would be a device array of .*; ask for (int64|float32|float64)"):
        fe.contract("ij->i", cla.to_device(queue, A), dtype=dtype, casting="unsafe", **how)
    found = fe.contract("ij,jk->ik", A, B, dtype=dtype, casting="unsafe", **how)
    assert found.dtype == dtype
    # numpy's own einsum takes the bytes of ">f8" in the wrong order.
    computed = np.dtype(dtype).newbyteorder("=")
    np.testing.assert_allclose(found, np.einsum("ij,jk->ik", A, B, dtype=computed, casting="unsafe"), rtol=5e-3, atol=5e-3)


def test_a_half_is_true(how: dict[str, Any]) -> None:
    """Numbers become booleans as in numpy, not by way of integers."""
    assert fe.contract("i->", [0.5, 0.0], dtype=bool, casting="unsafe", **how) is np.True_


def test_parts_of_a_buffer_are_told_from_each_other(cpu: Device, queue: cl.CommandQueue, how: dict[str, Any]) -> None:
    """Results may be written beside what is read, not over it, however the caller cut the buffer."""
    step = max(cpu.context.devices[0].mem_base_addr_align // 8, 512)
    n = step // 8
    buffer = cl.Buffer(cpu.context, cl.mem_flags.COPY_HOST_PTR, hostbuf=np.full(4 * n, 3.0))
    whole, first, second = (
        cla.Array(queue, size, np.float64, data=data)
        for size, data in ((4 * n, buffer), (n, buffer.get_sub_region(0, step)), (n, buffer.get_sub_region(step, step)))
    )
    assert fe.contract("i,i->i", first, first, out=second, **how) is second
    np.testing.assert_array_equal(whole.get(), np.repeat([3.0, 9.0, 3.0, 3.0], n))
    for x, out in ((whole[:n], first), (first, whole[:n]), (second, whole[1 : n + 1]), (whole, whole)):
        with pytest.raises(fe.ValidationError, match="out shares memory with operand 0; pass an array of its own"):
            fe.contract("i->i", x, out=out, **how)
    kernel = fe.generate(fe.einsum("i->i", fe.array("x", "N")), cpu, how["database"])
    with pytest.raises(fe.ValidationError, match="out 'out' shares memory with 'x'; pass an array of its own"):
        kernel(x=whole[:n], out=first)


def test_threads_contract_at_once(cpu: Device, how: dict[str, Any]) -> None:
    """The same equation and others, of several lengths, each thread on a queue of its own."""

    def work(thread: int) -> bool:
        own, rng = cl.CommandQueue(cpu.context), np.random.default_rng(thread)
        right = []
        for turn in range(8):
            text = ("ij,jk->ik", "ij,j->i", "ij->ji", "i,j->ij")[(thread + turn) % 4]
            lengths = {x: int(rng.integers(0, 30)) for x in "ijk"}
            operands = [rng.normal(size=[lengths[x] for x in term]) for term in text.partition("->")[0].split(",")]
            there = [cla.to_device(own, x) for x in operands] if turn % 2 else operands
            found = fe.contract(text, *there, **how)
            right.append(np.allclose(found.get() if turn % 2 else found, np.einsum(text, *operands)))
        return all(right)

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, range(6)))
