"""The table of elementwise functions: what a row says holds, and every room that reads the table has all of its rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import feinsum as fe
from feinsum.compile.executable import build_executable
from feinsum.compile.realize import realize
from feinsum.elementwise import EXPANDED, FUNCTIONS, MATH, Function
from feinsum.epilogue.epilogue_values import evaluate_epilogue
from feinsum.languages.declarative import forms
from feinsum.registry import find_space
from feinsum.validate import proof
from feinsum.validate.intervals import Interval, IntervalArithmetic

ROOT = Path(__file__).parents[1]
REALS = [row for row in FUNCTIONS.values() if "f" in row.kinds and not row.condition and row.name != "where"]
UNARY = [row for row in MATH.values() if row.arity == 1]
NAMES = {"ids": lambda row: row.name}


def inside(row: Function) -> np.ndarray[Any, Any]:
    """Some arguments for which a function is defined."""
    least, most = row.domain
    points = np.linspace(max(-3.0, least), min(3.0, most), 41)
    return points[(points > least) & (points < most)]


@pytest.mark.parametrize("row", UNARY, **NAMES)
def test_a_function_is_defined_in_its_domain_alone(row: Function) -> None:
    """Finite inside, where an epilogue of plain numbers has the same value, and NaN outside."""
    points = inside(row)
    values = row.evaluate(points)
    assert np.isfinite(values).all()
    if row.fold is not None:
        np.testing.assert_allclose([row.fold(float(x)) for x in points], values, rtol=1e-14, atol=1e-300)
    with np.errstate(all="ignore"):
        outside = row.evaluate(np.array([end + sign * 0.1 for end, sign in zip(row.domain, (-1, 1), strict=True)]))
    assert np.isnan(outside[np.isfinite(row.domain)]).all()


@pytest.mark.parametrize("row", [row for row in UNARY if row.slope is not None], **NAMES)
def test_a_slope_bounds_differences(row: Function) -> None:
    """And values lie in the image."""
    points = np.linspace(-7, 7, 10_001)
    values = row.evaluate(points)
    assert row.slope is not None
    assert abs(np.diff(values)).max() <= row.slope * (points[1] - points[0]) * (1 + 1e-9)
    assert values.min() >= row.image[0]
    assert values.max() <= row.image[1]


@pytest.mark.parametrize("row", REALS, **NAMES)
@settings(deadline=None, max_examples=25)
@given(st.data())
def test_values_of_an_interval_lie_within_its_bounds(row: Function, data: st.DataObject) -> None:
    """Whichever values the arguments have within theirs: what the row says of turns, domain and slope is true."""
    ends = st.floats(-4, 4, allow_subnormal=False).map(lambda end: end + 0.0)  # zeros have no sign here
    given_ends = [sorted((data.draw(ends), data.draw(ends))) for _ in range(row.arity)]
    shares = [np.linspace(0, 1, 17), np.linspace(0, 1, 17)[:, None]]
    with np.errstate(all="ignore"):
        points = [low + share * (high - low) for (low, high), share in zip(given_ends, shares, strict=False)]
        arguments = [Interval(np.asarray(low), np.asarray(low), np.asarray(high)) for low, high in given_ends]
        found = IntervalArithmetic(np.dtype("float64")).apply(row.name, arguments)
        values = row.evaluate(*(np.clip(p, low, high) for p, (low, high) in zip(points, given_ends, strict=True)))
    if np.isnan(found.low) or np.isnan(found.high):  # one value, infinite or none
        np.testing.assert_array_equal(values, found.mid)
    else:
        assert np.nanmin(values, initial=np.inf) >= found.low
        assert np.nanmax(values, initial=-np.inf) <= found.high


def test_a_negative_zero_bounds_no_function_from_above() -> None:
    """The inverse root of it is negative, and of all numbers next to it very large."""
    zero, one = np.asarray(-0.0), np.asarray(1.0)
    with np.errstate(divide="ignore"):
        found = IntervalArithmetic(np.dtype("float64")).apply("rsqrt", [Interval(one, zero, one)])
    assert (found.low <= 1, found.high) == (True, np.inf)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["generic", "vector_panels"])
def test_every_function_of_reals_is_proved_in_epilogues(name: str, dtype: str, cpu: fe.Device) -> None:
    """Of numbers and of vectors: it differs from the reference by no more than the error in its row."""
    x, y = fe.array("x", ("N", 8), dtype), fe.array("y", (8, 64), dtype)
    e = fe.batched_einsum("ik,kj->ij", [[x, y]] * len(MATH))
    e = e.then([f"{row.name}({', '.join(['v', 'v - 1'][: row.arity])})" for row in MATH.values()])
    space = find_space(name)
    program = realize(e, {"N": 1000}, space, space.default(space.problem(e, {"N": 1000}, cpu.profile)), cpu.profile)
    executable = build_executable(cpu.context, program)
    for workload in proof(e, e.resolve({"N": 67}), cpu.queue, 1):
        verdict = workload.check(executable)
        assert verdict.ok, verdict.message


def test_every_function_runs_in_a_program(cpu: fe.Device) -> None:
    """On a device as in the interpreter, which applies numpy's; no epilogue lacks one, but those of integers."""
    rows = {name: row for name, row in forms.FUNCTIONS.items() if "f" in row.kinds}
    assert {*rows, "where", "conj"} >= {*MATH, *rows}
    lines = [f"y_{name} = compute (shape = [N]) |i| {_as_number(name, row)}" for name, row in rows.items()]
    program = fe.program("\n".join(["x = Tensor<N; f64>", *lines]), language="declarative")
    x = np.append(np.linspace(0.05, 0.95, 50), 0.5)  # halfway between two integers, too
    with np.errstate(invalid="ignore"):  # acosh begins at 1
        wanted = program.interpret(x=x)
    for (name, row), got, right in zip(rows.items(), fe.build(program, device=cpu)(x=x), wanted, strict=True):
        np.testing.assert_allclose(got, right, rtol=max(row.ulps, 1) * 2.0**-52, err_msg=name)


