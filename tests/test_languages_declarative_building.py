"""Programs of the declarative language on a device."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import declarative_programs as programs
import numpy as np
import pyopencl.array as cla
import pytest
from array_kinds import make, shown
from click.testing import CliRunner

import feinsum as fe
from feinsum.cli import cli
from feinsum.devices import Device
from feinsum.errors import DTypeError, LanguageError, ShapeError, ValidationError
from feinsum.languages.declarative.emitting.kernels import Spread
from feinsum.languages.declarative.running import builder

RNG = np.random.default_rng(7)


def numbers(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


PROGRAMS: dict[str, tuple[str, dict[str, Any], int]] = {
    "matrix product": (programs.MATMUL, {"A": numbers(13, 17), "B": numbers(17, 5)}, 1),
    "softmax": (programs.SOFTMAX, {"A": numbers(11, 37)}, 1),
    "layer norm": (programs.LAYER_NORM, {"A": numbers(9, 35), "gamma": numbers(35), "beta": numbers(35)}, 1),
    "sum": (programs.SUM, {"A": numbers(100_003)}, 2),
    "sum by halves": (programs.SUM_BY_HALVES, {"A": numbers(1002)}, 2),
    "scan": (programs.SCAN, {"A": numbers(5003)}, 1),
    "scan by halves": (programs.SCAN_BY_HALVES, {"A": numbers(502)}, 2),
    "staged": (programs.STAGED, {"A": numbers(7, 19), "B": numbers(19, 6)}, 1),
    "tiles": (programs.TILED, {"A": numbers(13, 11), "B": numbers(11, 7)}, 1),
    "attention": (programs.ATTENTION, {x: numbers(2, n, 8) for x, n in (("Q", 13), ("K", 11), ("V", 11))}, 3),
    "gelu of a layer": (programs.GELU, {"A": numbers(7, 19), "B": numbers(19, 33), "b": numbers(33)}, 1),
}
"""Programs, arguments, and the number of steps."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_on_a_device(name: str, cpu: Device) -> None:
    """Against the interpreter, by as few kernels as they need."""
    text, arguments, steps = PROGRAMS[name]
    program = fe.program(text, language="declarative")
    kernel = fe.build(program, device=cpu)
    found, wanted = kernel(**arguments), program.interpret(**arguments)
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * max(1.0, np.abs(wanted).max()))
    assert f"in {steps} steps" in kernel.explain()


@pytest.mark.parametrize("spread", [Spread(16, 2, tree=True), Spread(4, 1, tree=False), Spread(1, 2, tree=False)])
@pytest.mark.parametrize("name", ["softmax", "layer norm", "sum", "scan by halves", "gelu of a layer"])
def test_work_groups_of_any_size(name: str, spread: Spread, cpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """As other devices have them: partial results brought together by halves, by all, or by one."""
    monkeypatch.setattr(builder, "spread_of", lambda profile: spread)
    text, arguments, _ = PROGRAMS[name]
    program = fe.program(text, language="declarative")
    found, wanted = fe.build(program, device=cpu, route="general")(**arguments), program.interpret(**arguments)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * max(1.0, np.abs(wanted).max()))


