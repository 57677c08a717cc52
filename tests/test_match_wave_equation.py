"""Three einsums in one kernel of a compiler: each is seen by itself and can be taken apart from the others."""

from __future__ import annotations

import loopy as lp
import pytest
from kernels import run
from numpy.testing import assert_allclose
from wave_equation import PARTS, wave_data, wave_einsums, wave_equation, wave_reference

from feinsum.canonicalization import is_isomorphic
from feinsum.errors import MatchError
from feinsum.match import extract_operands, find_einsums, isolate, match_einsum, match_t_unit_to_einsum

SUBSCRIPTS = ("xre,rij,ej->xei", "xre,rij,xej->ei", "ifj,fe,fej->ei")


@pytest.mark.parametrize("order", [2, 3])
def test_each_part_is_found_and_matches_its_einsum(order: int) -> None:
    """Barriers and dependencies keep the parts apart; operands are what their rules say."""
    t_unit, einsums = wave_equation(order), wave_einsums(order)
    matches = find_einsums(t_unit)
    assert [match.insn_ids for match in matches] == [(part,) for part in PARTS]
    for match, (part, e) in zip(matches, einsums.items(), strict=True):
        assert is_isomorphic(match.einsum, e)
        names = match_t_unit_to_einsum(t_unit, e, insn_match=f"id:{part}")
        assert {names[a.name] for a in e.arrays} == {a.name for a in e.arrays}
        assert names["E"] == "E"


def test_whole_kernel_is_no_einsum() -> None:
    """Asked for one einsum, the matcher says which instruction is another."""
    with pytest.raises(
        MatchError, match=r"'divergence' is no einsum \(rule 10, rows\): it computes d\[e1, i1\] = metric\("
    ):
        match_einsum(wave_equation())


def test_untransformed_kernel_equals_numpy() -> None:
    """The kernel is right before anything is done to it, and after each part has loops and rules of its own."""
    t_unit, data = wave_equation(2), wave_data(7, 2)
    expected = wave_reference(data)
    isolated = t_unit
    for part in PARTS:
        isolated, _ = isolate(isolated, match_einsum(isolated, insn_match=f"id:{part}"))
    assert isolated is not t_unit
    for kernel in (t_unit, isolated):
        found = run(kernel, **data)
        for name, values in expected.items():
            assert_allclose(found[name], values, rtol=1e-12, atol=1e-12)


def test_parts_have_rules_of_their_own_once_isolated() -> None:
    """Gradient and divergence read D by one rule; fetching it for one must not change the other."""
    t_unit = wave_equation()
    before = match_einsum(t_unit, insn_match="id:divergence")
    isolated, match = isolate(t_unit, match_einsum(t_unit, insn_match="id:gradient"))
    assert match.rules != (("metric_material", "derivative", "pressure"),)
    assert match.inames == match_einsum(t_unit, insn_match="id:gradient").inames
    assert match_einsum(isolated, insn_match="id:divergence") == before


def test_emitted_kernel_matches_after_extraction() -> None:
    """Plain reads and fused arithmetic, as an array compiler emits them, are taken apart into the same operands."""
    emitted = wave_equation(2, rules=False)
    assert find_einsums(emitted) == ()
    extracted = extract_operands(emitted)
    matches = find_einsums(extracted)
    assert [match.einsum.subscripts for match in matches] == ["xre,e,rij,ej->xei", SUBSCRIPTS[1], "ifj,fe,fej,fej->ei"]
    assert is_isomorphic(matches[1].einsum, wave_einsums(2)["divergence"])
    data = wave_data(5, 2)
    found = run(extracted, **data)
    for name, values in wave_reference(data).items():
        assert_allclose(found[name], values, rtol=1e-12, atol=1e-12)


def test_part_can_be_made_of_several_instructions_chosen_by_output() -> None:
    """A part is chosen by any property of its instruction; the rest of the kernel may be whatever it is."""
    t_unit = wave_equation()
    for output, part in zip("gdl", PARTS, strict=True):
        assert match_einsum(t_unit, insn_match=f"writes:{output}").insn_ids == (part,)


def transform_by_hand(t_unit: lp.TranslationUnit, part: str) -> lp.TranslationUnit:
    """A work-item for each element, with a row of the operator fetched first: what a transform space might do."""
    t_unit, match = isolate(t_unit, match_einsum(t_unit, insn_match=f"id:{part}"))
    e, j = match.inames["e"], match.inames["j"]
    group, item = f"{e}_group", f"{e}_item"
    t_unit = lp.split_iname(t_unit, e, 4, outer_iname=group, inner_iname=item, outer_tag="g.0", inner_tag="l.0")
    operator = next(rule for rule, at in zip(match.rules[0], match.einsum.indexing.inputs, strict=True) if "i" in at)
    return lp.precompute(
        t_unit,
        operator,
        [j],
        precompute_inames=[f"{part}_{name}" for name in t_unit.default_entrypoint.substitutions[operator].arguments],
        precompute_outer_inames=frozenset(name for name in match.inames.values() if name not in (e, j)) | {group, item},
        temporary_address_space=lp.AddressSpace.PRIVATE,
        default_tag=None,
    )


def test_each_part_can_be_transformed_by_itself() -> None:
    """Splitting, tagging and fetching in one part leaves the others right, in whichever order the parts are taken."""
    data = wave_data(11, 1)
    expected = wave_reference(data)
    for parts in (PARTS, PARTS[::-1]):
        t_unit = wave_equation(1)
        for part in parts:
            t_unit = transform_by_hand(t_unit, part)
        found = run(t_unit, **data)
        for name, values in expected.items():
            assert_allclose(found[name], values, rtol=1e-12, atol=1e-12)
