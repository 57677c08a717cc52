"""`fe.transform`: the best known transformation for a part of somebody else's kernel, the rest left alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import loopy as lp
import numpy as np
import pytest
from kernels import DOMAIN, make_kernel, run
from numpy.testing import assert_allclose
from pymbolic import var
from wave_equation import PARTS, wave_data, wave_equation, wave_reference

import feinsum as fe
from feinsum.candidates.ladder import ConfigurationChoice, candidates
from feinsum.compile.codegen import generate_program
from feinsum.devices import Device
from feinsum.generate import expected_sizes
from feinsum.generate import transform as module
from feinsum.match import isolate
from feinsum.registry import find_space

pytestmark = pytest.mark.slow


def equal_to_reference(t_unit: lp.TranslationUnit, order: int, elements: int) -> None:
    data = wave_data(elements, order)
    found = run(t_unit, **data)
    for name, values in wave_reference(data).items():
        assert_allclose(found[name], values, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("order", [1, 3])
@pytest.mark.parametrize("parts", [PARTS, PARTS[::-1]], ids=["forwards", "backwards"])
def test_every_part_of_the_wave_equation_is_transformed_by_its_own_space(
    parts: tuple[str, ...], order: int, cpu: Device, store: str
) -> None:
    """Gradient, divergence and lift are transformed one by one; the whole equals numpy at lengths that divide nothing."""
    t_unit = wave_equation(order)
    for part in parts:
        t_unit = fe.transform(t_unit, cpu, insn_match=f"id:{part}", database=store, sizes={"E": 10_000})
    for elements in (1, 67):
        equal_to_reference(t_unit, order, elements)
    assert len(generate_program(t_unit).launches) == 3


def test_the_rest_of_the_kernel_is_left_alone(cpu: Device, store: str) -> None:
    """Instructions, loops and arguments of other parts are what they were."""
    before = wave_equation()
    after = fe.transform(before, cpu, insn_match="id:gradient", database=store, sizes={"E": 1000})
    old, new = before.default_entrypoint, after.default_entrypoint
    for part in ("divergence", "lift"):
        assert new.id_to_insn[part] == old.id_to_insn[part]
        for iname in old.id_to_insn[part].within_inames:
            assert new.get_iname_bounds(iname).size == old.get_iname_bounds(iname).size
            assert not new.iname_tags(iname)
    assert [arg.name for arg in new.args] == [arg.name for arg in old.args]


def test_emitted_kernel_is_transformed_after_extraction(cpu: Device, store: str) -> None:
    """What an array compiler emits becomes operands by extract_operands, and then is transformed like the rest."""
    t_unit = fe.extract_operands(wave_equation(2, rules=False))
    for match in fe.find_einsums(t_unit):
        t_unit = fe.transform(t_unit, cpu, insn_match=f"id:{match.insn_ids[0]}", database=store, sizes={"E": 1000})
    equal_to_reference(t_unit, 2, 35)


@pytest.mark.parametrize(
    ("kind", "other"), [("float32", "float64"), ("int32", "float64"), ("float32", "complex128"), ("int8", "int64")]
)
def test_operands_of_several_types_are_converted(kind: str, other: str, cpu: Device, store: str) -> None:
    """Rules without casts, as compilers write them: C converts each factor, and vectors of OpenCL have to be converted."""
    types = {"D": kind, "u": other, "y": other}
    t_unit = make_kernel("y[e, i] = sum(j, D_(i, j)*u_(e, j))", dtypes=types)
    rng = np.random.default_rng(0)
    D, u = rng.integers(-9, 9, (4, 4)).astype(kind), rng.integers(-9, 9, (67, 4)).astype(other)
    found = run(fe.transform(t_unit, cpu, database=store, sizes={"n": 10_000}), D=D, u=u)
    assert_allclose(found["y"], u @ D.T.astype(other), rtol=1e-13)


@pytest.mark.parametrize("wide", ["both", "index", "length"])
@pytest.mark.parametrize(("kind", "other"), [("complex128", "float64"), ("float64", "float64"), ("float32", "complex64")])
def test_lengths_may_have_64_bits(
    kind: str, other: str, wide: str, cpu: Device, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As those of pytato have; indices too, or alone.  OpenCL has no ``min`` of a long and an int, so all get one type."""
    types = {"D": kind, "u": other, "y": np.result_type(kind, other)}
    index = np.dtype("int32" if wide == "length" else "int64")
    t_unit = make_kernel("y[e, i] = sum(j, D_(i, j)*u_(e, j))", dtypes=types, index_dtype=index)
    kernel = t_unit.default_entrypoint
    arguments = [lp.ValueArg("n", "int32" if wide == "index" else "int64") if a.name == "n" else a for a in kernel.args]
    t_unit = t_unit.with_kernel(kernel.copy(args=arguments))
    rng = np.random.default_rng(0)
    D, u = rng.normal(size=(4, 4)).astype(kind), rng.normal(size=(67, 4)).astype(other)
    found = run(fe.transform(t_unit, cpu, database=store, sizes={"n": 10_000}), D=D, u=u)
    assert_allclose(found["y"], u @ D.T, rtol=1e-4 if "64" in kind + other and "32" in kind else 1e-12)
    assert "passed over" not in caplog.text