EXPRESSIONS = [
    "y = reduce (shape = [N], op = argmin) |i| a[i]",
    "y = compute (shape = [M]) |i| reduce (shape = [N], op = argmax) |j| b[i, j]",
    "y = compute (shape = [N]) |j| reduce (shape = [M], op = max) |i| b[i, j]",
    "y = compute (shape = [M]) |i| reduce (shape = [N], op = prod) |j| b[i, j]",
    "y = compute (shape = [M]) |i| reduce (shape = [N], op = any) |j| b[i, j] > 2",
    "y = compute (shape = [M]) |i| reduce (shape = [N], op = all) |j| b[i, j] > a[j] - 3",
    "y = compute (shape = [M]) |i| scan (shape = [N], op = max) |j| b[i, j]",
    "y = compute (shape = [N]) |i| while (init = a[i], until = |x| x > 10) |x| x * x + 1",
    "y = compute (shape = [N]) |i| affine_for (end = 4, init = 0.0) |k, r| r * a[i] + a[k]",
    "y = while (init = [0, 1], until = |s| s[1] > 100) |s| [s[1], s[0] + s[1]]",
    "y = compute (shape = [N]) |i| (i * 5 + 3) % 7 - floordiv(i - 9, 4) + cdiv(i, 3)",
    "y = compute (shape = [N]) |i| if i > 0 and a[i - 1] < 0 { c = a[i - 1]\nc * c } else { 1.0 }",
    "y = compute (shape = [N - 2]) |i| max(a[i], a[i + 2]) - min(abs(a[i + 1]), 0.5)",
    "y = a[2:7] * 2 + 1",
    "s = compute (shape = [M]) |i| reduce (shape = [N], op = sum) |j| b[i, j]\ny = s\nz = s / 2",
    "y = f32(reduce (shape = [M, N], op = sum) |i, j| b[i, j]) + 1",
    "y = compute (shape = [0]) |i| 1.0",
    "b[1, 2] * 3",
    "y = reduce (shape = [100000], op = sum) |i| i",
    "y = compute (shape = [N]) |i| (i + 60000) * 60000 - i * i",
    "y = compute (shape = [N]) |i| (6 * i + 4) / 2",
    "y = compute (shape = [M, N]) |i, j| f64(reduce (shape = [N], op = sum) |k| tanh(j))",
    "y = compute (shape = [N]) |i| min(a[i], i32(0.5) * (3 + 3))",
]


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_constructs_on_a_device(text: str, cpu: Device) -> None:
    """Each against the interpreter; ties, negative quotients and what conditions guard too."""
    program = fe.program(f"a: Tensor<N; f32>\nb: Tensor<M, N; f32>\n{text}", language="declarative")
    a, b = numbers(23), numbers(6, 23)
    b[2, 4] = b[2, 9] = 5.0
    found, wanted = (way(a=a, b=b) for way in (fe.build(program, device=cpu), program.interpret))
    for one, other in zip(*((x if isinstance(x, tuple) else (x,)) for x in (found, wanted)), strict=True):
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


def test_not_a_number_is_as_in_numpy(cpu: Device) -> None:
    """It is the greatest and the least of what it is among, in each of several vectors, in one, and behind them."""
    text = """
    b: Tensor<M, N; dtype>
    low = compute (shape = [M]) |i| reduce (shape = [N], op = min) |j| b[i, j]
    high = compute (shape = [M]) |i| reduce (shape = [N], op = max) |j| b[i, j]
    place = compute (shape = [M]) |i| reduce (shape = [N], op = argmax) |j| b[i, j]
    """
    b, kernel = numbers(6, 151), fe.build(fe.program(text), device=cpu)
    b[range(1, 5), [3, 60, 140, 150]] = np.nan
    for values in (b, b.astype("float64")):
        low, high, place = kernel(b=values)
        np.testing.assert_array_equal(low, values.min(axis=1))
        np.testing.assert_array_equal(high, values.max(axis=1))
        np.testing.assert_array_equal(place, values.argmax(axis=1))


@pytest.mark.parametrize("number", ["1e300", "-1e300", "3.4028236e38", "1e-60"])
def test_numbers_beyond_float32_are_infinite_or_zero(number: str, cpu: Device) -> None:
    """A literal, and an argument, as the interpreter has them."""
    x = np.array([1, -2, 0, np.inf], np.float32)
    for text, more in (
        (f"x: Tensor<N; f32>\ny = compute (shape = [N]) |i| max(x[i], {number}) + x[i]", {}),
        ("a: f32\nx: Tensor<N; f32>\ny = compute (shape = [N]) |i| max(x[i], a) + x[i]", {"a": float(number)}),
    ):
        program = fe.program(text)
        np.testing.assert_array_equal(fe.build(program, device=cpu)(x=x, **more), program.interpret(x=x, **more))


@pytest.mark.parametrize("wrong", [None, "abc", object(), {"a": 1}, memoryview(bytearray(8)), numbers(3).__dlpack__()])
def test_what_is_no_array_is_named(wrong: object, cpu: Device) -> None:
    """It is not taken for an array without axes."""
    program = fe.program("x: Tensor<N; f32>\ny = compute (shape = [N]) |i| 2 * x[i]")
    for run in (program.interpret, fe.build(program, device=cpu)):
        with pytest.raises(ValidationError, match=f"argument 'x' is a {type(wrong).__name__}; pass an array"):
            run(x=wrong)


