"""Vectors and the plan made of them: the same values in other loops, whatever the lengths; refusals that say why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from kernels import run
from numpy.testing import assert_allclose
from pymbolic.primitives import Min, Subscript, Variable

import feinsum as fe
from feinsum.compile.codegen import generate_program
from feinsum.contraction import ContractionSchedule, ContractionStep
from feinsum.errors import TransformError
from feinsum.rewrites import contract_in_steps, fuse, materialize, neighbours, place, split, split_index, vectorize
from feinsum.rewrites.vectors.access import row_of_subscript
from feinsum.skeletons.vector_panels import GroupTile, PanelOrder, RegisterTile, VectorPanels, write
from feinsum.subscripts import Subscripts

Tile = tuple[tuple[int, ...], str, dict[str, int]]
"""A step of a plan: what it contracts, its lanes, and how many of other indices have accumulators at once."""


def plan(e: fe.BatchedEinsum, *steps: Tile, **changes: Any) -> VectorPanels:
    """A plan for ``ij,ej->ei`` with e in groups of two steps, three at once, unless `changes` say else."""
    steps = steps or (((0, 1), "i", {"e": 3}),)
    groups, width = changes.pop("groups", {"e": (2, 3)}), changes.get("width", 4)

    def vectors(lane: str) -> int:
        return -(-(groups[lane][1] if lane in groups else int(e.index_sizes[lane])) // width)

    fields = {
        "resident_factors": {0: "i"},
        "staged_operands": {},
        "width": width,
        "product_major": False,
        "streaming_stores": False,
        **changes,
    }
    return VectorPanels(
        order=PanelOrder(tuple(operands for operands, _, _ in steps)),
        lane_axes=tuple(lane for _, lane, _ in steps),
        register_tiles=tuple(RegisterTile(vectors(lane), held) for _, lane, held in steps),
        block_tile={letter: GroupTile(*tile) for letter, tile in groups.items()},
        **fields,
    )


def matched(subscripts: str, rows: int = 1, dtype: str = "float64", **sizes: int | str) -> tuple[object, object, object]:
    """An einsum whose rows share all operands but the last, its kernel and its match in the same letters."""
    inputs = subscripts.split("->")[0].split(",")
    args = [
        [
            fe.array(f"a{k}" if k < len(inputs) - 1 else f"a{k}_{row}", [sizes[x] for x in letters], dtype)
            for k, letters in enumerate(inputs)
        ]
        for row in range(rows)
    ]
    e = fe.batched_einsum(subscripts, args)
    t_unit = fe.generate_loopy(e)
    found = fe.match_einsum(t_unit)
    return e, t_unit, found.relabel(dict(found.inames), range(e.n))


def equal_to_numpy(e: fe.BatchedEinsum, t_unit: object, **lengths: int) -> None:
    """Whether a kernel computes what numpy does on random numbers."""
    rng = np.random.default_rng(3)
    sizes = e.resolve(lengths)
    data = {
        a.name: rng.uniform(-1, 1, [sizes[x] for x in letters]).astype(a.dtype) for a, letters in e.array_indices.items()
    }
    found = run(t_unit, **data)  # type: ignore[arg-type]
    for row, name, dtype in zip(e.args, e.output_names, e.dtypes, strict=True):
        wanted = np.einsum(e.subscripts, *(data[entry[0].name].astype("float64") for entry in row))
        assert_allclose(found[name], wanted, rtol=1e-4 if dtype == "float32" else 1e-12, atol=1e-5)


@pytest.mark.parametrize("length", [1, 5, 6, 7, 67])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("nodes", [3, 4, 7, 12])
def test_a_panel_computes_the_same(nodes: int, dtype: str, length: int) -> None:
    """Rows of vectors that are not full, tiles that stick out, groups without work: the values stay."""
    e, t_unit, match = matched("ij,ej->ei", 2, dtype, i=nodes, j=5, e="E")
    equal_to_numpy(e, write(t_unit, match, plan(e)), E=length)


@pytest.mark.parametrize("length", [1, 20, 67])
def test_rows_apart_compute_the_same(length: int) -> None:
    """A group that finishes one output before the next has the same values."""
    e, t_unit, match = matched("ij,ej->ei", 3, i=7, j=5, e="E")
    equal_to_numpy(e, write(t_unit, match, plan(e, product_major=True)), E=length)


@pytest.mark.parametrize("columns", [1, 8, 9, 40])
def test_a_long_row_is_divided_into_panels(columns: int) -> None:
    """Both axes of a matrix product in groups: the last panel of columns sticks out, loads and stores stop at its end."""
    e, t_unit, match = matched("ek,ki->ei", e="E", k=6, i="N")
    groups = {"e": (2, 3), "i": (1, 8)}
    t_unit = write(t_unit, match, plan(e, ((0, 1), "i", {"e": 3}), resident_factors={1: "i"}, groups=groups))
    equal_to_numpy(e, t_unit, E=7, N=columns)


@pytest.mark.parametrize("columns", [8, 9, 15, 20])
@pytest.mark.parametrize("panels", [{}, {1: "i"}])
def test_the_last_of_several_panels_begins_where_it_is_whole(columns: int, panels: dict[int, str]) -> None:
    """Where the length of a row is known its panels overlap: loads and stores need no guard, and the values stay."""
    e, t_unit, match = matched("ek,ki->ei", e="E", k=6, i=columns)
    groups = {"e": (2, 3), "i": (1, 8)}
    t_unit = write(t_unit, match, plan(e, ((0, 1), "i", {"e": 3}), resident_factors=panels, groups=groups))
    assert "room" not in generate_program(t_unit).source
    equal_to_numpy(e, t_unit, E=7)


@pytest.mark.parametrize("length", [1, 3, 67])
def test_a_chain_stays_in_private_memory(length: int) -> None:
    """Sum factorisation: lanes along k in two steps, then k is read number by number and c has the lanes."""
    e, t_unit, match = matched("ai,bj,ck,eijk->eabc", a=5, b=5, c=5, e="E", i=4, j=4, k=4)
    steps = (((0, 3), "k", {"a": 5, "j": 2}), ((0, 2), "k", {"b": 5}), ((0, 1), "c", {"b": 5}))
    t_unit = write(t_unit, match, plan(e, *steps, resident_factors={2: "c"}, groups={"e": (4, 1)}))
    equal_to_numpy(e, t_unit, E=length)
    assert len(generate_program(t_unit).launches) == 1


@pytest.mark.parametrize("first", ["a", "c"])
def test_two_partial_results_meet_in_a_later_step(first: str) -> None:
    """Each is kept over the loops of the step that reads it, which is not the next one for the first of them."""
    e, t_unit, match = matched("eab,bc,ecd,di->eai", e="E", a=5, b=6, c=7, d=3, i=9)
    steps = (((0, 1), first, {}), ((0, 1), "i", {"c": 7}), ((0, 1), "i", {"a": 5}))
    equal_to_numpy(e, write(t_unit, match, plan(e, *steps, resident_factors={}, groups={"e": (4, 1)})), E=6)


@pytest.mark.parametrize("length", [1, 7, 8, 21])
def test_what_a_step_leaves_is_summed_up_to_the_end_of_the_lanes(length: int) -> None:
    """A short sum that the last instruction writes out reads its operand as far as the results go, and no further."""
    e, t_unit, match = matched("xre,rij,je->xie", x=2, r=3, i=4, j=5, e="E")
    step = ((1, 2), "e", {"r": 3, "i": 2})
    equal_to_numpy(e, write(t_unit, match, plan(e, step, resident_factors={}, groups={"i": (1, 2), "e": (1, 8)})), E=length)


@pytest.mark.parametrize(("row", "pieces"), [(4, ["vload4"]), (6, ["vload4", "vload2"]), (7, ["vload4", "vload2"])])
def test_what_is_left_of_a_row_is_loaded_in_pieces(row: int, pieces: list[str]) -> None:
    """A vector that a row fills in part is put together of shorter ones, rather than of numbers."""
    e, t_unit, match = matched("eij,ejk->eik", i=3, j=5, k=row, e="E")
    t_unit = write(t_unit, match, plan(e, ((0, 1), "k", {}), resident_factors={}))
    source = generate_program(t_unit).source
    assert [name for name in ("vload4", "vload2") if f"{name}(0, a1_0 " in source] == pieces
    equal_to_numpy(e, t_unit, E=7)


def test_a_slab_is_copied_in_rows() -> None:
    """The operand whose rows run along the long index is copied by vectors and read by number."""
    e, t_unit, match = matched("de,di->ei", d=6, e=20, i=5)
    t_unit = write(t_unit, match, plan(e, resident_factors={1: "i"}, staged_operands={0: "e"}))
    assert "vload4(0, a0 +" in generate_program(t_unit).source
    equal_to_numpy(e, t_unit)


@pytest.mark.parametrize(
    ("subscripts", "letters"),
    [
        ("bgei,db->dgei", "gei"),
        ("bgei,db->gdei", "ei"),
        ("dbig,eb->deig", "ig"),
        ("big,db->dgi", "i"),
        ("bei,di->dei", "i"),
        ("bei,bei->ei", "ei"),
    ],
)
def test_neighbours_stand_together_in_every_array(subscripts: str, letters: str) -> None:
    """From the end of the output, as far as every array has the same indices side by side."""
    e, _, _ = matched(subscripts, **dict.fromkeys("bdegi", 3))
    assert neighbours(e) == letters
    long, _, _ = matched(subscripts, **{**dict.fromkeys("bdegi", 3), letters[0]: "E"})
    assert neighbours(long) == letters[1:]


@pytest.mark.parametrize("rows", [1, 2])
def test_fused_indices_fill_vectors(rows: int) -> None:
    """Three short indices as one: the loads and stores of their rows are whole vectors, with the same values."""
    e, t_unit, match = matched("bgei,db->dgei", rows, b=5, g=3, e=6, i=4, d=7)
    t_unit, match = fuse(t_unit, match, "gei")
    equal_to_numpy(e, t_unit)
    groups = {"i": (1, 16), "d": (2, 3)}
    t_unit = write(t_unit, match, plan(e, ((0, 1), "i", {"d": 3}), resident_factors={0: "i"}, groups=groups, width=8))
    source = generate_program(t_unit).source
    assert "vload8(0, a0 + first)" in source
    assert "vstore8(" in source
    equal_to_numpy(e, t_unit)


def test_fused_indices_of_one_length_have_lanes_too() -> None:
    """Of indices that are only ever 0 nothing is left, so that lanes are found along the others."""
    e, t_unit, match = matched("bgei,db->dgei", 1, b=5, g=1, e=16, i=1, d=7)
    t_unit, match = fuse(t_unit, match, "gei")
    groups = {"i": (1, 16), "d": (2, 3)}
    t_unit = write(t_unit, match, plan(e, ((0, 1), "i", {"d": 3}), resident_factors={0: "i"}, groups=groups, width=8))
    assert "vstore8(" in generate_program(t_unit).source
    equal_to_numpy(e, t_unit)


def test_rows_that_lie_apart_are_asked_for_ahead() -> None:
    """One prefetch of a line for each row of the next step; none for rows that a sum goes along, nor for the panel."""
    e, t_unit, match = matched("de,di->ei", d=6, e=20, i=5)
    t_unit = write(t_unit, match, plan(e, resident_factors={1: "i"}, prefetch="e", groups={"e": (3, 3)}))
    source = generate_program(t_unit).source
    assert "__builtin_prefetch((void const *) (size_t) (a0 + a0_ahead + 0));" in source
    assert source.count("__builtin_prefetch") == 1
    update = source[: source.index("] + ") :]
    assert update.rindex("for (int d") < update.rindex("__builtin_prefetch") < update.rindex("for (int e_copy")
    equal_to_numpy(e, t_unit)
    _, t_unit, match = matched("ed,di->ei", d=6, e=20, i=5)
    t_unit = write(t_unit, match, plan(e, resident_factors={1: "i"}, prefetch="e"))
    assert "prefetch" not in generate_program(t_unit).source


def test_rows_that_are_read_at_once_are_asked_for_in_shares() -> None:
    """A line of eight numbers is wanted in every fourth step of two, so that a step asks for a quarter of twelve rows."""
    e, t_unit, match = matched("fde,di->efi", d=3, e=20, f=4, i=5)
    step = ((0, 1), "i", {"e": 2, "f": 1})
    t_unit = write(t_unit, match, plan(e, step, resident_factors={1: "i"}, prefetch="e", groups={"e": (3, 2)}))
    source = generate_program(t_unit).source
    assert source.count("__builtin_prefetch") == 1
    assert "% 4;\n" in source
    assert "for (int r = part_a0 * 3; r < min(12, part_a0 * 3 + 3); ++r)" in source
    assert source.index("for (int e_") < source.index("__builtin_prefetch") < source.index("a0[")
    equal_to_numpy(e, t_unit)


def test_rows_that_groups_share_out_are_not_asked_for() -> None:
    """Those of which a work-group has its own share."""
    e, t_unit, match = matched("fde,di->efi", d=3, e=20, f=4, i=5)
    step, groups = ((0, 1), "i", {"e": 2, "f": 2}), {"e": (3, 2), "f": (1, 2)}
    t_unit = write(t_unit, match, plan(e, step, resident_factors={1: "i"}, prefetch="e", groups=groups))
    assert "prefetch" not in generate_program(t_unit).source
    equal_to_numpy(e, t_unit)


def test_what_asks_ahead_stands_outside_the_tile_that_it_does_not_depend_on() -> None:
    """A row for each r, a row for each s: the loops around the prefetches come first, and loopy warns of no others."""
    e, t_unit, match = matched("de,dre,dse,di->ersi", d=6, e=20, r=2, s=3, i=5)
    step = ((0, 1, 2, 3), "i", {"e": 1, "r": 2, "s": 3})
    t_unit = write(t_unit, match, plan(e, step, resident_factors={3: "i"}, prefetch="e", groups={"e": (3, 1)}))
    source = generate_program(t_unit).source
    assert source.count("__builtin_prefetch") == 3
    equal_to_numpy(e, t_unit)


def test_what_cannot_be_fused_is_refused() -> None:
    """Indices that an array has apart, and lengths that are known only at run time."""
    _, t_unit, match = matched("bei,di->dei", b=5, e=6, i=4, d=7)
    with pytest.raises(TransformError, match="indices 'ei' do not stand side by side in every array"):
        fuse(t_unit, match, "ei")
    _, t_unit, match = matched("bei,db->dei", b=5, e="E", i=4, d=7)
    with pytest.raises(TransformError, match="not all fixed"):
        fuse(t_unit, match, "ei")


def test_the_loop_over_the_sum_is_around_the_tile() -> None:
    """The accumulators of a tile are updated together: the sum is outside, tile and vectors inside."""
    e, t_unit, match = matched("ij,ej->ei", i=12, j=5, e="E")
    source = generate_program(write(t_unit, match, plan(e))).source
    update = source[: source.index("] + ") :]
    positions = [update.rindex(f"for (int {loop}") for loop in ("e_1", "j", "e_copy")]
    assert positions == sorted(positions)


def test_rows_that_may_be_unaligned_are_not_streamed() -> None:
    """A store past the caches of a row that is not aligned ends the program, so there is none."""
    for lengths, streams in (({"i": 12, "e": "E"}, True), ({"i": 7, "e": "E"}, False), ({"i": "N", "e": "E"}, False)):
        e, t_unit, match = matched("ij,ej->ei", j=5, **lengths)
        groups = {"e": (2, 3)} if isinstance(lengths["i"], int) else {"e": (2, 3), "i": (1, 8)}
        source = generate_program(write(t_unit, match, plan(e, groups=groups, streaming_stores=True))).source
        assert ("nontemporal" in source) == streams


def test_what_cannot_be_a_plan_is_refused() -> None:
    """Accumulators that do not divide an axis, and numbers that no vector holds, are refused by name."""
    e, t_unit, match = matched("rij,ej->eri", r=3, i=4, j=5, e="E")
    with pytest.raises(TransformError, match="2 accumulators along 'r' do not divide its length 3"):
        write(t_unit, match, plan(e, ((0, 1), "i", {"e": 3, "r": 2})))
    e, t_unit, match = matched("ij,ej->ei", dtype="complex128", i=4, j=5, e="E")
    with pytest.raises(TransformError, match="complex128; vectors hold float32 or float64"):
        write(t_unit, match, plan(e))


def test_a_plan_for_rows_of_another_length_is_refused() -> None:
    """The tile of a plan counts the vectors of a row, by which its registers are known."""
    e, t_unit, match = matched("ij,ej->ei", i=4, j=5, e="E")
    held = (RegisterTile(2, {"e": 3}),)
    with pytest.raises(TransformError, match="a register tile of 2 vectors along 'i', where a row has 1"):
        write(t_unit, match, replace(plan(e), register_tiles=held))


def test_a_plan_knows_its_registers() -> None:
    """Accumulators of the largest step, and a row of vectors that is multiplied into them; nothing is in local memory."""
    e, *_ = matched("ai,bj,ck,eijk->eabc", a=5, b=5, c=5, e="E", i=4, j=4, k=4)
    made = plan(e, ((0, 3), "k", {"a": 5, "j": 2}), ((0, 2), "k", {"b": 5}), ((0, 1), "c", {"b": 5}), resident_factors={})
    assert (made.registers(), made.local_bytes()) == (5 * 2 + 2, 0)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"width": 3}, "a vector of 3 lanes"),
        ({"groups": {"e": (0, 3)}}, "0 steps of 3"),
        ({"staged_operands": {0: "e"}}, "operands \\[0\\] are copied twice"),
        ({"staged_operands": {1: "e"}, "product_major": True}, "of all outputs together"),
        ({"prefetch": "e", "groups": {"e": (1, 3)}}, "reads all its rows at once"),
    ],
)
def test_what_contradicts_itself_is_no_plan(changes: dict[str, Any], reason: str) -> None:
    """A plan is checked when it is made, so that no kernel is begun for one that cannot be."""
    e, *_ = matched("ij,ej->ei", i=4, j=5, e="E")
    with pytest.raises(TransformError, match=reason):
        plan(e, **changes)
    with pytest.raises(TransformError, match="1 steps, beside 2 lanes"):
        replace(plan(e), lane_axes=("i", "i"))


def test_lanes_of_two_lengths_are_refused() -> None:
    """Loops of different lengths cannot be the same lanes."""
    _, t_unit, match = matched("ij,ej->ei", i=4, j=5, e="E")
    with pytest.raises(TransformError, match="different lengths"):
        vectorize(t_unit, match, ["i", "j"], 4)


def test_a_lane_indexes_one_axis_alone() -> None:
    """A private array with a lane in two axes, or in a sum, has no vectors."""
    _, t_unit, match = matched("ij,ej->ei", i=4, j=5, e=6)
    t_unit, _ = materialize(t_unit, match, 0, {"i": ["i"], "j": ["j"]}, "private", outer=())
    with pytest.raises(TransformError, match="lane"):
        vectorize(place(t_unit, match, {"e": "g.0"}), match, ["i", "j"], 4)


@pytest.mark.parametrize("part", [1, 3, 4, 12])
def test_a_split_sum_computes_the_same(part: int) -> None:
    """Parts of a sum, then their sum, each a launch."""
    e, t_unit, match = matched("ik,jk->ij", 2, i=5, j=4, k=12)
    t_unit, match, chunk = split_index(t_unit, match, "k", part)
    parts = Subscripts(match.einsum.indexing.inputs, chunk + "ij")
    last = ContractionStep((2,), Subscripts((chunk + "ij",), "ij"))
    t_unit, steps = contract_in_steps(t_unit, match, ContractionSchedule((ContractionStep((0, 1), parts), last)))
    equal_to_numpy(e, t_unit)
    assert [str(step.einsum.indexing) for step in steps] == [str(parts), f"{chunk}ij->ij"]


def test_a_split_index_of_results_computes_the_same() -> None:
    """Results are stored where they were, as parts of one index; each row has a loop of its own."""
    e, t_unit, match = matched("ik,jk->ij", 2, i=12, j=4, k=5)
    t_unit, match, chunk = split_index(t_unit, match, "i", 4)
    assert (match.einsum.subscripts, match.einsum.index_sizes[chunk]) == (f"{chunk}ik,jk->{chunk}ij", 3)
    equal_to_numpy(e, t_unit)


@pytest.mark.parametrize(
    ("subscripts", "letter"), [("ki,jk->ij", "k"), ("ik,ik->i", "k"), ("ij,ji->ij", "i"), ("ij,kj->ik", "i")]
)
def test_an_array_that_is_read_twice_is_split_at_an_axis_each(subscripts: str, letter: str) -> None:
    """``A[k, i] * A[j, k]`` has columns of one and rows of the other in parts, ``A[i, k] * A[i, k]`` one array."""
    A = fe.array("A", (6, 6))
    e = fe.einsum(subscripts, A, A)
    t_unit = fe.generate_loopy(e)
    found = fe.match_einsum(t_unit)
    match = found.relabel(dict(found.inames), range(e.n))
    t_unit, match, chunk = split_index(t_unit, match, letter, 2)
    assert match.einsum.index_sizes[chunk] == 3
    equal_to_numpy(e, t_unit)
    axes = {term.find(letter) for term in e.indexing.inputs}
    assert [a.name for a in split(e, letter, 2)[0].arrays] == ["A", "A_split"][: len(axes)]


@pytest.mark.parametrize(("letter", "part"), [("k", 5), ("i", 3), ("k", 0), ("e", 1)])
def test_what_cannot_be_split_is_refused(letter: str, part: int) -> None:
    """Only an index of fixed length, into parts that divide it."""
    _, t_unit, match = matched("eik,jk->eij", e="E", i=5, j=4, k=12)
    with pytest.raises(TransformError, match=f"index '{letter}' .* cannot be split into parts of {part}"):
        split_index(t_unit, match, letter, part)


def test_a_row_goes_by_one_from_lane_to_lane() -> None:
    """A limit of another loop may stand within its position; where one of the lane does, there is no row."""
    b, lane, array = Variable("b"), Variable("l"), matched("i->i", i=99)[1]["feinsum"].arg_dict["a0_0"]  # type: ignore[index]
    for position, goes in ((2 * Min((b, 9)) + lane, True), (2 * Min((8 * b + lane, 9)), False), (2 * lane + b, False)):
        assert (row_of_subscript(array, Subscript(Variable("a0_0"), (position,)), "l") is not None) == goes
