"""The interpreter of the tensor language: what each instruction computes, against numpy and the words of the reference."""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tensor_programs import in_function, numbers

import feinsum as fe
from feinsum.errors import DTypeError, LanguageError, ShapeError, ValidationError
from feinsum.languages.tensor.numbers import dtype_of, rounded
from feinsum.languages.tensor.types import BF16, F16, SCALARS

RNG = np.random.default_rng(17)
NUMERIC = ["i8", "i16", "i32", "i64", "index", "f16", "f32", "f64", "c32", "c64"]
SIZES = {"subgroup_size": 4, "work_group_size": (8, 1)}


def run(parameters: str, body: str, count: int = 1, **arguments: Any) -> Any:
    """Interpret the body of a function."""
    return fe.program(in_function(parameters, body)).interpret(count=count, **arguments)


def draw(name: str, *shape: int) -> Any:
    return numbers(SCALARS[name], shape, RNG)


def compute(name: str, expression: str, *operands: Any, result: str = "") -> Any:
    """A scalar instruction on every element of arrays of one type, one work-item an element."""
    n = len(operands[0])
    names = [f"%p{k}" for k in range(len(operands))]
    parameters = ", ".join(f"%a{k}: memref<{name}x{n}>" for k in range(len(operands)))
    loads = "\n".join(f"{p} = load %a{k}[%i] : {name}" for k, p in enumerate(names))
    out_type = result or name
    body = (
        f"%zero = constant 0 : index\n%n = constant {n} : index\nforeach (%i) = (%zero), (%n) {{\n{loads}\n"
        f"%r = {expression.format(*names)} : {out_type}\nstore %r, %out[%i]\n}}"
    )
    out = np.zeros(n, np.uint16 if out_type == "bf16" else dtype_of(SCALARS[out_type]))
    return run(f"{parameters}, %out: memref<{out_type}x{n}>", body, out=out, **{f"a{k}": a for k, a in enumerate(operands)})


# linear algebra

UPDATES: dict[str, tuple[str, tuple[tuple[int, ...], ...], Callable[..., Any]]] = {
    "axpby.n": ("%A", ((4, 6), (4, 6)), lambda A: A),
    "axpby.t": ("%A", ((6, 4), (4, 6)), lambda A: A.T),
    "axpby.t of a vector": ("%A", ((5,), (5,)), lambda A: A),
    "axpby.n of a number": ("%A", ((), ()), lambda A: A),
    "gemm.n.n": ("%A, %B", ((4, 5), (5, 3), (4, 3)), lambda A, B: A @ B),
    "gemm.t.n": ("%A, %B", ((5, 4), (5, 3), (4, 3)), lambda A, B: A.T @ B),
    "gemm.n.t": ("%A, %B", ((4, 5), (3, 5), (4, 3)), lambda A, B: A @ B.T),
    "gemm.t.t": ("%A, %B", ((5, 4), (3, 5), (4, 3)), lambda A, B: A.T @ B.T),
    "gemv.n": ("%A, %B", ((4, 5), (5,), (4,)), lambda A, b: A @ b),
    "gemv.t": ("%A, %B", ((5, 4), (5,), (4,)), lambda A, b: A.T @ b),
    "ger": ("%A, %B", ((4,), (3,), (4, 3)), np.outer),
    "hadamard_product": ("%A, %B", ((4, 3), (4, 3), (4, 3)), operator.mul),
    "hadamard_product of vectors": ("%A, %B", ((4,), (4,), (4,)), operator.mul),
    "cumsum of mode 0": ("%A, 0", ((4, 3, 2), (4, 3, 2)), lambda A: A.cumsum(0)),
    "cumsum of mode 2": ("%A, 2", ((4, 3, 2), (4, 3, 2)), lambda A: A.cumsum(2)),
    "sum.n": ("%A", ((4, 6), (4,)), lambda A: A.sum(1)),
    "sum.t": ("%A", ((6, 4), (4,)), lambda A: A.sum(0)),
    "sum.n of a vector": ("%A", ((6,), ()), lambda A: A.sum()),
}


@pytest.mark.parametrize("name", UPDATES)
@pytest.mark.parametrize("type_", NUMERIC)
def test_linear_algebra(name: str, type_: str) -> None:
    """``result := alpha f(operands) + beta result``, computed wide and rounded once; integers wrap.

    Where there is nothing wider, orders of summation differ by a rounding.
    """
    operands, shapes, formula = UPDATES[name]
    arrays = {key: draw(type_, *shape) for key, shape in zip("ABC" if len(shapes) == 3 else "AC", shapes, strict=True)}
    alpha, beta = draw(type_)[()], draw(type_)[()]
    parameters = ", ".join(f"%{k}: memref<{'x'.join([type_, *map(str, a.shape)])}>" for k, a in arrays.items())
    wide = np.dtype("int64" if type_[0] == "i" else "complex128" if type_[0] == "c" else "float64")
    factors = [array.astype(wide) for key, array in arrays.items() if key != "C"]
    expected = wide.type(alpha) * formula(*factors) + wide.type(beta) * arrays["C"].astype(wide)
    instruction = f"{name.partition(' of ')[0]} %alpha, {operands}, %beta, %C"
    result = run(f"%alpha: {type_}, %beta: {type_}, {parameters}", instruction, alpha=alpha, beta=beta, **arrays)
    assert result is arrays["C"]
    tolerance = 1e-14 if result.dtype == wide and wide.kind != "i" else 0
    np.testing.assert_allclose(result, expected.astype(result.dtype), rtol=tolerance, atol=tolerance)


def test_mixed_types_are_computed_in_the_type_of_the_result() -> None:
    """i8 factors of an i32 sum do not wrap, and f32 ones of an f64 sum are not rounded in between."""
    A = np.full((3, 50), 100, np.int8)
    C = run(
        "%A: memref<i8x3x50>, %C: memref<i32x3x3>",
        "%1 = constant 1 : i8\n%0 = constant 0 : i32\ngemm.n.t %1, %A, %A, %0, %C",
        A=A,
        C=np.zeros((3, 3), np.int32),
    )
    assert (C == 500_000).all()
    x = np.array([1.0, 2.0**-40], np.float32)
    s = run(
        "%x: memref<f32x2>, %s: memref<f64>",
        "%1 = constant 1.0 : f32\n%0 = constant 0.0 : f64\nsum.n %1, %x, %0, %s",
        x=x,
        s=np.zeros(()),
    )
    assert s == 1 + 2.0**-40


