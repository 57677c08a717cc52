"""Kernels as form compilers write them: normalized into einsums over all cells, with the same values."""

from __future__ import annotations

from typing import Any

import loopy as lp
import numpy as np
import pytest
from kernels import make_kernel, run
from numpy.testing import assert_allclose

import feinsum as fe
from benchmarks.cases.forms import FORMS, form_data, over_cells
from feinsum.devices import Device
from feinsum.errors import MatchError
from feinsum.match.flat import FlatStore

CHAIN = "qb,ca,di,d,c,q,e,qf,cg,dh,ehgf->eiab"
"""One sum for each direction, forth and back, as one einsum; in which order is for a transform space to say."""

SEEN = {
    "mass": ["ij,i,e,ik->ejk"],
    "laplace": ["tae,tij,i,e,bae,bik->ejk"],
    "mass action": ["ij,ir,er,i,e->ej"],
    "laplace action": ["tir,er->tei", "tij,ate,abe,bei,i,e->ej"],
    "load": ["ij,i,e,->ej"],
    "hexahedron mass action": [CHAIN],
    "hexahedron laplace action": [CHAIN],
    "hexahedron mass": ["pj,fa,gb,p,f,g,e,pk,fc,gd->ejabkcd"],
    "hexahedron load": ["qb,ca,di,d,c,q,e,->eiab"],
}
"""The sums that are seen in a form, those of one operand that are evaluated for each cell left out."""


@pytest.mark.parametrize(("cell", "form", "order"), FORMS, ids=str)
def test_forms_are_einsums_over_cells(cell: str, form: str, order: int) -> None:
    """Every kernel has at least one einsum, and what is left has no sums."""
    reasons: dict[str, str] = {}
    t_unit = over_cells(cell, form, order)
    assert fe.find_einsums(t_unit, epilogues=True) == ()
    extracted = fe.extract_operands(t_unit, reasons=reasons, epilogues=True)
    matches = fe.find_einsums(extracted, epilogues=True)
    assert reasons == {}
    found = [match.einsum.subscripts for match in matches if match.einsum.indexing.output != "e"]
    expected = SEEN.get(f"{cell} {form}", SEEN.get(form))
    if expected is not None:
        assert list(dict.fromkeys(found)) == expected
    last = extracted.default_entrypoint.instructions[-1]
    if last.tags_of_type(FlatStore):  # the sum is an array of as many axes as its result has indices
        assert matches[-1].epilogue is None
        assert last.id not in matches[-1].insn_ids
    else:
        assert matches[-1].epilogue is not None
        assert matches[-1].epilogue.text("ejkl"[: len(matches[-1].einsum.indexing.output)]) == "v + out"
    seen = {insn_id for match in matches for insn_id in match.insn_ids}
    rest = [insn for insn in extracted.default_entrypoint.instructions if insn.id not in seen]
    assert not any(insn.reduction_inames() for insn in rest)


VALUES = [("triangle", "mass", 2), ("tetrahedron", "mass action", 2), ("hexahedron", "load", 2)]


@pytest.mark.parametrize(("cell", "form", "order"), VALUES, ids=str)
def test_transformed_forms_compute_the_same(cell: str, form: str, order: int, cpu: Device, store: str) -> None:
    """As the kernel of one cell in a loop, for a number of cells that divides nothing; what A holds before is added to."""
    t_unit = over_cells(cell, form, order)
    data = form_data(t_unit, 67)
    expected = run(t_unit, **{name: np.copy(values) for name, values in data.items()})["A"]
    fast = fe.extract_operands(t_unit, epilogues=True)
    for match in fe.find_einsums(fast, epilogues=True):
        chosen = " or ".join(f"id:{insn_id}" for insn_id in match.insn_ids)
        fast = fe.transform(fast, cpu, insn_match=chosen, database=store, sizes={"E": 10_000}, epilogues=True)
    assert_allclose(run(fast, **{name: np.copy(values) for name, values in data.items()})["A"], expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("form", "subscripts"), [(("hexahedron", "mass action", 1), CHAIN), (("tetrahedron", "laplace", 1), SEEN["laplace"][0])]
)
def test_forms_without_epilogues_add_afterwards(form: tuple[str, str, int], subscripts: str) -> None:
    """Where nobody asks for epilogues, the sum goes to an array of its own and is added to the result after that."""
    t_unit = over_cells(*form)
    data = form_data(t_unit, 5)
    extracted = fe.extract_operands(t_unit)
    assert subscripts in [match.einsum.subscripts for match in fe.find_einsums(extracted)]
    outputs = [run(k, **{name: np.copy(values) for name, values in data.items()})["A"] for k in (t_unit, extracted)]
    assert_allclose(outputs[1], outputs[0], rtol=1e-11)


