"""Random programs of the declarative language: numpy, the interpreter and kernels agree, and text survives being printed.

``make fuzz FUZZ="--of declarative --programs 1000"`` runs a thousand on a device, by each route.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from array_kinds import made, shown
from fuzzing import cases
from hypothesis import given, reject
from hypothesis import strategies as st
from random_declarative_programs import RandomProgram, programs

import feinsum as fe
from feinsum.devices import Device
from feinsum.errors import LanguageError
from feinsum.languages.declarative import signature

N, M = 7, 5


@dataclass(frozen=True)
class Expression:
    """A text, and a function of numpy that is the same for arrays of indices i and j."""

    text: str
    value: Any


def leaves() -> st.SearchStrategy[Expression]:
    return st.sampled_from(
        [
            Expression("a[i]", lambda v: v["a"][v["i"]]),
            Expression("b[i, j]", lambda v: v["b"][v["i"], v["j"]]),
            Expression("b[N - 1 - i, j]", lambda v: v["b"][N - 1 - v["i"], v["j"]]),
            Expression("a[j]", lambda v: v["a"][v["j"]]),
            Expression("1.5", lambda v: 1.5),
            Expression("2", lambda v: 2),
            Expression("i", lambda v: v["i"]),
            Expression("(i * M + j) % 3", lambda v: (v["i"] * M + v["j"]) % 3),
        ]
    )


def larger(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    """Expressions made of others."""

    def binary(symbol: str, x: Expression, y: Expression) -> Expression:
        f = {"+": np.add, "-": np.subtract, "*": np.multiply}[symbol]
        return Expression(f"({x.text}) {symbol} ({y.text})", lambda v: f(x.value(v), y.value(v)))

    def function(name: str, x: Expression) -> Expression:
        f = {"tanh": np.tanh, "sin": np.sin, "exp": lambda z: np.exp(np.tanh(z)), "abs": np.abs}[name]
        text = f"exp(tanh({x.text}))" if name == "exp" else f"{name}({x.text})"
        return Expression(text, lambda v: f(x.value(v)))

    def choice(x: Expression, y: Expression, z: Expression) -> Expression:
        text = f"if {x.text} < {y.text} then {z.text} else 0.5"
        return Expression(f"({text})", lambda v: np.where(x.value(v) < y.value(v), z.value(v), 0.5))

    def guarded(y: Expression) -> Expression:
        def value(v: Any) -> Any:
            return np.where(v["i"] > 0, v["a"][v["i"] - 1] * y.value(v), -1.0)

        return Expression(f"(if i > 0 then a[i - 1] * ({y.text}) else -1.0)", value)

    def reduction(op: str, x: Expression) -> Expression:
        f = {"sum": np.sum, "min": np.min, "max": np.max, "argmax": np.argmax}[op]

        def value(v: Any) -> Any:
            k = np.arange(M).reshape(1, 1, M)
            shape = (*np.broadcast_shapes(v["i"].shape, v["j"].shape)[:2], M)
            i = np.broadcast_to(v["i"][..., None] if v["i"].ndim == 2 else v["i"], shape)
            inner = {**v, "i": i, "j": np.broadcast_to(k, shape)}
            return f(np.broadcast_to(x.value(inner), shape), axis=-1)

        return Expression(f"(reduce (shape = [M], op = {op}) |j| {x.text})", value)

    return st.one_of(
        st.builds(binary, st.sampled_from("+-*"), inner, inner),
        st.builds(function, st.sampled_from(["tanh", "sin", "exp", "abs"]), inner),
        st.builds(choice, inner, inner, inner),
        st.builds(guarded, inner),
    ) | st.builds(reduction, st.sampled_from(["sum", "min", "max"]), st.recursive(leaves(), larger_flat, max_leaves=3))


def larger_flat(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    """Sums and products."""
    return st.builds(
        lambda x, y: Expression(f"({x.text}) * ({y.text}) + 1", lambda v: x.value(v) * y.value(v) + 1), inner, inner
    )


EXPRESSIONS = st.recursive(leaves(), larger, max_leaves=6)


def program(expression: Expression) -> tuple[fe.Program, dict[str, Any], Any]:
    """A program of an expression, its arguments, and what numpy says."""
    text = (
        "a: Tensor<N; f64>\nb: Tensor<N, M; f64>\n"
        f"y: Tensor<N, M; f64> = compute (shape = [N, M]) |i, j| {expression.text}\n"
    )
    rng = np.random.default_rng(0)
    given_ = {"a": rng.standard_normal(N), "b": rng.standard_normal((N, M))}
    i, j = np.arange(N).reshape(N, 1), np.arange(M).reshape(1, M)
    with np.errstate(all="ignore"):
        wanted = np.broadcast_to(np.asarray(expression.value({**given_, "i": i, "j": j}), np.float64), (N, M))
    return fe.program(text, language="declarative"), given_, wanted


@cases(60)
@given(EXPRESSIONS)
def test_expressions_against_numpy(expression: Expression) -> None:
    """And their canonical text is the same program."""
    read, arguments, wanted = program(expression)
    assert fe.program(str(read), language="declarative") == read
    np.testing.assert_allclose(read.interpret(**arguments), wanted, rtol=1e-9, atol=1e-9)


@cases(8)
@given(EXPRESSIONS)
def test_expressions_on_a_device(cpu: Device, expression: Expression) -> None:
    """Whatever is hoisted, fused or put into vectors."""
    read, arguments, wanted = program(expression)
    np.testing.assert_allclose(fe.build(read, device=cpu, route="general")(**arguments), wanted, rtol=1e-9, atol=1e-9)


def results(program: fe.Program, found: Any) -> dict[str, Any]:
    """What a program returns, by name."""
    names = signature(program.function()).results
    return dict(zip(names, found if isinstance(found, tuple) else (found,), strict=True))


def require_same(found: dict[str, Any], wanted: Any, random: RandomProgram) -> None:
    """Types and shapes are the same, and numbers but for their rounding."""
    assert found
    for name, value in found.items():
        assert value.dtype == wanted[name].dtype, name
        assert value.shape == wanted[name].shape, name
        if value.dtype.kind != "f":
            np.testing.assert_array_equal(value, wanted[name], err_msg=name)
            continue
        rounding = 2e-4 if value.dtype == np.float32 or "f32" in random.text else 1e-9
        with np.errstate(all="ignore"):
            scale = np.abs(wanted[name][np.isfinite(wanted[name])]).max(initial=1.0)
        np.testing.assert_allclose(value, wanted[name], rtol=rounding, atol=rounding * scale, err_msg=name)


@cases(25)
@given(programs())
def test_programs_against_scalars(random: RandomProgram) -> None:
    """Of all types, forms and reductions: the interpreter, and numpy's scalars one after the other."""
    program = fe.program(random.text, language="declarative")
    assert fe.program(str(program), language="declarative") == program
    require_same(results(program, program.interpret(**random.arguments)), random.wanted, random)


