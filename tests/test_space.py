"""Transform spaces: which einsums match a pattern, what a configuration is, and why one is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from einsums import einsums
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import CPU, GPU

import feinsum as fe
from feinsum.candidates.transfer import nearest_configuration
from feinsum.canonicalization import canonicalize_einsum
from feinsum.space import Configuration, Problem, TransformSpace, space
from feinsum.space.roles import find_roles
from feinsum.subscripts import INDEX_LETTERS, Subscripts, parse_subscripts


def declare(given: list[Any] | None = None, **changes: Any) -> TransformSpace:
    """A space of matrix products with two parameters.

    :param given: gets what the transformation is called with.
    """
    declared: dict[str, Any] = {
        "pattern": ("ik,kj->ij", "ik,jk->ij"),
        "version": 2,
        "parameters": lambda p: {"tile": (8, 4, p.sizes["i"], 4), "unroll": (True, False)},
        "constraint": lambda p, c: "a tile of 4 is not unrolled" if c == {"tile": 4, "unroll": True} else None,
    }

    @space(**(declared | changes))
    def products(t_unit: Any, match: Any, problem: Problem, *, tile: int, unroll: bool) -> Any:
        """A plan."""
        if given is not None:
            given.extend([match, problem, tile, unroll])
        return t_unit

    return products


PRODUCT = fe.einsum("ab,cb->ac", fe.array("A", ("N", 5)), fe.array("B", (7, 5)))


def test_a_space_is_what_its_declaration_says() -> None:
    """Name and description are those of the function, unless given."""
    s = declare()
    assert (s.name, s.version, s.rank, s.description) == ("products", 2, 2, "A plan.")
    assert declare(name="other", rank=7).name == "other"
    assert declare(name="other", rank=7).rank == 7
    assert declare(pattern=lambda e: True).rank == 1


def test_configurations_come_best_guess_first() -> None:
    """In the order of the choices, without repetition and without those that the constraint refuses."""
    s = declare()
    problem = s.problem(PRODUCT, {"N": 11}, CPU)
    assert s.parameters(problem) == {"tile": (8, 4, 11), "unroll": (True, False)}
    assert list(s.configurations(problem)) == [
        {"tile": 8, "unroll": True},
        {"tile": 8, "unroll": False},
        {"tile": 4, "unroll": False},
        {"tile": 11, "unroll": True},
        {"tile": 11, "unroll": False},
    ]
    assert s.default(problem) == {"tile": 8, "unroll": True}


REFUSALS: dict[str, tuple[Any, str | None]] = {
    "a point of the space": ({"tile": 8, "unroll": True}, None),
    "a point in another order": ({"unroll": False, "tile": 4}, None),
    "a refused point": ({"tile": 4, "unroll": True}, "a tile of 4 is not unrolled"),
    "an unknown value": ({"tile": 5, "unroll": True}, "tile is 5, not one of [8, 4, 11]"),
    "a number of another type": ({"tile": 8.0, "unroll": True}, "tile is 8.0, not one of [8, 4, 11]"),
    "a number for a truth value": ({"tile": 8, "unroll": 1}, "unroll is 1, not one of [True, False]"),
    "text": ({"tile": "8", "unroll": True}, "tile is '8', not one of [8, 4, 11]"),
    "a list": ({"tile": [8], "unroll": True}, "tile is [8], not one of [8, 4, 11]"),
    "too few": ({"tile": 8}, "its parameters are ['tile'], not ['tile', 'unroll']"),
    "too many": ({"tile": 8, "unroll": True, "x": 1}, "its parameters are ['tile', 'unroll', 'x'], not ['tile', 'unroll']"),
    "nothing": ({}, "its parameters are [], not ['tile', 'unroll']"),
}


@pytest.mark.parametrize(("configuration", "reason"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_says_why(configuration: Configuration, reason: str | None) -> None:
    """Parameters, values, and then the constraint; and `transform` refuses for the same reason."""
    s = declare()
    assert s.refusal(s.problem(PRODUCT, {"N": 11}, CPU), configuration) == reason
    if reason is not None:
        match = fe.match_einsum(fe.generate_loopy(PRODUCT))
        with pytest.raises(fe.TransformError) as error:
            s.transform(None, match, configuration, s.problem(PRODUCT, {"N": 11}, CPU))
        assert str(error.value) == f"space 'products' refuses {configuration}: {reason}"


def test_a_space_without_configurations_says_so() -> None:
    """For which einsum, and on which device."""
    s = declare(constraint=lambda p, c: "never")
    with pytest.raises(fe.TransformError, match=r"space 'products' has no configuration for '.*' on Some CPU"):
        s.default(s.problem(PRODUCT, {"N": 11}, CPU))


def test_an_einsum_that_does_not_match_the_pattern_has_no_problem() -> None:
    """It is named with the space."""
    with pytest.raises(fe.TransformError, match="space 'products' does not apply to 'i->i'"):
        declare().problem(fe.einsum("i", fe.array("x", 3)), None, CPU)


@pytest.mark.parametrize("version", [0, -1, 1.0, "1", None])
def test_a_version_is_a_positive_integer(version: Any) -> None:
    """Records are sorted out by it."""
    with pytest.raises(fe.TransformError, match=f"the version of a space is a positive integer, not {version!r}"):
        declare(version=version)


def test_the_transformation_sees_the_letters_of_the_pattern() -> None:
    """Match and problem are in the letters and the operand order of the pattern that fits."""
    given: list[Any] = []
    s = declare(given)
    e = fe.einsum("xy,zy->zx", fe.array("B", (7, 5)), fe.array("A", ("N", 5)))
    t_unit = fe.generate_loopy(e)
    match = fe.match_einsum(t_unit)
    problem = s.problem(match.einsum, {match.einsum.long_axes[0]: 11}, CPU)
    s.transform(t_unit, match, {"tile": 8, "unroll": True}, problem)
    seen, given_problem, tile, unroll = given
    assert (tile, unroll) == (8, True)
    assert given_problem is problem
    assert problem.sizes == {"i": 11, "j": 7, "k": 5}
    assert problem.einsum.subscripts == seen.einsum.subscripts == "ik,jk->ij"
    assert [seen.arrays[entry[0].name] for entry in seen.einsum.args[0]] == ["A", "B"]
    assert seen.inames == {"i": "z", "j": "x", "k": "y"}


def test_whatever_a_transformation_raises_is_an_error_of_the_space() -> None:
    """Refusals pass through; bugs are told apart from them."""
    for raised, kind in ((ValueError("a bug"), fe.errors.SpaceError), (fe.TransformError("too small"), fe.TransformError)):

        @space(pattern="ik,jk->ij", version=1, parameters={"tile": (1,)})
        def failing(*_: Any, error: Exception = raised, **__: Any) -> Any:
            raise error

        t_unit = fe.generate_loopy(PRODUCT)
        match = fe.match_einsum(t_unit)
        problem = failing.problem(match.einsum, dict.fromkeys(match.einsum.long_axes, 11), CPU)
        with pytest.raises(kind) as error:
            failing.transform(t_unit, match, {"tile": 1}, problem)
        assert type(error.value) is kind
        assert str(error.value) in ("space 'failing' fails on {'tile': 1}: ValueError: a bug", "too small")


LIMITS: dict[str, tuple[Mapping[str, Any], str | None]] = {
    "what fits": ({"work_items": (1024, 1), "local_bytes": 226 << 10, "private_bytes": 1020}, None),
    "work-items": ({"work_items": 1025}, "1025 work-items exceed the 1024 of a work-group"),
    "work-items of all axes": ({"work_items": (32, 33)}, "1056 work-items exceed the 1024 of a work-group"),
    "work-items of one axis": ({"work_items": (1, 1, 65)}, "65 work-items exceed the 64 along axis 2"),
    "local memory": ({"local_bytes": 300 << 10}, "307200 bytes of local memory exceed the 231424 there are"),
    "registers": ({"private_bytes": 1021}, "1021 bytes of a work-item exceed the 1020 that stay in registers"),
}


@pytest.mark.parametrize(("wanted", "reason"), LIMITS.values(), ids=LIMITS)
def test_one_check_knows_the_limits_of_a_device(wanted: Mapping[str, Any], reason: str | None) -> None:
    """It says which limit, and what it is."""
    assert declare().problem(PRODUCT, {"N": 11}, GPU).exceeds(**wanted) == reason


def test_registers_that_are_unknown_are_no_limit() -> None:
    """As on CPUs."""
    assert declare().problem(PRODUCT, {"N": 11}, CPU).exceeds(private_bytes=1 << 20) is None


def test_a_problem_knows_its_sizes() -> None:
    """Lengths, counts, bytes of a number, and which axes are long."""
    e = fe.batched_einsum("ab,cb->ac", [[fe.array("A", ("N", 5), "float32"), fe.array("B", (7, 5), "complex128")]])
    problem = declare().problem(e, {"N": 11}, CPU)
    assert problem.itemsize == 16
    assert problem.count("ij") == 77
    assert problem.lengths == {"N": 11}
    assert problem.is_long("i")
    assert not problem.is_long("j")


def test_letters_of_the_pattern_may_be_names_of_axes() -> None:
    """An anonymous axis gets a name where its new letter is that of another."""
    e = fe.einsum("ab,cb->ac", fe.array("A", (float("inf"), "i")), fe.array("B", (float("inf"), "i")))
    problem = declare().problem(e, {"a": 11, "c": 12, "i": 13}, CPU)
    assert problem.sizes == {"i": 11, "j": 12, "k": 13}
    assert problem.einsum.resolve(problem.lengths) == problem.sizes


ROLES: dict[str, tuple[str, str, tuple[dict[str, str], tuple[int, ...]] | None]] = {
    "itself": ("ik,kj->ij", "ik,kj->ij", ({"i": "i", "j": "j", "k": "k"}, (0, 1))),
    "other letters": ("ik,kj->ij", "ab,bc->ac", ({"i": "a", "j": "c", "k": "b"}, (0, 1))),
    "exchanged operands": ("ik,kj->ij", "bc,ab->ac", ({"i": "a", "j": "c", "k": "b"}, (1, 0))),
    "transposed operand": ("ik,kj->ij", "ik,jk->ij", None),
    "transposed output": ("ik,kj->ij", "ik,kj->ji", None),
    "one operand fewer": ("ik,kj->ij", "ij->ij", None),
    "one operand more": ("ik,kj->ij", "ik,kj,k->ij", None),
    "one axis more": ("ik,kj->ij", "ikl,kj->ij", None),
    "another sum": ("ik,kj->ij", "ik,lj->ij", None),
    "a diagonal": ("ik,kj->ij", "ii,ij->ij", None),
    "two indices that are one": ("ik,kj->ij", "ik,ki->i", None),
    "operands that look alike": ("i,i,ij->j", "ab,a,a->b", ({"i": "a", "j": "b"}, (1, 2, 0))),
    "a choice that must be undone": ("ab,bc,cd->ad", "zw,xy,yz->xw", ({"a": "x", "b": "y", "c": "z", "d": "w"}, (1, 2, 0))),
    "a trace": ("ii->", "kk->", ({"i": "k"}, (0,))),
    "a scalar": ("->", "->", ({}, (0,))),
}


@pytest.mark.parametrize(("pattern", "text", "expected"), ROLES.values(), ids=ROLES)
def test_roles_are_a_permutation_and_a_bijection(
    pattern: str, text: str, expected: tuple[dict[str, str], tuple[int, ...]] | None
) -> None:
    """Operands may be exchanged and indices renamed, but axes keep their order."""
    roles = find_roles(parse_subscripts(pattern), parse_subscripts(text))
    assert (None if roles is None else (dict(roles.indices), roles.operands)) == expected


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(einsums(), einsums(), st.randoms())
def test_an_einsum_matches_exactly_the_patterns_it_is_isomorphic_to(one: Any, other: Any, rng: Any) -> None:
    """Canonical forms, which know nothing of roles, say the same; the roles spell the einsum as the pattern."""

    def plain(indexing: Subscripts) -> fe.BatchedEinsum:
        """Operands that differ in their indices alone."""
        rows = [fe.array(f"a{k}", (float("inf"),) * len(letters)) for k, letters in enumerate(indexing.inputs)]
        return fe.batched_einsum(str(indexing), [rows])

    e = one[0]
    letters = rng.sample(INDEX_LETTERS, len(e.indexing.indices))
    renamed = e.indexing.rename(dict(zip(e.indexing.indices, letters, strict=True)))
    shuffled = Subscripts(tuple(rng.sample(renamed.inputs, len(renamed.inputs))), renamed.output)
    roles = find_roles(shuffled, e.indexing)
    assert roles is not None
    assert roles.apply(e).indexing == shuffled
    same = canonicalize_einsum(plain(other[0].indexing)).key == canonicalize_einsum(plain(e.indexing)).key
    assert (find_roles(other[0].indexing, e.indexing) is not None) == same


def test_a_predicate_gets_canonical_letters() -> None:
    """So that what a configuration means does not depend on names and order."""
    s = declare(pattern=lambda e: e.n == 2)
    other = fe.einsum("xy,zy->zx", fe.array("B", (7, 5)), fe.array("A", ("N", 5)))
    one, two = (s.problem(e, {"N": 11}, CPU) for e in (PRODUCT, other))
    assert one.einsum.subscripts == two.einsum.subscripts
    assert one.sizes == two.sizes
    assert s.roles(fe.einsum("i", fe.array("x", 3))) is None


def test_constraints_may_be_left_out() -> None:
    """Then every combination of choices is a point, and choices may be a plain mapping."""
    s = declare(constraint=None, parameters={"tile": (1, 2), "unroll": (True,)})
    assert len(list(s.configurations(s.problem(PRODUCT, {"N": 1}, CPU)))) == 2


def test_a_parameter_may_join_a_space_without_a_new_version() -> None:
    """A configuration that was recorded before it existed means the kernels that there were."""
    given: list[Any] = []
    s = declare(
        given,
        parameters={"tile": (8, 1), "unroll": (True, False)},
        constraint=lambda p, c: "unrolled" if c["unroll"] and c["tile"] == 1 else None,
        implied={"unroll": False},
    )
    problem = s.problem(PRODUCT, {"N": 11}, CPU)
    assert s.refusal(problem, {"tile": 1}) is None
    assert s.refusal(problem, {"tile": 1, "unroll": True}) == "unrolled"
    assert "its parameters are" in (s.refusal(problem, {"unroll": False}) or "")
    assert s.completed({"tile": 8, "unroll": True}) == {"tile": 8, "unroll": True}
    t_unit = fe.generate_loopy(PRODUCT)
    s.transform(t_unit, fe.match_einsum(t_unit), {"tile": 1}, problem)
    assert given[2:] == [1, False]


def test_an_open_parameter_may_have_values_that_are_not_offered() -> None:
    """As records may, which were made when others were; the constraint has the last word."""
    s = declare(open=("tile",), constraint=lambda p, c: "a tile of 7" if c["tile"] == 7 else None)
    problem = s.problem(PRODUCT, {"N": 11}, CPU)
    assert 5 not in s.parameters(problem)["tile"]
    assert s.refusal(problem, {"tile": 5, "unroll": True}) is None
    assert s.refusal(problem, {"tile": 7, "unroll": True}) == "a tile of 7"
    assert s.refusal(problem, {"tile": "5", "unroll": True}) == "tile is '5', not one of [8, 4, 11]"
    assert s.refusal(problem, {"tile": 5, "unroll": 1}) == "unroll is 1, not one of [True, False]"
    assert nearest_configuration(problem, s, {"tile": 5, "unroll": True}) == {"tile": 5, "unroll": True}
    assert nearest_configuration(problem, s, {"tile": 7, "unroll": True}) == {"tile": 8, "unroll": True}