@pytest.mark.parametrize(("type_", "number"), [("i8", 300), ("u8", -1), ("i64", 2**63), ("i64", 2**70)])
def test_integer_arguments_are_values_of_their_types(type_: str, number: float, cpu: Device) -> None:
    """They are not cut to their bits."""
    program = fe.program(f"a: {type_}\nx: Tensor<N; f64>\ny = compute (shape = [N]) |i| x[i] + a")
    for run in (program.interpret, fe.build(program, device=cpu)):
        with pytest.raises(
            ValidationError, match=f"'a' is {type_}, but its argument {re.escape(repr(number))} is no value"
        ):
            run(a=number, x=np.zeros(3))


def test_equal_numbers_of_other_kinds_are_told_apart(cpu: Device) -> None:
    """A program is made for its numbers, and Python takes 1.0 for 1, and -0.0 for 0.0, as the key of an earlier call."""
    x = np.ones(3, np.float32)
    divide = fe.build("s: f32\nx: Tensor<N; f32>\ny = compute (shape = [N]) |i| x[i] / s", device=cpu)
    for zero in (0.0, -0.0, np.float32(0), np.float32(-0.0)):
        np.testing.assert_array_equal(divide(x=x, s=zero), np.copysign(np.inf, [zero] * 3))
    multiply = fe.build("k: i32\nx: Tensor<N; f32>\ny = compute (shape = [N]) |i| x[i] * k", device=cpu)
    np.testing.assert_array_equal(multiply(x=x, k=1, N=3), x)
    with pytest.raises(DTypeError, match="'k' is i32"):
        multiply(x=x, k=1.0, N=3)
    with pytest.raises(DTypeError, match="'N' is int"):
        multiply(x=x, k=1, N=3.0)


def test_functions_of_vectors(cpu: Device) -> None:
    """Those of float32 that are our own: within the units in the last place that OpenCL allows, 3 of exp, 2.5 of quotients.

    Beyond the least and the greatest numbers they are 0 and infinite, of what is no number they are none; quotients of
    equal numbers are 1.
    """
    ends = [np.inf, -np.inf, np.nan, 0, -0.0, 88.72283, 88.7229, -87.4, -103.9, -104.5, 1e30, -1e30, 1e-40, 2.0**-149, 3e38]
    spread = (RNG.choice([-1, 1], 1500) * np.exp2(RNG.uniform(-149, 128, 1500))).astype(np.float32)
    a = np.concatenate([np.float32(ends), spread, np.float32(RNG.uniform(-104, 89, 997))])
    b = np.concatenate([np.float32([5, 49, -7e-39, 2.0**-149, 3e38, np.inf, np.nan]), spread[:300]])
    kernel = fe.build(fe.program("""
    a: Tensor<N; f32>
    b: Tensor<M; f32>
    e = compute (shape = [N]) |i| exp(a[i])
    q = compute (shape = [M, N]) |j, i| a[i] / b[j]
    c: Tensor<M, 16; f32>
    one = compute (shape = [M, 16]) |j, i| c[j, i] / b[j]
    """), device=cpu)  # fmt: skip
    e, q, one = kernel(a=a, b=b, c=np.repeat(b, 16).reshape(-1, 16))
    assert "feinsum_exp_float16(" in kernel.source
    assert "feinsum_quotients_float16(" in kernel.source
    with np.errstate(all="ignore"):
        for found, exact, units in ((e, np.exp(a.astype(float)), 3), (q, a.astype(float) / b.astype(float)[:, None], 1)):
            rounded = exact.astype(np.float32)
            np.testing.assert_array_equal(np.isfinite(found), np.isfinite(rounded))
            rest = np.isfinite(rounded)
            np.testing.assert_array_equal(found[~rest], rounded[~rest])
            assert (abs(found - exact)[rest] <= units * np.spacing(abs(rounded[rest])).astype(float)).all()
    assert (one[np.isfinite(b)] == 1).all()


def test_invariants_are_computed_once(cpu: Device) -> None:
    """A softmax has one kernel, in which a row takes four loops, not one for each of its elements."""
    kernel = fe.build(fe.program(programs.SOFTMAX), device=cpu)
    kernel(A=numbers(3, 32))
    assert kernel.source.count("__kernel") == 1
    assert "one kernel for 3 rows" in kernel.explain()