def test_a_mass_matrix_is_one() -> None:
    """Against numpy: tables, weights and the determinant of each cell are what they are taken for."""
    t_unit = over_cells("triangle", "mass", 1)
    data = form_data(t_unit, 5)
    tables = {
        name: variable.initializer
        for name, variable in t_unit.default_entrypoint.temporary_variables.items()
        if variable.initializer is not None
    }
    weights, basis = sorted(tables.values(), key=lambda table: table.ndim)
    x = data["coords"].reshape(5, 3, 2)
    determinant = np.abs(np.linalg.det(np.stack([x[:, 1] - x[:, 0], x[:, 2] - x[:, 0]], 2)))
    expected = data["A"] + np.einsum("q,qj,qk,e->ejk", weights, basis, basis, determinant)
    assert_allclose(run(fe.extract_operands(t_unit), **data)["A"], expected, rtol=1e-12)


SEQUENTIAL = {
    "a scalar accumulates": (
        "for e\n acc = 0\n for j\n acc = acc + u[e, j]*x[j]\n end\n t[e] = 2*acc\n end",
        ["ej,j->e"],
        "t",
    ),
    "an array accumulates": (
        "for e\n for i\n loc[i] = 0\n for j\n loc[i] = loc[i] + D[i, j]*u[e, j]\n end\n end\n"
        " for k\n y[e, k] = loc[k]*w[e]\n end\n end",
        ["ij,ej->ei"],
        "y",
    ),
    "a minus": ("for e, i, j\n y[e, i] = y[e, i] - D[i, j]*u[e, j]\n end", ["ij,ej->ei"], "y"),
    "a result that begins at zero": (
        "for e, i\n y[e, i] = 0\n for j\n y[e, i] = y[e, i] + D[i, j]*u[e, j]\n end\n end",
        ["ij,ej->ei"],
        "y",
    ),
    "a start that is no zero": (
        "for e, i\n acc = z[e, i]\n for j\n acc = acc + D[i, j]*u[e, j]\n end\n y[e, i] = acc\n end",
        ["ij,ej->ei"],
        "y",
    ),
    "a scalar beside a sum": ("for e\n c1 = 2*w[e]\n for i\n y[e, i] = sum(j, c1*D[i, j]*u[e, j])\n end\n end",
                              ["e,ij,ej->ei"], "y"),
    "elements one by one": (
        "for e\n loc[0] = w[e]\n loc[1] = 2*w[e]\n loc[2] = x[0]\n loc[3] = w[e]*w[e]\n"
        " for i, j\n y[e, i] = y[e, i] + loc[j]*D[i, j]\n end\n end",
        ["ej,ij->ei"],
        "y",
    ),
    "two accumulations": (
        "for e, i\n for j\n y[e, i] = y[e, i] + D[i, j]*u[e, j]\n end\n"
        " for k\n y[e, i] = y[e, i] + D[k, i]*v[e, k]\n end\n end",
        ["ij,ej->ei", "ki,ek->ei"],
        "y",
    ),
    "a chain": (
        "for e, i\n acc = 0\n for j\n acc = acc + D[i, j]*u[e, j]\n end\n"
        " for k\n y[e, k] = y[e, k] + acc*D[k, i]\n end\n end",
        ["ij,ej,ki->ek"],
        "y",
    ),
}  # fmt: skip


def sequential(text: str, **options: Any) -> lp.TranslationUnit:
    return make_kernel(
        text,
        rules="",
        more=[
            lp.TemporaryVariable("acc", "float64", shape=()),
            lp.TemporaryVariable("c1", "float64", shape=()),
            lp.TemporaryVariable("loc", "float64", shape=(4,)),
        ],
        seq_dependencies=True,
        **options,
    )


@pytest.mark.parametrize("name", SEQUENTIAL)
def test_loops_that_add_become_sums(name: str) -> None:
    """With the initialization before them, and what is made of the result after them."""
    text, subscripts, output = SEQUENTIAL[name]
    t_unit = sequential(text)
    reasons: dict[str, str] = {}
    extracted = fe.extract_operands(t_unit, reasons=reasons)
    found = [match.einsum.subscripts for match in fe.find_einsums(extracted)]
    assert [s for s in found if "," in s] == subscripts
    assert reasons == {}
    rng = np.random.default_rng(5)
    shapes = {"D": (4, 4), "u": (5, 4), "v": (5, 4), "x": (4,), "w": (5,), "z": (5, 4), "y": (5, 4)}
    read = t_unit.default_entrypoint.get_read_variables()
    given = {own: rng.uniform(0.5, 2, shape) for own, shape in shapes.items() if own in read}
    if output == "y" and "y" not in given:
        given["y"] = np.full((5, 4), np.nan)
    outputs = [
        run(kernel, **{own: np.copy(value) for own, value in given.items()}, n=5)[output] for kernel in (t_unit, extracted)
    ]
    assert_allclose(outputs[1], outputs[0], rtol=1e-12)


