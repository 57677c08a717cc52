"""Calls of a kernel: whose arrays, in what layout, on which queue; and every argument that is refused, before a launch."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import loopy as lp
import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest
from einsums import check_against_numpy, inputs

import feinsum as fe
from feinsum.canonicalization import canonicalize_einsum
from feinsum.compile.executable import Executable
from feinsum.devices import Device
from feinsum.kernel.kernel import Kernel
from feinsum.report.figures import settings

pytestmark = pytest.mark.slow

D, U = fe.array("D", (3, 6, 5)), fe.array("u", ("E", 5))
E = fe.einsum("rij,ej->rei", D, U)
TWO = fe.batched_einsum("ij,ej->ei", [[fe.array("A", (6, 5)), U], [fe.array("B", (6, 5)), U]])


@pytest.fixture(scope="module")
def kernel(cpu: Device, tmp_path_factory: pytest.TempPathFactory) -> Kernel:
    return fe.generate(E, cpu, str(tmp_path_factory.mktemp("kernel") / "records.sqlite"))


@pytest.fixture(scope="module")
def two(cpu: Device, tmp_path_factory: pytest.TempPathFactory) -> Kernel:
    """A kernel with two outputs."""
    return fe.generate(TWO, cpu, str(tmp_path_factory.mktemp("two") / "records.sqlite"))


@pytest.fixture
def arrays() -> dict[str, np.ndarray[Any, Any]]:
    return inputs(E, {"E": 37})


@pytest.fixture
def queue(cpu: Device) -> cl.CommandQueue:
    """A queue of the user's own."""
    return cl.CommandQueue(cpu.context)


def on_device(queue: cl.CommandQueue, arrays: dict[str, np.ndarray[Any, Any]]) -> dict[str, cla.Array]:
    return {name: cla.to_device(queue, values) for name, values in arrays.items()}


