"""Loops beside einsums become work-items where their iterations are independent."""

from __future__ import annotations

from typing import Any

import loopy as lp
import numpy as np
import pytest
from kernels import run
from numpy.testing import assert_allclose

import feinsum as fe
from feinsum.devices import Device

TEXT = """
for e
    d[e] = x[e, 1] - x[e, 0] {id=first}
    w[e] = abs(d[e]) {id=second, dep=first}
    for i
        z[e, i] = 2*u[e, i] {id=apart}
    end
end
for e1, i1
    y[e1, i1] = y[e1, i1] + w[e1]*sum(j, D[i1, j]*u[e1, j]) {id=sums, dep=second:apart}
end
for e2, i2
    v[e2, i2] = y[e2, i2] + z[e2, i2] {id=last, dep=sums}
end
"""


def kernel(text: str = TEXT) -> lp.TranslationUnit:
    return lp.make_kernel(
        ["[n] -> {[e, e1, e2]: 0 <= e, e1, e2 < n}", "{[i, i1, i2, j]: 0 <= i, i1, i2, j < 3}"],
        text,
        [
            lp.GlobalArg("x", "float64", shape=("n", 2)),
            lp.GlobalArg("u,y,v", "float64", shape=("n", 3)),
            lp.GlobalArg("D", "float64", shape=(3, 3)),
            lp.TemporaryVariable("d", "float64", shape=("n",), address_space=lp.AddressSpace.GLOBAL),
            lp.TemporaryVariable("w", "float64", shape=("n",), address_space=lp.AddressSpace.GLOBAL),
            lp.TemporaryVariable("z", "float64", shape=("n", 3), address_space=lp.AddressSpace.GLOBAL),
            lp.ValueArg("n", np.int32),
        ],
        target=lp.PyOpenCLTarget(),
        lang_version=(2018, 2),
        assumptions="n >= 1",
    )


def apart(text: str = TEXT) -> lp.TranslationUnit:
    """The kernel with loops for each nest."""
    return lp.duplicate_inames(kernel(text), ["e"], within="id:apart")


def groups(t_unit: lp.TranslationUnit, insn_id: str) -> set[str]:
    """The tags of the loops around an instruction."""
    found = t_unit.default_entrypoint
    inames = found.id_to_insn[insn_id].within_inames
    return {str(tag) for iname in inames for tag in found.iname_tags(iname)}


@pytest.mark.parametrize(("kind", "tags"), [("cpu", {"g.0"}), ("gpu", {"g.0", "l.0"})])
def test_loops_are_spread_and_compute_the_same(kind: Any, tags: set[str], cpu: Device, store: str) -> None:
    """On both sides of an einsum that was transformed, for a length that divides nothing; nests share no launch."""
    n = 67
    rng = np.random.default_rng(0)
    data = {"x": rng.random((n, 2)), "u": rng.random((n, 3)), "y": rng.random((n, 3)), "D": rng.random((3, 3))}
    given = fe.extract_operands(apart(), insn_match="id:sums", epilogues=True)
    reasons: dict[str, str] = {}
    fast = fe.transform(given, cpu, insn_match="id:sums", database=store, sizes={"n": n}, epilogues=True)
    fast = fe.spread_loops(fast, kind, reasons=reasons)
    assert reasons == {}
    for insn_id in ("first", "second", "apart", "last"):
        assert groups(fast, insn_id) >= tags
    result = run(fast, **{name: value.copy() for name, value in data.items()})
    y = data["y"] + np.abs(data["x"][:, 1] - data["x"][:, 0])[:, None] * (data["u"] @ data["D"].T)
    assert_allclose(result["v"], y + 2 * data["u"], rtol=1e-13)


ALONE = {
    "a recurrence": ("for e\n y[e, 0] = y[e + 1, 0] {id=first}\n end", "share 'y' from iteration to iteration"),
    "one element": ("for e\n y[0, 0] = x[e, 0] {id=first}\n end", "share 'y' from iteration to iteration"),
    "a number of many iterations": (
        "for e\n <> s = 2*x[e, 0] {id=first}\n y[e, 0] = s {id=second, dep=first}\n end",
        "share 's' from iteration to iteration",
    ),
    "loops that others share": (TEXT, "'apart' is in the loop 'e', too, and in others"),
}


@pytest.mark.parametrize("name", ALONE)
def test_loops_that_depend_are_left_alone(name: str) -> None:
    """With the reason for each of their assignments."""
    text, reason = ALONE[name]
    reasons: dict[str, str] = {}
    t_unit = kernel(text)
    spread = fe.spread_loops(t_unit, reasons=reasons)
    assert groups(spread, "first") == set()
    assert reason in reasons["first"]