@pytest.mark.parametrize("beta", ["a constant", "a parameter"])
def test_a_result_is_not_read_where_beta_is_zero(beta: str) -> None:
    """Not even if it is not a number; with any other beta it is."""
    C = np.full(3, np.nan)
    zero = "%beta = constant 0.0 : f64\n" if beta == "a constant" else ""
    parameters = "%x: memref<f64x3>, %C: memref<f64x3>" + ("" if zero else ", %beta: f64")
    arguments = {} if zero else {"beta": 0.0}
    body = f"{zero}%1 = constant 1.0 : f64\naxpby.n %1, %x, %beta, %C"
    np.testing.assert_array_equal(run(parameters, body, x=np.arange(3.0), C=C, **arguments), np.arange(3.0))
    if arguments:
        assert np.isnan(run(parameters, body, x=np.arange(3.0), C=np.full(3, np.nan), beta=0.5)).all()


def test_local_memory_is_poisoned_until_it_is_written() -> None:
    """An alloca that is read first gives NaN, and again behind its end."""
    body = (
        "%T = alloca : memref<f32x4,local>\n%1 = constant 1.0 : f32\n%0 = constant 0.0 : f32\n"
        "axpby.n %1, %T, %0, %x\naxpby.n %1, %y, %0, %T\naxpby.n %1, %T, %0, %y"
    )
    x, y = np.zeros(4, np.float32), np.arange(4, dtype=np.float32)
    first, second = run("%x: memref<f32x4>, %y: memref<f32x4>", body, x=x, y=y)
    assert np.isnan(first).all()
    np.testing.assert_array_equal(second, np.arange(4))


# scalars

INT8 = np.array([*range(-128, 128)], np.int8)
PAIRS8 = tuple(np.array(grid).reshape(-1).astype(np.int8) for grid in np.meshgrid(INT8, INT8[::5]))


def wrap(value: int, bits: int = 8) -> int:
    return (value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


BINARY: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "min": min,
    "max": max,
    "div": truncated,
    "rem": lambda a, b: a - b * truncated(a, b),
    "shl": lambda a, b: a << b,
    "shr": lambda a, b: a >> b,
}


@pytest.mark.parametrize("name", BINARY)
def test_arithmetic_of_i8(name: str) -> None:
    """All values with a fifth of all values, as Python computes them, cut to eight bits."""
    a, b = PAIRS8
    if name in ("div", "rem"):
        a, b = a[b != 0], b[b != 0]
    if name in ("shl", "shr"):
        b = np.abs(b.astype(int)).astype(int) % 8
        b = b.astype(np.int8)
    found = compute("i8", f"arith.{name} {{}}, {{}}", a, b)
    assert found.tolist() == [wrap(BINARY[name](int(x), int(y))) for x, y in zip(a, b, strict=True)]


def test_arithmetic_of_one_i8() -> None:
    """The smallest number is its own opposite."""
    for name, formula in {"abs": abs, "neg": operator.neg, "not": operator.invert}.items():
        assert compute("i8", f"arith.{name} {{}}", INT8).tolist() == [wrap(formula(int(x))) for x in INT8]


@pytest.mark.parametrize("width", ["i16", "i32", "i64", "index"])
def test_integers_wrap(width: str) -> None:
    """At the ends of their range, and the smallest number by -1 does not trap."""
    bits = 64 if width == "index" else int(width[1:])
    low = np.array([-(2 ** (bits - 1))], dtype_of(SCALARS[width]))
    one = np.ones_like(low)
    assert compute(width, "arith.sub {}, {}", low, one) == 2 ** (bits - 1) - 1
    assert compute(width, "arith.div {}, {}", low, -one) == low
    assert compute(width, "arith.rem {}, {}", low, -one) == 0


@pytest.mark.parametrize("type_", ["f16", "f32", "f64"])
def test_arithmetic_of_floating_point(type_: str) -> None:
    """As numpy rounds; min and max prefer numbers, and a remainder has the sign of the dividend."""
    special = np.array([0.0, -0.0, 1.5, -2.5, np.inf, -np.inf, np.nan, 7.25], dtype_of(SCALARS[type_]))
    a, b = (np.array(grid).reshape(-1) for grid in np.meshgrid(special, special))
    with np.errstate(all="ignore"):
        for name, formula in {
            "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "rem": np.fmod,
            "min": np.fmin, "max": np.fmax,
        }.items():  # fmt: skip
            np.testing.assert_array_equal(compute(type_, f"arith.{name} {{}}, {{}}", a, b), formula(a, b))
        np.testing.assert_array_equal(compute(type_, "math.exp {}", a), np.exp(a))
        found = compute(type_, "arith.neg {}", a)
    np.testing.assert_array_equal(np.signbit(found), ~np.signbit(a))


@pytest.mark.parametrize("type_", ["c32", "c64"])
def test_arithmetic_of_complex_numbers(type_: str) -> None:
    """Absolute values and parts have the type of a component."""
    a, b = draw(type_, 20), draw(type_, 20)
    part = "f32" if type_ == "c32" else "f64"
    for name, expected in {"add": a + b, "sub": a - b, "mul": a * b, "div": a / b}.items():
        np.testing.assert_allclose(compute(type_, f"arith.{name} {{}}, {{}}", a, b), expected, rtol=1e-6)
    for name, expected in {"abs": np.abs(a), "re": a.real, "im": a.imag}.items():
        found = compute(type_, f"arith.{name} {{}}", a, result=part)
        assert found.dtype == dtype_of(SCALARS[part])
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(compute(type_, "arith.conj {}", a), a.conj())
    np.testing.assert_allclose(compute(type_, "math.exp {}", a), np.exp(a), rtol=1e-6)


