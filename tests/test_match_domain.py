"""Lengths from domains: hypercubes from zero in whatever form, and what is refused because it is none."""

from __future__ import annotations

from collections.abc import Sequence

import loopy as lp
import pytest
from kernels import make_kernel

from feinsum.errors import MatchError
from feinsum.match import match_einsum

Domains = Sequence[str]

CUBES: dict[str, tuple[Domains, tuple[object, ...], dict[str, str]]] = {
    "constants": (["{[e, i]: 0 <= e < 7 and 0 <= i < 4}"], (7, 4), {}),
    "a parameter": (["[n] -> {[e, i]: 0 <= e < n and 0 <= i < 4}"], ("n", 4), {"n": "n"}),
    "a domain each": (["[n] -> {[e]: 0 <= e < n}", "{[i]: 0 <= i < 4}"], ("n", 4), {"n": "n"}),
    "one parameter twice": (["[n] -> {[e, i]: 0 <= e, i < n}"], ("n", "n"), {"n": "n"}),
    "one length in two forms": (
        ["[n, m] -> {[e, i]: 0 <= e < n + m and 0 <= i <= m + n - 1}"],
        ("m_plus_n",) * 2,
        {"m_plus_n": "m + n"},
    ),
    "affine": (["[n] -> {[e, i]: 0 <= e < n + 1 and 0 <= i < 2*n - 3}"], ("n_plus_1", "length_2_times_n_minus_3"), {}),
    "one number": (["{[e, i]: e = 0 and 0 <= i < 1}"], (1, 1), {}),
    "bounds that say nothing": (["{[e, i]: 0 <= e < 4 and 0 <= i < 4 and e + i <= 6 and 2*e <= 7}"], (4, 4), {}),
    "other inames": (["[n, m] -> {[e, i, k]: 0 <= e < n and 0 <= i < 4 and 0 <= k < m}"], ("n", 4), {"n": "n"}),
    "other inames that depend on ours": (
        ["[n] -> {[e, i]: 0 <= e < n and 0 <= i < 4}", "[e] -> {[k]: 0 <= k <= e}"],
        ("n", 4),
        {"n": "n"},
    ),
    "other inames in a triangle": (["[n] -> {[e, i, k]: 0 <= e < n and 0 <= i < 4 and 0 <= k <= i}"], ("n", 4), {"n": "n"}),
    "inames as parameters without effect": (
        ["[n] -> {[e]: 0 <= e < n}", "[e] -> {[i]: 0 <= i < 4 + 0*e}"],
        ("n", 4),
        {"n": "n"},
    ),
}


@pytest.mark.parametrize("name", CUBES)
def test_lengths_are_read_from_hypercubes(name: str) -> None:
    """A number is a length, an affine expression of parameters a long axis; equal expressions are one axis."""
    domains, shape, axes = CUBES[name]
    t_unit = make_kernel(
        "y[e, i] = f(e, i)",
        domains,
        rules="f(a, b) := u[a, b]\n",
        arrays={"u": ("n + 99", 99), "y": ("n + 99", 99)},
        more=[lp.ValueArg("m", dtype="int32")],
    )
    match = match_einsum(t_unit)
    assert match.einsum.shape == shape
    assert not axes or match.axes == axes


def test_assumptions_count() -> None:
    """A bound that the assumptions of the kernel make superfluous is none."""
    domain = "[n, m] -> {[e, i]: 0 <= e < n and e < m and 0 <= i < 4}"
    more = [lp.ValueArg("m", dtype="int32")]
    match = match_einsum(make_kernel("y[e, i] = u_(e, i)", domain, more=more, assumptions="n <= m"))
    assert match.einsum.shape == ("n", 4)
    with pytest.raises(MatchError, match="iname 'e' ends at the smaller of several bounds; bound it by one"):
        match_einsum(make_kernel("y[e, i] = u_(e, i)", domain, more=more))
    whole = make_kernel("y[e, i] = u_(e, i)", assumptions="n >= 16 and n mod 16 = 0")
    assert match_einsum(whole).einsum.shape == ("n", 4)


