"""`contract` is :func:`numpy.einsum`: every equation of a table, types, layouts, results wanted elsewhere, and refusals."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import opt_einsum
import pyopencl as cl
import pyopencl.array as cla
import pytest
from equations import EQUATIONS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import feinsum as fe
from feinsum.contract.contraction_plan import make_plan
from feinsum.devices import Device
from feinsum.validate import Workload

A, B, C = (np.random.default_rng(k).uniform(-1, 1, shape) for k, shape in enumerate([(3, 4), (4, 5), (5, 2)]))


@pytest.fixture(scope="module")
def how(cpu: Device, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A device and a store of its own."""
    return {"device": cpu, "database": str(tmp_path_factory.mktemp("contract") / "records.sqlite")}


def draw(shapes: Sequence[tuple[int, ...]], dtypes: Sequence[str] = ("float64",)) -> list[np.ndarray[Any, Any]]:
    """Small numbers of mixed sign."""
    rng = np.random.default_rng(len(shapes))
    drawn = []
    for k, shape in enumerate(shapes):
        dtype = np.dtype(dtypes[k % len(dtypes)])
        low = 0 if dtype.kind in "ub" else -3
        values = (
            rng.integers(low, 2 if dtype.kind == "b" else 4, shape) if dtype.kind in "iub" else rng.uniform(-1, 1, shape)
        )
        drawn.append(np.asarray(values + 1j * rng.uniform(-1, 1, shape) if dtype.kind == "c" else values, dtype))
    return drawn


def check(found: Any, expected: Any) -> None:
    """Equal in kind, type and shape, and but for roundoff in value."""
    assert type(found) is type(expected)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    if found.dtype.kind in "iub":
        np.testing.assert_array_equal(found, expected)
    else:
        single = found.dtype.itemsize // (2 if found.dtype.kind == "c" else 1) < 8
        tolerance = 5e-3 if found.dtype == np.float16 else 1e-4 if single else 1e-11
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def test_the_table_is_long() -> None:
    """At least 200 different equations or shapes, up to 13 operands."""
    assert len({(text, tuple(shapes)) for text, shapes in EQUATIONS}) == len(EQUATIONS) >= 200
    assert max(len(shapes) for _, shapes in EQUATIONS) == 13


@pytest.mark.parametrize(
    ("text", "shapes"), EQUATIONS, ids=[f"{text} {shapes}".replace(" ", "") for text, shapes in EQUATIONS]
)
def test_an_equation_equals_numpy(text: str, shapes: list[tuple[int, ...]], how: dict[str, Any]) -> None:
    """In value, type and shape, for numpy arrays."""
    operands = draw(shapes)
    # In one loop nest numpy takes minutes for many operands; in steps it makes arrays of scalars.
    expected = np.einsum(text, *operands) if len(shapes) < 7 else np.einsum(text, *operands, optimize=True)[()]
    check(fe.contract(text, *operands, **how), expected)


@pytest.mark.parametrize(
    "form",
    [
        (A, [0, 1], B, [1, 2]),
        (A, [0, 1], B, [1, 2], [2, 0]),
        (A, [30, 7], B, [7, ...], [..., 30]),
        (A, [0, ...]),
        (A, [0, 0j]),
    ],
    ids=["implicit", "explicit", "ellipsis", "ellipsis without output", "no index"],
)
def test_the_interleaved_form_equals_numpy(form: tuple[Any, ...], how: dict[str, Any]) -> None:
    """Operands, each followed by a list of indices; whatever else is in a list is refused."""
    if form[1] == [0, 0j]:
        with pytest.raises(fe.SubscriptError, match="0j in operand 0 is not an index"):
            fe.contract(*form, **how)
    else:
        check(fe.contract(*form, **how), np.einsum(*form))


TYPES = """
float32 | complex64 | complex128 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 | bool
float16 | float32 float64 | float32 int32 | float32 int8 | int8 uint8 | uint64 int64 | complex64 float64
complex64 float32 | complex64 int16 | bool int8 | bool float32 | bool complex64 | float16 float32
float16 int8 | float16 complex64 | bool float16 | int32 bool
"""