def test_booleans() -> None:
    """They have the bitwise operations, and are carried and yielded as numbers are."""
    body = (
        "%x = arith.xor %a, %b : bool\n%y = arith.and %x, %b : bool\n"
        "%n = arith.not %y : bool\n%z = arith.or %n, %a : bool\n"
        "%1 = constant 1 : i32\n%3 = constant 3 : i32\n%true = constant true : bool\n"
        "%p = for %i: i32 = %1, %3 init(%q = %z) -> (bool) {\n%r = arith.xor %q, %true : bool\nyield (%r)\n}\n"
        "%s = if %p -> (i32) {\nyield (%3)\n} else {\nyield (%1)\n}\nstore %s, %out[]"
    )
    for a in (False, True):
        for b in (False, True):
            out = run("%a: bool, %b: bool, %out: memref<i32>", body, a=a, b=b, out=np.zeros((), np.int32))
            assert out == (3 if (not ((a ^ b) & b)) or a else 1)


def test_comparisons() -> None:
    """What is not a number is unequal to all, itself included; complex numbers are equal in both parts or unequal."""
    body = (
        "%1 = constant 1 : i32\n%0 = constant 0 : i32\n%c = cmp.{} %a, %b : bool\n"
        "%r = if %c -> (i32) {{\nyield (%1)\n}} else {{\nyield (%0)\n}}\nstore %r, %out[]"
    )
    nan = float("nan")
    for name, test in {
        "eq": operator.eq, "ne": operator.ne, "gt": operator.gt, "ge": operator.ge, "lt": operator.lt, "le": operator.le
    }.items():  # fmt: skip
        for a, b in ((1.0, 2.0), (2.0, 2.0), (2.0, 1.0), (nan, 1.0), (nan, nan)):
            out = run("%a: f64, %b: f64, %out: memref<i32>", body.format(name), a=a, b=b, out=np.zeros((), np.int32))
            assert bool(out) is test(a, b)
    for a, b in ((1 + 2j, 1 + 2j), (1 + 2j, 1 + 3j), (2 + 2j, 1 + 2j)):
        out = run("%a: c64, %b: c64, %out: memref<i32>", body.format("ne"), a=a, b=b, out=np.zeros((), np.int32))
        assert bool(out) is (a != b)


@pytest.mark.parametrize(
    ("source", "target", "value", "expected"),
    [
        ("i32", "i8", 300, 44),
        ("i8", "i64", -3, -3),
        ("f64", "i32", -2.9, -2),
        ("f32", "i64", 3.99, 3),
        ("i64", "f32", 2**24 + 1, 2.0**24),
        ("f64", "f32", 0.1, np.float32(0.1)),
        ("f64", "f16", 1e6, np.inf),
        ("f32", "c64", 1.5, 1.5 + 0j),
        ("i16", "c32", -7, -7 + 0j),
        ("c64", "c32", 0.1 + 1j, np.complex64(0.1 + 1j)),
        ("index", "i16", 70000, 4464),
    ],
)
def test_casts(source: str, target: str, value: Any, expected: Any) -> None:
    """Integers are cut to their bits, fractions cut off, and real numbers have no imaginary part."""
    a = np.array([value], dtype_of(SCALARS[source]))
    assert compute(source, "cast {}", a, result=target)[0] == expected


def bf16(bits: Any) -> Any:
    return (np.asarray(bits, np.uint32) << 16).view(np.float32)


def test_bf16_is_rounded_to_nearest_even() -> None:
    """Against exact fractions: doubles near numbers of eight bits, halfway between them, and just beside halfway."""
    bits = RNG.integers(0x0080, 0x7F00, 200).astype(np.uint32)
    low, high = bf16(bits).astype(float), bf16(bits + 1).astype(float)
    middle = (low + high) / 2
    values = np.concatenate([low, middle, np.nextafter(middle, 0), np.nextafter(middle, np.inf), low + (high - low) / 3])
    for value in (*values, *-values):
        near = [float(rounded(value, BF16))]
        neighbours = bf16(np.array([-1, 1]) + int(np.float32(near[0]).view(np.uint32) >> 16)).astype(float)
        error = abs(Fraction(near[0]) - Fraction(value))
        assert all(error <= abs(Fraction(n) - Fraction(value)) for n in neighbours)
        if any(error == abs(Fraction(n) - Fraction(value)) for n in neighbours):
            assert np.float32(near[0]).view(np.uint32) >> 16 & 1 == 0
    assert np.isnan(rounded(np.nan, BF16))
    assert rounded(1e39, BF16) == np.inf
    assert float(rounded(2**40 + 2**32, BF16)) == 2.0**40


def test_every_bf16_and_f16_survives() -> None:
    """65536 bit patterns, loaded, negated twice and stored; what is not a number stays none."""
    bits = np.arange(2**16, dtype=np.uint16)
    body = "arith.neg {}"
    found = compute("bf16", body, compute("bf16", body, bits[::7]))
    numbers_ = ~np.isnan(bf16(bits[::7]))
    np.testing.assert_array_equal(found[numbers_], bits[::7][numbers_])
    assert np.isnan(bf16(found[~numbers_])).all()
    half = bits[::7].view(np.float16)
    np.testing.assert_array_equal(compute("f16", body, compute("f16", body, half)), half)


def test_bf16_is_rounded_after_every_instruction() -> None:
    """256 + 1 is 256 in eight bits, however often it is added."""
    a = (np.array([256.0], np.float32).view(np.uint32) >> 16).astype(np.uint16)
    b = (np.array([1.0], np.float32).view(np.uint32) >> 16).astype(np.uint16)
    assert compute("bf16", "arith.add {}, {}", a, b) == a


# control


def test_loops_carry_values_all_at_once() -> None:
    """The sample of the reference: what a yield swaps is swapped."""
    body = (
        "%from = constant 2 : i32\n%to = constant 6 : i32\n%f0 = constant 0 : i64\n%f1 = constant 1 : i64\n"
        "%fn_1, %fn = for %n: i32 = %from, %to init(%fn_2 = %f0, %fn_1 = %f1) -> (i64, i64) {\n"
        "%fn = arith.add %fn_2, %fn_1 : i64\nyield (%fn_1, %fn)\n}\n"
        "%0 = constant 0 : index\n%1 = constant 1 : index\nstore %fn_1, %out[%0]\nstore %fn, %out[%1]"
    )
    assert run("%out: memref<i64x2>", body, out=np.zeros(2, np.int64)).tolist() == [3, 5]


