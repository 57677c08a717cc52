"""Kernels as array compilers emit them, with arithmetic around their sums: seen as einsums, and transformed."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import loopy as lp
import numpy as np
import pytest
from array_programs import FUSED, PRODUCTS, PROGRAMS, SHAPES, TYPES, array_program
from kernels import run
from numpy.testing import assert_allclose

import feinsum as fe
from feinsum.devices import Device
from feinsum.errors import MatchError
from feinsum.match import Match

UNSEEN = {"a chain with a term"}


def extracted(name: str, *, bounds: bool = False) -> tuple[lp.TranslationUnit, tuple[Match, ...]]:
    """The kernel with operands, and the einsums in it; one without sums has to be chosen."""
    t_unit = array_program(name, bounds=bounds)
    chosen = None if "sum(" in PROGRAMS[name][1] else "id:store"
    t_unit = fe.extract_operands(t_unit, insn_match=chosen, epilogues=True)
    return t_unit, fe.find_einsums(t_unit, epilogues=True)


@pytest.mark.parametrize("bounds", [False, True], ids=["numbers", "bounds"])
def test_array_programs_are_einsums(bounds: bool) -> None:
    """35 products of arrays, and 7 of 8 with arithmetic around or between their sums."""
    assert (len(PRODUCTS), len(FUSED)) == (35, 8)
    assert {name for name in PROGRAMS if not extracted(name, bounds=bounds)[1]} == UNSEEN


CHAINS: dict[str, tuple[list[str], bool]] = {
    "two": (["half = n", "hi = 2*half"], True),
    "many, from the last": ([f"t{k} = t{k + 1} + 1" for k in range(40)] + ["t40 = n", "hi = t0"], True),
    "sums of sums": (["t0 = n", "t1 = n"] + [f"t{k} = t{k - 1} + t{k - 2}" for k in range(2, 25)] + ["hi = t24"], True),
    "one that is also stored": (["half = n", "hi = 2*half", "z[0] = half"], True),
    "two bounds": (["half = n", "hi = 2*half"], True),
    "a circle": (["half = hi - n", "hi = 2*half"], False),
    "one set twice": (["half = n", "half = n + 1", "hi = 2*half"], False),
    "one set in some cases": (["half = n {if=n > 3}", "hi = 2*half"], False),
    "one read from memory": (["half = m[0]", "hi = 2*half"], False),
}
"""Temporaries of which a sum's bound is made, and whether the einsum is seen."""


@pytest.mark.parametrize("name", CHAINS)
def test_bounds_are_followed_through_temporaries(name: str) -> None:
    """Array libraries name each step of a length; after any number of them it is affine in value arguments."""
    lines, seen = CHAINS[name]
    temporaries = {line.partition(" = ")[0] for line in lines} - {"z[0]"}
    order = [
        f"{line.replace('}', ', ') if '{' in line else line + ' {'}id=set{k}, inames=}}" for k, line in enumerate(lines)
    ]
    rows = "[half] -> { [i]: 0 <= i < half }" if name == "two bounds" else "{ [i]: 0 <= i < 10 }"
    t_unit = lp.make_kernel(
        [rows, "[hi] -> { [j]: 0 <= j < hi }"],
        [*order, "y[i] = sum(j, A[i, j]*x[j]) {id=row, dep=*}"],
        [
            lp.GlobalArg("A", "float64", shape=("999*n", "100000*n")),
            lp.GlobalArg("x", "float64", shape=("100000*n",)),
            lp.GlobalArg("m", "int64", shape=(1,)),
            lp.GlobalArg("y", "float64", shape=("999*n",), is_input=False),
            lp.GlobalArg("z", "float64", shape=(1,)),
            *(lp.TemporaryVariable(x, "int64", shape=()) for x in sorted(temporaries)),
            lp.ValueArg("n", "int64"),
        ],
        target=lp.PyOpenCLTarget(),
        lang_version=(2018, 2),
    )
    with nullcontext() if seen else pytest.raises(MatchError, match="known only inside the kernel"):
        assert len(fe.find_einsums(fe.extract_operands(t_unit, insn_match="id:row"))) == 1


def test_epilogues_of_array_programs() -> None:
    """A constant factor goes into an operand; two sums are two rows, of which one output is made."""
    seen = {
        name: [match.epilogue and match.epilogue.text("ei") for match in extracted(name)[1]]
        for name in FUSED.keys() - UNSEEN
    }
    assert seen == {
        "a number times": [None],
        "minus": [None],
        "divided": [None],
        "added to": ["v + v_[e, i]"],
        "a function of": ["exp(v)"],
        "two sums": ["v0 + v1"],
        "a chain": [None],
    }


@pytest.mark.parametrize("name", ["mass", "divided", "added to", "two sums", "a chain"])
def test_transformed_array_programs_compute_the_same(name: str, cpu: Device, store: str, caplog: Any) -> None:
    """Offsets that the call tells are added where arrays are addressed; no transformation is passed over for them."""
    t_unit = array_program(name, bounds=name == "mass")
    fast, matches = extracted(name, bounds=name == "mass")
    for match in matches:
        fast = fe.transform(fast, cpu, insn_match=f"id:{match.insn_ids[0]}", database=store, epilogues=True)
    rng = np.random.default_rng(0)
    used = [a.name for a in t_unit.default_entrypoint.args if a.name in SHAPES]
    data = {a: rng.uniform(0.5, 2, SHAPES[a]).astype(TYPES.get(a, "float64")) for a in used}
    assert_allclose(run(fast, **data)["out"], run(t_unit, **data)["out"], rtol=1e-12)
    assert "TypeError" not in caplog.text
