"""What instructions make of their sums, seen as epilogues, and kept by transformations."""

from __future__ import annotations

from typing import Any

import loopy as lp
import numpy as np
import pytest
from kernels import ARRAYS, make_kernel, run
from numpy.testing import assert_allclose

import feinsum as fe
from feinsum.candidates.ladder import ConfigurationChoice
from feinsum.compile.codegen import generate_program
from feinsum.devices import Device
from feinsum.errors import MatchError
from feinsum.generate import transform as module
from feinsum.space import space

SUM = "sum(j, D_(i, j)*u_(e, j))"
X = fe.array("x", 4)

SEEN = {
    "a factor": (f"y[e, i] = 2*{SUM}", "2*v"),
    "a sign": (f"y[e, i] = -{SUM}", "-v"),
    "an update": (f"y[e, i] = y[e, i] + {SUM}", "v + out"),
    "a function": (f"y[e, i] = sin({SUM})", "sin(v)"),
    "arrays": (f"y[e, i] = y[e, i]*w[e] + {SUM}*x[i]", "w[e]*out + v*x[i]"),
    "a difference": (f"y[e, i] = z[e, i] - 0.5*{SUM}/w[e]", "z[e, i] - 0.5*(v/w[e])"),
    "value arguments": (f"y[e, i] = alpha*{SUM} + 0.5*y[e, i]", "0.5*out + alpha*v"),
    "a choice": (f"y[e, i] = 0 if w[e] < 1 else {SUM}", "where(w[e] < 1, 0, v)"),
    "the sum twice": (f"y[e, i] = {SUM}*{SUM}", "v*v"),
    "a maximum": (f"y[e, i] = fmax({SUM}, 0.25)", "max(v, 0.25)"),
    "a name of numpy's": (f"y[e, i] = {SUM} + arctan2(x[i], w[e])", "v + atan2(x[i], w[e])"),
    "no sum": ("y[e, i] = 2*u_(e, i)*w_(e) + z[e, i]", "2*v + z[e, i]"),
}


def kernel_of(text: str, **options: Any) -> lp.TranslationUnit:
    return make_kernel(text, more=[lp.ValueArg("alpha", dtype="float64")], **options)


@pytest.mark.parametrize("name", SEEN)
def test_what_is_made_of_a_sum_is_its_epilogue(name: str) -> None:
    """The einsum is that of the sum; without the keyword there is none, and the error names it."""
    text, expected = SEEN[name]
    t_unit = kernel_of(text)
    match = fe.match_einsum(t_unit, epilogues=True)
    assert match.einsum.subscripts == ("ei,e->ei" if name == "no sum" else "ij,ej->ei")
    assert match.epilogue is not None
    assert match.epilogue.text("ei") == expected
    assert [found.epilogue for found in fe.find_einsums(t_unit, epilogues=True)] == [match.epilogue]
    assert fe.find_einsums(t_unit) == ()
    if name != "no sum" and name != "the sum twice":
        with pytest.raises(MatchError, match=r"its sum is part of the expression .* match with epilogues=True"):
            fe.match_einsum(t_unit)


def test_a_sum_that_is_stored_as_it_is_has_no_epilogue() -> None:
    """With the keyword as without."""
    match = fe.match_einsum(kernel_of(f"y[e, i] = {SUM}"), epilogues=True)
    assert match.epilogue is None
    assert match.epilogues == ()


def test_names_of_what_epilogues_read() -> None:
    """Arrays that the einsum has too keep their name; others are in the names of the match."""
    match = fe.match_einsum(kernel_of(f"y[e, i] = {SUM}*x[i] + u[e, i]"), epilogues=True)
    assert match.epilogue is not None
    assert {a.name for a in match.epilogue.arrays} == {"x", "u"}
    assert match.names["x"] == "x"
    assert match.einsum.then("v*x[i] + u[e, i]", x=fe.array("x", (4,))).epilogues == (match.epilogue,)


def test_rows_have_their_own_epilogues() -> None:
    """Two rows of one einsum, of which one is an update."""
    t_unit = kernel_of(f"y[e, i] = y[e, i] + {SUM}\nz[e, i] = sum(j, D_(i, j)*v_(e, j))")
    match = fe.match_einsum(t_unit, epilogues=True)
    assert match.einsum.b == 2
    assert [own and own.text("ei") for own in match.epilogues] == ["v + out", None]
    assert match.epilogue is None
    assert [found.insn_ids for found in fe.find_einsums(t_unit, epilogues=True)] == [match.insn_ids]


