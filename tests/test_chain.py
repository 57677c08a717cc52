"""Chains: an einsum as einsums one after the other, written as one text that a record can hold."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from einsums import check_against_numpy, inputs
from hypothesis import given
from hypothesis import strategies as st

import feinsum as fe
from feinsum.canonicalization import canonicalize_einsum
from feinsum.contraction import pairwise_schedule, step_einsums
from feinsum.match import match_einsum
from feinsum.rewrites import contract_in_steps
from feinsum.space.chain import Link, read_chain, schedule_of_links, write_chain
from feinsum.subscripts import parse_subscripts

VALUES = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text())
LINKS = st.builds(
    Link,
    operands=st.lists(st.integers(0, 9), min_size=1).map(tuple),
    output=st.text("abcdef"),
    space=st.text(),
    version=st.integers(),
    configuration=st.dictionaries(st.text(), VALUES),
)


@given(st.lists(LINKS, min_size=1, max_size=4).map(tuple))
def test_a_chain_is_read_as_it_was_written(links: tuple[Link, ...]) -> None:
    """Whatever the configurations hold, types included; and its text is printed by a record that holds it."""
    text = write_chain(links)
    found = read_chain(text)
    assert found == links
    types = [[type(value) for value in link.configuration.values()] for link in found]
    assert types == [
        [type(link.configuration[name]) for name in own.configuration] for link, own in zip(links, found, strict=True)
    ]
    assert text.isascii()


STEP: dict[str, Any] = {"configuration": {}, "operands": [0, 1], "output": "ik", "space": "generic", "version": 1}
BAD: dict[str, tuple[Any, str]] = {
    "no text": (17, "are JSON, not '17'"),
    "no JSON": ("[{", "are JSON, not '\\[{'"),
    "no list": ("{}", "a list of objects"),
    "no steps": ("[]", "a list of objects"),
    "no object": ("[3]", "step 0 of a chain is '3'; it is an object of configuration, operands, output, space, version"),
    "a field is missing": (json.dumps([{"space": "generic"}]), "it is an object of"),
    "a number as text": (json.dumps([{**STEP, "version": "1"}]), "version of step 0 of a chain is '1'; it is a int"),
    "a truth as a number": (json.dumps([STEP, {**STEP, "version": True}]), "version of step 1 of a chain is True"),
    "operands of another kind": (json.dumps([{**STEP, "operands": [0, "1"]}]), "operands of step 0 of a chain"),
    "another order of fields": (json.dumps([dict(reversed(STEP.items()))]), "not written as they would be again"),
    "endless lists": ("[" * 10**5, "are JSON, not"),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD)
def test_what_is_no_chain_is_refused(text: Any, message: str) -> None:
    """With what it is, where, and what it should be."""
    with pytest.raises(fe.TransformError, match=message):
        read_chain(text)


def link(operands: tuple[int, ...], output: str) -> Link:
    return Link(operands, output, "generic", 1, {})


UNFIT: dict[str, tuple[list[Link], str]] = {
    "an operand that is not there": ([link((0, 7), "i")], "step 0 of the chain takes operands \\[0, 7\\]"),
    "no operand": ([link((), "i")], "takes operands \\[\\]"),
    "an operand twice": ([link((0, 0), "i")], "takes operand 0"),
    "a sum too early": ([link((0, 1), "k"), link((2, 3), "i")], "output index 'i'"),
    "something is left": ([link((1, 2), "j")], "leaves"),
    "an index that nobody has": ([link((1, 2), "z")], "output index 'z'"),
}


@pytest.mark.parametrize(("links", "message"), UNFIT.values(), ids=UNFIT)
def test_a_chain_has_to_fit_its_einsum(links: list[Link], message: str) -> None:
    """Its steps use every operand and every result once, and sum over nothing that is needed later."""
    with pytest.raises(fe.SubscriptError, match=message):
        schedule_of_links(links, parse_subscripts("ij,jk,k->i"))


def several(subscripts: str, rows: int, **lengths: int | str) -> fe.BatchedEinsum:
    """Rows that share all operands but the last."""
    terms = subscripts.partition("->")[0].split(",")

    def operand(k: int, row: int) -> fe.Array:
        return fe.array(f"a{k}_{row if k == len(terms) - 1 else 0}", [lengths[x] for x in terms[k]])

    return fe.batched_einsum(subscripts, [[operand(k, row) for k in range(len(terms))] for row in range(rows)])


U = fe.array("u", (4, 4))
EINSUMS = {
    "a chain of matrices": several("ij,jk,kl->il", 1, i=3, j=4, k=5, l=6),
    "a long axis": several("bi,oij,bj->bo", 1, b="B", i=3, j=4, o=5),
    "rows that share a step": several("re,rij,ej->ei", 3, r=3, e="E", i=4, j=4),
    "rows that share nothing but operands": several("xre,rij,ej->xei", 2, x=3, r=2, e="E", i=4, j=5),
    "one array in two places": fe.einsum("ij,jk,kl->il", U, U, fe.array("v", (4, 5))),
    "four operands": several("af,fb,bc,cd->ad", 1, a=2, f=3, b=4, c=5, d=6),
}


@pytest.mark.parametrize("e", EINSUMS.values(), ids=EINSUMS)
def test_steps_are_the_einsums_of_a_kernel_in_steps(e: fe.BatchedEinsum) -> None:
    """So what is recorded for a step as an einsum is meant for the step of the kernel."""
    sizes = dict.fromkeys(e.long_axes, 100)
    schedule = pairwise_schedule(e, sizes)
    t_unit = fe.generate_loopy(e)
    match = match_einsum(t_unit)
    letters = {own: letter for letter, own in zip(e.indexing.indices, match.einsum.indexing.indices, strict=True)}
    assert letters == {x: x for x in letters}
    _, steps = contract_in_steps(t_unit, match, pairwise_schedule(match.einsum, match.einsum.sizes_from(e.resolve(sizes))))
    assert [canonicalize_einsum(step.einsum).key for step in steps] == [
        canonicalize_einsum(step).key for step in step_einsums(e, schedule)
    ]


@pytest.mark.parametrize("e", EINSUMS.values(), ids=EINSUMS)
def test_steps_one_after_the_other_are_the_einsum(e: fe.BatchedEinsum) -> None:
    """The results of a step, in order, are the arrays ``x4_0``, ``x4_1``, ... of those after it."""
    arrays = inputs(e, dict.fromkeys(e.long_axes, 7))
    values: dict[str, Any] = {}
    for k in range(e.n):
        for number, entry in enumerate(dict.fromkeys(row[k] for row in e.args)):
            values[f"x{k}_{number}"] = arrays[entry[0].name]
    results: list[Any] = []
    for s, step in enumerate(step_einsums(e, pairwise_schedule(e, dict.fromkeys(e.long_axes, 100)))):
        results = [np.einsum(step.subscripts, *(values[entry[0].name] for entry in row)) for row in step.args]
        values |= {f"x{e.n + s}_{number}": result for number, result in enumerate(results)}
    check_against_numpy(e, arrays, results[0] if e.b == 1 else tuple(results))