def test_exact_functions_take_the_integers_of_programs(cpu: fe.Device) -> None:
    """Which have no fraction to lose, and are never NaN."""
    exact = [name for name, row in forms.FUNCTIONS.items() if not row.ulps and row.arity == 1]
    assert {"abs", "floor", "ceil", "trunc", "rint", "isnan"} <= {*exact}
    lines = [f"y_{x} = compute (shape = [N]) |i| {_as_number(x, forms.FUNCTIONS[x])}" for x in exact]
    program = fe.program("\n".join(["x = Tensor<N; i32>", *lines]).replace("1.0", "1"), language="declarative")
    x = np.arange(-3, 4, dtype="int32")
    for name, found in zip(exact, fe.build(program, device=cpu)(x=x), strict=True):
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, abs(x) if name == "abs" else x)


def _as_number(name: str, row: Function) -> str:
    call = f"{name}({', '.join(['x[i]', '0.5 - x[i]'][: row.arity])})"
    return f"if {call} then 1.0 else x[i]" if row.condition else call


@pytest.mark.parametrize("name", sorted({*forms.FUNCTIONS} - {"cdiv", "floordiv"}))
def test_epilogues_have_the_functions_of_programs(name: str) -> None:
    """Those of numbers, under the same name."""
    row = forms.FUNCTIONS[name]
    call = f"{name}({', '.join(['v', '2'][: row.arity])})"
    text = f"where({call}, 0, v)" if row.condition else call
    e = fe.einsum("i->i", fe.array("x", "N")).then(text)
    own = e.epilogues[0]
    assert own is not None
    x = np.array([0.5, np.nan])
    with np.errstate(all="ignore"):
        wanted = np.where(row.evaluate(x), 0, x) if row.condition else row.evaluate(*[x, 2.0][: row.arity])
        found = evaluate_epilogue(own, x, None, {}, {})
    assert name in EXPANDED or name in text
    known = 1 if name in ("min", "max") else 2  # epilogues ignore the NaN of these two
    np.testing.assert_array_equal(found[:known], wanted[:known])