@cases(4)
@given(random=programs(), axis=st.sampled_from("NM"))
def test_programs_with_an_empty_axis(cpu: Device, random: RandomProgram, axis: str) -> None:
    """Kernels give what the interpreter gives where an axis has no elements, unless that is undefined."""
    arguments = {
        name: value[tuple(slice(0 if one == axis else None) for one in name.rpartition("_")[2])]
        if isinstance(value, np.ndarray)
        else value
        for name, value in random.arguments.items()
    }
    program = fe.program(random.text, language="declarative")
    kernel = fe.build(program, device=cpu)
    try:
        wanted = results(program, program.interpret(**arguments))
        found = results(program, kernel(**arguments))
    except LanguageError as error:
        if not error.rule.startswith("run-") and error.rule != "lowering":
            raise
        reject()
    require_same(found, wanted, random)


@pytest.mark.parametrize("route", ["auto", "general"])
@cases(3)
@given(random=programs(), library=st.sampled_from(["numpy", "torch", "DLPack", "pyopencl"]), data=st.data())
def test_programs_on_a_device(cpu: Device, route: str, random: RandomProgram, library: str, data: st.DataObject) -> None:
    """The same by kernels, of arrays of all kinds of a library."""
    program = fe.program(random.text, language="declarative")
    kernel = fe.build(program, device=cpu, route=route)
    try:
        found = kernel({n: made(data.draw, [library], value, cpu.queue) for n, value in random.arguments.items()})
    except LanguageError as error:
        if error.rule != "lowering":  # what is not lowered is refused, and never anything else
            raise
        reject()
    by_name = {name: shown(value) for name, value in results(program, found).items()}
    require_same(by_name, random.wanted, random)