def test_loops_end_at_the_ends_of_their_type() -> None:
    """A loop of i8 to 127 by 50 does not wrap around, nor one of i64, and one from 5 to 2 is not entered."""
    body = (
        "%from = constant {} : i8\n%to = constant {} : i8\n%step = constant 50 : i8\n"
        "%0 = constant 0 : i64\n%1 = constant 1 : i64\n"
        "%n = for %i: i8 = %from, %to, %step init(%k = %0) -> (i64) {{\n"
        "%m = arith.add %k, %1 : i64\nyield (%m)\n}}\nstore %n, %out[]"
    )
    assert run("%out: memref<i64>", body.format(0, 127), out=np.zeros((), np.int64)) == 3
    assert run("%out: memref<i64>", body.format(5, 2), out=np.zeros((), np.int64)) == 0
    end = 2**63 - 1
    near_the_end = body.replace("i8", "i64").format(end - 60, end)
    assert run("%out: memref<i64>", near_the_end, out=np.zeros((), np.int64)) == 2


def test_work_items_go_their_own_ways() -> None:
    """Loops and branches of different lengths: work-item i adds up the odd numbers below i."""
    body = """
    parallel {
        %id = builtin.subgroup_local_id : i32
        %group = builtin.subgroup_id : i32
        %size = builtin.subgroup_size : i32
        %offset = arith.mul %group, %size : i32
        %me = arith.add %id, %offset : i32
        %0 = constant 0 : i32
        %1 = constant 1 : i32
        %sum = for %i: i32 = %0, %me init(%s = %0) -> (i32) {
            %low = arith.and %i, %1 : i32
            %odd = cmp.eq %low, %1 : bool
            %t = if %odd -> (i32) {
                %u = arith.add %s, %i : i32
                yield (%u)
            } else {
                yield (%s)
            }
            yield (%t)
        }
        %at = cast %me : index
        store %sum, %out[%at]
    }"""
    program = fe.program(in_function("%out: memref<i32x8>", body))
    out = program.interpret(out=np.full(8, -1, np.int32), subgroup_size=4, work_group_size=(8, 1))
    assert out.tolist() == [sum(range(1, me, 2)) for me in range(8)]


def test_a_foreach_covers_its_ranges() -> None:
    """Whatever does not fill the work-group is left out; empty ranges are none."""
    body = "%lo = constant -1 : i32\nforeach (%i, %j): i32 = (%lo, %lo), (%m, %n) {{\n{}\n}}".format(
        "%1 = constant 1 : i32\n%a = arith.add %i, %1 : i32\n%b = arith.add %j, %1 : i32\n"
        "%x = cast %a : index\n%y = cast %b : index\nstore.atomic_add %1, %out[%x, %y]"
    )
    for m, n in ((4, 6), (4, -1), (0, 0)):
        expected = np.zeros((5, 7), np.int32)
        expected[: m + 1, : n + 1] = 1
        out = run("%m: i32, %n: i32, %out: memref<i32x5x7>", body, m=m, n=n, out=np.zeros((5, 7), np.int32))
        np.testing.assert_array_equal(out, expected)


def test_who_stores_in_a_collective_region() -> None:
    """One work-item stores, but every one of them adds atomically."""
    body = "%2 = constant 2.0 : f32\nstore %2, %a[]\nstore.atomic_add %2, %b[]"
    program = fe.program(in_function("%a: memref<f32>, %b: memref<f32>", body))
    a, b = program.interpret(a=np.zeros((), "f"), b=np.zeros((), "f"), subgroup_size=4, work_group_size=(8, 2))
    assert (a, b) == (2, 32)


# views and memory


def test_views_look_at_the_elements_of_their_memref() -> None:
    """A block of a block, modes split and joined, in memory with gaps; what is stored is stored in the memref."""
    body = """
    %1 = constant 1 : index
    %2 = constant 2 : index
    %block = subview %A[%1:4, 1:6, %2] : memref<f64x4x6,strided<1,?>>
    %part = subview %block[0:4, 2:%2] : memref<f64x4x?,strided<1,?>>
    %split = expand %part[0 -> 2 x %2] : memref<f64x2x?x?,strided<1,2,?>>
    %row = subview %split[1, 0:%2, 1] : memref<f64x?,strided<2>>
    %n = size %row[0] : index
    %last = arith.sub %n, %1 : index
    %x = load %row[%last] : f64
    %y = arith.neg %x : f64
    store %y, %row[%last]
    """
    A = RNG.random((6, 8, 3))
    expected = A.copy()
    expected[1 + 1 + 2 * 1, 1 + 2 + 1, 2] *= -1
    found = run("%A: memref<f64x6x8x3,strided<1,?,?>> {stride_gcd=[1,16,7]}", body, A=A)
    np.testing.assert_array_equal(found, expected)


def test_fused_modes_are_column_major() -> None:
    """The first of them is the fastest."""
    A = RNG.random((2, 3, 4))
    body = "%F = fuse %A[1, 2] : memref<f64x2x12>\n%1 = constant 1.0 : f64\n%0 = constant 0.0 : f64\naxpby.n %1, %F, %0, %B"
    B = run("%A: memref<f64x2x3x4>, %B: memref<f64x2x12>", body, A=A, B=np.zeros((2, 12)))
    np.testing.assert_array_equal(B, A.reshape(2, 12, order="F"))


def test_arrays_in_any_order_are_taken_and_given_back() -> None:
    """A transposed or sliced array is the same argument as a packed one, and is changed in place."""
    body = "%1 = constant 1.0 : f32\naxpby.n %1, %A, %1, %A"
    base = RNG.random((6, 8)).astype("f")
    for array in (base.copy(), base.T.copy().T, np.array(base, order="F"), np.repeat(base, 2, axis=0)[::2]):
        result = run("%A: memref<f32x6x?>", body, A=array)
        assert result is array
        np.testing.assert_array_equal(array, 2 * base)