def expected(arrays: dict[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    return np.einsum("rij,ej->rei", arrays["D"], arrays["u"])


def test_numpy_arrays_give_numpy_arrays(kernel: Kernel, arrays: dict[str, Any]) -> None:
    """By keyword or as a mapping."""
    found = kernel(**arrays)
    assert type(found) is np.ndarray
    np.testing.assert_allclose(found, expected(arrays))
    np.testing.assert_array_equal(kernel(arrays), found)
    np.testing.assert_array_equal(kernel({"D": arrays["D"]}, u=arrays["u"]), found)


def test_device_arrays_give_device_arrays(
    kernel: Kernel, arrays: dict[str, Any], queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the queue of the arrays, with an event that tells when, and without a copy of any kind."""
    given = on_device(queue, arrays)

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("something was copied")

    with monkeypatch.context() as patch:
        for name in ("enqueue_copy", "enqueue_map_buffer"):
            patch.setattr(cl, name, refuse)
        patch.setattr(cla.Array, "get", refuse)
        found = kernel(**given)
    assert isinstance(found, cla.Array)
    assert found.queue == queue
    assert len(found.events) == 1
    np.testing.assert_allclose(found.get(), expected(arrays))


@pytest.mark.parametrize("host", [True, False], ids=["numpy", "pyopencl"])
def test_several_outputs_are_a_tuple_in_the_order_of_rows(host: bool, two: Kernel, queue: cl.CommandQueue) -> None:
    """Whatever order the canonical form gives them."""
    arrays = inputs(TWO, {"E": 9})
    found = two(**(arrays if host else on_device(queue, arrays)))
    assert isinstance(found, tuple)
    check_against_numpy(TWO, arrays, found if host else tuple(value.get() for value in found))


def test_a_single_row_of_a_batch_is_an_array(two: Kernel) -> None:
    """Rows exchanged: the outputs are, too, although both einsums have one canonical form."""
    arrays = inputs(TWO, {"E": 9})
    exchanged = {"A": arrays["B"], "B": arrays["A"], "u": arrays["u"]}
    for one, other in zip(two(**arrays), reversed(two(**exchanged)), strict=True):
        np.testing.assert_array_equal(one, other)


LAYOUTS: dict[str, Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]] = {
    "Fortran": np.asfortranarray,
    "sliced": lambda x: np.stack([x, -x], axis=-1)[..., 0],
    "reversed": lambda x: x[::-1].copy()[::-1],
    "inner part": lambda x: np.pad(x, 1)[(slice(1, -1),) * x.ndim],
    "read-only": lambda x: np.broadcast_to(x, x.shape),
    "expanded": lambda x: np.broadcast_to(x[:1], x.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_numpy_arrays_of_any_layout(
    layout: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]], kernel: Kernel, arrays: dict[str, Any]
) -> None:
    """Order and strides do not matter."""
    given = {name: layout(values) for name, values in arrays.items()}
    np.testing.assert_allclose(kernel(**given), expected(given))


@pytest.mark.parametrize("out", [False, True])
def test_device_arrays_of_any_layout(kernel: Kernel, arrays: dict[str, Any], queue: cl.CommandQueue, out: bool) -> None:
    """Fortran order, strides and offsets; a result may begin anywhere in its buffer."""
    wide = cla.to_device(queue, np.pad(arrays["u"], ((2, 3), (1, 2))))
    tall = cla.to_device(queue, np.pad(arrays["u"], ((2, 3), (0, 0))))
    room = cla.zeros(queue, (5, 37, 6), np.float64)
    for u in (wide[2:-3, 1:-2], tall[2:-3], cla.to_device(queue, np.asfortranarray(arrays["u"]))):
        result = room[1:4] if out else None
        found = kernel(D=cla.to_device(queue, np.asfortranarray(arrays["D"])), u=u, out=result)
        np.testing.assert_allclose(found.get(), expected(arrays))
    assert not room[0].get().any()
    assert not room[4].get().any()


def test_results_go_where_the_caller_wants_them(kernel: Kernel, two: Kernel, arrays: dict[str, Any], queue: Any) -> None:
    """Arrays given as `out` are filled and returned, one or several of them."""
    out = np.empty((3, 37, 6))
    assert kernel(**arrays, out=out) is out
    np.testing.assert_allclose(out, expected(arrays))
    there = cla.empty(queue, (3, 37, 6), np.float64)
    assert kernel(**on_device(queue, arrays), out=there) is there
    np.testing.assert_allclose(there.get(), expected(arrays))
    both = [np.empty((9, 6)), np.empty((9, 6))]
    given = inputs(TWO, {"E": 9})
    found = two(**given, out=both)
    assert all(one is other for one, other in zip(found, both, strict=True))
    check_against_numpy(TWO, given, found)


def test_a_result_may_overwrite_an_input_of_numpy(cpu: Device, store: str) -> None:
    """Inputs are on the device before anything is written."""
    kernel = fe.generate(fe.einsum("ij,jk->ik", fe.array("A", (4, 4)), fe.array("B", (4, 4))), cpu, store)
    a = np.arange(16.0).reshape(4, 4)
    product = a @ a
    assert kernel(A=a, B=a, out=a) is a
    np.testing.assert_allclose(a, product)


def test_the_queue_and_the_events_of_the_caller_count(kernel: Kernel, arrays: dict[str, Any], cpu: Device) -> None:
    """Nothing starts before the events in `wait_for`; the launch is made on `queue`."""
    queue, other = cl.CommandQueue(cpu.context), cl.CommandQueue(cpu.context)
    given = on_device(queue, arrays)
    gate = cl.UserEvent(cpu.context)
    found = kernel(**given, queue=other, wait_for=[gate])
    other.flush()
    assert found.queue == other
    assert found.events[0].command_execution_status != cl.command_execution_status.COMPLETE
    gate.set_status(cl.command_execution_status.COMPLETE)
    np.testing.assert_allclose(found.get(), expected(arrays))
    np.testing.assert_allclose(kernel(**arrays, queue=other), expected(arrays))


def test_what_is_still_being_computed_is_waited_for(kernel: Kernel, arrays: dict[str, Any], cpu: Device) -> None:
    """The events of the inputs, and of the array for the result, which another queue may be using."""
    first, second = cl.CommandQueue(cpu.context), cl.CommandQueue(cpu.context)
    given = on_device(first, arrays)
    out = cla.empty(first, (3, 37, 6), np.float64)
    for value in (given["u"], out):
        gate = cl.UserEvent(cpu.context)
        value.add_event(gate)
        found = kernel(**given, queue=second, out=out)
        second.flush()
        assert found.events[-1].command_execution_status != cl.command_execution_status.COMPLETE
        gate.set_status(cl.command_execution_status.COMPLETE)
        np.testing.assert_allclose(found.get(), expected(arrays))


@pytest.mark.parametrize("host", [True, False], ids=["numpy", "pyopencl"])
def test_empty_axes_give_zeros(host: bool, cpu: Device, store: str, queue: cl.CommandQueue) -> None:
    """An empty sum is zero, an empty result is empty, and nothing is launched."""
    kernel = fe.generate(fe.einsum("ij,j->i", fe.array("A", ("N", "M")), fe.array("x", "M")), cpu, store)
    for n, m in ((3, 0), (0, 3), (0, 0)):
        given = {"A": np.ones((n, m)), "x": np.ones(m)}
        found = kernel(**(given if host else on_device(queue, given)))
        assert found.shape == (n,)
        np.testing.assert_array_equal(found if host else found.get(), np.zeros(n))


def test_scalars_are_arrays_without_axes(cpu: Device, store: str) -> None:
    """Both numpy's scalars and its arrays of rank 0; the result is such an array."""
    kernel = fe.generate(fe.einsum(",i->", fe.array("a", ()), fe.array("x", 3)), cpu, store)
    for a in (np.float64(2), np.array(2.0)):
        found = kernel(a=a, x=np.ones(3))
        assert type(found) is np.ndarray
        assert found == 6


def test_any_name_can_be_passed(cpu: Device, store: str) -> None:
    """Names that the call itself uses go in a mapping."""
    kernel = fe.generate(fe.einsum("i,i,i->", fe.array("out", 3), fe.array("queue", 3), fe.array("self", 3)), cpu, store)
    assert kernel({"out": np.ones(3), "queue": np.ones(3)}, self=np.full(3, 2.0)) == 6


REFUSALS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "missing": ({"D": None}, fe.ValidationError, "'D' is missing; the kernel takes D, u"),
    "unknown": ({"v": np.ones(3)}, fe.ValidationError, "'v' is no array of the kernel, which takes D, u"),
    "unknown number": ({"v": 3}, fe.ValidationError, "'v' is no array of the kernel, which takes D, u"),
    "list": (
        {"u": [[1.0] * 5]},
        fe.ValidationError,
        "'u' is a list; pass an array, of numpy or of a library that speaks DLPack",
    ),
    "number": (
        {"u": 2.0},
        fe.ValidationError,
        "'u' is a float; pass an array, of numpy or of a library that speaks DLPack",
    ),
    "type": (
        {"u": np.ones((37, 5), np.float32)},
        fe.DTypeError,
        "'u' is float32 but was described as float64; convert it with astype",
    ),
    "byte order": ({"u": np.ones((37, 5), ">f8")}, fe.DTypeError, "'u' is >f8 but was described as float64"),
    "rank": ({"u": np.ones(5)}, fe.ShapeError, "'u' has 1 axes but was described with 2"),
    "length": (
        {"D": np.ones((3, 7, 5))},
        fe.ShapeError,
        "axis 1 of 'D' has length 7 but was described with 6",
    ),
    "number of results": ({"out": ()}, fe.ValidationError, "out has 0 arrays but the kernel has 1 outputs"),
    "shape of the result": (
        {"out": np.empty((3, 6, 37))},
        fe.ShapeError,
        "out 'out' has shape (3, 6, 37) but the result has (3, 37, 6)",
    ),
    "type of the result": (
        {"out": np.empty((3, 37, 6), np.float32)},
        fe.DTypeError,
        "out 'out' is float32 but the result is float64",
    ),
    "layout of the result": (
        {"out": np.empty((3, 37, 6), order="F")},
        fe.ValidationError,
        "out 'out' is not C-contiguous; pass a contiguous array",
    ),
    "read-only result": (
        {"out": np.broadcast_to(np.empty((3, 37, 6)), (3, 37, 6))},
        fe.ValidationError,
        "out 'out' is read-only; pass an array that can be written",
    ),
    "list for the result": ({"out": [[1.0]]}, fe.ValidationError, "out 'out' is a list; pass a numpy array, as the inputs"),
}


@pytest.fixture
def nothing_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail where a kernel is launched."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a kernel was launched")

    monkeypatch.setattr(Executable, "enqueue", refuse)


@pytest.mark.usefixtures("nothing_launched")
@pytest.mark.parametrize(("changes", "kind", "message"), REFUSALS.values(), ids=REFUSALS)
def test_refused_arguments_say_why(
    changes: dict[str, Any], kind: type[Exception], message: str, kernel: Kernel, arrays: dict[str, Any]
) -> None:
    """The message names the argument, what it is and what it should be."""
    given = {name: value for name, value in {**arrays, **changes}.items() if value is not None}
    with pytest.raises(kind) as error:
        kernel(**given)
    assert message in str(error.value)


def test_arrays_that_disagree_about_a_long_axis_are_refused(
    cpu: Device, store: str, request: pytest.FixtureRequest
) -> None:
    """Both are named, with the axis or the index."""
    named = fe.einsum("ei,e->i", fe.array("u", ("E", 3)), fe.array("w", "E"))
    anonymous = fe.einsum("ei,e->i", fe.array("u", (float("inf"), 3)), fe.array("w", float("inf")))
    twice = fe.einsum("ij,ji->", fe.array("A", (float("inf"),) * 2), fe.array("A", (float("inf"),) * 2))
    kernels = [fe.generate(e, cpu, store) for e in (named, anonymous, twice)]
    request.getfixturevalue("nothing_launched")
    for kernel, at in zip(kernels, ("long axis 'E'", "index 'e'"), strict=False):
        with pytest.raises(fe.ShapeError, match=f"{at} has length 4 in 'u' but 5 in 'w'"):
            kernel(u=np.ones((4, 3)), w=np.ones(5))
    with pytest.raises(fe.ShapeError, match="index 'j' has length 4 in 'A' but 3 in 'A'"):
        kernels[2](A=np.ones((3, 4)))


def test_a_long_axis_may_be_named_like_an_index_of_fixed_length(cpu: Device, store: str) -> None:
    """Which is another index, so that their lengths have nothing to do with each other."""
    e = fe.einsum("ab->b", fe.array("x", (3, "a")))
    for length in (0, 2, 5):
        np.testing.assert_array_equal(fe.generate(e, cpu, store)(x=np.ones((3, length))), np.full(length, 3.0))


@pytest.mark.usefixtures("nothing_launched")
def test_device_arrays_that_cannot_be_used_are_refused(
    kernel: Kernel, two: Kernel, arrays: dict[str, Any], cpu: Device, queue: cl.CommandQueue
) -> None:
    """Those of another library or context, and results that share memory with something else."""
    given = on_device(queue, arrays)
    context = cl.Context([cpu.cl_device])
    stranger = cl.CommandQueue(context)
    both = "arrays of two libraries are mixed (D: numpy, u: pyopencl); pass all of one"
    with pytest.raises(fe.ValidationError) as mixed:
        kernel(D=arrays["D"], u=given["u"])
    assert both in str(mixed.value)
    elsewhere = cla.to_device(stranger, arrays["u"])
    with pytest.raises(fe.ValidationError, match="'u' belongs to another context than the kernel; make it with a queue"):
        kernel(D=given["D"], u=elsewhere)
    with pytest.raises(fe.ValidationError, match="queue belongs to another context than the kernel"):
        kernel(**arrays, queue=stranger)
    with pytest.raises(fe.ValidationError, match="'out' belongs to another context"):
        kernel(**given, out=cla.empty(stranger, (3, 37, 6), np.float64))
    with pytest.raises(fe.ValidationError, match="out 'out' is a ndarray; pass a pyopencl array, as the inputs are"):
        kernel(**given, out=np.empty((3, 37, 6)))
    with pytest.raises(fe.ValidationError, match="out 'out' is a Array; pass a numpy array, as the inputs are"):
        kernel(**arrays, out=cla.empty(queue, (3, 37, 6), np.float64))
    one = cla.empty(queue, (37, 6), np.float64)
    pair = {"A": given["D"][0], "B": given["D"][1], "u": given["u"]}
    with pytest.raises(fe.ValidationError, match="out 'out_1' shares memory with 'out_0'; pass an array of its own"):
        two(**pair, out=(one, one))
    room = cla.empty(queue, (40, 6), np.float64)
    with pytest.raises(fe.ValidationError, match="out 'out_1' shares memory with 'out_0'"):
        two(**pair, out=(room[:37], room[3:]))
    square = cla.empty(queue, (30, 30), np.float64)
    with pytest.raises(fe.ValidationError, match="out 'out_0' shares memory with 'A'"):
        two(A=square[:6, :5], B=given["D"][1], u=given["u"][:5], out=(square[:1].reshape(30)[:30].reshape(5, 6), one[:5]))


@pytest.mark.usefixtures("nothing_launched")
def test_queues_events_and_results_of_other_kinds_are_refused(
    kernel: Kernel, two: Kernel, arrays: dict[str, Any], cpu: Device, queue: cl.CommandQueue
) -> None:
    """Each by its name, with what to pass."""
    context = cl.Context([cpu.cl_device])
    elsewhere = cl.UserEvent(context)
    event = cl.UserEvent(queue.context)
    pair = {"A": arrays["D"][0], "B": arrays["D"][1], "u": arrays["u"]}
    refused: list[tuple[Callable[[], Any], str]] = [
        (lambda: kernel(arrays["D"]), "arrays are passed by name, as in kernel(D=..., u=...), not by position"),
        (lambda: kernel(arrays["D"], arrays["u"]), "are passed by name, as in kernel(D=..., u=...), not by position"),
        (lambda: kernel([*arrays.values()]), "arrays are passed by name, as in kernel(D=..., u=...), not as a list"),
        (lambda: kernel(**arrays, queue=5), "queue is 5; pass a pyopencl.CommandQueue of the kernel's device"),
        (lambda: kernel(**arrays, queue=queue.context), "pass a pyopencl.CommandQueue of the kernel's device"),
        (lambda: kernel(**arrays, wait_for=event), "wait_for is a UserEvent; pass a list of events"),
        (lambda: kernel(**arrays, wait_for=[event, None]), "wait_for[1] is None; pass events of pyopencl"),
        (lambda: kernel(**arrays, wait_for=[elsewhere]), "wait_for[0] belongs to another context than the kernel"),
        (lambda: two(**pair, out={"out_0": arrays["u"]}), "out is a dict; the kernel has 2 outputs; pass a tuple"),
        (lambda: two(**pair, out=5), "out is a int; the kernel has 2 outputs; pass a tuple of arrays"),
    ]
    for call, message in refused:
        with pytest.raises(fe.ValidationError, match=re.escape(message)):
            call()


def test_outputs_may_be_parts_of_one_array(two: Kernel, queue: cl.CommandQueue) -> None:
    """As long as they do not overlap."""
    arrays = inputs(TWO, {"E": 9})
    host = np.empty((2, 9, 6))
    check_against_numpy(TWO, arrays, two(**arrays, out=tuple(host)))
    room = cla.empty(queue, (2, 9, 6), np.float64)
    two(**on_device(queue, arrays), out=(room[0], room[1]))
    check_against_numpy(TWO, arrays, tuple(room.get()))


def test_threads_may_share_a_kernel(two: Kernel, cpu: Device) -> None:
    """Eight threads with arrays and queues of their own get the results of their own."""
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            queue = cl.CommandQueue(cpu.context)
            for length in range(1, 12):
                arrays = inputs(TWO, {"E": length * (seed + 1)}, seed)
                check_against_numpy(TWO, arrays, two(**arrays))
                found = two(**on_device(queue, arrays))
                check_against_numpy(TWO, arrays, tuple(value.get() for value in found))
        except BaseException as error:  # handed to the main thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_threads_may_generate_at_once(cpu: Device, store: str) -> None:
    """Two kernels generated by two threads are both right."""
    found: dict[int, Any] = {}

    def work(k: int) -> None:
        e = fe.einsum("ij,jk->ik", fe.array("A", (4 + k, 5)), fe.array("B", (5, 6)))
        arrays = inputs(e)
        found[k] = e, arrays, fe.generate(e, cpu, store)(arrays)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k in range(2):
        check_against_numpy(*found[k])


def test_a_kernel_explains_itself(kernel: Kernel, cpu: Device) -> None:
    """Source, loopy kernel, space, configuration and rung."""
    assert "__kernel" in kernel.source
    assert isinstance(kernel.t_unit, lp.TranslationUnit)
    assert kernel.rung == "cost model"
    assert kernel.record is None
    text = kernel.explain()
    assert E.subscripts in text
    assert f"rung      {kernel.rung}: nothing measured fits" in text
    assert "expected  about " in text
    assert f"space     {kernel.space} (version" in text
    letters = canonicalize_einsum(E).renaming.inverse.indices
    assert settings(kernel.configuration, letters) in text
    assert repr(kernel) == f"<Kernel rij,ej->rei on {cpu.id}, {kernel.space}, rung {kernel.rung}>"


def test_indices_are_wide_where_arrays_are_large(cpu: Device, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel meant for small arrays gets 64-bit indices when one of 2³¹ elements comes, and 32-bit ones otherwise."""
    from feinsum.kernel import kernel as kernels

    kernel = fe.generate(E, cpu, store, {"E": 50})
    assert "long const" not in kernel.source
    monkeypatch.setattr(kernels, "is_outgrown", lambda program, lengths: max(lengths.values()) >= 100)
    for length in (100, 99):
        arrays = inputs(E, {"E": length})
        check_against_numpy(E, arrays, kernel(arrays))
        wide = kernel.executable_for({**kernel.expected, "e": length}).program.source
        assert ("long const" in wide) == (length >= 100)


def test_large_means_an_array_of_two_to_the_31_elements() -> None:
    """Of an input or an output, at the lengths of the call; somewhat less, as the last group computes positions beyond."""
    from feinsum.compile.index_width import index_dtype

    e = fe.einsum("i,j->ij", fe.array("x", "N"), fe.array("y", 2**16))
    assert index_dtype(e, {"i": 2**15 - 2**8 - 1, "j": 2**16}) == "int32"
    assert index_dtype(e, {"i": 2**15, "j": 2**16}) == "int64"
    assert index_dtype(fe.einsum("i->", fe.array("x", "N")), {"i": 2**31}) == "int64"