LEFT_ALONE = {
    "no start": ("for e, j\n acc = acc + u[e, j]\n t[e] = acc\n end", "which is set by no statement before"),
    "read on the way": (
        "for e\n acc = 0\n for j\n acc = acc + u[e, j]\n z[e, j] = acc\n end\n end",
        "'insn_1' uses 'acc' in the loop 'j', in which 'insn_0' adds to it|'insn_2' uses 'acc' in the loop 'j'",
    ),
    "assigned twice": (
        "for e\n c1 = w[e]\n c1 = 2*c1\n for i, j\n y[e, i] = y[e, i] + c1*D[i, j]\n end\n end",
        "'c1' is assigned by 'insn' and 'insn_0'|assigns to c1 in a way",
    ),
    "read after its loop": (
        "for e\n c1 = w[e]\n end\n for i, j\n x[i] = x[i] + c1*D[i, j]\n end",
        "'insn_0' reads 'c1' after the loop 'e' in which it is assigned",
    ),
    "starts elsewhere": (
        "for e\n acc = 0\n for i\n for j\n acc = acc + D[i, j]\n end\n y[e, i] = acc\n end\n end",
        "'insn_1' uses 'acc' in the loop 'i'",
    ),
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_what_cannot_be_proved_is_left_alone_with_the_reason(name: str) -> None:
    """Nothing is changed where dependencies and loops do not show that the values stay."""
    text, reason = LEFT_ALONE[name]
    t_unit = sequential(text)
    reasons: dict[str, str] = {}
    assert fe.extract_operands(t_unit, reasons=reasons) is t_unit
    assert len(reasons) > 0
    for text in reasons.values():
        assert any(part in text for part in reason.split("|")), text
        assert " is not normalized: " in text


def test_changes_say_what_was_done() -> None:
    """For every instruction of a kernel that is normalized."""
    changes: dict[str, str] = {}
    text = "for e\n c1 = 2*w[e]\n acc = w[e] + x[0]\n for i, j\n y[e, 0 + 1*i] = y[e, 0 + 1*i] + acc*c1*D[i, j]\n end\n end"
    fe.extract_operands(sequential(text), changes=changes, epilogues=True)
    assert changes == {
        "insn": "its value is put in where 'c1' is read",
        "insn_0": "'acc' gets an axis for e; its factors are substitution rules",
        "insn_1": "adds a sum over j; its factors are substitution rules, and what is made of the sum is an epilogue",
    }


def test_a_chosen_instruction_that_is_not_normalized_is_refused() -> None:
    """With the reason why not, rather than with what the grammar says of the instruction as it stands."""
    with pytest.raises(MatchError, match=r"'insn_0' is not normalized: .* no statement before"):
        fe.extract_operands(sequential("t[0] = 1\nfor e, j\n acc = acc + u[e, j]\n end"), insn_match="id:insn_0")


def test_a_loop_goes_around_a_kernel() -> None:
    """Arrays that are named get an axis in front, others are the same in all iterations."""
    one = lp.make_kernel(
        "{[i, j]: 0 <= i, j < 3}",
        "s = 2*a\nb[i] = s*sum(j, M[i, j]*c[j])",
        [
            lp.GlobalArg("b,c", "float64", shape=(3,)),
            lp.GlobalArg("a", "float64", shape=()),
            lp.GlobalArg("M", "float64", shape=(3, 3)),
            lp.TemporaryVariable("s", "float64", shape=(), address_space=lp.AddressSpace.LOCAL),
        ],
        target=lp.PyOpenCLTarget(),
        lang_version=(2018, 2),
        seq_dependencies=True,
    )
    many = fe.add_loop(one, "e", "2*n - 1", ["a", "b", "c"])
    rng = np.random.default_rng(0)
    a, c, M = rng.random(5), rng.random((5, 3)), rng.random((3, 3))
    assert_allclose(run(many, a=a, c=c, M=M, n=3)["b"], 2 * a[:, None] * (c @ M.T), rtol=1e-13)
    for arguments, text in (
        (("i", 5, ["a", "b"]), "has a 'i' already"),
        (("e", 5, ["a"]), "writes 'b' in each iteration of 'e'; name it in arrays"),
        (("e", 5, ["b", "d"]), r"has no array argument 'd'; it has \['M', 'a', 'b', 'c'\]"),
        (("e", 5, "b"), "arrays is the text 'b'"),
    ):
        with pytest.raises(MatchError, match=text):
            fe.add_loop(one, *arguments)