def test_groups_have_memrefs_of_different_sizes() -> None:
    """Each is its own, also where a work-item picks it; the group's size is that of the list."""
    body = """
    %id = builtin.group_id : index
    %size = builtin.group_size : index
    %0 = constant 0 : index
    %n = size %G[0] : index
    %mine = load %G[%id] : memref<f64x?>
    %rows = size %mine[0] : index
    %x = cast %size : f64
    foreach (%i) = (%0), (%rows) {
        store %x, %mine[%i]
    }
    foreach (%g) = (%0), (%n) {
        %any = load %G[%g] : memref<f64x?>
        %m = size %any[0] : index
        %y = cast %m : f64
        store %y, %out[%g]
    }"""
    G, out = [np.zeros(k) for k in (3, 1, 4)], np.zeros(3)
    parameters = "%G: group<memref<f64x?>x?, offset: 5>, %out: memref<f64x?>"
    group, lengths = fe.program(in_function(parameters, body)).interpret(G=G, out=out)
    assert lengths.tolist() == [3, 1, 4]
    assert group == G
    assert all((array == 3).all() for array in G)


def test_each_sub_group_may_have_its_own_memref() -> None:
    """A matrix is loaded from the memref that the work-items of the sub-group agree on, and views of it."""
    body = """
    %0 = constant 0 : index
    %1 = constant 1 : index
    parallel {
        %g = builtin.subgroup_id : i32
        %i = cast %g : index
        %M = load %G[%i] : memref<f64x?x3>
        %V = subview %M[%i:2, 0:3] : memref<f64x2x3,strided<1,?>>
        %a = cooperative_matrix_load.n %V[%0, %0] : coopmatrix<f64x2x3,matrix_acc>
        %O = subview %out[0:2, 0:3, %i] : memref<f64x2x3>
        cooperative_matrix_store %a, %O[%0, %0]
    }"""
    G = [RNG.random((2, 3)), RNG.random((4, 3))]
    program = fe.program(in_function("%G: group<memref<f64x?x3>x2>, %out: memref<f64x2x3x2>", body))
    out = program.interpret(G=G, out=np.zeros((2, 3, 2)), **SIZES)
    np.testing.assert_array_equal(out, np.stack([G[0], G[1][1:3]], axis=2))


def test_nothing_can_be_loaded_from_an_empty_group() -> None:
    """Not by anybody who takes part."""
    body = "%0 = constant 0 : index\n%M = load %G[%0] : memref<f32x2>"
    with pytest.raises(LanguageError, match="no memref 0 of a group of 0"):
        run("%G: group<memref<f32x2>x?>", body, G=[])
    body = "%0 = constant 0 : index\n%n = size %G[0] : index\nfor %i = %0, %n {\n%M = load %G[%i] : memref<f32x2>\n}"
    assert run("%G: group<memref<f32x2>x?>", body, G=[]) == ()


def test_bf16_arrays_of_ml_dtypes() -> None:
    """They are taken as they are, where that library is installed."""
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="there are no bf16 arrays without it")
    x = np.array([1.5, -3], ml_dtypes.bfloat16)
    result = run("%x: memref<bf16x2>", "%1 = constant 1.0 : bf16\naxpby.n %1, %x, %1, %x", x=x)
    assert result.dtype == x.dtype
    assert result.tolist() == [3, -6]


def test_how_often_a_function_runs() -> None:
    """As often as what the group id is an index of has entries; where these differ, somebody has to say."""
    body = (
        "%id = builtin.group_id : index\n%a = load %A[%id] : memref<f32x2>\n%b = subview %B[0:2, %id] : memref<f32x2>\n"
        "%1 = constant 1.0 : f32\naxpby.n %1, %a, %1, %b"
    )
    program = fe.program(in_function("%A: group<memref<f32x2>x?>, %B: memref<f32x2x?>", body))
    A = [np.ones(2, "f") for _ in range(4)]
    assert program.interpret(A=A, B=np.zeros((2, 4), "f")).sum() == 8
    assert program.interpret(A=A, B=np.zeros((2, 4), "f"), count=3).sum() == 6
    assert program.interpret(A=A, B=np.zeros((2, 4), "f"), count=0).sum() == 0
    with pytest.raises(ValidationError, match=r"4 by %A, 5 by mode 1 of %B; say count="):
        program.interpret(A=A, B=np.zeros((2, 5), "f"))
    with pytest.raises(ValidationError, match="count is -1"):
        program.interpret(A=A, B=np.zeros((2, 4), "f"), count=-1)


@pytest.mark.parametrize(
    ("parameters", "arguments", "message"),
    [
        ("%A: memref<f32x4>", {}, "needs an argument for %A"),
        ("%A: memref<f32x4>", {"A": np.zeros(4, "f"), "B": 1}, "has no parameter %B"),
        ("%A: memref<f32x4>", {"A": [0.0] * 4}, "not a list"),
        ("%A: memref<f32x4>", {"A": np.zeros(4)}, "holds f32, but its argument is float64"),
        ("%A: memref<f32x4>", {"A": np.zeros(5, "f")}, r"the shape \(5,\)"),
        ("%A: memref<f32x4>", {"A": np.zeros((4, 1), "f")}, r"the shape \(4, 1\)"),
        ("%A: memref<bf16x4>", {"A": np.zeros(4, "f")}, "bits as uint16"),
        ("%A: memref<f32x?> {shape_gcd=[4]}", {"A": np.zeros(6, "f")}, "4 divides the size of mode 0, which is 6"),
        ("%A: memref<f32x?x4,strided<1,8>>", {"A": np.zeros((9, 4), "f")}, "the stride 8, below 9"),
        ("%A: group<memref<f32x4>x2>", {"A": np.zeros((2, 4), "f")}, "pass a list of arrays"),
        ("%A: group<memref<f32x4>x2>", {"A": [np.zeros(4, "f")]}, "a list of 1"),
        ("%A: group<memref<f32x4>x1>", {"A": [np.zeros(4)]}, r"%A\[0\] holds f32"),
        ("%a: i32", {"a": 1.5}, "its argument 1.5 is of type float64"),
        ("%a: i8", {"a": 300}, "its argument 300 is no value of this type"),
        ("%a: index", {"a": np.uint64(2**63)}, "is no value of this type"),
        ("%a: f32", {"a": "one"}, "is no number"),
        ("%a: f32", {"a": 1j}, "complex128"),
        ("%a: bool", {"a": 1}, "its argument 1 is of type int64"),
    ],
)
def test_arguments_that_do_not_fit(parameters: str, arguments: dict[str, Any], message: str) -> None:
    """The message names the parameter and what it is, and the error has one class, interpreted or built."""
    program = fe.program(in_function(parameters, ""))
    with pytest.raises((ValidationError, ShapeError, DTypeError), match=message) as caught:
        program.interpret(**arguments)
    with pytest.raises(caught.type, match=message):
        fe.build(program, route="general")(**arguments)


