"""Arrays of all kinds as arguments of programs of the three languages: read as what they are, or refused in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyopencl.array as cla
import pytest
from array_kinds import KINDS, library_of, make, shown

import feinsum as fe
from feinsum.errors import DTypeError, FeinsumError, ShapeError, ValidationError

TENSOR = "func @f(%A: memref<f32x?x?>, %B: memref<f32x?x?>, %C: memref<f32x?x?>) {"
GEMM = f"""{TENSOR}
    %one = constant 1.0 : f32  %zero = constant 0.0 : f32
    gemm.n.n %one, %A, %B, %zero, %C
}}"""
PADDED = GEMM.replace(TENSOR, "func @f(%A: memref<f32x5x4,strided<1,8>>, %B: memref<f32x4x3>, %C: memref<f32x5x3>) {")
A_TYPE, C_TYPE = "group<memref<f32x5x4>,pointers>", "group<memref<f32x5x3>,distance<15>>"
ITEMS = f"""define @f(%A: {A_TYPE}, %B: memref<f32x4x3>, %C: {C_TYPE}) {{
    %a = get_work_item %A : {A_TYPE}
    %c = get_work_item %C : {C_TYPE}
    log {{ik, kj to ij}} 1.0, %a, %B, 0.0, %c : memref<f32x5x4>, memref<f32x4x3> to memref<f32x5x3>
}}"""
_M = "memref<f32x4x4>"
SQUARE = f"""define @f(%A: {_M}, %B: {_M}, %C: {_M}) {{
    log {{ik, kj to ij}} 1.0, %A, %B, 0.0, %C : {_M}, {_M} to {_M}
}}"""
PROGRAMS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "einsum": ("A: Tensor<N, K; f32>\nB: Tensor<K, M; f32>\n"
               "C = compute (shape = [N, M]) |i, j| reduce (shape = [K], op = sum) |k| A[i, k] * B[k, j]", ()),
    "elements": ("A: Tensor<N, K; f32>\nB: Tensor<K, M; f32>\n"
                 "C = compute (shape = [N, M]) |i, j| 2 * A[N - 1 - i, 0] + tanh(B[0, j])", ()),
    "steps": ("A: Tensor<N, K; f32>\nB: Tensor<K, M; f32>\n"
              "P = compute (shape = [N, M]) |i, j| reduce (shape = [K], op = sum) |k| A[i, k] * B[k, j]\n"
              "C = compute (shape = [N, M]) |i, j| P[N - 1 - i, j] * A[i, 1]\nC", ()),
    "tensor": (GEMM, ("C",)),
    "tensor with gaps": (PADDED, ("C",)),
    "immediate": (SQUARE, ("C",)),
}  # fmt: skip
"""Programs of A and B that make or write C, and the parameters that they write."""
CALLS = [("einsum", "auto"), ("einsum", "general"), ("elements", "auto"), ("steps", "auto"), ("tensor", "general"),
         ("tensor", "einsum"), ("tensor with gaps", "general")]  # fmt: skip


def numbers(*shape: int) -> Any:
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


def given(name: str) -> dict[str, Any]:
    arguments = {"A": numbers(5, 4), "B": numbers(4, 3)}
    return arguments | {one: np.zeros((5, 3), np.float32) for one in PROGRAMS[name][1]}


def kind_of_written(kind: str) -> str:
    """The kind of written arrays in a call with arrays of a kind: on devices they lie in the order of the language."""
    return {"read-only": "order C", "device C": "device F", "device gaps": "device F"}.get(kind, kind)


@pytest.fixture(scope="module")
def kernels(cpu: fe.Device) -> dict[tuple[str, str], fe.Built]:
    return {(name, route): fe.build(PROGRAMS[name][0], device=cpu, route=route) for name, route in CALLS}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "route"), CALLS)
def test_arrays_are_read_as_what_they_are(
    cpu: fe.Device, kernels: dict[tuple[str, str], fe.Built], name: str, route: str, kind: str
) -> None:
    """Results are of the library of the arguments, and arrays that are written are those of the caller."""
    text, written = PROGRAMS[name]
    if written and kind == "jax":
        pytest.skip("arrays of JAX cannot be written")
    wanted = fe.program(text).interpret(**given(name))
    for _ in range(2):  # the second call may be one like an earlier one
        arguments = {k: make(kind_of_written(kind) if k in written else kind, v, cpu.queue) for k, v in given(name).items()}
        found = kernels[name, route](**arguments)
        assert library_of(found) == KINDS[kind]
        assert not written or found is arguments["C"]
        np.testing.assert_allclose(shown(found), wanted, rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def items(cpu: fe.Device) -> fe.Built:
    return fe.build(ITEMS, device=cpu)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("jax", "device gaps")])
def test_immediate_programs_take_arrays_of_any_kind(cpu: fe.Device, items: fe.Built, kind: str) -> None:
    """The items of a group are one array, or a list of arrays."""
    arguments = {"A": numbers(6, 5, 4), "B": numbers(4, 3), "C": np.zeros((6, 5, 3), np.float32)}
    wanted = arguments["A"] @ arguments["B"]
    for scattered in (False, True) if KINDS[kind] != "pyopencl" else (False,):
        mine = {k: make(kind_of_written(kind) if k == "C" else kind, v, cpu.queue) for k, v in arguments.items()}
        if scattered:
            mine["A"] = [make(kind, one, cpu.queue) for one in arguments["A"]]
        assert items(**mine) is mine["C"]
        np.testing.assert_allclose(shown(mine["C"]), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.startswith("device")])
@pytest.mark.parametrize("name", ["steps", "tensor"])
def test_interpreters_take_arrays_of_any_library(cpu: fe.Device, name: str, kind: str) -> None:
    """And refuse those of devices."""
    text, written = PROGRAMS[name]
    if written and kind == "jax":
        pytest.skip("arrays of JAX cannot be written")
    program = fe.program(text)
    arguments = {k: make(kind_of_written(kind) if k in written else kind, v, cpu.queue) for k, v in given(name).items()}
    found = program.interpret(**arguments)
    assert library_of(found) == KINDS[kind]
    np.testing.assert_allclose(shown(found), program.interpret(**given(name)), rtol=1e-6)
    with pytest.raises(ValidationError, match="'A' is a pyopencl array"):
        program.interpret(**{**arguments, "A": cla.to_device(cpu.queue, numbers(5, 4))})


@pytest.mark.parametrize("kind", ["order C", "misaligned", "torch", "DLPack", "device C"])
@pytest.mark.parametrize(("name", "route"), CALLS[:4])
@pytest.mark.parametrize("rows", [5, 3000])
def test_results_go_into_arrays_of_any_library(
    cpu: fe.Device, kernels: dict[tuple[str, str], fe.Built], name: str, route: str, rows: int, kind: str
) -> None:
    """Into small and large ones, and into a part of a buffer."""
    A, B = numbers(rows, 4), numbers(4, 3)
    wanted = fe.program(PROGRAMS[name][0]).interpret(A=A, B=B)
    out = make(kind, np.zeros_like(wanted), cpu.queue)
    if kind == "device C":
        out = cla.zeros(cpu.queue, (rows + 1, 3), np.float32)[1:]
    for _ in range(2):
        kernel = kernels[name, route]
        assert kernel(A=make(kind, A, cpu.queue), B=make(kind, B, cpu.queue), out=out) is out
        np.testing.assert_allclose(shown(out), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["order C", "torch", "device C", "device F"])
@pytest.mark.parametrize("name", ["einsum", "elements", "steps", "tensor", "immediate"])
def test_what_is_written_shares_no_memory_with_what_is_read(cpu: fe.Device, name: str, kind: str) -> None:
    """By one check, also where an earlier call with arrays of their own was right."""
    text, written = PROGRAMS[name]
    if kind == "device F" and not written:
        pytest.skip("results are in order C")
    A, B = (make(kind, numbers(4, 4), cpu.queue) for _ in range(2))
    kernel, out = fe.build(text, device=cpu), "C" if written else "out"
    C = make(kind_of_written(kind) if written else kind, np.zeros((4, 4), np.float32), cpu.queue)
    kernel(A=A, B=B, **{out: C})
    for _ in range(2):
        with pytest.raises(ValidationError, match=r"shares? memory"):
            kernel(A=A, B=B, **{out: A})
    np.testing.assert_array_equal(shown(A), numbers(4, 4))


SCALED = {
    "declarative": "x: Tensor<N, 3; f32>\na: f32\nk: i32\ny = compute (shape = [N, 3]) |i, j| a * x[i, j] + k",
    "tensor": "func @f(%x: memref<f32x?x3>, %a: f32, %k: i32) { axpby.n %a, %x, %a, %x }",
    "immediate": """define @f(%x: memref<f32x4x3>, %a: f32, %k: i32, %y: memref<f32x4x3>) {
    axpby {ij to ij} 2.0, %x, 0.0, %y : memref<f32x4x3> to memref<f32x4x3>\n}""",
}
"""Functions of an array and two numbers; that of the immediate language has an array for its result."""
MISTAKES: Mapping[str, tuple[dict[str, Any], type[Exception]]] = {
    "an axis too few": ({"x": numbers(3)}, ShapeError),
    "another length": ({"x": numbers(4, 2)}, ShapeError),
    "another type": ({"x": np.zeros((4, 3), np.float64)}, DTypeError),
    "a type of no language": ({"x": np.zeros((4, 3), np.complex64)}, DTypeError),
    "text for an array": ({"x": "abc"}, ValidationError),
    "no argument": ({"x": None}, ValidationError),
    "an unknown name": ({"z": 1}, ValidationError),
    "an array for a number": ({"a": numbers(3)}, ShapeError),
    "text for a number": ({"a": "abc"}, ValidationError),
    "an imaginary number": ({"a": 1j}, DTypeError),
    "half an integer": ({"k": 1.5}, DTypeError),
    "an integer of 32 bits": ({"k": 2**31}, ValidationError),
    "an integer of 70 bits": ({"k": 2**70}, ValidationError),
    "less than no instance": ({"count": -1}, ValidationError),
    "half an instance": ({"count": 1.5}, fe.ArgumentError),
}
"""Arguments that do not fit, and the class of their error."""


@pytest.fixture(scope="module")
def scaled(cpu: fe.Device) -> dict[tuple[str, str], fe.Built]:
    routes = ("auto", "general", "einsum")
    names = [(name, route) for name in SCALED for route in routes if (name, route) != ("tensor", "einsum")]
    return {(name, route): fe.build(SCALED[name], device=cpu, route=route) for name, route in names}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_one_mistake_has_one_class_of_error(scaled: dict[tuple[str, str], fe.Built], mistake: str) -> None:
    """In every language, interpreted or built by any route."""
    change, error = MISTAKES[mistake]
    for (name, route), kernel in scaled.items():
        arguments = {"x": numbers(4, 3), "a": 2.0, "k": 3}
        arguments |= {"y": numbers(4, 3)} if name == "immediate" else {}
        for call in (kernel, kernel.program.interpret):
            call(**arguments)
            with pytest.raises(FeinsumError) as caught:
                call(**{key: value for key, value in (arguments | change).items() if value is not None})
            assert caught.type is error, (name, route)


def test_lists_of_different_lengths_are_no_array(cpu: fe.Device) -> None:
    """Where the declarative language takes lists."""
    program = fe.program(PROGRAMS["steps"][0])
    for call in (program.interpret, fe.build(program, device=cpu)):
        with pytest.raises(ShapeError, match="argument 'A' is a list of lists of different lengths"):
            call(A=[[1.0], [2.0, 3.0]], B=numbers(4, 3))


def test_arrays_that_are_written_return_in_order_of_declaration(cpu: fe.Device) -> None:
    """Also where the program writes the last one first."""
    text = """func @f(%x: memref<f32x4>, %y: memref<f32x4>, %z: memref<f32x4>) {
        %one = constant 1.0 : f32  %zero = constant 0.0 : f32
        axpby.n %one, %x, %zero, %z
        axpby.n %one, %x, %one, %y
    }"""
    x = numbers(4)
    for route in ("general", "einsum"):
        y, z = np.ones(4, np.float32), np.ones(4, np.float32)
        found = fe.build(text, device=cpu, route=route)(x=x, y=y, z=z)
        assert found[0] is y, route
        assert found[1] is z, route


def test_arrays_that_no_program_takes_are_named(cpu: fe.Device) -> None:
    """Two libraries, immutable arrays that are written, tensors that want gradients, and arrays of another context."""
    import pyopencl as cl
    import torch

    kernel, gemm = fe.build(PROGRAMS["steps"][0], device=cpu), fe.build(GEMM, device=cpu, route="general")
    A, B, C = numbers(5, 4), numbers(4, 3), np.zeros((5, 3), np.float32)
    for other in ("torch", "jax", "device C"):
        with pytest.raises(ValidationError, match="two libraries are mixed"):
            kernel(A=make(other, A, cpu.queue), B=B)
    with pytest.raises(ValidationError, match="'C' is an array of JAX, which is immutable"):
        gemm(**{name: make("jax", value, cpu.queue) for name, value in {"A": A, "B": B, "C": C}.items()})
    with pytest.raises(ValidationError, match="'A' requires gradients"):
        kernel(A=torch.from_numpy(A).requires_grad_(), B=torch.from_numpy(B))
    with pytest.raises(ValidationError, match="out is a ndarray; pass a torch array"):
        kernel(A=torch.from_numpy(A), B=torch.from_numpy(B), out=C)
    context = cl.Context(cpu.context.devices)
    elsewhere = cl.CommandQueue(context)
    with pytest.raises(ValidationError, match="another context"):
        kernel(A=cla.to_device(elsewhere, A), B=cla.to_device(elsewhere, B))


REFUSED = {
    "declarative": ("x: Tensor<N; f32>\ny = x * 2", {"count": 1},
                    {"count": 1, "subgroup_size": 16, "work_group_size": (16, 1)}, {"check": "bounds", "sizes": {"N": 3}}),
    "immediate": ("define @f(%x: memref<f32x3>, %y: memref<f32x3>) {\n"
                  "axpby {i to i} 2.0, %x, 0.0, %y : memref<f32x3> to memref<f32x3>\n}", {"out": np.ones(3)},
                  {"subgroup_size": 16, "work_group_size": (16, 1)}, {"check": "bounds"}),
    "tensor": ("func @f(%x: memref<f32x?>) { %t = constant 2.0 : f32 %z = constant 0.0 : f32 axpby.n %t, %x, %z, %x }",
               {"out": np.ones(3)}, {}, {}),
}  # fmt: skip
"""A program, and keywords of calls, of interpretation and of building that mean nothing to its language."""


@pytest.mark.parametrize("language", REFUSED)
def test_keywords_without_a_meaning_are_refused(cpu: fe.Device, language: str) -> None:
    """And so are the names of passes that a language has not."""
    text, called, interpreted, built = REFUSED[language]
    program, x = fe.program(text, language), np.ones(3, np.float32)
    for name, value in built.items():
        with pytest.raises(ValidationError, match=f"{name}= means nothing"):
            fe.build(program, device=cpu, **{name: value})
    if "sizes" not in built:
        with pytest.raises(ValidationError, match="leaves no size Q open"):
            fe.build(program, device=cpu, sizes={"Q": 3})
    with pytest.raises(FeinsumError, match="sizes is 3; it has a length for each name"):
        fe.build(program, device=cpu, sizes=3)  # type: ignore[arg-type]
    kernel = fe.build(program, device=cpu)
    for keywords, call in ((called, kernel), (interpreted, program.interpret)):
        for name, value in keywords.items():
            with pytest.raises(ValidationError, match=f"{name}= means nothing"):
                call(x=x, **{name: value})
    for route in ("auto", "general", "einsum")[: 2 if language == "tensor" else 3]:
        with pytest.raises(ValidationError, match="there is no pass 'no such pass'"):
            fe.build(program, device=cpu, route=route).ir("no such pass")


@pytest.mark.parametrize("route", ["auto", "general", "einsum"])
def test_no_instance_writes_nothing(cpu: fe.Device, route: str) -> None:
    """Also where the function is an einsum of whole arrays; other routes run it as often as was asked."""
    arguments = given("tensor")
    kernel = fe.build(GEMM, device=cpu, route=route)
    if route == "einsum":
        with pytest.raises(ValidationError, match="count is 0, and an einsum without instances is computed once"):
            kernel(arguments, count=0)
    else:
        kernel(arguments, count=0)
    assert not arguments["C"].any()


@pytest.mark.parametrize("language", REFUSED)
def test_arguments_by_position_are_refused(cpu: fe.Device, language: str) -> None:
    """They have names; one may be taken for the name of a function otherwise."""
    program, x = fe.program(REFUSED[language][0], language), np.ones(3, np.float32)
    for call in (program.interpret, fe.build(program, device=cpu)):
        for given in ((x,), (x, x), (None, x)):
            with pytest.raises(fe.ArgumentError, match=r"arguments are passed by name, as in \(x=.*, not by position"):
                call(*given)