def test_what_is_returned_builds(
    cpu: Device, store: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A transformation that makes what no compiler takes gives way to the next one, which is said."""

    def broken(choice: ConfigurationChoice) -> ConfigurationChoice:
        def function(*arguments: Any, **values: Any) -> lp.TranslationUnit:
            made = choice.space.function(*arguments, **values)
            kernel = made.default_entrypoint
            rows = [insn.copy(expression=var("fmin")(insn.expression)) for insn in kernel.instructions]
            return made.with_kernel(kernel.copy(instructions=rows))

        return replace(choice, space=replace(choice.space, function=function))

    def first_is_broken(*asked: Any) -> Iterator[ConfigurationChoice]:
        for number, choice in enumerate(candidates(*asked)):
            yield choice if number else broken(choice)

    monkeypatch.setattr(module, "candidates", first_is_broken)
    rng = np.random.default_rng(0)
    data = {"D": rng.normal(size=(4, 4)), "u": rng.normal(size=(67, 4))}
    t_unit = make_kernel("y[e, i] = sum(j, D_(i, j)*u_(e, j))")
    found = run(fe.transform(t_unit, cpu, database=store, sizes={"n": 10_000}), **data)
    assert_allclose(found["y"], data["u"] @ data["D"].T, rtol=1e-12, atol=1e-12)
    assert "is passed over: " in caplog.text


@pytest.mark.parametrize(
    "rule",
    ["D[a, b] if a < b else 0.0", "D[a, b] if D[a, b] > 0 and a > 1 else D[b, a]", "D[a, b]*(a + 2*b)", "exp(D[a, 3 - b])"],
)
def test_a_rule_may_depend_on_where_it_is_read(rule: str, cpu: Device, store: str) -> None:
    """A triangle, a choice by value, a weight of the indices: vectors load no rows of such an operand, or use them all."""
    t_unit = make_kernel("y[e, i] = sum(j, f(i, j)*u_(e, j))", rules=f"f(a, b) := {rule}\nu_(a, b) := u[a, b]\n")
    rng = np.random.default_rng(0)
    data = {"D": rng.normal(size=(4, 4)), "u": rng.normal(size=(67, 4))}
    found = run(fe.transform(t_unit, cpu, database=store, sizes={"n": 10_000}), **data)
    assert_allclose(found["y"], run(t_unit, **data)["y"], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rule", ["D[a, b]**2", "exp(-D[a, b]**2)/D[a, b]**0.5", "D[a, b]*(D[a, b] > 0.5)"])
@pytest.mark.parametrize("array", ["D", "u"])
def test_a_rule_may_be_any_function_of_an_array(array: str, rule: str, cpu: Device, store: str) -> None:
    """loopy makes no vectors of powers; a plan without vectors is taken."""
    other = "uD"[array == "u"]
    rules = f"{array}_(a, b) := {rule.replace('D', array)}\n{other}_(a, b) := {other}[a, b]\n"
    t_unit = make_kernel("y[e, i] = sum(j, D_(i, j)*u_(e, j))", rules=rules)
    rng = np.random.default_rng(0)
    data = {"D": rng.random((4, 4)) + 0.1, "u": rng.random((67, 4)) + 0.1}
    found = run(fe.transform(t_unit, cpu, database=store, sizes={"n": 10_000}), **data)
    assert_allclose(found["y"], run(t_unit, **data)["y"], rtol=1e-12)


def test_types_that_loopy_infers_need_not_be_given(cpu: Device, store: str, caplog: pytest.LogCaptureFixture) -> None:
    """Those of results, as kernels made by hand leave them; no transformation fails for want of them."""
    t_unit = make_kernel("y[e, i] = sum(j, D_(i, j)*u_(e, j))", dtypes={"y": None})
    rng = np.random.default_rng(0)
    data = {"D": rng.normal(size=(4, 4)), "u": rng.normal(size=(67, 4))}
    found = run(fe.transform(t_unit, cpu, database=store, sizes={"n": 10_000}), **data)
    assert_allclose(found["y"], data["u"] @ data["D"].T, rtol=1e-12, atol=1e-12)
    assert "passed over" not in caplog.text


def test_lengths_are_expected_of_parameters_of_the_kernel(cpu: Device, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a long axis is more than one of them; a name that no length has is an error that lists those that do."""
    t_unit = make_kernel("y[e, i] = sum(j, D_(i, j)*u_(e, j))", domain=DOMAIN.replace("e < n", "e < 2*n"))
    expected: list[Any] = []
    monkeypatch.setattr(module, "expected_sizes", lambda e, sizes: expected.append(sizes) or expected_sizes(e, sizes))
    fe.transform(t_unit, cpu, database=store, sizes={"n": 500})
    assert [list(sizes.values()) for sizes in expected] == [[1000]]
    with pytest.raises(fe.ShapeError, match=r"sizes has 'E', which is in no length of the einsum; these have \['n'\]"):
        fe.transform(t_unit, cpu, database=store, sizes={"E": 500})


def test_what_does_not_build_with_a_rule_is_passed_over(cpu: Device, store: str) -> None:
    """A weight by the number of a row, which panels clamp: loopy makes no vectors of that; another plan is taken."""
    t_unit = make_kernel(
        "y[e, i] = f(e)*x_(i)",
        rules="f(a) := w[a]*(a + 1)\nx_(a) := x[a]*x[a]\n",
        arrays={"x": (20,), "y": ("n", 20)},
        domain="[n] -> {[e, i]: 0 <= e < n and 0 <= i < 20}",
    )
    rng = np.random.default_rng(0)
    data = {"w": rng.normal(size=67), "x": rng.normal(size=20)}
    found = run(fe.transform(t_unit, cpu, database=store, sizes={"n": 1000}), **data)
    assert_allclose(found["y"], run(t_unit, **data)["y"], rtol=1e-12)


def test_what_is_no_einsum_is_refused_with_the_matchers_reason(cpu: Device, store: str) -> None:
    """The whole kernel is three einsums; asked to transform it as one, the matcher says which instruction differs."""
    with pytest.raises(fe.MatchError, match="'divergence' is no einsum"):
        fe.transform(wave_equation(), cpu, database=store)


@pytest.mark.parametrize("space", ["vector_panels", "contraction_steps", "matrix_product", "generic"])
def test_other_instructions_may_call_functions(space: str, cpu: Device) -> None:
    """A limiter beside an einsum calls fmax, which is no operand of anybody; the einsum is transformed all the same."""
    t_unit = lp.make_kernel(
        "[E] -> {[e, i, j, g, m]: 0 <= e, g < E and 0 <= i, j, m < 10}",
        """
        D_rule(i_, j_) := D[i_, j_]
        u_rule(e_, j_) := u[e_, j_]
        a[e, i] = sum(j, D_rule(i, j)*u_rule(e, j)) {id=apply}
        ... gbarrier {id=done, dep=apply}
        worst[g, m] = fmax(a[g, m], u[g, m]) {id=limit, dep=done}
        """,
        [
            lp.GlobalArg("D", shape=(10, 10), dtype="float64"),
            lp.GlobalArg("u", shape=("E", 10), dtype="float64"),
            lp.GlobalArg("a,worst", shape=("E", 10), dtype="float64", is_input=False),
            lp.ValueArg("E", dtype="int32"),
        ],
        target=lp.PyOpenCLTarget(),
        assumptions="E >= 1",
        lang_version=(2018, 2),
    )
    t_unit, match = isolate(t_unit, fe.match_einsum(t_unit, insn_match="id:apply"))
    s = find_space(space)
    problem = s.problem(match.einsum, {"E": 10_000}, cpu.profile)
    found = run(s.transform(t_unit, match, s.default(problem), problem), **(data := limited()))
    assert_allclose(found["a"], data["u"] @ data["D"].T, rtol=1e-12, atol=1e-12)
    assert_allclose(found["worst"], np.maximum(data["u"] @ data["D"].T, data["u"]), rtol=1e-12, atol=1e-12)


def limited() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {"D": rng.normal(size=(10, 10)), "u": rng.normal(size=(67, 10))}