def test_arguments_do_not_share_what_is_written() -> None:
    """The same array may be read twice; where one is written, the other has to be elsewhere."""
    program = fe.program(
        in_function(
            "%A: memref<f64x2>, %B: memref<f64x2>, %G: group<memref<f64x2>x2>",
            "%1 = constant 1.0 : f64\naxpby.n %1, %A, %1, %B",
        )
    )
    base, group = np.arange(6.0), [np.ones(2)] * 2
    assert program.interpret(A=base[::3], B=base[1::3], G=group).tolist() == [1, 7]
    for A, B, G in ((base[:2], base[1:3], group), (np.ones(2), base[:2], [base[1:3], np.ones(2)])):
        with pytest.raises(ValidationError, match="share memory that is written"):
            program.interpret(A=A, B=B, G=G)
    shared = np.ones(2)
    assert program.interpret(A=shared, B=np.zeros(2), G=[shared, shared]).tolist() == [1, 1]
    base.flags.writeable = False
    with pytest.raises(ValidationError, match="%B is written, but its argument is read-only"):
        program.interpret(A=base[:2], B=base[2:4], G=group)


def test_arrays_without_elements() -> None:
    """Sizes of 0 are sizes: nothing is computed, and a sum of nothing is 0."""
    body = "%1 = constant 1.0 : f32\n%0 = constant 0.0 : f32\nsum.t %1, %A, %0, %x\nsum.n %1, %B, %0, %y"
    parameters = "%A: memref<f32x0x4>, %B: memref<f32x?x?>, %x: memref<f32x4>, %y: memref<f32x?>"
    for shape in ((0, 3), (3, 0)):
        arguments = {
            "A": np.zeros((0, 4), "f"),
            "B": np.zeros(shape, "f"),
            "x": np.ones(4, "f"),
            "y": np.ones(shape[0], "f"),
        }
        x, y = run(parameters, body, **arguments)
        assert not x.any()
        assert not y.any()


def test_work_groups_that_cannot_be() -> None:
    """Rows of work-items are whole sub-groups; what the function says prevails."""
    program = fe.program(in_function("", ""))
    with pytest.raises(ValidationError, match="24 x 1 work-items cannot have sub-groups of 16"):
        program.interpret(subgroup_size=16, work_group_size=(24, 1))
    body = "%n = builtin.num_subgroups : i32\nstore %n, %out[]"
    text = in_function("%out: memref<i32>", body).replace(") {", ") attributes{work_group_size=[24,2]} {", 1)
    assert fe.program(text).interpret(out=np.zeros((), np.int32), work_group_size=(8, 1)) == 24 // 8 * 2


# what is undefined

_BEYOND = "%B = subview %A[2:4] : memref<f32x4>\n%x = constant 1.0 : f32\n⟦axpby.n %x, %B, %x, %B⟧"
_LOAD = "%a = ⟦cooperative_matrix_load.n %A[%i, %i] : coopmatrix<f32x4x2,matrix_a>⟧"
_VARYING = "%k = builtin.subgroup_local_id : i32\n%i = cast %k : index"
_UNEQUAL_TRIPS = (
    "%0 = constant 0 : i32\nparallel {\n%k = builtin.subgroup_local_id : i32\n"
    "%a = constant 1 : coopmatrix<i32x2x2,matrix_acc>\n"
    "%b = ⟦for %i: i32 = %0, %k init(%c = %a) -> (coopmatrix<i32x2x2,matrix_acc>)⟧ {\n"
    "%d = arith.add %c, %c : coopmatrix<i32x2x2,matrix_acc>\nyield (%d)\n}\n}"
)
RUN_TIME = [
    ("run-bounds", "%A: memref<f32x4>", "%i = constant 4 : index\n%x = ⟦load %A[%i] : f32⟧"),
    ("run-bounds", "%A: memref<f32x4>", "%i = constant -1 : index\n%x = ⟦load %A[%i] : f32⟧"),
    ("run-bounds", "%A: memref<f32x4>", _BEYOND),
    ("run-bounds", "%G: group<memref<f32x4>x2>", "%i = constant 2 : index\n%x = ⟦load %G[%i] : memref<f32x4>⟧"),
    ("run-bounds", "%A: memref<f32x4x4>", f"%i = constant 2 : index\nparallel {{\n{_LOAD}\n}}"),
    ("run-bounds", "", "%i = constant 40 : i32\nparallel {\n%a = ⟦subgroup_broadcast %i, %i : i32⟧\n}"),
    ("run-uniform", "%A: memref<f32x9x9>", f"parallel {{\n{_VARYING}\n{_LOAD}\n}}"),
    ("run-uniform", "", "parallel {\n%k = builtin.subgroup_local_id : i32\n%a = ⟦subgroup_broadcast %k, %k : i32⟧\n}"),
    ("run-uniform", "", _UNEQUAL_TRIPS),
    ("run-arithmetic", "%A: memref<f32x4>", "%0 = constant 0 : i32\n%x = ⟦arith.div %0, %0 : i32⟧"),
    ("run-arithmetic", "%A: memref<f32x4>", "%0 = constant 32 : i32\n%x = ⟦arith.shl %0, %0 : i32⟧"),
    ("run-view", "%A: memref<f32x?>", "%i = constant 3 : index\n%x = ⟦expand %A[0 -> 2 x %i] : memref<f32x2x?>⟧"),
    ("run-view", "%A: memref<f32x4x?,strided<1,?>> {stride_gcd=[1,8]}", "%x = ⟦fuse %A[0, 1] : memref<f32x?>⟧"),
    ("run-view", "%A: memref<f32x4>", "%i = constant 0 : index\n%x = ⟦subview %A[0:%i] : memref<f32x?>⟧"),
    ("run-view", "%A: memref<f32x4>", "%i = constant -1 : index\n%x = ⟦subview %A[%i:2] : memref<f32x2>⟧"),
    ("run-loop", "", "%i = constant 0 : index\n⟦for %j = %i, %i, %i⟧ {\n}"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "parameters", "body"), RUN_TIME, ids=[rule for rule, _, _ in RUN_TIME])