def test_the_next_row_is_asked_for(cpu: Device) -> None:
    """By a core, while it computes functions of the one that it has; elsewhere other groups are there to be computed."""
    program = fe.program(programs.SOFTMAX)
    kernel = fe.build(program, device=cpu)
    A = numbers(5, 64)
    np.testing.assert_allclose(kernel(A=A), program.interpret(A=A), rtol=1e-5)
    (line,) = [line for line in kernel.source.splitlines() if "prefetch" in line]
    assert line.endswith("+ 64]);")
    sums = fe.program("""
    A: Tensor<R, C; f32>
    y = compute (shape = [R]) |i| {
        most = reduce (shape = [C], op = max) |k| A[i, k]
        most + log(reduce (shape = [C], op = sum) |k| exp(A[i, k] - most))
    }
    """)
    kernel = fe.build(sums, device=cpu)
    np.testing.assert_allclose(kernel(A=A), sums.interpret(A=A), rtol=1e-5)
    head, *behind = kernel.source.split("__builtin_prefetch")
    assert "_exp_float16(v" not in head
    assert "_exp_float16(v" in behind[-1]


def test_what_is_made_of_a_row_shares_a_kernel(cpu: Device) -> None:
    """Whatever reads the same rows, with the place of the best, at which others are read; a result may be called result."""
    program = fe.program("""
    A: Tensor<R, C; f32>
    t: Tensor<R; i64>
    place = compute (shape = [R]) |i| reduce (shape = [C], op = argmax) |k| A[i, k]
    result = compute (shape = [R]) |i| {
        most = reduce (shape = [C], op = max) |k| A[i, k]
        total = reduce (shape = [C], op = sum) |k| exp(A[i, k] - most)
        most + log(total) - reduce (shape = [C], op = sum) |k| if k == t[i] then A[i, k] else 0.0
    }
    compute (shape = [R]) |i| A[i, reduce (shape = [C], op = argmin) |k| A[i, k]]
    """, language="declarative")  # fmt: skip
    A, t = numbers(7, 40), np.arange(7)
    kernel = fe.build(program, device=cpu)
    place, loss, least = kernel(A=A, t=t)
    np.testing.assert_array_equal(place, A.argmax(1))
    np.testing.assert_allclose(loss, np.log(np.exp(A).sum(1)) - A[t, t], rtol=1e-5)
    np.testing.assert_array_equal(least, A.min(1))
    assert "in 1 steps" in kernel.explain()


