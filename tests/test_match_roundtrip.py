"""Matching is the inverse of lowering: ``match(lower(e))`` is isomorphic to e, for known and for random einsums."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feinsum.canonicalization import is_isomorphic, isomorphism
from feinsum.contraction import pairwise_schedule
from feinsum.einsum import DTYPES, Array, BatchedEinsum, array, batched_einsum, einsum
from feinsum.lower import generate_loopy
from feinsum.match import find_einsums, isolate, match_einsum, match_t_unit_to_einsum
from feinsum.subscripts import Subscripts

J, D, u = array("J", (3, 3, "E")), array("D", (3, 20, 20)), [array(f"u{k}", ("E", 20)) for k in range(4)]
R, F, v = array("R", (20, 4, 10)), array("F", (4, "E")), [array(f"v{k}", (4, "E", 10)) for k in range(4)]
A, x = array("A", (512, 512)), array("x", 512)

KNOWN = {
    "gradient": einsum("xre,rij,ej->xei", J, D, u[0]),
    "divergence": einsum("xre,rij,xej->ei", J, D, array("w", (3, "E", 20))),
    "lift": batched_einsum("ifj,fe,fej->ei", [[R, F, a] for a in v]),
    "matrix product": einsum("ij,jk->ik", A, array("B", (512, 512))),
    "one array twice": einsum("ij,ji->ij", A, A),
    "square": einsum("j,j->", x, x),
    "trace": einsum("ii->", A),
    "outer product": einsum("i,j->ij", x, x),
    "scalars": einsum(",,->", array("c", ()), array("d", ()), array("c", ())),
    "sets": batched_einsum("ej,ij->ei", [[(u[0], u[1]), array("P", (20, 20))], [(u[1], u[2], u[3]), array("P", (20, 20))]]),
    "one axis for two indices": einsum("ij,j->i", array("K", ("N", "N")), array("z", "N")),
    "anonymous axes": einsum("ij,jk->ik", array("K", (math.inf, 4)), array("L", (4, math.inf))),
    "real and complex": einsum("ij,j->i", array("K", (8, 8), "float32"), array("z", 8, "complex128")),
    "integers and reals": einsum("ij,j->i", array("K", (8, 8), "int64"), array("z", 8, "float32")),
    "types that differ between rows": batched_einsum(
        "ij,j->i", [[array("K", (8, 8), "float32"), array(f"z{k}", 8, kind)] for k, kind in enumerate(DTYPES)]
    ),
    "arrays named like indices": einsum("ij,jk->ik", array("i", (3, 4)), array("k", (4, 5))),
    "arrays named like outputs": batched_einsum("ij->ji", [[array("out_0", (3, 4))], [array("out", (3, 4))]]),
    "arrays named like rules": einsum("ij,jk->ik", array("u_1", (3, 4)), array("u", (4, 5))),
    "axes named like indices": einsum("mn,n->m", array("A", ("m", "n")), array("x", "n")),
    "fifty-two indices": einsum(
        ",".join("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") + "->",
        *(array("p", 2) for _ in range(52)),
    ),
    "lengths of one": einsum("ij,ej->ei", array("K", (1, 1)), array("z", ("E", 1))),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_einsum_is_seen_in_its_kernel(name: str) -> None:
    """A lowered einsum matches itself, in its own order of rows and operands and with its own names of arrays."""
    e = KNOWN[name]
    match = match_einsum(generate_loopy(e))
    renaming = isomorphism(e, match.einsum)
    assert renaming is not None
    assert (match.einsum.b, match.einsum.n) == (e.b, e.n)
    assert match.einsum.indexing == e.indexing.rename(
        dict(zip(e.indexing.indices, match.einsum.indexing.indices, strict=True))
    )
    assert {a.name for a in match.einsum.arrays} == {a.name for a in e.arrays}
    assert match.outputs == e.output_names


@pytest.mark.parametrize("name", KNOWN)
def test_names_of_a_known_einsum_lead_to_the_names_in_its_kernel(name: str) -> None:
    """Every index, array, output and long axis of the einsum is found in the kernel, where it is what it should be."""
    e = KNOWN[name]
    t_unit = generate_loopy(e)
    kernel = t_unit.default_entrypoint
    names = match_t_unit_to_einsum(t_unit, e)
    taken = {a.name for a in e.arrays} | set(e.output_names) | {a for a in e.index_sizes.values() if isinstance(a, str)}
    assert set(names) == taken | set(e.indexing.indices)
    for a in e.arrays:
        assert kernel.arg_dict[names[a.name]].dtype.numpy_dtype == a.dtype
    assert {names[letter] for letter in e.indexing.indices if letter not in taken} <= kernel.all_inames()
    assert {names[output] for output in e.output_names} == set(e.output_names)


@pytest.mark.parametrize("name", KNOWN)
def test_lowered_kernel_needs_no_isolation(name: str) -> None:
    """Lowering gives an einsum loops and rules of its own, so isolation returns what it got."""
    t_unit = generate_loopy(KNOWN[name])
    match = match_einsum(t_unit)
    isolated, same = isolate(t_unit, match)
    assert isolated is t_unit
    assert same is match


def test_each_step_of_a_schedule_is_seen_by_itself() -> None:
    """A kernel in several steps is as many batched einsums, each chosen by the names of its instructions."""
    e = batched_einsum("xre,rij,ej->xei", [[J, D, a] for a in u])
    t_unit = generate_loopy(e, pairwise_schedule(e, {"E": 1000}))
    matches = find_einsums(t_unit)
    assert [m.einsum.b for m in matches] == [len(u), len(u)]
    for match in matches:
        chosen = " or ".join(f"id:{insn_id}" for insn_id in match.insn_ids)
        assert match_einsum(t_unit, insn_match=chosen) == match
        assert isolate(t_unit, match)[0] is t_unit


LENGTHS: list[Any] = [1, 2, 3, 7, "N", "out", math.inf]


@st.composite
def batched_einsums(draw: st.DrawFn) -> BatchedEinsum:
    """A batched einsum of up to four operands, five indices and three rows; arrays repeat, types and lengths mix."""
    letters = draw(st.permutations("abijE"))[: draw(st.integers(0, 5))]
    sizes = {letter: draw(st.sampled_from(LENGTHS)) for letter in letters}
    indices = st.lists(st.sampled_from(letters), max_size=3).map("".join) if letters else st.just("")
    inputs = tuple(draw(st.lists(indices, min_size=1, max_size=4)))
    used = [letter for letter in letters if any(letter in term for term in inputs)]
    output = "".join(draw(st.permutations(used))[: draw(st.integers(0, len(used)))])
    known: list[Array] = []

    def entry(term: str) -> tuple[Array, ...]:
        shape = tuple(sizes[letter] for letter in term)
        members = {}
        for _ in range(draw(st.integers(1, 2))):
            fitting = [a for a in known if a.shape == shape]
            if fitting and draw(st.booleans()):
                member = draw(st.sampled_from(fitting))
            else:
                name = draw(st.sampled_from(["a", "i", "out_", "p", "step_"])) + str(len(known))
                member = array(name, shape, draw(st.sampled_from(DTYPES)))
                known.append(member)
            members[member.name] = member
        return tuple(members[name] for name in sorted(members))

    rows = tuple(tuple(entry(term) for term in inputs) for _ in range(draw(st.integers(1, 3))))
    return BatchedEinsum(Subscripts(inputs, output), rows)


@given(batched_einsums())
@settings(max_examples=150, deadline=None)
def test_random_einsum_is_seen_in_its_kernel(e: BatchedEinsum) -> None:
    """Whatever is lowered is seen again, by itself, against the einsum it came from, and among all there is to find."""
    t_unit = generate_loopy(e)
    match = match_einsum(t_unit)
    assert is_isomorphic(match.einsum, e)
    assert find_einsums(t_unit) == (match,)
    names = match_t_unit_to_einsum(t_unit, e)
    assert {names[a.name] for a in e.arrays} == {a.name for a in e.arrays}
    assert isolate(t_unit, match)[0] is t_unit