REFUSED = {
    "another entry": (f"y[e, i] = y[e, 0] + {SUM}", "it reads 'y' elsewhere than at the index that it writes"),
    "transposed": (f"y[e, i] = y[i, e] + {SUM}", "it reads 'y' elsewhere"),
    "another row's": (
        f"y[e, i] = z[e, i] + {SUM}\nz[e, i] = sum(j, D_(i, j)*v_(e, j))",
        "order it before or after another row",
    ),
    "an offset": (f"y[e, i] = u[e, 0] + {SUM}", "reads 'u' not at indices of the output"),
    "an index by itself": (f"y[e, i] = i*{SUM}", "depends on the loop 'i' by itself"),
    "a function that there is none of": (
        f"y[e, i] = floor({SUM}) + fmod({SUM}, 2.0)",
        "calls 'fmod', which is no function",
    ),
    "a wider type": (f"y[e, i] = h[e] + {SUM}", "reads 'h', which is complex128, and its output is float64"),
    "two sums": (
        f"y[e, i] = {SUM} + sum(k, D_(k, i)*v_(e, k))",
        "it has 2 reductions in one expression, which are no rows",
    ),
    "a product of sums in one row of two": (
        f"y[e, i] = {SUM}*sum(k, D_(i, k)*v_(e, k))\nz[e, i] = sum(j, D_(i, j)*v_(e, j))",
        "it has 2 reductions in one expression",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_epilogue_is_refused(name: str) -> None:
    """With the instruction, the rule and the reason; find_einsums passes it over."""
    text, reason = REFUSED[name]
    t_unit = kernel_of(text, arrays={"h": ("n",)}, dtypes={"h": "complex128"})
    with pytest.raises(MatchError, match=reason):
        fe.match_einsum(t_unit, epilogues=True)
    if "row" not in name:
        assert fe.find_einsums(t_unit, epilogues=True) == ()


GATED = f"y[e, i] = {SUM}/(1 + exp(-{SUM}))*sum(k, D_(i, k)*v_(e, k)) + x[i]*y[e, i]"


def test_several_sums_are_rows_of_which_one_output_is_made() -> None:
    """Of one instruction; the sums are numbered as they stand there."""
    t_unit = kernel_of(f"{GATED} {{id=gated}}\nz[e, i] = sum(j, D_(i, j)*u_(e, j)) {{id=other}}")
    match = fe.match_einsum(t_unit, insn_match="id:gated", epilogues=True)
    assert (match.einsum.subscripts, match.einsum.b) == ("ij,ej->ei", 2)
    assert match.combines
    assert match.outputs == ("y", "y")
    assert match.epilogue is not None
    assert match.epilogue.text("ei") == "x[i]*out + v1*(v0/(exp(-v0) + 1))"
    described = fe.batched_einsum(match.einsum.subscripts, match.einsum.args).then("v0/(1 + exp(-v0))*v1 + x[i]*out", x=X)
    assert described.epilogues == match.epilogues
    assert [found.insn_ids for found in fe.find_einsums(t_unit, epilogues=True)] == [("gated", "gated"), ("other",)]
    assert [found.insn_ids for found in fe.find_einsums(t_unit)] == [("other",)]


def test_extraction_keeps_several_sums_of_one_einsum() -> None:
    """And tells so; sums of others go to arrays, as before."""
    changes: dict[str, str] = {}
    text = "y[e, i] = exp(sum(j, D[i, j]*u[e, j]))*sum(k, D[i, k]*v[e, k])"
    extracted = fe.extract_operands(make_kernel(text, rules=""), epilogues=True, changes=changes)
    (match,) = fe.find_einsums(extracted, epilogues=True)
    assert match.combines
    assert match.epilogue is not None
    assert match.epilogue.text("ei") == "v1*exp(v0)"
    assert list(changes.values()) == ["its factors are substitution rules, and what is made of the sums is an epilogue"]


EXTRACTED = {
    "two sums": ("y[e, i] = sum(j, D[i, j]*u[e, j]) + sum(k, D[k, i]*v[e, k])", [None, "v + y_sum[e, i]"]),
    "a product of sums": ("y[e, i] = exp(sum(j, D[i, j]*u[e, j]))*sum(k, D[k, i]*v[e, k])", [None, "v*exp(y_sum[e, i])"]),
    "a factor": ("y[e, i] = 3*sum(j, D[i, j]*u[e, j])", [None]),
    "an update": ("y[e, i] = y[e, i] + 0.5*sum(j, D[i, j]*u[e, j])", ["0.5*v + out"]),
    "what is no epilogue": ("y[e, i] = fmod(sum(j, D[i, j]*u[e, j]), 2.0)", [None]),
}


@pytest.mark.parametrize("name", EXTRACTED)
def test_extraction_keeps_one_sum_with_its_epilogue(name: str) -> None:
    """Others go to arrays before; all of them do where what is made of the sum is no epilogue."""
    text, expected = EXTRACTED[name]
    extracted = fe.extract_operands(make_kernel(text, rules=""), epilogues=True)
    matches = fe.find_einsums(extracted, epilogues=True)
    assert [match.epilogue and match.epilogue.text("ei") for match in matches] == expected


def test_transformed_kernels_keep_their_epilogues(cpu: Device, store: str) -> None:
    """All in one kernel, one transformed after the other; what needs another's result comes after that."""
    text = f"""
    y[e, i] = y[e, i]*w[e] + {SUM}*x[i] {{id=first}}
    z[f, k] = (0 if w[f] < 1 else sum(l, D_(k, l)*v_(f, l))) + y[f, k] {{id=second, dep=first}}
    """
    domain = "[n] -> {[e, i, j, f, k, l]: 0 <= e, f < n and 0 <= i, j, k, l < 4}"
    t_unit = make_kernel(text, domain=domain)
    rng = np.random.default_rng(0)
    shapes = {"D": (4, 4), "u": (67, 4), "v": (67, 4), "y": (67, 4), "w": (67,), "x": (4,)}
    data = {name: rng.uniform(0.5, 2, shape) for name, shape in shapes.items()}
    fast = t_unit
    for insn_id in ("first", "second"):
        fast = fe.transform(fast, cpu, insn_match=f"id:{insn_id}", database=store, sizes={"n": 10_000}, epilogues=True)
    found = run(fast, **{name: np.copy(values) for name, values in data.items()})
    w = data["w"][:, None]
    y = data["y"] * w + data["u"] @ data["D"].T * data["x"]
    assert_allclose(found["y"], y, rtol=1e-13)
    assert_allclose(found["z"], np.where(w < 1, 0, data["v"] @ data["D"].T) + y, rtol=1e-13)


@space(pattern="ij,ej->ei", version=1, parameters={})
def as_they_are(t_unit: Any, match: Any, problem: Any) -> Any:
    """Kernels that store sums as they are, on one work-item."""
    return t_unit


@pytest.mark.slow
@pytest.mark.parametrize("fused", [True, False], ids=["where they are stored", "by a launch"])
@pytest.mark.parametrize("lengths", ["n", "2*n - 1"])
def test_a_launch_makes_what_a_space_does_not(
    fused: bool, lengths: str, cpu: Device, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between what the kernel does before and after; of one row, of two, and one output of two."""
    if not fused:
        monkeypatch.setattr(module, "candidates", lambda *_: [ConfigurationChoice("default", as_they_are, {})])
    text = f"""
    t[f] = 2*s {{id=before}}
    {GATED} {{id=gated, dep=before}}
    z[g, k] = t[g]*y[g, k] + z[g, k]*sum(l, D_(k, l)*v_(g, l)) {{id=update, dep=gated}}
    w[h] = z[h, 0] + w[h] {{id=after, dep=update}}
    """
    domain = f"[n] -> {{[e, i, j, k, l, f, g, h]: 0 <= e, f, g, h < {lengths} and 0 <= i, j, k, l < 4}}"
    shapes = {name: tuple(lengths if n == "n" else n for n in shape) for name, shape in ARRAYS.items()}
    t_unit = make_kernel(text, domain=domain, arrays=shapes)
    fast = t_unit
    for insn_id in ("gated", "update"):
        fast = fe.transform(fast, cpu, insn_match=f"id:{insn_id}", database=store, sizes={"n": 10_000}, epilogues=True)
    assert len(generate_program(fast).launches) in ((4, 5) if fused else (6,))
    rng = np.random.default_rng(0)
    for n in (1, 67, 600):
        rows = n if lengths == "n" else 2 * n - 1
        data = {
            name: rng.uniform(-1, 1, [rows if isinstance(x, str) else x for x in shape]) for name, shape in shapes.items()
        }
        found = run(fast, n=n, **{name: np.copy(values) for name, values in data.items()})
        v0, v1 = data["u"] @ data["D"].T, data["v"] @ data["D"].T
        y = v0 / (1 + np.exp(-v0)) * v1 + data["x"] * data["y"]
        z = 2 * data["s"] * y + data["z"] * v1
        for name, expected in (("y", y), ("z", z), ("w", z[:, 0] + data["w"])):
            assert_allclose(found[name], expected, rtol=1e-12, atol=1e-13)


def test_no_launch_is_put_into_a_kernel_that_others_call(cpu: Device, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Barriers of all work-groups are for entry points; the error is that of the last way that was tried."""
    monkeypatch.setattr(module, "candidates", lambda *_: [ConfigurationChoice("default", as_they_are, {})])
    inner = kernel_of(f"y[e, i] = exp({SUM})")
    with pytest.raises(fe.TransformError, match="no transformation applies"):
        fe.transform(lp.merge([inner]).with_entrypoints(frozenset()), cpu, inner.default_entrypoint.name, epilogues=True)
