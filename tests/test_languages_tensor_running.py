"""Arrays of callers of compiled functions: what fits, what is copied, what is promised, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyopencl.array as cla
import pytest

import feinsum as fe
from feinsum.compile import text_kernel
from feinsum.errors import DeviceError, DTypeError, LanguageError, ShapeError, ValidationError
from feinsum.languages.calling.protocols import ProgramCall
from feinsum.languages.tensor.lowering.target import Target
from feinsum.languages.tensor.running.kernel_route import GeneralKernel
from feinsum.languages.trying import try_out

SCALE = """func @scale(%s: f32, %x: memref<f32x3x?>, %y: memref<f32x3x?,strided<1,?>> {stride_gcd=[1,2]}) {
    %id = builtin.group_id : index
    %a = subview %x[0:3, %id] : memref<f32x3>
    %b = subview %y[0:3, %id] : memref<f32x3>
    %0 = constant 0.0 : f32
    axpby.n %s, %a, %0, %b
}"""


@pytest.fixture(scope="module")
def scale(cpu: fe.Device) -> fe.Built:
    return fe.build(fe.program(SCALE), device=cpu, route="general")


def ones(*shape: int, order: Any = "F") -> Any:
    return np.ones(shape, np.float32, order)


@pytest.mark.parametrize("x", [ones(3, 5), ones(3, 5, order="C"), ones(5, 3).T, ones(6, 10)[::2, ::2], ones(3, 10)[:, ::2]])
@pytest.mark.parametrize("y", [ones(4, 5)[:3], ones(3, 5), ones(5, 3, order="C").T])
def test_arrays_lie_anyhow(scale: fe.Built, x: Any, y: Any) -> None:
    """What does not lie as the type says is copied, and copied back; nothing else of an array is touched."""
    y = y.copy(order="K") if y.base is None else y.base[:3] if y.base.shape == (4, 5) else y
    y[...] = 0
    assert scale(s=2.0, x=x, y=y) is y
    np.testing.assert_array_equal(y, np.full((3, 5), 2.0))
    if y.base is not None and y.base.shape == (4, 5):
        assert (y.base[3] == 1).all()


def test_a_work_group_takes_several_small_instances(cpu: fe.Device) -> None:
    """If enough groups are left; the last one takes what there is."""
    program, units = fe.program(SCALE), cpu.profile.compute_units
    kernel = GeneralKernel(program.function(), program.source, cpu, target=Target(4, (32, 1)))
    many = 4 * 64 * units + 1
    assert [kernel.chunk(count) for count in (1, 64 * units, 2 * 64 * units, many, 100 * many)] == [1, 1, 2, 4, 4]
    x = np.asarray(np.arange(3.0 * many).reshape((3, many), order="F"), np.float32, order="F")
    y = np.zeros((3, many), np.float32, order="F")
    kernel.call(ProgramCall({"s": 2.0, "x": x, "y": y}))
    np.testing.assert_array_equal(y, 2 * x)
    large = fe.program(SCALE.replace("x3", "x129").replace("0:3", "0:129"))
    assert GeneralKernel(large.function(), large.source, cpu, target=Target(4, (32, 1))).chunk(100 * many) == 1


def test_arrays_on_the_device(scale: fe.Built, cpu: fe.Device) -> None:
    """Those in order F are used where they are; written ones have to be."""
    x, whole = cla.to_device(cpu.queue, ones(3, 4)), cla.zeros(cpu.queue, (4, 4), np.float32, order="F")
    y = whole[:3]
    assert scale(s=3.0, x=x, y=y) is y
    np.testing.assert_array_equal(whole.get(), [[3.0] * 4] * 3 + [[0.0] * 4])
    assert "copied" not in scale.explain()
    scale(s=2.0, x=cla.to_device(cpu.queue, ones(3, 4, order="C")), y=y)
    np.testing.assert_array_equal(whole.get(), [[2.0] * 4] * 3 + [[0.0] * 4])
    assert "copied: %x lies in another order" in scale.explain()
    with pytest.raises(ValidationError, match=r"%y lies with strides of .* make it in order F"):
        scale(s=2.0, x=x, y=cla.zeros(cpu.queue, (3, 4), np.float32))


REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"x": ones(4, 5)}, ShapeError, r"%x is memref<f32x3x\?>, but its argument has the shape \(4, 5\)"),
    ({"x": np.ones((3, 5))}, DTypeError, "%x holds f32, but its argument is float64"),
    ({"x": [1.0]}, ValidationError, "pass an array of numpy or pyopencl"),
    ({"s": 1j}, DTypeError, "%s is f32"),
    ({"z": 1}, ValidationError, "@scale has no parameter %z"),
    ({"x": ones(3, 4)}, ValidationError, "how often @scale runs is not clear"),
    ({"count": 6}, ValidationError, "count is 6, and mode 1 of %x has the size 5"),
    ({"count": -1}, ValidationError, "cannot be negative"),
]


@pytest.mark.parametrize(("changed", "error", "message"), REFUSED, ids=[message[:20] for _, _, message in REFUSED])
def test_what_does_not_fit_is_refused(
    scale: fe.Built, changed: dict[str, Any], error: type[Exception], message: str
) -> None:
    """Before anything is launched."""
    y = np.zeros((3, 5), np.float32, "F")
    with pytest.raises(error, match=message.replace("how often @scale runs is not clear", "count is|not clear")):
        scale({"s": 1.0, "x": ones(3, 5), "y": y, **{k: v for k, v in changed.items() if k != "count"}},
              count=changed.get("count"))  # fmt: skip
    assert not y.any()


def test_memory_is_not_shared_and_not_read_only(scale: fe.Built, cpu: fe.Device) -> None:
    """A result is no part of an operand."""
    whole = ones(3, 6)
    with pytest.raises(ValidationError, match="arguments of %x and %y share memory that is written"):
        scale(s=1.0, x=whole[:, :5], y=whole[:, 1:])
    fixed = ones(4, 5)[:3]
    fixed.flags.writeable = False
    with pytest.raises(ValidationError, match="%y is written, but its argument is read-only"):
        scale(s=1.0, x=ones(3, 5), y=fixed)
    there = cla.to_device(cpu.queue, whole)
    with pytest.raises(ValidationError, match="share memory"):
        scale(s=1.0, x=there, y=there)


def test_promises_are_checked(cpu: fe.Device) -> None:
    """Divisors of sizes, and alignment: an array that begins elsewhere is copied."""
    text = (
        "func @f(%x: memref<f32x?> {alignment=64, shape_gcd=[4]}) {\n%two = constant 2.0 : f32\n%0 = constant 0.0 : f32\n\
axpby.n %two, %x, %0, %x\n}"
    )
    kernel = fe.build(fe.program(text), device=cpu)
    with pytest.raises(ValidationError, match="%x promises that 4 divides the size of mode 0, which is 6"):
        kernel(x=ones(6))
    raw = np.ones(64, np.float32)
    start = (-raw.ctypes.data // 4) % 16
    for first in (start, start + 1):
        x = raw[first : first + 8]
        kernel(x=x)
        assert ("copied" in kernel.explain()) == (first != start)
    np.testing.assert_array_equal(raw[start : start + 9], [2, *[4] * 7, 2])


def test_groups_of_arrays(cpu: fe.Device) -> None:
    """Separate arrays and parts of one, of different sizes."""
    text = """func @f(%G: group<memref<f64x?x2>x?>, %n: memref<index x?>) {
        %id = builtin.group_id : index
        %g = load %G[%id] : memref<f64x?x2>
        %rows = size %g[0] : index
        store %rows, %n[%id]
        %two = constant 2.0 : f64
        %0 = constant 0.0 : f64
        axpby.n %two, %g, %0, %g
    }""".replace("index x?", "indexx?")
    kernel = fe.build(fe.program(text), device=cpu)
    apart = [np.full((k, 2), float(k)) for k in (1, 5, 3)]
    sizes = np.zeros(3, np.int64)
    kernel(G=apart, n=sizes)
    assert sizes.tolist() == [1, 5, 3]
    assert all((array == 2 * k).all() for array, k in zip(apart, (1, 5, 3), strict=True))
    whole = np.ones((4, 2, 3))
    kernel(G=[whole[k].T for k in (0, 2, 3)], n=sizes)
    np.testing.assert_array_equal(whole, np.array([2.0, 1, 2, 2])[:, None, None] * np.ones((4, 2, 3)))
    assert "copied" not in kernel.explain()


def test_indices_are_checked_if_asked(cpu: fe.Device) -> None:
    """The first that is out of bounds is said, and nothing is written there."""
    text = "func @f(%x: memref<f32x4>, %i: index, %v: f32) {\nstore %v, %x[%i]\n}"
    kernel = fe.build(fe.program(text), device=cpu, check="bounds")
    kernel(x=ones(4), i=3, v=2.0)
    for index in (4, -1):
        with pytest.raises(LanguageError, match=r"<text>:2:1: error: an index is out of bounds here \[run-bounds\]"):
            kernel(x=ones(4), i=index, v=2.0)


def test_allocas_that_are_too_large_lie_in_global_memory(cpu: fe.Device) -> None:
    """As large as local memory, or the stack of a thread, is not."""
    text = """func @f(%x: memref<f32x400x400>, %y: memref<f32x400x400>) {
        %1 = constant 1.0 : f32
        %0 = constant 0.0 : f32
        %t = alloca : memref<f32x400x400,local>
        axpby.t %1, %x, %0, %t
        axpby.n %1, %t, %0, %y
    }"""
    program = fe.program(text)
    for target in (None, Target(4, (8, 1))):
        x, y = (
            np.asfortranarray(np.random.default_rng(0).random((400, 400), np.float32)),
            np.zeros((400, 400), np.float32, "F"),
        )
        GeneralKernel(program.function(), program.source, cpu, target=target).call(ProgramCall({"x": x, "y": y}, 1))
        np.testing.assert_array_equal(y, x.T)


def test_work_groups_that_the_device_cannot_have(cpu: fe.Device) -> None:
    """Are refused before anything is compiled."""
    sizes = "attributes{subgroup_size=32, work_group_size=[32768,1]}"
    text = f"func @f() {sizes} {{\nparallel {{\n%i = builtin.subgroup_id : i32\n}}\n}}"
    with pytest.raises(DeviceError, match="@f wants work-groups of 32768 work-items"):
        fe.build(fe.program(text), device=cpu)


MEETING = """
    axpby.n %one, %A, %one, %B
    axpby.n %one, %B, %one, %A