@pytest.mark.parametrize("dtypes", [x.split() for x in TYPES.strip().replace("\n", "|").split("|")], ids=" ".join)
@pytest.mark.parametrize(
    ("text", "shapes"),
    [("ij,jk->ik", [(3, 4), (4, 5)]), ("ij,jk,kl,l->i", [(3, 4), (4, 5), (5, 2), (2,)])],
    ids=["two", "four"],
)
def test_types_are_those_of_numpy(text: str, shapes: list[Any], dtypes: list[str], how: dict[str, Any]) -> None:
    """Alone and mixed; results in between are of the type of the result, so that none overflows that would not in numpy."""
    operands = draw(shapes, dtypes)
    check(fe.contract(text, *operands, **how), np.einsum(text, *operands))


def test_what_is_in_between_does_not_overflow(how: dict[str, Any]) -> None:
    """Products of int8 within a float64 sum, along any path."""
    small = np.full((3, 3), 100, np.int8)
    for optimize in (True, False, [(0, 1), (0, 1)]):
        found = fe.contract("ij,jk,k->i", small, small, np.ones(3), optimize=optimize, **how)
        check(found, np.einsum("ij,jk,k->i", small, small, np.ones(3)))


def test_sums_of_many_booleans_are_true(how: dict[str, Any]) -> None:
    """However often the sum of as many ones would have wrapped around."""
    check(fe.contract("i->", np.ones(1 << 16, bool), **how), np.True_)


@pytest.mark.parametrize(
    ("dtype", "casting"), [("float32", "same_kind"), ("complex128", "safe"), ("int32", "unsafe"), (None, "no")]
)
def test_the_type_to_compute_in_can_be_chosen(dtype: Any, casting: str, how: dict[str, Any]) -> None:
    """As in numpy, within the rule for conversions."""
    a, b = 5 * A, 5 * B
    check(
        fe.contract("ij,jk", a, b, dtype=dtype, casting=casting, **how),
        np.einsum("ij,jk", a, b, dtype=dtype, casting=casting),
    )


@pytest.mark.parametrize(
    "optimize",
    [
        False,
        True,
        "greedy",
        "optimal",
        "auto",
        "dp",
        [(1, 2), (0, 1)],
        [(0, 1, 2)],
        ["einsum_path", (0, 1), (0, 1)],
        [(0,), (0, 1), (0, 1)],
    ],
    ids=str,
)
def test_every_path_leads_to_the_result(optimize: Any, how: dict[str, Any]) -> None:
    """Strategies of numpy and opt_einsum, and paths written out."""
    check(fe.contract("ij,jk,kl->il", A, B, C, optimize=optimize, **how), A @ B @ C)


def test_optimizers_of_opt_einsum_and_limits_of_numpy_are_taken(how: dict[str, Any]) -> None:
    """An object, and a pair of strategy and largest intermediate."""
    for optimize in (opt_einsum.DynamicProgramming(), ("greedy", 100)):
        check(fe.contract("ij,jk,kl->il", A, B, C, optimize=optimize, **how), A @ B @ C)


def test_numbers_and_lists_are_operands(how: dict[str, Any]) -> None:
    """With numpy arrays, or alone; the result without axes is a number, as in numpy."""
    for operands in (
        ("ij,->ij", A, 2),
        ("i,->i", [1, 2, 3], 0.5),
        (",", 2.0, 3),
        ("i,i", [1, 2], [3, 4]),
        ("ij->ji", [[1, 2]]),
    ):
        check(fe.contract(*operands, **how), np.einsum(*operands))


@pytest.mark.parametrize("order", ["C", "F", "A", "K"])
def test_the_layout_of_the_result_can_be_chosen(order: str, how: dict[str, Any]) -> None:
    """Results are C-contiguous, or in Fortran order where that is asked for."""
    a, b = np.asfortranarray(A), np.asfortranarray(B)
    found = fe.contract("ij,jk->ik", a, b, order=order, **how)
    check(found, A @ B)
    assert found.flags.f_contiguous == (order in "FA")
    assert fe.contract("ij,jk->ik", A, b, order=order, **how).flags.f_contiguous == (order == "F")


def test_results_go_where_the_caller_wants_them(how: dict[str, Any]) -> None:
    """Of another type and layout as well, where the rule for conversions allows it; also over an operand."""
    square = np.arange(9.0).reshape(3, 3)
    product = square @ square
    for out in (
        np.empty((3, 3)),
        np.empty((3, 3), order="F"),
        np.empty((3, 3), "complex128"),
        np.empty((6, 6))[::2, ::2],
        square,
    ):
        assert (
            fe.contract("ij,jk->ik", square.copy() if out is not square else square, square.copy(), out=out, **how) is out
        )
        np.testing.assert_allclose(out, product)
    total = np.empty(())
    assert fe.contract("ij->", A, out=total, **how) is total
    np.testing.assert_allclose(total, A.sum())


