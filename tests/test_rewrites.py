"""The moves one by one: the same values in other loops, the loops they promise, and refusals that say why."""

from __future__ import annotations

import loopy as lp
import pytest
from test_rewrites_vectors import equal_to_numpy, matched

from feinsum.compile.codegen import generate_program
from feinsum.errors import TransformError
from feinsum.match import match_einsum
from feinsum.rewrites import (
    contract_first,
    divide,
    expand_sum,
    iname_of,
    materialize,
    nest,
    place,
    register_tile,
    separate_rows,
    spread,
    spread_sum,
    spread_tiles,
)
from feinsum.rewrites.loops import divide_guarded, with_own_names

LENGTHS = [1, 12, 13, 67]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("peel", [True, False])
def test_a_divided_loop_computes_the_same(peel: bool, length: int) -> None:
    """With and without a remainder, peeled or guarded."""
    e, t_unit, match = matched("ij,ej->ei", i=4, j=5, e="E")
    t_unit, nested = divide(t_unit, match, "e", (3, 4), peel=peel)
    assert len(nested) == 3
    equal_to_numpy(e, t_unit, E=length)


@pytest.mark.parametrize("length", LENGTHS)
def test_a_guarded_division_computes_the_same(length: int) -> None:
    """The innermost loop has its full length, and the statements a guard."""
    e, t_unit, match = matched("ij,ej->ei", i=4, j=5, e="E")
    t_unit, (_, _, tile) = divide_guarded(t_unit, match, "e", (3, 4))
    assert f"for (int {tile} = 0; {tile} <= 3; ++{tile})" in generate_program(t_unit).source
    equal_to_numpy(e, t_unit, E=length)


def test_what_cannot_be_divided_is_refused() -> None:
    """A loop that is not there, a length that is none, a guard in a sum."""
    _, t_unit, match = matched("ij,ej->ei", i=4, j=5, e="E")
    with pytest.raises(TransformError, match="'q' is no loop of kernel"):
        divide(t_unit, match, "q", (4,))
    with pytest.raises(TransformError, match="lengths are positive"):
        divide(t_unit, match, "e", (0,))
    with pytest.raises(TransformError, match="no fixed length"):
        register_tile(t_unit, match, ["e"])


def test_a_name_means_one_loop() -> None:
    """Where letter i stands for loop j and the other way round, the loops get names of their own."""
    e, t_unit, match = matched("ij,ej->ei", i=4, j=5, e="E")
    swapped = match.relabel({"e": "e", "i": "j", "j": "i"}, (0, 1))
    t_unit, renamed = with_own_names(t_unit, swapped)
    assert {iname_of(t_unit, renamed, x) for x in "ij"}.isdisjoint("ij")
    equal_to_numpy(e, t_unit, E=7)


@pytest.mark.parametrize("memory", ["private", "local"])
@pytest.mark.parametrize("length", LENGTHS)
def test_a_kept_operand_has_the_same_values(length: int, memory: str) -> None:
    """A tile of u is copied, also where it sticks out of its axis."""
    e, t_unit, match = matched("ij,ej->ei", i=4, j=5, e="E")
    t_unit, (outer, inner) = divide(t_unit, match, "e", (4,), peel=False)
    t_unit, kept = materialize(t_unit, match, 1, {"e": [inner], "j": ["j"]}, memory, outer=(outer,))
    assert set(kept.loops) == {"e", "j"}
    equal_to_numpy(e, place(t_unit, match, {outer: "g.0"}), E=length)


def test_what_cannot_be_kept_is_refused() -> None:
    """Memory that there is not, and loops in which nothing reads the operand."""
    _, t_unit, match = matched("ij,ej->ei", i=4, j=5, e=6)
    with pytest.raises(TransformError, match="'private' or 'local'"):
        materialize(t_unit, match, 0, {"i": ["i"]}, "global", outer=())


@pytest.mark.parametrize("first", [(1, 2), (0, 2), (0, 1), (0, 1, 2)])
def test_contracting_first_computes_the_same(first: tuple[int, ...]) -> None:
    """Every pair, and all operands at once; rows share the new rule."""
    e, t_unit, match = matched("re,rij,ej->ei", 2, r=2, i=4, j=5, e="E")
    t_unit, after = contract_first(t_unit, match, first)
    assert after.einsum.n == 4 - len(first)
    equal_to_numpy(e, t_unit, E=7)