REFUSED: dict[str, tuple[Domains, str]] = {
    "triangle": (["[n] -> {[e, i]: 0 <= e < 4 and 0 <= i <= e}"], "bounds of inames 'e' and 'i' depend on each other"),
    "triangle of domains": (
        ["{[e]: 0 <= e < 4}", "[e] -> {[i]: 0 <= i <= e}"],
        "'e' and 'i' depend on each other, so they span no rec",
    ),
    "triangle with a parameter": (["[n] -> {[e, i]: 0 <= e < n and 0 <= i <= e}"], "'e' and 'i' depend on each other"),
    "corner cut off": (["{[e, i]: 0 <= e, i < 4 and e + i < 6}"], "'e' and 'i' depend on each other"),
    "diagonal": (["{[e, i]: 0 <= e < 4 and i = e}"], "'e' and 'i' depend on each other"),
    "offset": (
        ["{[e, i]: 2 <= e < 4 and 0 <= i < 4}"],
        "iname 'e' starts at 2, not at 0; shift it with loopy.affine_map_inames",
    ),
    "offset by a parameter": (["[n] -> {[e, i]: n <= e < 2*n and 0 <= i < 4}"], "iname 'e' starts at n, not at 0"),
    "one number that is not zero": (["{[e, i]: e = 3 and 0 <= i < 4}"], "iname 'e' starts at 3, not at 0"),
    "stride": (["{[e, i]: 0 <= e < 8 and e mod 2 = 0 and 0 <= i < 4}"], "iname 'e' skips values between 0 and 7"),
    "quotient": (["[n] -> {[e, i]: 0 <= 2*e < n and 0 <= i < 4}"], "the length of iname 'e' is a quotient"),
    "stride to a parameter": (["[n] -> {[e, i]: 0 <= e < n and e mod 2 = 0 and 0 <= i < 4}"], "iname 'e'"),
    "smaller of two": (
        ["[n, m] -> {[e, i]: 0 <= e < n and e < m and 0 <= i < 4}"],
        "iname 'e' ends at the smaller of several bounds",
    ),
    "condition on a parameter": (
        ["[n] -> {[e, i]: 0 <= e < n and 0 <= i < 4 and n < 9}"],
        "holds for some values of the parameters only",
    ),
    "no end": (["{[e, i]: 0 <= e and 0 <= i < 4}"], "iname 'e' has no upper bound"),
    "empty": (["{[e, i]: 0 <= e < 0 and 0 <= i < 4}"], "the domain of 'e', 'i' is empty"),
    "data": (
        ["[n] -> {[e]: 0 <= e < n}", "[count] -> {[i]: 0 <= i < count}"],
        "bounded by 'count', which is known only inside the kernel",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_domains_are_refused(name: str) -> None:
    """Triangles, offsets, strides and bounds by data are no hypercubes, and the message says which and where."""
    domains, reason = REFUSED[name]
    count = "<int32> count = m\n" if name == "data" else ""
    t_unit = make_kernel(
        f"{count}y[e, i] = u_(e, i) {{id=row}}",
        domains,
        arrays={"u": ("n + 99", 99), "y": ("n + 99", 99)},
        more=[lp.ValueArg("m", dtype="int32")],
    )
    with pytest.raises(MatchError, match=r"'row' is no einsum \(rule 4, hypercube\): .*" + reason):
        match_einsum(t_unit, insn_match="id:row")


def test_an_iname_of_a_loop_that_the_instruction_is_not_in_is_no_bound() -> None:
    """A summation bounded by the loop of others is refused: its length is not a length of the kernel."""
    t_unit = make_kernel(
        "t[e] = w_(e) {id=other}\ns = sum(j, x_(j)) {id=row}", ["[n] -> {[e]: 0 <= e < n}", "[e] -> {[j]: 0 <= j <= e}"]
    )
    with pytest.raises(MatchError, match="bounded by 'e', which is known only inside the kernel"):
        match_einsum(t_unit, insn_match="id:row")


def test_domains_that_branch_have_no_hypercube() -> None:
    """Two inner domains of one outer loop are not intersected by loopy, whatever they say."""
    t_unit = make_kernel(
        "h[l, e, i] = f(l, e, i)",
        ["{[l]: 0 <= l < 4}", "[l] -> {[e]: 0 <= e <= l}", "[l] -> {[i]: 0 <= i <= l}"],
        rules="f(a, b, c) := h2[a, b, c]\n",
        arrays={"h": (4, 4, 4), "h2": (4, 4, 4)},
    )
    with pytest.raises(MatchError, match="'e', 'i', 'l' have no domain in common"):
        match_einsum(t_unit)
