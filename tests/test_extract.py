"""Turning what array compilers emit, plain reads and fused arithmetic, into operands that match."""

from __future__ import annotations

from itertools import product
from typing import Any

import loopy as lp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels import make_kernel, run
from loopy.library.reduction import SumReductionOperation
from loopy.symbolic import Reduction, SubstitutionRuleExpander
from numpy.testing import assert_allclose
from pymbolic import evaluate, parse
from pymbolic.primitives import Power, Product, Quotient, Sum, Variable

from feinsum.errors import MatchError
from feinsum.match import add_loop, extract_operands, find_einsums, match_einsum

MORE = {"r": (4,), "q": (4, 4), "c": (), "h": ("n",), "m": (4,), "yf": ("n", 4), "uf": ("n", 4), "xf": (4,)}
SINGLE = {"m": "int32", "yf": "float32", "uf": "float32", "xf": "float32"}


def compile_like(text: str, **options: Any) -> lp.TranslationUnit:
    """A kernel without substitution rules, but for one with the name of a common helper."""
    return make_kernel(
        text,
        rules=options.pop("rules", ""),
        arrays=MORE,
        dtypes=SINGLE,
        more=[lp.ValueArg("alpha", dtype="float64")],
        **options,
    )


EXTRACTED = {
    "plain reads": ("y[e, i] = sum(j, D[i, j]*u[e, j])", "ij,ej->ei [D u]", ["D[i0, i1]", "u[i0, i1]"]),
    "fused arithmetic": (
        "y[e, i] = sum(j, 2*D[i, j]*(u[e, j] + 3*v[e, j]))",
        "ij,ej->ei [D u*v]",
        ["2*D[i0, i1]", "u[i0, i1] + 3*v[i0, i1]"],
    ),
    "a square": ("s = sum(j, x[j]*x[j])", "j,j-> [x x]", ["x[i0]", "x[i0]"]),
    "a power": ("s = sum(j, x[j]**2)", "j-> [x]", ["x[i0]**2"]),
    "a minus": ("y[e, i] = sum(j, -(D[i, j]*u[e, j]))", "ij,ej->ei [D u]", ["(-1)*D[i0, i1]", "u[i0, i1]"]),
    "a divisor": ("y[e, i] = sum(j, D[i, j]*u[e, j]/w[e])", "ij,ej,e->ei [D u w]", ["D[i0, i1]", "u[i0, i1]", "1 / w[i0]"]),
    "a constant divisor": ("y[e, i] = sum(j, D[i, j]*u[e, j]/3)", "ij,ej->ei [D u]", ["D[i0, i1] / 3", "u[i0, i1]"]),
    "a value argument": ("y[e, i] = sum(j, alpha*D[i, j]*u[e, j])", "ij,ej->ei [D u]", ["alpha*D[i0, i1]", "u[i0, i1]"]),
    "a scalar": ("y[e, i] = sum(j, c*D[i, j]*u[e, j])", ",ij,ej->ei [c D u]", ["c", "D[i0, i1]", "u[i0, i1]"]),
    "a function": ("y[e, i] = sum(j, D[i, j]*sin(u[e, j]))", "ij,ej->ei [D u]", ["D[i0, i1]", "sin(u[i0, i1])"]),
    "a diagonal": ("s = sum(i, D[i, i])", "ii-> [D]", ["D[i0, i1]"]),
    "an offset": ("y[e, i] = sum(j, u[e, j + 1]*D[i, j])", "ej,ij->ei [u_0 D]", ["u[i0, i1 + 1]", "D[i0, i1]"]),
    "two index tuples": (
        "y[e, i] = sum(j, D[i, j]*(u[e, j] + w[e]))",
        "ij,ej->ei [D u_w_1]",
        ["D[i0, i1]", "u[i0, i1] + w[i0]"],
    ),
    "an iname": (
        "y[e, i] = sum(j, D[i, j]*u[e, j]*(j + 1))",
        "ij,ej,j->ei [D u operand_2]",
        ["D[i0, i1]", "u[i0, i1]", "i0 + 1"],
    ),
    "an indirection": ("y[e, i] = sum(j, D[i, m[j]]*u[e, j])", "ij,ej->ei [D_m_0 u]", ["D[i0, m[i1]]", "u[i0, i1]"]),
    "a sum of products": ("r[i] = sum(j, D[i, j]*x[j] + D[j, i])", "ij->i [D_x_0]", ["D[i0, i1]*x[i1] + D[i1, i0]"]),
    "single precision": ("yf[e, i] = sum(j, 0.1*uf[e, j]*xf[i])", "ej,i->ei [uf xf]", ["0.1*uf[i0, i1]", "xf[i0]"]),
    "nested parentheses": ("y[e, i] = sum(j, (2*(D[i, j]*w[e]))*(u[e, j]*0.5))", "ij,e,ej->ei [D w u]",
                           ["2*0.5*D[i0, i1]", "w[i0]", "u[i0, i1]"]),
    "a condition": ("y[e, i] = sum(j, D[i, j]*(u[e, j] if u[e, j] > 0 else 0))", "ij,ej->ei [D u]",
                    ["D[i0, i1]", "u[i0, i1] if u[i0, i1] > 0 else 0"]),
    "a sum in a sum": ("r[i] = sum(j, D[i, j]*sum(k, D[j, k]*x[k]))", "ij,jk,k->i [D D x]",
                       ["D[i0, i1]", "D[i0, i1]", "x[i0]"]),
    "integers stay whole": (
        "r[i] = sum(j, m[j]*x[j]*D[i, j]/m[i])",
        "j,j,ij->i [m x D_m_2]",
        ["m[i0]", "x[i0]", "D[i0, i1] / m[i0]"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXTRACTED)
def test_factors_become_operands(name: str) -> None:
    """Each factor is one operand: reads at one index tuple are a set of arrays, anything else is opaque."""
    text, expected, rules = EXTRACTED[name]
    t_unit = extract_operands(compile_like(text), insn_match="id:insn")
    match = match_einsum(t_unit)
    assert str(match.einsum).partition("]")[0] + "]" == expected
    found = [t_unit.default_entrypoint.substitutions[rule].expression for rule in match.rules[0]]
    assert [str(expression).replace(" ", "") for expression in found] == [rule.replace(" ", "") for rule in rules]


def test_extracted_kernels_compute_the_same() -> None:
    """Extraction changes the form of a kernel and not its values."""
    texts = [text for name, (text, _, _) in EXTRACTED.items() if name not in ("an offset", "single precision")]
    arrays, lines = {}, []
    for k, text in enumerate(texts):
        target, _, value = text.partition(" = ")
        name, bracket, index = target.partition("[")
        arrays[f"out{k}"] = {"y": ("n", 4), "r": (4,), "s": ()}[name]
        lines.append(f"out{k}{bracket}{index} = {value}")
    t_unit = make_kernel(
        "\n".join(lines),
        rules="",
        arrays={**MORE, **arrays},
        dtypes=SINGLE,
        more=[lp.ValueArg("alpha", dtype="float64")],
        domain="[n] -> {[e, i, j, k]: 0 <= e < n and 0 <= i, j, k < 4}",
    )
    t_unit = separate_loops(t_unit)
    extracted = extract_operands(t_unit)
    assert sum(match.einsum.b for match in find_einsums(extracted)) == len(texts)
    rng = np.random.default_rng(1)
    shapes = {"D": (4, 4), "u": (5, 4), "v": (5, 4), "x": (4,), "w": (5,), "c": ()}
    data: dict[str, Any] = {name: np.array(rng.uniform(0.5, 2, shape)) for name, shape in shapes.items()}
    data |= {"m": np.array([3, 1, 2, 1], np.int32), "alpha": 0.3, "n": 5}
    expected, found = run(t_unit, **data), run(extracted, **data)
    assert set(expected) == set(found) == set(arrays)
    for name, values in expected.items():
        assert_allclose(found[name], values, rtol=1e-13)


def separate_loops(t_unit: lp.TranslationUnit) -> lp.TranslationUnit:
    """Loops of its own for each instruction, so that sums over one iname at several depths can be scheduled."""
    for insn in t_unit.default_entrypoint.instructions:
        inames = sorted(insn.within_inames | insn.reduction_inames())
        t_unit = lp.duplicate_inames(t_unit, ",".join(inames), within=f"id:{insn.id}")
    return t_unit


def test_only_sums_are_touched_unless_chosen() -> None:
    """Without a choice, elementwise instructions and those that are no einsum even so are left as they are."""
    text = """
    y[e, i] = sum(j, D[i, j]*u[e, j]) {id=sum}
    t[e] = 2*w[e] {id=elementwise}
    r[i] = sum(j, x[j] + D[i, j]*sum(k, D[j, k])) {id=nested}
    q[i, k] = sum(j, D[i, j]) {id=broadcast}
    h[e] = reduce(max, j, u[e, j]) {id=maximum}
    """
    t_unit = compile_like(text)
    reasons: dict[str, str] = {}
    extracted = extract_operands(t_unit, reasons=reasons)
    assert {insn_id: reason.partition(": ")[2] for insn_id, reason in reasons.items()} == {
        "nested": "it has 2 reductions nested in one another; give each an instruction",
        "broadcast": "the output is indexed by 'k' but no operand is",
        "maximum": "it reduces with 'max', not with sum",
    }
    before, after = t_unit.default_entrypoint, extracted.default_entrypoint
    assert set(after.substitutions) == {"D_0", "u_1"}
    assert [name for name in before.id_to_insn if before.id_to_insn[name] is not after.id_to_insn[name]] == ["sum"]
    assert extract_operands(extracted) is extracted
    chosen = extract_operands(t_unit, insn_match="id:elementwise")
    assert match_einsum(chosen, insn_match="id:elementwise").einsum.subscripts == "e->e"


REFUSED = {
    "whole numbers": ("m[i] = m[i]/2 + sum(j, m[j])", "its sum is part of the expression"),
    "own result": ("y[e, i] = y[e, i] + 0.5*sum(j, D[i, j]*y[e, j])", "its sum is part of the expression"),
    "broadcast": ("q[i, k] = sum(j, D[i, j])", "the output is indexed by 'k' but no operand is"),
    "maximum": ("h[e] = reduce(max, j, u[e, j])", "it reduces with 'max'"),
    "nested": ("r[i] = sum(j, x[j] + D[i, j]*sum(k, D[j, k]))", "it has 2 reductions nested in one another"),
    "constant": ("r[i] = sum(j, 2)", "the factor 2 invokes no substitution rule"),
    "output": ("x[i] = sum(j, D[i, j]*x[j])", "it reads 'x', which it also writes"),
    "hidden iname": ("r[i] = sum(j, 2*hidden(i)*x[j])", "the loop 'k' is around it but does not index"),
    "type": ("yf[e, i] = sum(j, D[i, j]*uf[e, j])", "'yf' is float32 but the operands give float64"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_chosen_instruction_that_is_no_einsum_even_so_is_refused(name: str) -> None:
    """Asking for an instruction by name gives an einsum or the reason why there is none."""
    text, reason = REFUSED[name]
    t_unit = compile_like(text, rules="hidden(a) := D[a, k]\n")
    with pytest.raises(MatchError, match=reason):
        extract_operands(t_unit, insn_match="id:insn")
    assert extract_operands(t_unit) is t_unit


SPLIT = {
    "a factor": ("r[i] = 2*sum(j, D[i, j]*x[j])/alpha", ["ij,j->i"], "r"),
    "an update": ("y[e, i] = z[e, i] + 0.5*sum(j, D[i, j]*u[e, j])", ["ij,ej->ei"], "y"),
    "its old value": ("y[e, i] = alpha*y[e, i] + sum(j, D[i, j]*u[e, j])", ["ij,ej->ei"], "y"),
    "a function of two": ("r[i] = sin(sum(j, D[i, j]*x[j])) - 3*sum(j, D[j, i])", ["ij,j->i", "ji->i"], "r"),
    "a scalar": ("s = 1 + sum(j, x[j]*x[j])", ["j,j->"], "s"),
}


@pytest.mark.parametrize("name", SPLIT)
def test_sums_in_expressions_become_instructions_of_their_own(name: str) -> None:
    """They match, and the kernel computes the same."""
    text, subscripts, result = SPLIT[name]
    t_unit = compile_like(text)
    extracted = extract_operands(t_unit)
    found = find_einsums(extracted)
    assert [match.einsum.subscripts for match in found] == subscripts
    rng = np.random.default_rng(3)
    shapes = {"D": (4, 4), "u": (5, 4), "x": (4,), "z": (5, 4), "y": (5, 4)}
    data: dict[str, Any] = {name: rng.uniform(0.5, 2, shape) for name, shape in shapes.items()}
    data |= {"alpha": 0.3, "n": 5}
    needed = {a.name for a in t_unit.default_entrypoint.args if a.name in t_unit.default_entrypoint.get_read_variables()}
    given = {name: value for name, value in data.items() if name in needed or name == "n"}
    expected = run(t_unit, **{k: np.copy(v) for k, v in given.items()})[result]
    assert_allclose(run(extracted, **{k: np.copy(v) for k, v in given.items()})[result], expected, rtol=1e-13)


def test_rules_stay_and_scaled_ones_show_their_arrays() -> None:
    """An invocation of a rule is an operand as it is; with a constant it becomes a rule of its own, arrays visible."""
    rules = "D_(a, b) := D[a, b]\nu_(a, b) := u[a, b]\n"
    t_unit = extract_operands(compile_like("y[e, i] = sum(j, D_(i, j)*u_(e, j)*x[j])", rules=rules))
    assert match_einsum(t_unit).rules == (("D_", "u_", "x_2"),)
    scaled = extract_operands(compile_like("y[e, i] = sum(j, 2*D_(i, j)*u_(e, j))", rules=rules))
    match = match_einsum(scaled)
    assert match.rules == (("D_0", "u_"),)
    assert str(match.einsum).startswith("ij,ej->ei [D u]")


def test_equal_operands_of_rows_share_a_rule() -> None:
    """Rows that read the same array at the same place have it as one operand, which can then be fetched once."""
    t_unit = extract_operands(compile_like("y[e, i] = sum(j, D[i, j]*u[e, j])\nz[e, i] = sum(j, D[i, j]*v[e, j])"))
    match = match_einsum(t_unit)
    assert match.einsum.b == 2
    assert match.rules[0][0] == match.rules[1][0]


def test_arguments_of_rules_are_named_like_no_array() -> None:
    """An array called i0 is not taken for the argument of that name."""
    t_unit = make_kernel("r[i] = sum(j, i0[i, j]*i1[j])", rules="", arrays={"i0": (4, 4), "i1": (4,), "r": (4,)})
    match = match_einsum(extract_operands(t_unit))
    assert str(match.einsum).startswith("ij,j->i [i0 i1]")


READS = [
    parse(text) for text in ("D[i, j]", "D[j, i]", "D[j, j]", "u[e, j]", "v[e, j]", "w[e]", "x[j]", "x[i]", "c", "alpha")
]
EXPRESSIONS = st.recursive(
    st.sampled_from([*READS, 2, 0.25, -3]),
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=4).map(lambda parts: Product(tuple(parts))),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: Sum(tuple(parts))),
        inner.map(lambda part: Product((-1, part))),
        st.tuples(inner, st.sampled_from([*READS, 2, 0.25])).map(lambda pair: Quotient(*pair)),
        inner.map(lambda part: Power(part, 2)),
    ),
    max_leaves=8,
)


@given(EXPRESSIONS)
@settings(max_examples=200, deadline=None)
def test_any_expression_keeps_its_value_at_every_point(body: Any) -> None:
    """Whatever stands under a sum, the product of the operands is what stood there; and what is changed matches."""
    t_unit = compile_like("y[e, i] = sum(j, D[i, j]*u[e, j])")
    (insn,) = t_unit.default_entrypoint.instructions
    insn = insn.copy(expression=Reduction(SumReductionOperation(), ("j",), body))
    t_unit = t_unit.with_kernel(t_unit.default_entrypoint.copy(instructions=[insn]))
    extracted = extract_operands(t_unit)
    kernel = extracted.default_entrypoint
    if extracted is not t_unit:
        assert match_einsum(extracted).einsum.n >= 1
    expanded = SubstitutionRuleExpander(kernel.substitutions)(kernel.instructions[0].expression.expr)
    rng = np.random.default_rng(2)
    shapes = {"D": (2, 2), "u": (2, 2), "v": (2, 2), "w": (2,), "x": (2,)}
    data: dict[str, Any] = {name: rng.uniform(0.5, 2, shape) for name, shape in shapes.items()}
    for e, i, j in product(range(2), repeat=3):
        context = {**data, "c": 1.25, "alpha": 0.75, "e": e, "i": i, "j": j}
        assert_allclose(evaluate(expanded, context), evaluate(body, context), rtol=1e-9, atol=1e-9)


def test_instructions_that_are_not_there_are_named() -> None:
    """Rather than nothing done in silence."""
    with pytest.raises(MatchError, match="no instruction of kernel 'loopy_kernel' is chosen by id:aply; there are apply"):
        extract_operands(make_kernel("y[e, i] = sum(j, D[i, j]*u[e, j]) {id=apply}"), insn_match="id:aply")


def test_numbers_of_numpy_in_indices_are_as_good_as_pythons() -> None:
    """Form compilers compute strides with numpy; a number in an index has no type of its own."""
    found = []
    for number in (int, np.int64, np.int32):
        at = Variable("A")[number(0) + Variable("j") * number(2) + Variable("k") * number(1)]
        t_unit = make_kernel(
            "A[2*j + k] = sum(i, D[j, i]*D[k, i])", "{[i, j, k]: 0 <= i < 4 and 0 <= j, k < 2}", arrays={"A": (4,)}
        )
        kernel = t_unit.default_entrypoint
        (insn,) = kernel.instructions
        t_unit = t_unit.with_kernel(kernel.copy(instructions=[insn.copy(assignee=at)]))
        found.append([str(match) for match in find_einsums(extract_operands(t_unit))])
    assert found[0]
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("bound", ["4", "m", "2*m - 1"])
def test_bounds_may_be_temporaries_that_hold_value_arguments(bound: str) -> None:
    """Array libraries write bounds of sums as instructions."""
    t_unit = make_kernel(
        "hi = " + bound + " {id=bound}\nt[e] = sum(j, a[e, j]) {id=sums, dep=bound}",
        ["[n] -> {[e]: 0 <= e < n}", "[hi] -> {[j]: 0 <= j < hi}"],
        rules="",
        arrays={"a": ("n", bound)},
        more=[lp.ValueArg("m", np.int32), lp.TemporaryVariable("hi", np.int32, shape=())],
    )
    (match,) = find_einsums(extract_operands(t_unit))
    assert match.einsum.index_sizes[match.einsum.indexing.summed[0]] == 4 if bound == "4" else bound in match.axes.values()


def test_predicates_and_rows_of_data_are_reasons() -> None:
    """Neither is offered as an einsum and refused by every space afterwards."""
    reasons: dict[str, str] = {}
    guarded = extract_operands(make_kernel("t[e] = sum(j, u[e, j]*x[j]) {id=guarded, if=e > 3}", rules=""), reasons=reasons)
    assert not find_einsums(guarded)
    assert "has the predicate e > 3" in reasons["guarded"]
    sparse = make_kernel(
        "for e\n<> hi = p[e] {id=hi}\nt[e] = sum(j, w[j]*x[c[j]]) {id=sparse, dep=hi}\nend",
        ["[n] -> {[e]: 0 <= e < n}", "[hi] -> {[j]: 0 <= j < hi}"],
        rules="",
        arrays={"p": ("n",), "c": ("n",)},
        dtypes={"p": "int32", "c": "int32"},
    )
    extract_operands(sparse, reasons=reasons)
    assert "'hi' = p[e] of its sum over 'j' differs for each 'e'" in reasons["sparse"]
    assert "reads 'x' through the index array 'c'" in reasons["sparse"]


def test_point_values_may_be_read_by_two_outputs() -> None:
    """What the first output makes parts of an array, the second reads there; each is a sum over directions."""
    text = """
    g0 = g[1] - g[0]
    g1 = g[2] - g[0]
    h0 = g[3] - g[0]
    h1 = g[4] - g[0]
    for q
        w0 = 0
        w1 = 0
        for i
            w0 = w0 + P[i, q]*b[i, 0]
            w1 = w1 + P[i, q]*b[i, 1]
        end
        for j
            A[j, 0] = A[j, 0] + P[j, q]*(w0*g0 + w1*g1)
            A[j, 1] = A[j, 1] + P[j, q]*(w0*h0 + w1*h1)
        end
    end
    """
    arrays: dict[str, tuple[Any, ...]] = {"P": (4, 3), "b": (4, 2), "A": (4, 2), "g": (5,)}
    points = [lp.TemporaryVariable(name, "float64", shape=()) for name in ("w0", "w1", "g0", "g1", "h0", "h1")]
    domain = "{[q, i, j]: 0 <= q < 3 and 0 <= i, j < 4}"
    t_unit = make_kernel(text, domain, rules="", arrays=arrays, more=points, seq_dependencies=True)
    rng = np.random.default_rng(0)
    P, b, A, g = (rng.normal(size=arrays[name]) for name in "PbAg")
    cells = add_loop(lp.remove_unused_arguments(t_unit), "e", "n", ["A", "b", "g"])
    found = run(extract_operands(cells), P=P, b=b[None], A=A[None].copy(), g=g[None], n=1)
    assert_allclose(found["A"][0], A + np.einsum("jq,iq,ic,dc->jd", P, P, b, (g[1:] - g[0]).reshape(2, 2)), rtol=1e-12)