def test_arrays_of_numpy_are_read_where_they_are(cpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever they begin, if no kernel of an einsum wants them at a line: large ones never begin at one."""
    copied: list[Any] = []
    monkeypatch.setattr(cla, "to_device", lambda queue, value, *more: copied.append(value))
    A = numbers(5 * 64 + 1)[1:].reshape(5, 64)
    program = fe.program(programs.SOFTMAX)
    kernel = fe.build(program, device=cpu)
    for begin in (A, A[1:], A[2:]):
        np.testing.assert_allclose(kernel(A=begin), program.interpret(A=begin), rtol=1e-5)
    assert not copied


def test_device_arrays(cpu: Device) -> None:
    """Stay on the device, and the result has an event."""
    A = numbers(5, 64)
    given = cla.to_device(cpu.queue, A)
    y = fe.build(fe.program(programs.SOFTMAX), device=cpu)(A=given)
    assert isinstance(y, cla.Array)
    e = np.exp(A - A.max(1, keepdims=True))
    np.testing.assert_allclose(y.get(), e / e.sum(1, keepdims=True), rtol=1e-5)


def test_a_program_is_called_again(cpu: Device) -> None:
    """One that is an einsum: with other values, lengths, libraries, queues and results, good and bad."""
    import pyopencl as cl

    kernel = fe.build(fe.program(programs.MATMUL, language="declarative"), device=cpu)
    others = cl.CommandQueue(cpu.context)
    for n in (6, 6, 9, 6):
        given = {"A": numbers(n, 4), "B": numbers(4, 5)}
        held = {name: cla.to_device(cpu.queue, value) for name, value in given.items()}
        wanted = given["A"] @ given["B"]
        out = cla.zeros(cpu.queue, (n, 5), np.float32)
        np.testing.assert_allclose(kernel(given), wanted, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(kernel(held).get(), wanted, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(kernel(**held, queue=others).get(), wanted, rtol=1e-5, atol=1e-5)
        assert kernel(held, out=out) is out
        np.testing.assert_allclose(out.get(), wanted, rtol=1e-5, atol=1e-5)
        with pytest.raises(ShapeError, match="out has shape"):
            kernel(held, out=out[:3])
        with pytest.raises(ValidationError, match="out is a Array; pass a numpy array, as the inputs are"):
            kernel(given, out=out)
        with pytest.raises(ValidationError, match="out has 2 arrays"):
            kernel(held, out=(out, out))
        turned = {**held, "A": cla.to_device(cpu.queue, np.asfortranarray(given["A"]))}
        np.testing.assert_allclose(kernel(turned).get(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["order C", "device C"])
@pytest.mark.parametrize(
    "text",
    [
        "C = compute (shape = [4]) |i| reduce (shape = [3], op = sum) |k| A[i, k] * B[k]",
        "C = compute (shape = [2]) |i| reduce (shape = [6], op = sum) |k| A[i, k] * B[k]",
        "C = compute (shape = [3]) |i| tanh(reduce (shape = [6], op = sum) |k| A[i, k] * B[k]) + B[i]",
        "P = compute (shape = [4, 6]) |i, k| max(A[i, k], 1)\n"
        "C = compute (shape = [4]) |i| P[3 - i, 5] + reduce (shape = [3], op = sum) |k| P[i, k] * B[k]",
    ],
)
def test_an_einsum_takes_the_part_of_an_array_that_is_read(text: str, kind: str, cpu: Device) -> None:
    """Where fewer elements are wanted than there are, along a sum or the result."""
    program = fe.program(f"A: Tensor<4, 6; f32>\nB: Tensor<6; f32>\n{text}\nC")
    A, B = numbers(4, 6), numbers(6)
    for route in ("auto", "general"):
        kernel = fe.build(program, device=cpu, route=route)
        for _ in range(2):
            found = kernel(A=make(kind, A, cpu.queue), B=make(kind, B, cpu.queue))
            np.testing.assert_allclose(shown(found), program.interpret(A=A, B=B), rtol=1e-5, atol=1e-5)


def test_one_kernel_for_other_lengths(cpu: Device) -> None:
    """A program is made again where lengths or types differ, and says what does not fit."""
    kernel = fe.build(fe.program(programs.MATMUL), device=cpu)
    for m, k, n in ((3, 4, 5), (6, 2, 3)):
        A, B = RNG.random((m, k)), RNG.random((k, n))
        np.testing.assert_allclose(kernel(A=A, B=B), A @ B)
    with pytest.raises(ShapeError, match="axis 0 of argument 'B' is 3 long; line 2 and other arguments say 4"):
        kernel(A=np.ones((3, 4)), B=np.ones((3, 4)))
    with pytest.raises(ValidationError, match="needs an argument for B"):
        kernel(A=np.ones((3, 4)))


def test_alternatives_race(cpu: Device) -> None:
    """The faster one is taken, and explain says how sure that is; ways that differ are an error."""
    text = """
    a: Tensor<N; f64>
    y = alternative {
        slow = compute (shape = [N]) |i| reduce (shape = [N], op = sum) |k| if k == i then 2 * a[k] else 0.0
        quick = 2 * a
    }
    """
    kernel = fe.build(fe.program(text), device=cpu)
    a = RNG.random(3000)
    np.testing.assert_allclose(kernel(a=a), 2 * a)
    assert "alternative of line 3: quick; quick is " in kernel.explain()
    assert "times as fast as slow at 95%" in kernel.explain()
    wrong = fe.build(fe.program(text.replace("quick = 2", "quick = 3")), device=cpu)
    with pytest.raises(LanguageError, match=r"element \[0\] is .* by slow, .* by quick"):
        wrong(a=a)


def test_programs_as_functions(cpu: Device) -> None:
    """A function that is an argument is another program, put in its place."""
    text = """
    f: Tensor<n> -> Tensor<n>
    data: Tensor<b, n; f32>
    y = compute (shape = [b]) |i| f(data[i, :])
    """
    row = fe.program(
        "x: Tensor<n; f32>\ntop = reduce (shape = [n], op = max) |k| x[k]\ny = compute (shape = [n]) |k| x[k] / top"
    )
    data = np.abs(numbers(4, 6))
    kernel = fe.build(fe.program(text, language="declarative"), device=cpu)
    np.testing.assert_allclose(kernel(data=data, f=row), data / data.max(1, keepdims=True), rtol=1e-6)
    with pytest.raises(ValidationError, match="is a program here"):
        kernel(data=data, f=np.tanh)


def test_functions_are_as_declared(cpu: Device) -> None:
    """By the interpreter and on a device: their arguments, which may be numbers, and the one result with its shape."""
    program = fe.program("""
    f: (Tensor<n; f32>, f32) -> Tensor<n; f32>
    g: f32 -> f32
    data: Tensor<b, n; f32>
    y = compute (shape = [b]) |i| f(data[i, :], g(data[i, 0]))
    """, language="declarative")  # fmt: skip
    assert fe.program(str(program), language="declarative") == program
    head, half = "x: Tensor<m; f32>\nw: f32\n", fe.program("x: f32\ny = x / 2", language="declarative")
    data = numbers(3, 5)
    for run in (program.interpret, fe.build(program, device=cpu)):
        found = run(data=data, f=fe.program(f"{head}x * w", language="declarative"), g=half)
        np.testing.assert_allclose(found, data * data[:, :1] / 2, rtol=1e-6)
        for text, told in {
            f"{head}y = x * w\nz = x": "the program for f computes y, z; a function has one result",
            "x: Tensor<m; f32>\ny = x * 2": "the program for f takes 1 argument, x; f is declared with 2",
            "x: f32\nw: f32\ny = x * w": "x of the program for f is a number; f is declared with a tensor with 1 axis",
            f"{head}y = (x * w)[0:2]": r"<text>:5:35: error: the result of f has the shape \[2\], and .* with \[5\]",
        }.items():
            with pytest.raises((LanguageError, ValidationError), match=told):
                run(data=data, f=fe.program(text, language="declarative"), g=half)


def test_rounded_indices_are_proved_under_conditions(cpu: Device) -> None:
    """As half of what is inside, or the rest, or the smaller of two: a grid's tiles reach beyond every edge."""
    text = """
    a: Tensor<N; f32>
    y: Tensor<N; f32> = grid (dim = [cdiv(N, 3)]) |g| compute (shape = [3]) |p| {
        i = g * 3 + p
        if i < N then a[floordiv(i, 2)] + a[cdiv(i, 3)] + a[min(i, 2 * i)] + a[i - i % 2] else 0
    }
    """
    for n in (1, 2, 4, 7):
        a = numbers(n)
        i = np.arange(n)
        wanted = a[i // 2] + a[-(-i // 3)] + a[i] + a[i - i % 2]
        np.testing.assert_allclose(fe.build(fe.program(text), device=cpu)(a=a), wanted, rtol=1e-6)


REFUSED = {
    "y = compute (shape = [N]) |i| a[c[i]]": "not proved to be inside",
    "y = compute (shape = [N]) |i| c[i] / 2": "integers are divided exactly, which is not proved",
    "y = compute (shape = [N]) |i| i % c[i]": "divided by what is not proved to be other than 0",
    "y = compute (shape = [N]) |i| floordiv(3, i)": "divided by what is not proved to be other than 0",
    "y = compute (shape = [N]) |i| if i < 2 * N - 3 then a[floordiv(2 * i + 2, 2)] else 0.0": "not proved to be inside",
    "y = compute (shape = [N]) |i| if c[i] > 0 { b = scan (shape = [N], op = sum) |k| a[k]\n b[i] } else { 0.0 }": (
        "a scan under a condition is not lowered"
    ),
    "y = a[0:M]": "slice 0:5 of an axis whose length is 3",
    "y: Tensor<N> = grid (dim = [1]) |g| compute (shape = [2]) |i| a[i]": r"tiles cover \[2\], not all",
    "y = zeros([N - 1])\nthread (threads = 3, shared = [y]) |t| { y[t] = 1.0 }": "index 2 of axis 0, whose length is 2",
    "y = zeros([N])\nthread (threads = 3, shared = [y]) |t| { y[0] = 1.0 }": "between two calls of sync",
    "b = full([100], 0.0)\ny = while (init = b, until = |r| r[0] > 1) |r| compute (shape = [100]) |i| r[99 - i] + 1": (
        "a loop that carries 100 numbers"
    ),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_lowered_is_refused(text: str, cpu: Device) -> None:
    """With its place, before anything runs."""
    kernel = fe.build(fe.program(f"a: Tensor<N; f32>\nc: Tensor<N; i64>\nM: int\n{text}"), device=cpu)
    with pytest.raises(LanguageError, match=REFUSED[text]):
        kernel(a=numbers(3), c=np.arange(3), M=5)


@pytest.mark.parametrize("index", ["c[i]", "c[i] - 1", "2 - c[i]", "min(c[i], 7)", "c[i] % 7"])
def test_the_guard_that_is_named_is_the_one_that_is_missing(index: str, cpu: Device) -> None:
    """A program with it is built; one side that is proved is not asked for."""
    text = "a: Tensor<N; f32>\nc: Tensor<M; i64>\ny = compute (shape = [M]) |i| "
    arguments = {"a": numbers(3), "c": np.arange(4)}
    with pytest.raises(LanguageError, match="is not proved to be inside") as caught:
        fe.build(fe.program(f"{text}a[{index}]"), device=cpu)(**arguments)
    (note,) = caught.value.notes
    guard = note.message.partition("`if ")[2].partition(" then ")[0]
    fe.build(fe.program(f"{text}if {guard} then a[{index}] else 0.0"), device=cpu)(**arguments)
    assert (" and " in guard) == ("%" not in index)
    clamp = note.message.partition("clamp it, `")[2].partition("`")[0]
    fe.build(fe.program(f"{text}a[{clamp}]"), device=cpu)(**arguments)


def test_threads_on_a_device(cpu: Device) -> None:
    """With local and private memory, barriers, loops; numbers keep the value that they had, and results are read behind."""
    x1 = numbers(3, 4)
    kernel = fe.build(fe.program(programs.THREADS, language="declarative"), device=cpu)
    np.testing.assert_array_equal(kernel(x1=x1, blockDim=8), 2 * x1)
    assert "no race was found" in kernel.explain()
    text = """
    x: Tensor<N; f64>
    y = x * 1
    thread (threads = 64, shared = [y]) |t| {
        s = Shared<64; f64>
        s[t] = 0
        affine_for (end = cdiv(N, 64)) |k| {
            if 64 * k + t < N { s[t] = s[t] + x[64 * k + t] }
        }
        sync()
        affine_for (end = 6) |level| {
            width = [32, 16, 8, 4, 2, 1]
            if t < width[level] { s[t] = s[t] + s[t + width[level]] }
            sync()
        }
        before = y[t]
        y[t] = before + 1
        if t == 0 { y[t] = s[0] + before }
    }
    z = y[0] + 1
    w = y * 2
    """
    x = RNG.standard_normal(1500)
    z, w = fe.build(fe.program(text), device=cpu)(x=x)
    np.testing.assert_allclose(z, x.sum() + x[0] + 1)
    np.testing.assert_allclose(w[1:64], 2 * x[1:64] + 2)
    np.testing.assert_allclose(w[64:], 2 * x[64:])


def test_programs_are_tried_from_the_command_line(tmp_path: Path, cpu: Device) -> None:
    """With random arguments of given lengths, compared with the interpreter; results are written."""
    path = tmp_path / "rows.decl"
    path.write_text(
        "A = Tensor<B, D; f32>\nn: int\ny = compute (shape = [B]) |i| reduce (shape = [D], op = max) |k| A[i, k] * n\n"
    )
    options = ["--size", "B=5", "--size", "n=3", "--out", f"y={tmp_path / 'y.npy'}", "--device", cpu.id]
    result = CliRunner().invoke(cli, ["run", str(path), *options])
    assert result.exit_code == 0, result.output
    assert "compared with the interpreter: the largest difference is" in result.output
    assert np.load(tmp_path / "y.npy").shape == (5,)
    wrong = CliRunner().invoke(cli, ["run", str(path), "--size", "C=5"])
    assert "the program leaves no size C open; there are n, B, D" in str(wrong.exception)


def test_what_follows_a_sum_is_an_epilogue(cpu: Device) -> None:
    """Of the einsum itself; what is no number stays so, and what an epilogue has no words for is a step of its own."""
    head = "x: Tensor<M, K; f32>\nw: Tensor<K, N; f32>\nb: Tensor<N; f32>\n"
    total = "reduce (shape = [K], op = sum) |k| x[i, k] * w[k, j]"
    x, w, b = numbers(9, 7), numbers(7, 19), numbers(19)
    x[3, 2] = np.nan
    for text, steps in (
        (f"max(b[j] + ({total}), 0.0)", 1),
        (f"{{ v = {total}\nif v > b[j] then b[j] else 0.5 }}", 1),
        (f"{{ v = {total}\nif isnan(v) then 0.5 else b[j] }}", 1),
        (f"{{ v = {total}\nrsqrt(pow(v, 2.0) + 1.0) }}", 1),
        (f"({total}) + i", 2),
        ("z[i, j] * tanh(z[i, j])", 1),
    ):
        z = f"z = compute (shape = [M, N]) |i, j| b[j] + {total}\n" if "z" in text else ""
        program = fe.program(f"{head}{z}y: Tensor<M, N; f32> = compute (shape = [M, N]) |i, j| {text}")
        kernel = fe.build(program, device=cpu)
        np.testing.assert_allclose(kernel(x=x, w=w, b=b), program.interpret(x=x, w=w, b=b), rtol=1e-4, atol=1e-5)
        assert f"in {steps} steps" in kernel.explain()
        assert ("einsum ac,cb->ab, then" in kernel.explain()) == (steps == 1)


OPERANDS = {
    "exp(x[i, k]) * w[k, j]": (lambda x, w: np.exp(x) @ w, 2),
    "2 * x[i, k] * w[k, j]": (lambda x, w: 2 * (x @ w), 1),
    "-x[i, k] * w[k, j] / 4": (lambda x, w: -(x @ w) / 4, 1),
    "(x[i, k] + 1) * max(w[k, j], 0.0) * x[i, k]": (lambda x, w: ((x + 1) * x) @ np.maximum(w, 0), 2),
    "x[i, K - 1 - k] * w[k, j]": (lambda x, w: x[:, ::-1] @ w, 2),
    "(if k > i then x[i, k] else 0.0) * w[k, j]": (lambda x, w: np.triu(x, 1) @ w, 2),
}
"""Products in a sum, what numpy says, and the most steps: small factors are made by one kernel."""


@pytest.mark.parametrize("product", OPERANDS)
def test_what_is_multiplied_becomes_arrays(product: str, cpu: Device) -> None:
    """So that kernels of einsums add the products up, whatever is made of a factor before."""
    total = f"reduce (shape = [K], op = sum) |k| {product}"
    program = fe.program(f"x: Tensor<M, K; f32>\nw: Tensor<K, N; f32>\ny = compute (shape = [M, N]) |i, j| {total}")
    x, w = numbers(14, 21), numbers(21, 18)
    kernel = fe.build(program, device=cpu)
    wanted, steps = OPERANDS[product][0](x, w), OPERANDS[product][1]
    np.testing.assert_allclose(kernel(x=x, w=w), wanted, rtol=1e-4, atol=1e-4)
    lines = [line for line in kernel.explain().splitlines() if line.startswith("step ")]
    assert "einsum" in lines[-1]
    assert len(lines) <= steps + 1


@pytest.mark.parametrize("product", ["x[i, k] * exp(x[i, k])", "u[i + k] * v[k]", "exp(x[i, k] + v[k] + i)"])
def test_factors_that_are_used_once_stay(product: str, cpu: Device) -> None:
    """An array of them would be read as often as it is written."""
    head = "x: Tensor<M, K; f32>\nu: Tensor<L; f32>\nv: Tensor<K; f32>\n"
    program = fe.program(f"{head}y = compute (shape = [M]) |i| reduce (shape = [K], op = sum) |k| {product}")
    given = {"x": numbers(6, 9), "u": numbers(15), "v": numbers(9)}
    kernel = fe.build(program, device=cpu)
    np.testing.assert_allclose(kernel(**given), program.interpret(**given), rtol=1e-3, atol=1e-4)
    assert "einsum" not in kernel.explain()


def test_results_go_where_the_call_says(cpu: Device) -> None:
    """Into arrays of pyopencl that fit; a parameter that is called out stays one."""
    doubled = fe.build(fe.program("x: Tensor<N; f32>\ny = x * 2"), device=cpu)
    x = cla.to_device(cpu.queue, numbers(40))
    y = cla.zeros(cpu.queue, 40, np.float32)
    assert doubled(x=x, out=y) is not None
    np.testing.assert_array_equal(y.get(), 2 * x.get())
    with pytest.raises(ShapeError, match=r"out has shape \(41,\) but the result has \(40,\)"):
        doubled(x=x, out=cla.zeros(cpu.queue, 41, np.float32))
    named = fe.build(fe.program("out: Tensor<N; f32>\ny = out * 2"), device=cpu)
    np.testing.assert_array_equal(named(out=np.ones(3, np.float32)), [2, 2, 2])
