"""Streams: sums, products, permutations and diagonals in whole strips and what they leave, and the spaces made of them."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from profiles import CPU, GPU
from running import run
from test_rewrites_vectors import equal_to_numpy, matched

import feinsum as fe
from feinsum.compile.codegen import generate_program
from feinsum.compile.realize import realize
from feinsum.devices import Device, DeviceProfile
from feinsum.errors import TransformError
from feinsum.registry import find_space, matching_spaces
from feinsum.skeletons.streaming import CrossedTiles, Flight, ItemGrid, Stream, write
from feinsum.subscripts import parse_subscripts

pytestmark = pytest.mark.slow

LENGTHS = (1, 7, 32, 33, 131)
"""Around the lengths of strips: nothing whole, nothing left, both."""


@pytest.mark.parametrize("groups", [{}, {"i": 2, "j": 32}], ids=str)
@pytest.mark.parametrize("width", [1, 8])
def test_a_copy_runs_in_strips(width: int, groups: dict[str, int]) -> None:
    """In vectors or number by number, whatever of it the groups take."""
    e, t_unit, match = matched("ij,j->ij", i=3, j="N")
    t_unit = write(t_unit, match, Stream("ij", "j", width, groups))
    for length in LENGTHS:
        equal_to_numpy(e, t_unit, N=length)


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("ij->ij", Stream("ij", "j", 4, {}, vectors=False, flight=Flight("ij", 3))),
        ("ij,j->ij", Stream("ij", "j", 4, {}, vectors=False, flight=Flight("ij", 2, 4))),
        ("i,j->ij", Stream("ij", "j", 8, {"i": 1}, vectors=False, flight=Flight("j", 2, 2))),
        ("kij,ki->kij", Stream("kij", "j", 8, {"k": 1}, vectors=False, flight=Flight("ij", 1, 4))),
        ("iij->ij", Stream("ij", "j", 16, {"i": 1}, vectors=False, flight=Flight("j", 4))),
        ("iji->ij", Stream("ij", "j", 4, {}, vectors=False, flight=Flight("ij", 2, 2))),
    ],
    ids=str,
)
def test_loads_of_a_copy_are_in_flight_together(text: str, plan: Stream) -> None:
    """Of several outputs, of indices that are one, of vectors and of numbers that lie apart, and never beyond the end."""
    for length in (1, 33):
        e, t_unit, match = matched(text, rows=2, k=3, i=length if text == "iji->ij" else "N", j=12)
        t_unit = write(t_unit, match, plan)
        equal_to_numpy(e, t_unit, **({} if text == "iji->ij" else {"N": length}))


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("ji->ij", Stream("ji", "j", 8, {}, square="i")),
        ("ji,ij->ij", Stream("ji", "j", 8, {"i": 16, "j": 24}, square="i", streaming_stores=True)),
        ("jki,i,jki->kij", Stream("kji", "j", 4, {"k": 1}, square="i")),
        ("ikj,ji->kij", Stream("kji", "j", 2, {}, square="i")),
    ],
    ids=str,
)
@pytest.mark.parametrize("long", "ij")
def test_squares_are_turned_round_in_registers(text: str, plan: Stream, long: str) -> None:
    """Of one operand or several, with what is left of either index, whatever of it the groups take."""
    lengths: dict[str, Any] = {"i": 21, "j": 19, "k": 3, long: "N"}
    e, t_unit, match = matched(text, rows=2, **{x: n for x, n in lengths.items() if x in text})
    t_unit = write(t_unit, match, plan)
    assert f"feinsum_turn_double{plan.width}" in generate_program(t_unit).source
    for length in LENGTHS:
        equal_to_numpy(e, t_unit, N=length)


@pytest.mark.parametrize("groups", [{}, {"i": 16}], ids=str)
@pytest.mark.parametrize(("text", "width"), [("ij,ji->", 8), ("kij,kji->k", 4), ("ij,ji,i->", 2)])
def test_sums_of_squares_are_turned_round_in_registers(text: str, width: int, groups: dict[str, int]) -> None:
    """With what is left of either index; where groups take parts of the sum a second launch adds them up."""
    sizes = {"i": 37, "j": 19, "k": 3}
    e, t_unit, match = matched(text, rows=2, **{x: n for x, n in sizes.items() if x in text})
    order = "kij" if "k" in text else "ij"
    t_unit = write(t_unit, match, Stream(order, "j", width, groups, summed="ij", square="i"))
    assert f"feinsum_turn_double{width}" in generate_program(t_unit).source
    equal_to_numpy(e, t_unit)


def test_what_is_computed_is_not_turned_round(cpu: Device) -> None:
    """A product of arrays lies nowhere, so it is read as before; the operand beside it is turned."""
    a, b, c = fe.array("A", (40, 50)), fe.array("B", (40, 50)), fe.array("C", (40, 50))
    e = fe.batched_einsum("ji,ji->ij", [[(a, b), c]])
    s = find_space("permutation")
    configuration = {**s.default(s.problem(e, {}, cpu.profile)), "by_rows": False, "square": True}
    program = realize(e, {}, s, configuration, cpu.profile)
    assert program.source.count("feinsum_turn_") == 2  # defined once, and called once
    given = {name: np.random.default_rng(0).normal(size=(40, 50)) for name in "ABC"}
    np.testing.assert_allclose(run(program, cpu, e, given), (given["A"] * given["B"] * given["C"]).T)


@pytest.mark.parametrize("groups", [{}, {"i": 1, "j": 64}], ids=str)
@pytest.mark.parametrize(("width", "accumulators"), [(8, 4), (8, 1), (1, 4)])
def test_lanes_are_summed(width: int, accumulators: int, groups: dict[str, int]) -> None:
    """Several strips side by side; where groups take parts of the sum a second launch adds them up."""
    e, t_unit, match = matched("ij,j->i", i=3, j="N")
    t_unit = write(t_unit, match, Stream("ij", "j", width, groups, summed="j", accumulators=accumulators))
    assert len(generate_program(t_unit).launches) == (2 if "j" in groups else 1)
    for length in LENGTHS:
        equal_to_numpy(e, t_unit, N=length)


@pytest.mark.parametrize(
    ("text", "grid", "groups"),
    [
        ("ij->i", ItemGrid({"j": 4, "i": 8}, "j", 2), {"i": 16}),
        ("ij->i", ItemGrid({"j": 8, "i": 4}), {"i": 4}),
        ("ij,ij->j", ItemGrid({"j": 4, "i": 8}, "i", 4), {"j": 4, "i": 64}),
        ("ij,i->j", ItemGrid({"j": 8, "i": 2}, "i", 2), {"j": 8}),
        ("ij->", ItemGrid({"j": 16}, "j", 2), {"j": 64}),
        ("ij->", ItemGrid({"j": 4, "i": 4}, "j", 2), {"i": 8}),
        ("ij->", ItemGrid({"j": 8, "i": 4}, "i", 2), {"i": 24}),
        ("ij,j->", ItemGrid({"j": 8, "i": 2}), {}),
        ("ikj->k", ItemGrid({"j": 4, "k": 2}, "j", 2), {"i": 3}),
        ("ikj->k", ItemGrid({"j": 8}, "i", 4), {"k": 1, "i": 8}),
        ("ikj,kj->ij", ItemGrid({"j": 4, "k": 4}, "k", 1), {"i": 2, "j": 4}),
        ("kij,k->ij", ItemGrid({"j": 4, "i": 4}, "k", 2), {"i": 4, "j": 4}),
        ("jki->i", ItemGrid({"i": 4, "k": 2}, "j", 4), {"i": 4, "j": 12}),
    ],
    ids=str,
)
@pytest.mark.parametrize("long", "ij")
def test_sums_have_grids_of_work_items(text: str, grid: ItemGrid, groups: dict[str, int], long: str) -> None:
    """Of short rows and long ones, summed over or not, with several terms on their way and what these leave."""
    lengths: dict[str, Any] = {"i": 19, "j": 7, "k": 5, long: "N"}
    e, t_unit, match = matched(text, rows=2, **{x: n for x, n in lengths.items() if x in text})
    summed, lane = e.indexing.summed, next(iter(grid.counts))
    letters = e.indexing.inputs[0]
    order = "".join(x for x in letters if x in e.indexing.output and x != lane)
    order += "".join(x for x in letters if x in summed and x != lane) + lane
    plan = Stream(order, lane, grid.counts[lane], groups, summed=summed, vectors=False, grid=grid)
    t_unit = write(t_unit, match, plan)
    for length in LENGTHS:
        equal_to_numpy(e, t_unit, N=length)


@pytest.mark.parametrize("groups", [{}, {"j": 16}, {"i": 2}], ids=str)
@pytest.mark.parametrize(
    ("row", "width", "accumulators", "apart"), [(60, 16, 1, 12), (60, 16, 2, 0), (5, 8, 1, 5), (64, 8, 1, 0)]
)
def test_what_is_left_of_a_row_has_sums_of_its_own(
    row: int, width: int, accumulators: int, apart: int, groups: dict[str, int]
) -> None:
    """If it is less than a vector; additions to a single one would wait for each other."""
    e, t_unit, match = matched("ikj,kj->i", i=3, k=2, j=row)
    groups = {x: -(-n // (width * accumulators)) * width * accumulators if x == "j" else n for x, n in groups.items()}
    t_unit = write(t_unit, match, Stream("ikj", "j", width, groups, summed="kj", accumulators=accumulators))
    source = generate_program(t_unit).source
    assert f"double rest[{apart or 1}];" in source if row % width else "double rest" not in source
    equal_to_numpy(e, t_unit)


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("ij,ji->", Stream("ij", "j", 8, {"j": 64}, summed="ij", accumulators=2)),
        ("kij,kji->k", Stream("kij", "j", 8, {"k": 2, "j": 32}, summed="ij", accumulators=4)),
    ],
)
def test_groups_take_part_of_the_lane_and_all_of_another_sum(text: str, plan: Stream) -> None:
    """As an operand is read across its rows."""
    e, t_unit, match = matched(text, k=3, i=5, j="N")
    t_unit = write(t_unit, match, plan)
    for length in LENGTHS:
        equal_to_numpy(e, t_unit, N=length)


@pytest.mark.parametrize("rows", [1, 6])
@pytest.mark.parametrize("groups", [{"j": 32}, {"j": 32, "i": 4}], ids=str)
@pytest.mark.parametrize(("width", "together"), [(8, 4), (8, 1), (1, 4)])
def test_lanes_are_kept(width: int, together: int, groups: dict[str, int], rows: int) -> None:
    """A group keeps the sums of its strips, and adds up several terms before they reach one."""
    e, t_unit, match = matched("ij->j", i=rows, j="N")
    t_unit = write(t_unit, match, Stream("ij", "j", width, groups, summed="i", accumulation=together))
    for length in LENGTHS:
        equal_to_numpy(e, t_unit, N=length)


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("ji,i->j", Stream("ji", "i", 1, {}, summed="i", accumulators=2)),
        ("ji,i->j", Stream("ji", "i", 2, {"i": 8}, summed="i")),
        ("ij->j", Stream("ij", "j", 8, {"j": 16}, summed="i", accumulation=2)),
    ],
)
def test_strips_of_two_leave_nothing_of_even_lengths(text: str, plan: Stream) -> None:
    """loopy would take half of the length for the number of strips, and add the last term twice."""
    e, t_unit, match = matched(text, i="N", j=19)
    t_unit = write(t_unit, match, plan)
    for length in (1, 2, 3, 8, 9, 14):
        equal_to_numpy(e, t_unit, N=length)


def test_rows_share_a_stream() -> None:
    """Every output has sums of its own; indices may stand twice."""
    for text, plan in (
        ("ij,j->i", Stream("ij", "j", 4, {"i": 2}, summed="j", accumulators=2)),
        ("ij,i->j", Stream("ij", "j", 4, {"j": 8, "i": 4}, summed="i", accumulation=2)),
        ("ij,j->ij", Stream("ij", "j", 4, {"i": 1})),
    ):
        e, t_unit, match = matched(text, rows=3, i=7, j=13)
        equal_to_numpy(e, write(t_unit, match, plan))
    e, t_unit, match = matched("iij->ij", i=5, j=9)
    equal_to_numpy(e, write(t_unit, match, Stream("ij", "j", 4, {"i": 2})))


@pytest.mark.parametrize(
    ("text", "plan", "message"),
    [
        ("ij->i", Stream("i", "i", 8, {}), "loops 'i' with sums over '' are not those of 'ij->i'"),
        ("ij->i", Stream("ij", "j", 8, {}), "loops 'ij' with sums over '' are not those of 'ij->i'"),
        ("ij->j", Stream("ij", "j", 8, {}, summed="i"), "a group keeps all sums along 'j', whose length is not known"),
        ("ij->ij", Stream("ij", "j", 8, {}, vectors=False, flight=Flight("ij", 2)), "'ij' are not one, as .* not known"),
        ("ji->ji", Stream("ji", "i", 8, {}, vectors=False, flight=Flight("ji", 1, 2)), "no whole vectors of 2 along 'i'"),
    ],
)
def test_plans_that_do_not_fit_an_einsum_are_refused(text: str, plan: Stream, message: str) -> None:
    """With the index at fault."""
    _, t_unit, match = matched(text, i=5, j="N")
    with pytest.raises(TransformError, match=message):
        write(t_unit, match, plan)


@pytest.mark.parametrize(
    ("order", "lane", "groups", "more", "message"),
    [
        ("ij", "k", {}, {}, "lack the lane 'k'"),
        ("ij", "j", {}, {"summed": "k"}, "some of the sums 'k'"),
        ("ij", "j", {"i": 2, "j": 64}, {"summed": "ij"}, "parts of the sums over 'ij'; parts of one sum are enough"),
        ("ij", "j", {"j": 12}, {"summed": "j"}, "a group does 12 of 'j', which is no multiple of 8"),
        ("ji", "i", {"i": 8, "j": 6}, {"summed": "j", "accumulation": 4}, "a group does 6 of 'j', .* no multiple of 4"),
        (
            "ij",
            "j",
            {},
            {"crossed": CrossedTiles("i", "j", 5, 1, ("ji",), 8), "vectors": False},
            "8 work-items do not share",
        ),
        ("ij", "j", {}, {"crossed": CrossedTiles("i", "j", 2, 1, ("ji",), 8), "vectors": False}, "more than the places of"),
        ("ij", "j", {}, {"flight": Flight("ij", 2)}, "no strips of 'ij' at a time in loops 'ij'"),
        ("ij", "j", {}, {"flight": Flight("ji", 2), "vectors": False}, "no strips of 'ji' at a time in loops 'ij'"),
    ],
)
def test_plans_whose_parts_do_not_fit_are_none(
    order: str, lane: str, groups: dict[str, int], more: dict[str, Any], message: str
) -> None:
    """With the index and the number at fault, before there is a kernel to write."""
    with pytest.raises(TransformError, match=message):
        Stream(order, lane, 8, groups, **more)


def test_a_plan_knows_what_it_takes_of_a_device() -> None:
    """Local memory for the tiles that are turned round, and the sums that a work-item keeps."""
    s, e = find_space("permutation"), described("ij,ji->ij", (1000, 1000))
    p = s.problem(e, {}, GPU)
    c = s.default(p)
    assert s.plan is not None
    assert s.plan(p, c).local_bytes() == c["width"] * (c["tile"] + c["spare"]) * 8 * 2
    huge = s.constraint(p, {**c, "strips": 1, "width": 256, "tile": 256})
    assert huge is not None
    assert "bytes of local memory exceed" in huge
    assert Stream("ij", "j", 8, {"j": 64}, summed="j", accumulators=4).registers() == 4
    assert Stream("ij", "j", 8, {"j": 64}, summed="i").registers() == 8
    assert Stream("ij", "j", 8, {"j": 64}).registers() == 0


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("reduction", "ij->i"),
        ("elementwise_product", "i,i->i"),
        ("permutation", "ij->ji"),
        ("trace", "ii->"),
        ("trace", "ii->i"),
    ],
)
def test_every_parameter_is_described_at_a_field_of_the_plan(name: str, text: str) -> None:
    """So pages and the command line find its meaning there."""
    s = find_space(name)
    assert set(s.parameters(s.problem(described(text, (9, 9)), {}, GPU))) <= set(s.described)


CROSSED = [
    ("ji,ij->", "reduction", {"portion": 2048}),
    ("ij,ji->i", "reduction", {"portion": 32768}),
    ("ij,ji->j", "reduction", {"portion": 2048, "width": 64}),
    ("kij,kji,i->k", "reduction", {"portion": 2048}),
    ("kij,kji->ij", "reduction", {"portion": 8192}),
    ("ji->ij", "permutation", {"strips": 4}),
    ("ij,ji,j->ij", "permutation", {"strips": 16, "tile": 64, "width": 64}),
    ("ajbi->iabj", "permutation", {"strips": 8}),
]


@pytest.mark.parametrize(("text", "name", "wanted"), CROSSED)
def test_operands_across_each_other_pass_through_local_memory(
    text: str, name: str, wanted: dict[str, int], cpu: Device
) -> None:
    """In square tiles, of several outputs, in parts of sums or all at once; nothing divides the lengths."""
    letters = parse_subscripts(text)
    sizes = {"i": 67, "j": 41, "k": 3, "a": 2, "b": 5}
    shapes = [tuple(sizes[x] for x in term) for term in letters.inputs]
    rows = [[fe.array(f"x{k}_{row}", shape) for k, shape in enumerate(shapes)] for row in range(2)]
    e, s = fe.batched_einsum(text, rows), find_space(name)
    problem = s.problem(e, {}, GPU)
    configuration = next(s.configurations(problem, {"tile": 32, **wanted}))
    assert s.plan is not None
    assert s.plan(problem, configuration).crossed
    arrays = {a.name: np.random.default_rng(k).integers(-4, 5, a.shape).astype(float) for k, a in enumerate(e.arrays)}
    for found, row in zip(run(realize(e, {}, s, configuration, GPU), cpu, e, arrays), rows, strict=True):
        np.testing.assert_array_equal(found, np.einsum(text, *(arrays[a.name] for a in row)))


def test_tiles_of_an_output_may_be_of_a_long_index(cpu: Device) -> None:
    """Which then is the slowest digit of the number of a group; two of them are none."""
    s = find_space("permutation")
    for axes in (("N", 41), (67, "N")):
        e = fe.einsum("ij->ji", fe.array("A", axes))
        for length in (1, 33, 64):
            sizes = {"N": length}
            p = s.problem(e, {"N": 1000}, GPU)
            program = realize(e, {"N": 1000}, s, next(s.configurations(p, {"strips": 4, "tile": 32})), GPU)
            A = np.random.default_rng(0).normal(size=[e.resolve(sizes)[x] for x in "ij"])
            np.testing.assert_array_equal(run(program, cpu, e, {"A": A}), A.T)
    e = fe.einsum("ij->ji", fe.array("A", ("N", "M")))
    p = s.problem(e, {"N": 1000, "M": 1000}, GPU)
    assert s.parameters(p)["strips"] == (1,)
    message = s.constraint(p, {**s.default(p), "strips": 4})
    assert message is not None
    assert "are not known, so groups do not share them as one" in message


@pytest.mark.parametrize("device", [CPU, GPU], ids=lambda device: device.kind)
@pytest.mark.parametrize("text", ["nij->nji", "vn->nv", "nij,nji->nij"])
@pytest.mark.parametrize("long", [False, True], ids=["fixed", "long"])
def test_short_rows_are_permuted_in_the_order_of_results(text: str, long: bool, device: DeviceProfile, cpu: Device) -> None:
    """Neither tiles nor vectors; as the first guess where the rows of the output or of an operand are short."""
    indexing, sizes = parse_subscripts(text), {"i": 6, "j": 5, "v": 5, "n": 131}
    axes: dict[str, Any] = sizes | ({"n": "N"} if long else {})
    rows = [[fe.array(f"x{k}_{row}", [axes[x] for x in at]) for k, at in enumerate(indexing.inputs)] for row in range(2)]
    e, s = fe.batched_einsum(text, rows), find_space("permutation")
    problem = s.problem(e, {"N": 10**6} if long else {}, device)
    configuration = next(s.configurations(problem, {"tile": 0}))
    assert s.plan is not None
    plan = s.plan(problem, configuration)
    assert (plan.turned, plan.crossed, plan.square, plan.width) == (None, None, "", 1 if device is CPU else 256)
    assert s.default(problem)["tile"] == 0
    arrays = {
        a.name: np.random.default_rng(k).normal(size=[sizes.get(x, 131) for x in at])
        for k, (a, at) in enumerate(e.array_uses)
    }
    lengths = {"N": 131} if long else {}
    for found, row in zip(run(realize(e, lengths, s, configuration, device), cpu, e, arrays), rows, strict=True):
        np.testing.assert_array_equal(found, np.einsum(text, *(arrays[a.name] for a in row)))


@pytest.mark.parametrize(
    ("text", "name", "dtype", "wanted"),
    [
        ("ij->ij", "permutation", "float32", {"strips": 2, "vector": 4}),
        ("ij,i->ij", "elementwise_product", "float64", {"strips": 4, "vector": 2}),
        ("i,j->ij", "elementwise_product", "float32", {"strips": 1, "vector": 4}),
        ("ij,ij->ij", "elementwise_product", "complex64", {"strips": 8, "vector": 1}),
        ("ij->ij", "permutation", "uint8", {"strips": 4, "vector": 1}),
        ("iij->ij", "trace", "float32", {"strips": 2, "vector": 2}),
    ],
)
@pytest.mark.parametrize("long", [False, True], ids=["fixed", "long"])
def test_copies_of_a_gpu_store_functions_of_what_they_load_together(
    text: str, name: str, dtype: str, wanted: dict[str, int], long: bool, cpu: Device
) -> None:
    """In vectors by pointers to such, where rows are; the last group of the first axis ends where the output does."""
    indexing = parse_subscripts(text)
    axes: dict[str, Any] = {"i": "N" if long else 67, "j": 36}
    e = fe.einsum(text, *(fe.array(f"x{k}", [axes[x] for x in t], dtype) for k, t in enumerate(indexing.inputs)))
    s, lengths = find_space(name), {"N": 67} if long else {}
    problem = s.problem(e, lengths, GPU)
    configuration = next(s.configurations(problem, {**wanted, "width": 64}))
    program = realize(e, lengths, s, configuration, GPU)
    scalar = {"float32": "float", "float64": "double"}.get(dtype, dtype)
    assert (f"*(__global {scalar}{wanted['vector']} *)" in program.source) == (wanted["vector"] > 1)
    rng = np.random.default_rng(0)
    arrays = {a.name: rng.integers(0, 9, [e.resolve(lengths)[x] for x in at]).astype(dtype) for a, at in e.array_uses}
    np.testing.assert_array_equal(run(program, cpu, e, arrays), np.einsum(text, *arrays.values(), dtype=dtype))
    assert program.launches[0].group_size == (64,)
    assert 67 * 36 % (64 * wanted["strips"] * wanted["vector"])


SPACES = {
    "reduction": "ij-> ij->i ij->j ijk->ki ijk->j i,i-> ij,ij->i ij,j->i ji,j->i bij,bj->bi i,ij,j-> ijk,k,i->j",
    "elementwise_product": "i,i->i ij,ij->ij ij,ij,ij->ij i,j->ij i,j->ji ij,j->ij ,ij->ij a,b,c->cab",
    "permutation": "i->i ij->ij ij->ji abc->bac abc->cba abcd->cdab ij,ji->ij ji,i->ij",
    "trace": "ii-> ii->i eii->e iij->j ii,i->i ijij->ij ii,jj->ij eii,i->e",
    "": "-> ,-> ij,jk->ik ijk,jr,kr->ir i,j-> ij,k->i ii,jj-> ii,ij,jk->k ij,ik->jk",
}
TABLE = [(text, name) for name, texts in SPACES.items() for text in texts.split()]


def described(text: str, lengths: tuple[int, ...], dtype: str = "float64", *, long: bool = False) -> fe.BatchedEinsum:
    indexing = parse_subscripts(text)
    axes: dict[str, Any] = {x: f"N{x}" if long else n for x, n in zip(indexing.indices, lengths, strict=False)}
    return fe.einsum(text, *(fe.array(f"x{k}", [axes[x] for x in t], dtype) for k, t in enumerate(indexing.inputs)))


@pytest.mark.parametrize(("text", "name"), TABLE, ids=lambda value: value or "none")
def test_each_simple_einsum_has_one_family(text: str, name: str) -> None:
    """And those that only look like one have none."""
    families = [s.name for s in matching_spaces(described(text, (4, 5, 6, 7))) if s.name in SPACES]
    assert families == ([name] if name else [])


@pytest.mark.parametrize(("text", "name"), [entry for entry in TABLE if entry[1]])
@pytest.mark.parametrize("long", [False, True], ids=["fixed", "long"])
def test_plans_for_a_gpu_are_right(text: str, name: str, long: bool, cpu: Device) -> None:
    """Work-items in place of vectors, tiles in local memory: run on a CPU, as any OpenCL device can."""
    sizes = (67, 33, 9, 8)
    e, s = described(text, sizes, long=long), find_space(name)
    lengths = {axis: sizes[e.indexing.indices.index(axis[1:])] for axis in e.long_axes}
    problem = s.problem(e, lengths, GPU)
    configurations = list(s.configurations(problem))
    rng = np.random.default_rng(0)
    arrays = {a.name: rng.normal(size=[e.resolve(lengths)[x] for x in at]) for a, at in e.array_uses}
    expected = np.einsum(text, *arrays.values())
    for configuration in (configurations[0], configurations[-1])[: 1 if long else 2]:
        program = realize(e, lengths, s, configuration, GPU)
        found = run(program, cpu, e, arrays)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12 * math.prod(sizes))


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("ij->i", {"i": 900, "j": 13}),
        ("ij->j", {"i": 9000, "j": 13}),
        ("ijk->", {"i": 30, "j": 17, "k": 70}),
        ("ijk->k", {"i": 60, "j": 17, "k": 20}),
        ("ijk->j", {"i": 60, "j": 17, "k": 40}),
        ("ijk,k->ij", {"i": 60, "j": 7, "k": 40}),
        ("bij,bj->bi", {"b": 9, "i": 20, "j": 90}),
    ],
    ids=str,
)
@pytest.mark.parametrize("long", [False, True], ids=["fixed", "long"])
def test_sums_on_a_gpu_are_right(text: str, sizes: dict[str, int], long: bool, cpu: Device) -> None:
    """Whatever the lanes and loads, of indices that are one or not, in one launch or two."""
    inputs = text.partition("->")[0].split(",")
    axes = {x: "N" if long and x == inputs[0][0] else n for x, n in sizes.items()}
    lengths = {"N": sizes[inputs[0][0]]} if long else {}
    e = fe.einsum(text, *(fe.array(f"A{k}", [axes[x] for x in term]) for k, term in enumerate(inputs)))
    s, rng = find_space("reduction"), np.random.default_rng(0)
    problem = s.problem(e, lengths, GPU)
    choices, default = s.parameters(problem), s.default(problem)
    assert default["lanes"]
    arrays = {f"A{k}": rng.normal(size=[sizes[x] for x in term]) for k, term in enumerate(inputs)}
    for lanes in choices["lanes"][:3]:
        for together in choices["joined"]:
            for loads in (1, 4):
                c = {**default, "width": 32, "lanes": lanes, "loads": loads, "joined": together, "portion": 2048}
                if s.refusal(problem, c) is None:
                    found = run(realize(e, lengths, s, c, GPU), cpu, e, arrays)
                    np.testing.assert_allclose(found, np.einsum(text, *arrays.values()), rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("dtype", ["complex64", "complex128", "int32", "uint8", "int64"])
def test_numbers_that_are_none_of_vectors_stream_too(dtype: str, cpu: Device, store: str) -> None:
    """One by one, in the same loops."""
    rng = np.random.default_rng(0)
    for text in ("ij->i", "ij->j", "ij,ij->ij", "ij->ji", "ii->", "ij->"):
        e = described(text, (67, 67), dtype)
        x = {
            a.name: (rng.integers(0, 3, (67, 67)) * (1 + 1j if np.dtype(dtype).kind == "c" else 1)).astype(dtype)
            for a in e.arrays
        }
        kernel = fe.generate(e, cpu, store)
        np.testing.assert_allclose(kernel(**x), np.einsum(text, *x.values(), dtype=dtype))


def test_lanes_find_columns_of_tiles_in_banks_of_their_own() -> None:
    """Rows of 32 numbers of four bytes would lie below each other in one bank; and every tile has its group."""
    e, s = described("abcd->cdab", (67, 33, 9, 40), "float32"), find_space("permutation")
    problem = s.problem(e, {}, GPU)
    first = {**s.default(problem), "strips": 1, "joined": True}
    program = realize(e, {}, s, first, GPU)
    assert "_kept[32 * 33]" in program.source
    assert [launch.groups for launch in program.launches] == [(9 * 67, 2, 2)]
    plain = {**first, "spare": 0, "joined": False}
    assert "_kept[32 * 32]" in realize(e, {}, s, plain, GPU).source
    assert s.estimate is not None
    assert s.estimate(problem, plain).loads > 10 * s.estimate(problem, first).loads
    assert s.estimate(problem, plain).groups < s.estimate(problem, first).groups


def test_numbers_among_operands_have_no_rows() -> None:
    """No space takes the last index of an operand that has none, whatever the device."""
    lengths = {"i": 70, "j": 50}
    for text in ("i,j,->", "i,j,->i", ",->", "ij,->", "ij,ji,->", "ij,->ij"):
        terms = text.partition("->")[0].split(",")
        e = fe.einsum(text, *(fe.array(f"A{k}", [lengths[x] for x in term]) for k, term in enumerate(terms)))
        for device in (CPU, GPU):
            for s in matching_spaces(e):
                p = s.problem(e, {}, device)
                with suppress(TransformError):  # that it has no configuration there
                    s.work(p, s.default(p))
