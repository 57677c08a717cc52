"""Finding every batched einsum of a kernel, and giving one loops and rules of its own."""

from __future__ import annotations

import islpy as isl
import loopy as lp
import numpy as np
import pytest
from kernels import DOMAIN, RULES, make_kernel, run
from numpy.testing import assert_allclose

from feinsum.einsum import array, batched_einsum, einsum
from feinsum.lower import generate_loopy
from feinsum.match import Match, find_einsums, isolate, match_einsum
from feinsum.match.expression_uses import find_uses

OTHER_LOOPS = "[n] -> {[p, q, r]: 0 <= p < n and 0 <= q, r < 4}"


def groups(t_unit: lp.TranslationUnit) -> list[tuple[str, ...]]:
    """The instructions of each einsum found."""
    return [match.insn_ids for match in find_einsums(t_unit)]


FOUND = {
    "nothing": ("t[e] = 2*w[e]", []),
    "rows and others": (
        """
        y[e, i] = sum(j, D_(i, j)*u_(e, j)) {id=a}
        t[e] = 2*w[e] {id=b}
        z[p, q] = sum(r, v_(p, r)*D_(q, r)) {id=c}
        s = reduce(max, j, x_(j)) {id=d}
        """,
        [("a", "c")],
    ),
    "two einsums in turn": (
        """
        y[e, i] = sum(j, D_(i, j)*u_(e, j)) {id=a}
        t[e] = sum(j, u_(e, j)*x_(j)) {id=b}
        z[e, i] = sum(j, D_(i, j)*v_(e, j)) {id=c}
        t2[e] = sum(j, v_(e, j)*x_(j)) {id=d}
        """,
        [("a", "c"), ("b", "d")],
    ),
    "a chain": (
        """
        y[e, i] = sum(j, D_(i, j)*u_(e, j)) {id=a}
        z[p, q] = sum(r, D_(q, r)*y_(p, r)) {id=b, dep=a}
        y2[e, i] = sum(j, D_(i, j)*v_(e, j)) {id=c}
        """,
        [("a", "c"), ("b",)],
    ),
    "barriers": (
        """
        y[e, i] = sum(j, D_(i, j)*u_(e, j)) {id=a}
        ... gbarrier {id=bar, dep=a}
        z[p, q] = sum(r, D_(q, r)*v_(p, r)) {id=b, dep=bar}
        """,
        [("a",), ("b",)],
    ),
    "one output twice": (
        """
        y[e, i] = sum(j, D_(i, j)*u_(e, j)) {id=a}
        y[p, q] = sum(r, D_(q, r)*v_(p, r)) {id=b, dep=a}
        """,
        [("a",), ("b",)],
    ),
    "groups that would wait for each other": (
        """
        y[e, i] = sum(j, D_(i, j)*u_(e, j)) {id=a}
        t[e] = sum(j, y_(e, j)*x_(j)) {id=b, dep=a}
        t2[p] = sum(r, v_(p, r)*x_(r)) {id=c}
        z[p, q] = sum(r, D_(q, r)*v_(p, r)*1) {id=d, dep=c}
        """,
        [("a",), ("b", "c"), ("d",)],
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_instructions_are_gathered_into_maximal_einsums(name: str) -> None:
    """What belongs together is together, what depends on one another or waits for a barrier is not."""
    text, expected = FOUND[name]
    t_unit = make_kernel(
        text, [DOMAIN, OTHER_LOOPS], rules=f"{RULES}y_(a, b) := y[a, b]\n", arrays={"y2": ("n", 4), "t2": ("n",)}
    )
    assert groups(t_unit) == expected
    for match in find_einsums(t_unit):
        chosen = " or ".join(f"id:{insn_id}" for insn_id in match.insn_ids)
        assert match_einsum(t_unit, insn_match=chosen) == match


def test_many_rows_are_one_batched_einsum() -> None:
    """Growth with the number of rows is no obstacle."""
    rows = [[array("D", (4, 4)), array(f"u{k}", ("E", 4))] for k in range(200)]
    (match,) = find_einsums(generate_loopy(batched_einsum("ij,ej->ei", rows)))
    assert match.einsum.b == 200


MIXED = """
t[e] = 2*w[e] {id=before}
y[e, i] = sum(j, D_(i, j)*u_(e, j)) {id=a}
z[p, q] = sum(r, v_(p, r)*D_(q, r)) {id=b}
t2[e] = sum(k, u_(e, k)) {id=after}
"""


def test_isolated_rows_share_loops_and_rules_of_their_own() -> None:
    """Rows get one nest; the rest of the kernel keeps its loops, rules and instructions."""
    t_unit = make_kernel(MIXED, [DOMAIN, OTHER_LOOPS], arrays={"t2": ("n",)})
    before = t_unit.default_entrypoint
    isolated, match = isolate(t_unit, match_einsum(t_unit, insn_match="id:a or id:b"))
    kernel = isolated.default_entrypoint
    assert match.loops[0] == match.loops[1]
    assert match_einsum(isolated, insn_match="id:a or id:b") == match
    own = set(match.inames.values())
    for name in ("before", "after"):
        assert kernel.id_to_insn[name] == before.id_to_insn[name]
        assert not own & (kernel.id_to_insn[name].within_inames | kernel.id_to_insn[name].reduction_inames())
    assert match.rules == (("D_", "u__0"), ("D_", "v_"))
    assert {"p", "q", "r"}.isdisjoint(kernel.all_inames())
    assert {"e", "k"} <= kernel.all_inames()
    assert isolate(isolated, match)[0] is isolated


def test_isolation_leaves_the_values_alone() -> None:
    """The kernel computes after isolation what it did before, and its own loops can be tagged by themselves."""
    t_unit = make_kernel(MIXED, [DOMAIN, OTHER_LOOPS], arrays={"t2": ("n",)})
    isolated, match = isolate(t_unit, match_einsum(t_unit, insn_match="id:a or id:b"))
    isolated = lp.tag_inames(isolated, {match.inames["j"]: "unr"})
    rng = np.random.default_rng(0)
    data = {name: rng.standard_normal(shape) for name, shape in {"D": (4, 4), "u": (9, 4), "v": (9, 4), "w": (9,)}.items()}
    expected, found = run(t_unit, **data), run(isolated, **data)
    assert_allclose(expected["z"], data["v"] @ data["D"].T, rtol=1e-13)
    for name in ("t", "y", "z", "t2"):
        assert_allclose(found[name], expected[name], rtol=1e-13)


def test_operands_by_one_rule_get_one_each() -> None:
    """A transformation of one operand must not touch another, even of the same array."""
    t_unit = make_kernel(
        "q[i, k] = sum(j, D_(i, j)*D_(j, k)*D_(i, j))",
        "{[i, j, k]: 0 <= i, j, k < 4}",
        rules="D_(a, b) := D[a, b]\n",
        arrays={"q": (4, 4)},
    )
    isolated, match = isolate(t_unit, match_einsum(t_unit))
    assert len(set(match.rules[0])) == 3
    assert match.rules[0][0] == "D_"
    assert match_einsum(isolated) == match
    D = np.random.default_rng(0).standard_normal((4, 4))
    assert_allclose(run(isolated, D=D, n=1)["q"], np.einsum("ij,jk,ij->ik", D, D, D), rtol=1e-13)


def split_all(t_unit: lp.TranslationUnit, match: Match) -> lp.TranslationUnit:
    """Transform the loops of a match, upon which loopy merges equal substitution rules."""
    for iname in match.inames.values():
        t_unit = lp.split_iname(t_unit, iname, 2)
    return t_unit


def test_rules_of_an_isolated_einsum_survive_transformations() -> None:
    """A rule equal to that of another instruction or operand would be merged with it by the first transformation."""
    text = """
    y[e, i] = sum(j, D_(i, j)*u_(e, j)) {id=a}
    t[p] = sum((q, r), D_2(q, r)*u_(p, q)) {id=b}
    """
    t_unit = make_kernel(text, [DOMAIN, OTHER_LOOPS], rules=f"{RULES}D_2(c, d) := D[c, d]\n")
    for own, other in ("ab", "ba"):
        isolated, match = isolate(t_unit, match_einsum(t_unit, insn_match=f"id:{own}"))
        kernel = split_all(isolated, match).default_entrypoint
        invoked = {insn.id: {name for name, _ in find_uses(insn.expression).calls} for insn in kernel.instructions}
        assert set(match.rules[0]) == invoked[own]
        assert not invoked[own] & invoked[other]


@pytest.mark.parametrize("subscripts", ["ij,jk->ik", "ij,ji->ij", "ij,ij->"])
def test_operands_of_one_array_have_rules_that_survive_transformations(subscripts: str) -> None:
    """Lowering keeps the operands apart even where they are the same array."""
    A = array("A", (8, 8))
    t_unit = generate_loopy(einsum(subscripts, A, A))
    match = match_einsum(t_unit)
    assert set(match.rules[0]) <= set(split_all(t_unit, match).default_entrypoint.substitutions)
    assert len(set(match.rules[0])) == 2


def test_scalar_operands_have_rules_that_survive_transformations() -> None:
    """Scalars are kept apart too, and keep their value."""
    c, x = array("c", ()), array("x", 8)
    t_unit = generate_loopy(einsum(",,,i->i", c, c, c, x))
    match = match_einsum(t_unit)
    transformed = split_all(t_unit, match)
    assert set(match.rules[0]) <= set(transformed.default_entrypoint.substitutions)
    assert_allclose(run(transformed, c=np.array(3.0), x=np.arange(8.0))["out"], 27 * np.arange(8.0))


def test_tagged_loops_are_replaced_by_plain_ones() -> None:
    """The tags that a kernel comes with are none of a transformation's choices."""
    t_unit = lp.tag_inames(make_kernel("y[e, i] = sum(j, D_(i, j)*u_(e, j))"), {"e": "g.0", "i": "l.0"})
    isolated, match = isolate(t_unit, match_einsum(t_unit))
    assert isolated is not t_unit
    assert not any(isolated.default_entrypoint.iname_tags(iname) for iname in match.inames.values())
    assert {"e", "i", "j"}.isdisjoint(isolated.default_entrypoint.all_inames())


def test_predicates_move_with_their_rows() -> None:
    """A guarded row stays guarded, by its new loops."""
    text = "if e < 3\ny[e, i] = sum(j, D_(i, j)*u_(e, j)) {id=a}\nend\nt[e] = w[e]"
    t_unit = make_kernel(text)
    isolated, match = isolate(t_unit, match_einsum(t_unit, insn_match="id:a"))
    (predicate,) = isolated.default_entrypoint.id_to_insn["a"].predicates
    assert str(predicate) == f"{match.inames['e']} < 3"
    assert match_einsum(isolated, insn_match="id:a") == match


def test_loops_of_others_keep_their_lengths() -> None:
    """Taking an iname out of a domain that others use leaves no condition behind, but keeps what ties others."""
    domain = "[n, m] -> {[e, i, j]: 0 <= e < n and 0 <= i < m and 0 <= j < 4}"
    t_unit = make_kernel(
        "y[e, i] = sum(j, D_(j, j)*f(e, i)) {id=a}\nt[e] = w[e]",
        domain,
        rules=f"{RULES}f(a, b) := u[a, b]\n",
        more=[lp.ValueArg("m", dtype="int32")],
        arrays={"u": ("n", "m"), "y": ("n", "m")},
    )
    isolated, _ = isolate(t_unit, match_einsum(t_unit, insn_match="id:a"))
    rest, _ = isolated.default_entrypoint.domains
    assert rest.is_equal(isl.BasicSet("[n, m] -> {[e]: 0 <= e < n}"))


def test_match_of_a_called_kernel_is_isolated_in_it() -> None:
    """Isolation works on the kernel that the match is of."""
    callee = lp.make_function(
        "{[i, j]: 0 <= i, j < 4}",
        "D_(a, b) := D[a, b]\nx_(a) := x[a]\ny[i] = sum(j, D_(i, j)*x_(j)) {id=row}\nz[i] = 2*x[i]",
        [lp.GlobalArg("D", "float64", (4, 4)), lp.GlobalArg("x", "float64", (4,)), lp.GlobalArg("y, z", "float64", (4,))],
        name="apply",
        lang_version=(2018, 2),
    )
    isolated, match = isolate(callee, match_einsum(callee, "apply", "id:row"))
    assert match.inames["i"] not in ("i", "j")
    assert match_einsum(isolated, "apply", "id:row") == match