def test_what_is_undefined_is_an_error_at_its_line(rule: str, parameters: str, body: str) -> None:
    """The instance is named, as others may be right."""
    marked = in_function(parameters, body)
    text = marked.replace("⟦", "").replace("⟧", "")
    values = {"A": np.zeros(4, "f"), "G": [np.zeros(4, "f")] * 2}
    shapes = {"%A: memref<f32x4x4>": (4, 4), "%A: memref<f32x9x9>": (9, 9)}
    if parameters in shapes or "x4x?" in parameters:
        values["A"] = np.zeros(shapes.get(parameters, (4, 4)), "f")
    arguments = {name: value for name, value in values.items() if f"%{name}:" in parameters}
    with pytest.raises(LanguageError) as caught:
        fe.program(text).interpret(count=1, **arguments)
    first = marked.index("⟦")
    line, column = text.count("\n", 0, first) + 1, first - text.rfind("\n", 0, first)
    assert (caught.value.rule, caught.value.line, caught.value.column) == (rule, line, column)
    assert "(instance 0 of 1)" in str(caught.value)


def test_what_nobody_does_is_no_error() -> None:
    """A division by 0 and an index out of bounds by work-items that do not take part are not executed."""
    body = """
    parallel {
        %k = builtin.subgroup_local_id : i32
        %0 = constant 0 : i32
        %c = cmp.ne %k, %0 : bool
        if %c {
            %x = constant 12 : i32
            %q = arith.div %x, %k : i32
            %1 = constant 1 : i32
            %m = arith.sub %k, %1 : i32
            %i = cast %m : index
            store %q, %out[%i]
        }
    }"""
    program = fe.program(in_function("%out: memref<i32x3>", body))
    out = program.interpret(out=np.zeros(3, np.int32), subgroup_size=4, work_group_size=(4, 1))
    assert out.tolist() == [12, 6, 4]


# sub-groups


@pytest.mark.parametrize("size", [1, 2, 4, 16, 32])
@pytest.mark.parametrize("type_", ["i8", "i32", "f16", "f32", "f64"])
def test_operations_of_a_sub_group(size: int, type_: str) -> None:
    """Against the definition: sums and extremes of what those before contribute, and of all, with their identities."""
    n = 2 * size
    x = draw(type_, n)
    dtype = x.dtype
    lowest, highest = (np.iinfo(dtype).min, np.iinfo(dtype).max) if type_[0] == "i" else (-np.inf, np.inf)
    for name, accumulate, identity in (("add", np.add, 0), ("max", np.maximum, lowest), ("min", np.minimum, highest)):
        expected = {"exclusive_scan": [], "inclusive_scan": [], "reduce": []}
        for part in x.reshape(2, size):
            inclusive = accumulate.accumulate(part, dtype=dtype)
            expected["inclusive_scan"] += list(inclusive)
            expected["exclusive_scan"] += [dtype.type(identity), *inclusive[:-1]]
            expected["reduce"] += [inclusive[-1]] * size
        for scan, wanted in expected.items():
            body = (
                "parallel {\n%k = builtin.subgroup_local_id : i32\n%g = builtin.subgroup_id : i32\n"
                "%s = builtin.subgroup_size : i32\n"
                "%o = arith.mul %g, %s : i32\n%p = arith.add %o, %k : i32\n%i = cast %p : index\n"
                f"%v = load %x[%i] : {type_}\n%r = subgroup_{name}.{scan} %v : {type_}\nstore %r, %out[%i]\n}}"
            )
            program = fe.program(in_function(f"%x: memref<{type_}x{n}>, %out: memref<{type_}x{n}>", body))
            out = program.interpret(x=x, out=np.zeros(n, dtype), subgroup_size=size, work_group_size=(n, 1))
            np.testing.assert_array_equal(out, np.array(wanted, dtype))


def test_broadcasts_are_from_a_work_item_of_each_sub_group() -> None:
    """Counted within the sub-group."""
    body = """
    parallel {
        %k = builtin.subgroup_local_id : i32
        %g = builtin.subgroup_id : i32
        %4 = constant 4 : i32
        %o = arith.mul %g, %4 : i32
        %p = arith.add %o, %k : i32
        %2 = constant 2 : i32
        %b = subgroup_broadcast %p, %2 : i32
        %i = cast %p : index
        store %b, %out[%i]
    }"""
    program = fe.program(in_function("%out: memref<i32x12>", body))
    out = program.interpret(out=np.zeros(12, np.int32), subgroup_size=4, work_group_size=(4, 3))
    assert out.tolist() == [2] * 4 + [6] * 4 + [10] * 4