"""


@pytest.mark.parametrize(
    ("body", "id_", "optimised"),
    [
        ("if %yes {" + MEETING + "}", "cpu:pocl:some:2cu", False),
        (MEETING + "if %yes { store %one, %C[%last] }", "cpu:pocl:some:2cu", True),
        ("if %yes {" + MEETING + "}", "cpu:intel:some:2cu", True),
    ],
    ids=["barrier in a branch", "branch without one", "another runtime"],
)
def test_pocl_does_not_optimise_barriers_in_branches(
    cpu: fe.Device, monkeypatch: pytest.MonkeyPatch, body: str, id_: str, optimised: bool
) -> None:
    """PoCL 3.1 moves code across them: of 12 random functions one ended it, of 150 one gave a wrong number."""
    build, options = text_kernel.build_program, list[str]()
    monkeypatch.setattr(text_kernel, "build_program", lambda *given: options.extend(given[2]) or build(*given))
    device: Any = SimpleNamespace(
        profile=replace(cpu.profile, id=id_), cl_device=cpu.cl_device, context=cpu.context, queue=cpu.queue
    )
    text = f"""func @f(%p: i32, %A: memref<i64x3>, %B: memref<i64x3>, %C: memref<i64x3>) {{
        %one = constant 1 : i64  %last = constant 2 : index  %yes = cmp.ge %p, %p : bool
        {body}
    }}"""
    program = fe.program(text)
    found, wanted = ({"p": 1, **{name: np.arange(3) for name in "ABC"}} for _ in range(2))
    GeneralKernel(program.function(), program.source, device, target=Target(4, (8, 1))).call(ProgramCall(found, 1))
    program.interpret(count=1, **wanted)
    np.testing.assert_array_equal(found["A"], wanted["A"])
    assert ("-cl-opt-disable" not in options) == optimised


@pytest.mark.parametrize(
    ("type_", "number"), [("f32", "1e300"), ("f32", "-3.4028236e38"), ("f16", "65520.0"), ("c32", "[1e39,-1e39]")]
)
def test_constants_beyond_their_type_are_infinite(type_: str, number: str, cpu: fe.Device) -> None:
    """As the interpreter has them, though they are finite in double precision."""
    text = f"func @f(%x: memref<{type_}x1>) {{ %i = constant 0 : index %k = constant {number} : {type_} store %k, %x[%i] }}"
    program, dtype = fe.program(text), {"f32": "float32", "f16": "float16", "c32": "complex64"}[type_]
    found, wanted = np.zeros(1, dtype), np.zeros(1, dtype)
    fe.build(program, device=cpu)(x=found)
    program.interpret(x=wanted)
    np.testing.assert_array_equal(found, wanted)
    assert not np.isfinite(found).any()


@pytest.mark.parametrize("type_", ["i8", "i16", "i32", "i64"])
def test_minima_of_integers_and_constants(type_: str, cpu: fe.Device) -> None:
    """In C a constant is wider than a narrow integer, which leaves open which min is meant."""
    text = f"""func @f(%a: {type_}, %x: memref<{type_}x2>) {{
        %i = constant 0 : index
        %j = constant 1 : index
        %k = constant 2 : {type_}
        %low = arith.min %k, %a : {type_}
        %high = arith.max %a, %k : {type_}
        store %low, %x[%i]
        store %high, %x[%j]
    }}"""
    x = np.zeros(2, f"i{int(type_[1:]) // 8}")
    np.testing.assert_array_equal(fe.build(text, device=cpu)(a=-5, x=x), [-5, 2])


TRIED = {
    "a length": "func @f(%n: index, %x: memref<f32x?>) { %z = constant 0 : index %one = constant 1.0 : f32 "
    "%m = arith.mul %n, %n : index %w = subview %x[%z:%m] : memref<f32x?> axpby.n %one, %w, %one, %w }",
    "sizes of groups": "func @f(%x: memref<i32x1>) { parallel { %z = constant 0 : index %r = num_subgroups : i32 "
    "%s = subgroup_size : i32 %t = arith.mul %r, %s : i32 store %t, %x[%z] } }",
}


@pytest.mark.parametrize("text", TRIED.values(), ids=list(TRIED))
def test_programs_are_tried_with_what_they_can_take(text: str, cpu: fe.Device) -> None:
    """A random length is not 0, and the interpreter has the work-groups of the kernel."""
    for seed in range(4):
        assert try_out(fe.program(text), device=cpu, seed=seed, check=True).deviation is not None