LAYOUTS = {
    "C": lambda x: x,
    "Fortran": np.asfortranarray,
    "sliced": lambda x: np.stack([x, -x], axis=-1)[..., 0],
    "reversed": lambda x: x[::-1].copy()[::-1],
    "expanded": lambda x: np.broadcast_to(x[:1], x.shape),
    "byte order": lambda x: x.astype(">f8"),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_arrays_of_any_layout(layout: Any, how: dict[str, Any]) -> None:
    """Order, strides and the order of bytes do not matter."""
    a, b = layout(A), layout(B)
    check(fe.contract("ij,jk->ik", a, b, **how), np.einsum("ij,jk->ik", a, b))


@pytest.fixture
def queue(cpu: Device) -> cl.CommandQueue:
    """A queue of the user's own."""
    return cl.CommandQueue(cpu.context)


def test_device_arrays_stay_on_the_device(
    queue: cl.CommandQueue, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fortran order is used where it is; in between nothing is copied; the result is on the queue of the operands."""
    a, b, c = cla.to_device(queue, np.asfortranarray(A)), cla.to_device(queue, B), cla.to_device(queue, C)

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("something was copied")

    fe.contract("ij,jk,kl->il", a, b, c, optimize="optimal", database=how["database"])  # checks its kernels once
    with monkeypatch.context() as patch:
        for name in ("enqueue_copy", "enqueue_map_buffer"):
            patch.setattr(cl, name, refuse)
        found = fe.contract("ij,jk,kl->il", a, b, c, optimize="optimal", database=how["database"])
    assert isinstance(found, cla.Array)
    assert found.queue == queue
    np.testing.assert_allclose(found.get(), A @ B @ C)


def test_device_arrays_of_any_layout_and_results(queue: cl.CommandQueue, how: dict[str, Any]) -> None:
    """Strided operands, numbers beside them, conversions, and results in either order or in an array of the caller's."""
    wide = cla.to_device(queue, np.pad(A, 1))[1:-1, 1:-1]
    b = cla.to_device(queue, B)
    np.testing.assert_allclose(fe.contract("ij,jk->ik", wide, b, **how).get(), A @ B)
    np.testing.assert_allclose(fe.contract("ij,,jk->ik", wide, 2.0, b, **how).get(), 2 * A @ B)
    mixed = fe.contract(
        "ij,jk,kl->il", cla.to_device(queue, A.astype(np.float32)), b, cla.to_device(queue, C), optimize="optimal", **how
    )
    assert mixed.dtype == np.float64
    np.testing.assert_allclose(mixed.get(), A @ B @ C, rtol=1e-5)
    assert fe.contract("ij->", b, **how).shape == ()
    fortran = fe.contract("ij,jk->ik", wide, b, order="F", **how)
    assert fortran.flags.f_contiguous
    for out in (cla.empty(queue, (3, 5), np.float64), cla.empty(queue, (3, 5), np.float64, order="F")):
        assert fe.contract("ij,jk->ik", wide, b, out=out, **how) is out
        assert out.events
        host = out.T.get().T if out.flags.f_contiguous else out.get()
        np.testing.assert_allclose(host, A @ B)


@pytest.mark.parametrize("optimize", [True, False, "optimal"])
def test_real_device_arrays_give_complex_results_on_demand(
    optimize: Any, queue: cl.CommandQueue, how: dict[str, Any]
) -> None:
    """Also in an array of the caller's."""
    arrays = [cla.to_device(queue, x) for x in (A.astype(np.float32), B, C)]
    out = cla.empty(queue, (3, 2), np.complex128)
    for room in (None, out):
        found = fe.contract("ij,jk,kl->il", *arrays, out=room, dtype="complex128", optimize=optimize, **how)
        assert found.dtype == np.complex128
        np.testing.assert_allclose(found.get(), A @ B @ C, rtol=1e-5)


def test_kernels_for_small_arrays_are_proved_with_small_arrays(
    how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though kernels are made for lengths that many shapes share, of which the array here would have 32⁶ entries."""
    proved = []

    class Recorded(Workload):
        def __init__(self, e: fe.BatchedEinsum, lengths: Mapping[str, int], *others: Any) -> None:
            proved.append([math.prod(lengths[x] for x in letters) for letters in e.array_indices.values()])
            super().__init__(e, lengths, *others)

    monkeypatch.setattr("feinsum.validate.Workload", Recorded)
    x = np.ones((2, 2, 2, 2, 3, 1))
    check(fe.contract("aaaabc->bc", x, **how), np.einsum("aaaabc->bc", x))
    assert proved
    assert max(max(sizes) for sizes in proved) <= 1 << 20


REFUSALS: dict[str, tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = {
    "lengths": (("ij,jk", A, C), {}, fe.ShapeError, "index 'j' is 4 in operand 0 but 5 in operand 1 of 'ij,jk'"),
    "diagonal": (
        ("ii,i", A[:1, :3], [1]),
        {},
        fe.ShapeError,
        "index 'i' is 1 and 3 in operand 0 of 'ii,i'; make them equal",
    ),
    "rank": (("ij,j", A, B), {}, fe.SubscriptError, "operand 1 is 'j' in 'ij,j' but has 2 axes"),
    "number": (("ij,j", A), {}, fe.SubscriptError, "'ij,j' has 2 operands but 1 were given"),
    "output": (("i->ii", [1]), {}, fe.SubscriptError, "output index 'i' occurs 2 times"),
    "no operand": ((A,), {}, fe.SubscriptError, "contract takes subscripts and operands, or operands each followed by"),
    "object": (("i->", np.array([None])), {}, fe.DTypeError, "operand 0 is object; convert it to one of float32, float64"),
    "text": (("i->", ["a"]), {}, fe.DTypeError, "operand 0 is <U1; convert it"),
    "long double": (("i->", np.ones(3, "longdouble")), {}, fe.DTypeError, "operand 0 is float128; convert it"),
    "type": (
        ("ij->", A),
        {"dtype": "float32"},
        fe.DTypeError,
        "operand 0 is float64, which is not cast to float32 by the rule 'safe'",
    ),
    "no such type": (
        ("i->", [1]),
        {"dtype": "longdouble"},
        fe.DTypeError,
        "the result would be float128; it can be one of",
    ),
    "casting": (("ij->", A), {"casting": "maybe"}, fe.ValidationError, "casting is 'maybe'; it is one of no, equiv, safe"),
    "no type at all": (("ij->", A), {"dtype": "real"}, fe.DTypeError, "dtype is 'real', which is no data type: data type"),
    "limit of memory": (
        ("ij,jk,kl", A, B, C),
        {"memory_limit": "little"},
        fe.ValidationError,
        "memory_limit is 'little'; it is a number of elements, -1 or None for no limit, or 'max_input'",
    ),
    "no memory": (("ij,jk,kl", A, B, C), {"memory_limit": 0}, fe.ValidationError, "memory_limit is 0; it is a number"),
    "order": (("ij->", A), {"order": "Z"}, fe.ValidationError, "order is 'Z'; it is 'C', 'F', 'A' or 'K'"),
    "shape of out": (("ij->i", A), {"out": np.ones(4)}, fe.ShapeError, "out has shape (4,) but the result has (3,)"),
    "type of out": (
        ("ij->i", A),
        {"out": np.ones(3, int)},
        fe.DTypeError,
        "out is int64, to which float64 is not cast by the rule 'safe'",
    ),
    "list as out": (("ij->i", A), {"out": [1, 2, 3]}, fe.ValidationError, "out is a list; pass a numpy array"),
    "read-only out": (("ij->i", A), {"out": np.broadcast_to(1.0, 3)}, fe.ValidationError, "out is read-only"),
    "strategy": (
        ("ij,jk,kl", A, B, C),
        {"optimize": "magic"},
        fe.SubscriptError,
        "optimize is 'magic', which opt_einsum does not know",
    ),
    "step": (
        ("ij,jk,kl", A, B, C),
        {"optimize": [(0, 3), (0, 1)]},
        fe.SubscriptError,
        "a step of the path takes (0, 3) where there are 3",
    ),
    "end of path": (("ij,jk,kl", A, B, C), {"optimize": [(0, 1)]}, fe.SubscriptError, "the path leaves 2 operands"),
}


@pytest.mark.parametrize(("operands", "options", "kind", "message"), REFUSALS.values(), ids=REFUSALS)
def test_refusals_say_why(
    operands: tuple[Any, ...], options: dict[str, Any], kind: type[Exception], message: str, how: dict[str, Any]
) -> None:
    """What is at fault, what it is, and what it may be."""
    with pytest.raises(kind) as error:
        fe.contract(*operands, **options, **how)
    assert message in str(error.value)


def test_device_arrays_that_cannot_be_used_are_refused(queue: cl.CommandQueue, how: dict[str, Any]) -> None:
    """Beside numpy arrays, of types that devices do not compute with, and as results that are strided."""
    a = cla.to_device(queue, A)
    with pytest.raises(fe.ValidationError, match="operand 1 is a ndarray but others are pyopencl arrays; pass all of one"):
        fe.contract("ij,jk", a, B, **how)
    with pytest.raises(fe.DTypeError, match="operand 0 is a device array of float16; convert it to float32"):
        fe.contract("ij->", cla.to_device(queue, A.astype("float16")), **how)
    with pytest.raises(fe.ValidationError, match="out is a ndarray; pass a pyopencl array, as the operands are"):
        fe.contract("ij->i", a, out=np.empty(3), **how)
    with pytest.raises(fe.ValidationError, match="out is not contiguous"):
        fe.contract("ij->ij", a, out=cla.empty(queue, (3, 8), np.float64)[:, ::2], **how)
    with pytest.raises(fe.DTypeError, match="out is float32 but the result is float64"):
        fe.contract("ij->i", a, out=cla.empty(queue, 3, np.float32), **how)


def test_an_expression_is_evaluated_many_times(how: dict[str, Any], queue: cl.CommandQueue) -> None:
    """Shapes are said beforehand; arrays of either library, any type, and a place for the result come with the call."""
    expression = fe.contract_expression("ij,jk,kl,lm->im", A.shape, B.shape, C.shape, (2, 2), **how)
    assert expression.shape == (3, 2)
    assert repr(expression) == "<ContractExpression ij,jk,kl,lm->im of (3, 4), (4, 5), (5, 2), (2, 2)>"
    for seed in range(2):
        operands = draw([A.shape, B.shape, C.shape, (2, 2)]) if seed else [A, B, C, np.eye(2)]
        expected = np.einsum("ij,jk,kl,lm->im", *operands)
        check(expression(*operands), expected)
        np.testing.assert_allclose(expression(*(cla.to_device(queue, x) for x in operands)).get(), expected)
    out = np.empty((3, 2))
    assert expression(A, B, C, np.eye(2), out=out) is out
    with pytest.raises(fe.ShapeError, match=r"operand 1 of 'ij,jk,kl,lm->im' has shape \(3, 4\), not \(4, 5\)"):
        expression(A, A, C, np.eye(2))
    with pytest.raises(fe.ShapeError, match="takes 4 arrays besides its constants, not 1"):
        expression(A)
    with pytest.raises(fe.ShapeError, match="index 'j' is 4 in operand 0 but 5 in operand 1"):
        fe.contract_expression("ij,jk->ik", (3, 4), (5, 2))


@pytest.mark.parametrize("shape", [4, (4, -1), (4, 2.0), (4, "E"), (4, None)], ids=str)
def test_shapes_that_are_none_are_refused(shape: Any) -> None:
    """As the expression is made, and so are names of types and lists of constants."""
    with pytest.raises(fe.ShapeError, match=re.escape(f"operand 1 is {shape!r}; give its shape, as in (3, 4), or an")):
        fe.contract_expression("ij,jk->ik", (3, 4), shape)
    with pytest.raises(fe.ShapeError, match=re.escape("constants is 1; it is a list of numbers of operands, as [1]")):
        fe.contract_expression("ij,jk->ik", (3, 4), B, constants=1)  # type: ignore[arg-type]
    with pytest.raises(fe.DTypeError, match="dtype is 'real', which is no data type"):
        fe.contract_expression("ij,jk->ik", (3, 4), (4, 2), dtype="real")
    with pytest.raises(fe.ValidationError, match="casting is 'maybe'"):
        fe.contract_expression("ij,jk->ik", (3, 4), (4, 2), casting="maybe")


@pytest.mark.parametrize("constants", [{"constants": [1, 2]}, {}], ids=["named", "seen"])
def test_constants_are_contracted_once(
    constants: dict[str, Any], how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two constants become one result on the device, which later calls take from there."""
    from feinsum.contract.evaluation import StepByStep

    expression = fe.contract_expression("ij,jk,kl->il", A.shape, B, C, optimize=[(1, 2), (0, 1)], **constants, **how)
    assert "constant [1, 2]" in repr(expression)
    check(expression(A), A @ B @ C)
    steps: list[Any] = []
    original = StepByStep._step
    monkeypatch.setattr(StepByStep, "_step", lambda self, task, *more: steps.append(task) or original(self, task, *more))
    check(expression(2 * A), 2 * A @ B @ C)
    assert [task.step.positions for task in steps] == [(0, 1)]
    with pytest.raises(fe.ShapeError, match="constants has 7, but the 3 operands are numbered from 0"):
        fe.contract_expression("ij,jk,kl->il", A.shape, B, C, constants=[7])


def test_a_plan_is_small() -> None:
    """Neighbours become one axis, and axes of length one none."""
    (step,) = make_plan("abcd,cdef->abef", [(2, 3, 4, 5), (4, 5, 6, 7)]).steps
    assert (step.subscripts, step.shapes) == ("ab,bc->ac", ((6, 20), (20, 42)))
    (step,) = make_plan("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 1)]).steps
    assert (step.subscripts, step.shapes) == ("abc,dc->adb", ((2, 3, 4), (5, 4)))
    plan = make_plan("ab,bc,cd,de->ae", [(2, 300), (300, 4), (4, 5), (5, 6)])
    assert [len(step.positions) for step in plan.steps] == [2, 2, 2]


def test_what_was_tuned_is_used(how: dict[str, Any], cpu: Device, tmp_path: Path) -> None:
    """A record of the same pattern serves the arrays of a contraction, whatever their lengths."""
    from test_ladder import BEST, add

    store = str(tmp_path / "records.sqlite")
    e = fe.einsum("ij,jk->ik", fe.array("A", ("N", "M")), fe.array("B", ("M", "K")))
    record = add(store, e, cpu, {"N": 512, "M": 512, "K": 512}, BEST)
    check(fe.contract("xy,yz->xz", A, B, device=cpu, database=store), A @ B)
    described = fe.einsum("ab,bc->ac", *(fe.array(name, (float("inf"),) * 2) for name in ("a0", "a1")))
    assert fe.generate(described, cpu, store, dict.fromkeys("abc", 32)).record == record


@st.composite
def equations(draw_from: st.DrawFn) -> tuple[str, list[tuple[int, ...]], list[str]]:
    """Subscripts, shapes and types of up to five operands, in which any axis may be one long, and ellipses broadcast."""
    lengths = {x: draw_from(st.integers(0, 4)) for x in "abcde"}
    terms = [
        "".join(draw_from(st.lists(st.sampled_from("abcde"), max_size=3))) for _ in range(draw_from(st.integers(1, 5)))
    ]
    common = draw_from(st.lists(st.integers(0, 3), max_size=2)) if draw_from(st.booleans()) else None
    shapes, texts = [], []
    for term in terms:
        shrunk = {x: draw_from(st.sampled_from([lengths[x], lengths[x], 1])) for x in dict.fromkeys(term)}
        shape, at = [shrunk[x] for x in term], draw_from(st.integers(0, len(term)))
        extra = None if common is None else common[draw_from(st.integers(0, len(common))) :]
        if extra is not None:
            shape[at:at] = [draw_from(st.sampled_from([n, 1])) for n in extra]
        texts.append(term if extra is None else f"{term[:at]}...{term[at:]}")
        shapes.append(tuple(shape))
    used = sorted(set("".join(terms)))
    output = "".join(draw_from(st.permutations(used))[: draw_from(st.integers(0, len(used)))])
    dtypes = draw_from(
        st.lists(st.sampled_from(["float64", "float32", "complex64", "int32", "bool"]), min_size=1, max_size=2)
    )
    return f"{','.join(texts)}->{'' if common is None else '...'}{output}", shapes, dtypes


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(drawn=equations())
def test_random_equations_equal_numpy(drawn: tuple[str, list[tuple[int, ...]], list[str]], how: dict[str, Any]) -> None:
    """Whatever the grammar, the lengths and the types."""
    text, shapes, dtypes = drawn
    operands = draw(shapes, dtypes)
    check(fe.contract(text, *operands, **how), np.einsum(text, *operands))