def matrix(M: Any, x: int, y: int, shape: tuple[int, int], turned: bool, checked: str) -> Any:
    """A cooperative load by its definition, element by element."""
    result = np.zeros(shape, M.dtype)
    for i in range(shape[0]):
        for j in range(shape[1]):
            row, column = (x + j, y + i) if turned else (x + i, y + j)
            along_rows = 0 <= (column if turned else row) < M.shape[1 if turned else 0]
            along_columns = 0 <= (row if turned else column) < M.shape[0 if turned else 1]
            if (along_rows or checked not in ("rows", "both")) and (along_columns or checked not in ("cols", "both")):
                result[i, j] = M[row, column]
    return result


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("checked", "x", "y"), [("", 1, 2), ("rows", 4, 2), ("cols", 1, 5), ("both", 4, 5), ("both", -2, -1), ("both", 9, 9)]
)
def test_cooperative_loads(turned: bool, checked: str, x: int, y: int) -> None:
    """With every check, beyond each end; what is checked and outside is 0."""
    M = RNG.random((7, 8))
    if turned and checked in ("rows", "cols"):
        x, y = {"rows": (1, 6), "cols": (5, 2)}[checked]
    flag = f".{checked}_checked" if checked else ""
    body = (
        f"%x = constant {x} : index\n%y = constant {y} : index\n%0 = constant 0 : index\nparallel {{\n"
        f"%a = cooperative_matrix_load.{'t' if turned else 'n'}{flag} %M[%x, %y] : coopmatrix<f64x4x3,matrix_acc>\n"
        "cooperative_matrix_store %a, %out[%0, %0]\n}"
    )
    out = run("%M: memref<f64x7x8>, %out: memref<f64x4x3>", body, M=M, out=np.full((4, 3), np.nan))
    np.testing.assert_array_equal(out, matrix(M, x, y, (4, 3), turned, checked))


@pytest.mark.parametrize(("flag", "rows", "columns"), [("rows", 6, 3), ("cols", 4, 8), ("both", 6, 8)])
def test_cooperative_stores_are_checked(flag: str, rows: int, columns: int) -> None:
    """What would lie outside is not stored, and sub-groups add one after the other."""
    body = (
        "%x = constant {} : index\n%y = constant {} : index\nparallel {{\n"
        "%a = constant 1.0 : coopmatrix<f32x4x3,matrix_acc>\n"
        "cooperative_matrix_store.{}_checked.atomic_add %a, %M[%x, %y]\n}}"
    )
    x, y = rows - 2 if flag != "cols" else 0, columns - 1 if flag != "rows" else 0
    program = fe.program(in_function(f"%M: memref<f32x{rows}x{columns}>", body.format(x, y, flag)))
    M = program.interpret(M=np.zeros((rows, columns), "f"), subgroup_size=4, work_group_size=(8, 1))
    expected = np.zeros((rows, columns))
    expected[x : x + 4, y : y + 3] = 2
    np.testing.assert_array_equal(M, expected)


def test_products_of_cooperative_matrices() -> None:
    """A loop over blocks of k gives a matrix product, f16 factors of an f32 sum; every sub-group has its own rows."""
    body = """
    %0 = constant 0 : index
    %K = constant 12 : index
    %4 = constant 4 : index
    %two = constant 2.0 : f32
    parallel {
        %zero = constant 0.0 : coopmatrix<f32x4x5,matrix_acc>
        %g = builtin.subgroup_id : i32
        %h = cast %g : index
        %row = arith.mul %h, %4 : index
        %acc = for %k = %0, %K, %4 init(%c = %zero) -> (coopmatrix<f32x4x5,matrix_acc>) {
            %a = cooperative_matrix_load.n %A[%row, %k] : coopmatrix<f16x4x4,matrix_a>
            %b = cooperative_matrix_load.t %B[%0, %k] : coopmatrix<f16x4x5,matrix_b>
            %d = cooperative_matrix_mul_add %a, %b, %c : coopmatrix<f32x4x5,matrix_acc>
            yield (%d)
        }
        %twice = cooperative_matrix_scale %two, %acc : coopmatrix<f32x4x5,matrix_acc>
        %sum = arith.add %twice, %acc : coopmatrix<f32x4x5,matrix_acc>
        %wide = cast %sum : coopmatrix<f64x4x5,matrix_acc>
        cooperative_matrix_store %wide, %C[%row, %0]
    }"""
    A, B = (RNG.integers(-8, 8, shape).astype(np.float16) for shape in ((8, 12), (5, 12)))
    program = fe.program(in_function("%A: memref<f16x8x12>, %B: memref<f16x5x12>, %C: memref<f64x8x5>", body))
    C = program.interpret(A=A, B=B, C=np.zeros((8, 5)), subgroup_size=4, work_group_size=(8, 1))
    np.testing.assert_array_equal(C, 3 * A.astype(float) @ B.astype(float).T)


def test_the_sample_of_the_reference() -> None:
    """``D := α A Bᵀ C + D`` over a batch, computed with temporaries in local memory."""
    text = """
    func @fused_kernel(%alpha: f32, %A: group<memref<f32x16x8>x?>, %B: memref<f32x8x8>, %C: memref<f32x8x16>,
                       %D: memref<f32x16x16x?>) {
        %0 = builtin.group_id : index
        %1 = load %A[%0] : memref<f32x16x8>
        %2 = subview %D[0:16, 0:16, %0] : memref<f32x16x16>
        %tmp0 = alloca : memref<f32x16x8,local>
        %zero = constant 0.0 : f32
        %one = constant 1.0 : f32
        gemm.n.t %one, %1, %B, %zero, %tmp0
        gemm.n.n %alpha, %tmp0, %C, %one, %2
    }"""
    A = [draw("f32", 16, 8) for _ in range(5)]
    B, C, D = draw("f32", 8, 8), draw("f32", 8, 16), draw("f32", 16, 16, 5)
    expected = 0.5 * np.einsum("eij,kj,kl->ile", np.array(A, float), B.astype(float), C.astype(float)) + D
    result = fe.program(text).interpret(alpha=0.5, A=A, B=B, C=C, D=D)
    assert result is D
    np.testing.assert_allclose(D, expected, rtol=1e-4, atol=1e-5)


def test_f16_is_rounded_after_every_instruction() -> None:
    """2048 + 1 is 2048 with eleven bits."""
    assert compute("f16", "arith.add {}, {}", np.array([2048], np.float16), np.array([1], np.float16)) == 2048
    assert rounded(65520.0, F16) == np.inf