@pytest.mark.parametrize("value", ["u[e,j]", "2*u[e,j] + 1", "sqrt(u[e,j])"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_copy_has_the_type_that_loopy_infers(value: str, dtype: str) -> None:
    """Of an array, an expression and a function alike."""
    t_unit = lp.make_kernel(
        "{[e, i, j]: 0 <= e < n and 0 <= i, j < 4}",
        f"""
        d(i, j) := D[i, j]
        v(e, j) := {value}
        out[e, i] = sum(j, d(i, j) * v(e, j))
        """,
        [lp.GlobalArg(name, dtype, shape) for name, shape in (("out", "n, 4"), ("D", "4, 4"), ("u", "n, 4"))]
        + [lp.ValueArg("n", "int32")],
        lang_version=(2018, 2),
    )
    match = match_einsum(t_unit)
    operand = next(k for k, rule in enumerate(match.rules[0]) if rule == "v")
    outer, inner = match.einsum.indexing.inputs[operand]
    typed, _ = materialize(t_unit, match, operand, {inner: [inner]}, "private", outer=(outer,))
    copies = typed.default_entrypoint.temporary_variables
    assert {copy.dtype.numpy_dtype.name for copy in copies.values()} == {dtype}


def test_what_cannot_be_contracted_is_refused() -> None:
    """Operands that there are not, and an order of other indices."""
    _, t_unit, match = matched("re,rij,ej->ei", r=2, i=4, j=5, e="E")
    with pytest.raises(TransformError, match="are no operands"):
        contract_first(t_unit, match, (3,))
    with pytest.raises(TransformError, match="keeps the indices 'rie', not 'ri'"):
        contract_first(t_unit, match, (1, 2), order="ri")


def test_a_register_tile_has_the_sum_outside() -> None:
    """The loop over the sum is around the tile, which the compiler unrolls."""
    e, t_unit, match = matched("ij,ej->ei", i=4, j=5, e="E")
    t_unit = nest(register_tile(t_unit, match, ["i"]), match, ["e", "j", "i"])
    source = generate_program(t_unit).source
    assert source.index("for (int j = 0") < source.index("for (int i = 0")
    equal_to_numpy(e, t_unit, E=7)


def test_a_written_out_sum_has_no_loop() -> None:
    """Five terms instead of a loop over j; an index that is not summed over is refused."""
    e, t_unit, match = matched("ij,ej->ei", i=4, j=5, e="E")
    with pytest.raises(TransformError, match=r"does not sum over \['i'\]"):
        expand_sum(t_unit, match, ["i"])
    t_unit = lp.remove_unused_inames(expand_sum(t_unit, match, ["j"]))
    assert "for (int j" not in generate_program(t_unit).source
    equal_to_numpy(e, t_unit, E=7)


def test_separate_rows_have_loops_of_their_own() -> None:
    """All but the common loops are copied."""
    e, t_unit, match = matched("ij,ej->ei", 3, i=4, j=5, e="E")
    t_unit, rows = separate_rows(t_unit, match, common="e")
    assert [len({row.inames[x] for row in rows}) for x in "eij"] == [1, 3, 3]
    equal_to_numpy(e, t_unit, E=7)


@pytest.mark.parametrize("length", LENGTHS)
def test_tiles_of_work_items_compute_the_same(length: int) -> None:
    """Neighbours of two axes in one group, which stick out at the end of both."""
    e, t_unit, match = matched("fdex->xfed", f=3, d=5, e="E", x=4)
    sizes = {"f": 3, "d": 5, "e": 100, "x": 4}
    tiled = spread_tiles(t_unit, match, {"x": 3, "d": 4}, sizes)
    equal_to_numpy(e, tiled, E=length)


@pytest.mark.parametrize("length", LENGTHS)
def test_spread_loops_compute_the_same(length: int) -> None:
    """Work-items along an output index, or along a sum."""
    e, t_unit, match = matched("ij,ej->ei", i=4, j=5, e="E")
    sizes = {"e": 100, "i": 4, "j": 5}
    equal_to_numpy(e, spread(t_unit, match, "e", 4, sizes), E=length)
    e, t_unit, match = matched("ij,ej->ei", i=4, j="J", e=3)
    equal_to_numpy(e, spread_sum(t_unit, match, 8, {"e": 3, "i": 4, "j": 100}), J=length)
