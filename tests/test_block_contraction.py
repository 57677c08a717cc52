"""Contractions in blocks: fused indices, fragments and their places in local memory, and kernels proved on a CPU.

The CPU's sub-groups simulate matrix units (:mod:`simulated_units`), and its work-items copy where a GPU copies by itself.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import loopy as lp
import pytest
from profiles import CPU, GPU
from pymbolic import evaluate
from pymbolic.primitives import Variable
from simulated_units import build_simulated

import feinsum as fe
from feinsum.canonicalization import canonicalize_einsum
from feinsum.compile.realize import realize
from feinsum.devices.vendors.nvidia import NVIDIA
from feinsum.errors import TransformError
from feinsum.lower import generate_loopy
from feinsum.match import match_einsum
from feinsum.registry import find_space
from feinsum.rewrites.joining import join, side_by_side
from feinsum.skeletons.block_tiles import (
    MULTIPLY_ADD,
    BlockShape,
    BlockShapes,
    BlockTiles,
    ChainPath,
    IndexGroup,
    Packing,
    SumSplit,
    TilePipeline,
    write,
)
from feinsum.skeletons.block_tiles.fragment_layouts import unit_fragments
from feinsum.skeletons.instructions.matrix_units import SUB_GROUP
from feinsum.validate import Workload

UNITS = ("fp64-mma-m16n8k4", "fp64-mma-m16n8k8", "fp64-mma-m16n8k16", "tf32-mma-m16n8k8", MULTIPLY_ADD)
SHORT = "fp64-mma-m16n8k4"


def contraction(subscripts: str, dtype: str = "float64", rows: int = 1, **sizes: int | str) -> fe.BatchedEinsum:
    """Rows share all operands but the last."""
    shapes = [tuple(sizes[letter] for letter in term) for term in subscripts.partition("->")[0].split(",")]
    shared = [fe.array(f"A{k}", shape, dtype) for k, shape in enumerate(shapes[:-1])]
    return fe.batched_einsum(subscripts, [[*shared, fe.array(f"B{row}", shapes[-1], dtype)] for row in range(rows)])


def prove(device: fe.Device, e: fe.BatchedEinsum, space: str, lengths: dict[str, int], **choices: Any) -> str:
    """Check a configuration, by default the first; the source."""
    s = find_space(space)
    p = s.problem(e, lengths, GPU)
    c = next(c for c in s.configurations(p) if all(c[name] == value for name, value in choices.items()))
    program = realize(e, lengths, s, c, GPU)
    executable = build_simulated(device, program)
    verdict = Workload(e, e.resolve(lengths), device.queue).check(executable)
    assert verdict.ok, f"{c}: {verdict.message}"
    return program.source


@pytest.mark.parametrize("parts", [{}, {"a": 4}, {"a": 2, "c": 4}, {"b": 3, "a": 5}])
def test_a_fused_index_reaches_every_point_once(parts: dict[str, int]) -> None:
    """Numbers below the product of the digits are the points of the letters, each once, and what parts stick out."""
    lengths = {"a": 6, "b": 3, "c": 4}
    group = IndexGroup("abc", lengths, parts)
    count = 1
    for digit in group.digits:
        count *= digit.count
    points = Counter(
        tuple(evaluate(value, {"n": n}) for value in group.decode(Variable("n")).values()) for n in range(count)
    )
    inside = {p: times for p, times in points.items() if all(x < lengths[y] for x, y in zip(p, "abc", strict=True))}
    assert set(points.values()) == {1}
    assert len(inside) == 6 * 3 * 4
    assert any(group.pads(x) for x in "abc") == (len(points) > len(inside))


@pytest.mark.parametrize("unit", UNITS)
def test_fragments_cover_a_product_once(unit: str) -> None:
    """Over lanes and registers, D has every row and column once; A and B have what D needs."""
    f = unit_fragments(unit)
    na, nb, nd = f.registers
    d = Counter(tuple(map(evaluate, f.of_d(lane, k))) for lane in range(SUB_GROUP) for k in range(nd))
    assert set(d) == {(row, column) for row in range(f.rows) for column in range(f.columns)}
    assert set(d.values()) == {1}
    a = {tuple(map(evaluate, f.of_a(lane, k))) for lane in range(SUB_GROUP) for k in range(na)}
    b = {tuple(map(evaluate, f.of_b(lane, k))) for lane in range(SUB_GROUP) for k in range(nb)}
    assert a == {(row, depth) for row in range(f.rows) for depth in range(f.depth)}
    assert b == {(column, depth) for column in range(f.columns) for depth in range(f.depth)}


@pytest.mark.parametrize(("unit", "itemsize"), [*((unit, 8) for unit in UNITS[:3]), *((unit, 4) for unit in UNITS[:4])])
@pytest.mark.parametrize("along_sums", [False, True])
@pytest.mark.parametrize("length", [16, 24, 64, 72])
def test_lanes_read_fragments_from_different_banks(unit: str, itemsize: int, along_sums: bool, length: int) -> None:
    """There are 32 banks of 4 bytes: 16 lanes that read float64 at once, or 32 that read float32, meet in none."""
    f = unit_fragments(unit)
    stride = f.stride(length, itemsize, along_sums=along_sums)
    together = 128 // itemsize
    for held, count in ((f.of_a, f.registers[0]), (f.of_b, f.registers[1])):
        for register in range(count):
            places = [tuple(map(evaluate, held(lane, register))) for lane in range(SUB_GROUP)]
            at = [own * stride + depth if along_sums else depth * stride + own for own, depth in places]
            for first in range(0, SUB_GROUP, together):
                assert len({place % together for place in at[first : first + together]}) == together


CASES = {
    "both orders": ("bda,dc->abc", {"a": 20, "b": 3, "c": 11, "d": 13}),
    "quickest letters differ": ("dega,gfbc->abcdef", {"a": 5, "b": 3, "c": 6, "d": 4, "e": 2, "f": 9, "g": 10}),
    "two sums": ("aebf,dfce->abcd", {"a": 4, "b": 5, "c": 6, "d": 3, "e": 7, "f": 9}),
    "small matrices": ("bij,bjk->bik", {"b": 19, "i": 16, "j": 16, "k": 16}),
    "one long index of each kind": ("xij,xjk->xki", {"x": 3, "i": "N", "j": 21, "k": 10}),
    "a long sum": ("ij,jk->ik", {"i": 33, "j": "N", "k": 17}),
}


@pytest.mark.parametrize(
    ("pipeline", "unit"), [("async 3", UNITS[1]), ("registers 2", MULTIPLY_ADD), ("registers 1", UNITS[0])]
)
@pytest.mark.parametrize("case", CASES)
def test_contractions_are_right_at_lengths_that_divide_nothing(
    simulator: fe.Device,
    case: str,
    pipeline: str,
    unit: str,
) -> None:
    """Rows, columns, items and sums that stick out of blocks."""
    subscripts, sizes = CASES[case]
    e = contraction(subscripts, "float32" if unit == MULTIPLY_ADD else "float64", **sizes)
    prove(simulator, e, "block_contraction", dict.fromkeys(e.long_axes, 41), pipeline=pipeline, unit=unit)


@pytest.mark.parametrize("unit", UNITS)
def test_contractions_are_right_by_every_unit(simulator: fe.Device, unit: str) -> None:
    """Two rows that share an operand; by the unit for float32 where sums are long enough for its bound."""
    e = contraction("kia,kja->ij", "float32" if "tf32" in unit else "float64", rows=2, i=20, j=30, k=5, a=32)
    source = prove(simulator, e, "block_contraction", {}, unit=unit, split="none")
    assert source.count("__kernel") == 2, "each row is a launch, with the local memory to itself"


WIDE = {
    "rows and columns": ("kij,km->mij", {"k": 24, "i": 3, "j": 44, "m": 36}, {4}),
    "the output lies along others": ("dega,gfcb->abcdef", {"a": 8, "b": 4, "c": 3, "d": 4, "e": 2, "f": 9, "g": 16}, {4}),
    "two at a time in either type": ("ki,kj->ij", {"k": 24, "i": 22, "j": 42}, {2}),
    "one of them": ("ki,kj->ij", {"k": 24, "i": 21, "j": 44}, {1, 4}),
    "the sum, and columns": ("ik,kj->ij", {"k": 24, "i": 21, "j": 44}, {4}),
}
"""Subscripts, lengths, and of what multiples of numbers the rows of the operands begin at."""


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("case", WIDE)
def test_neighbours_along_rows_and_columns_are_copied_together(
    simulator: fe.Device, monkeypatch: pytest.MonkeyPatch, case: str, dtype: str
) -> None:
    """Of every operand as many as its rows allow to begin at a multiple of their bytes."""
    monkeypatch.setattr("feinsum.transforms.block_tiles.products.LONG_SUMS", 1)
    subscripts, sizes, multiples = WIDE[case]
    e = contraction(subscripts, dtype, **sizes)
    source = prove_as_said(simulator, e, wide=True, pipeline="async 3", depth=8, shape="1 2 1 of 2 4")
    itemsize = e.dtypes[0].itemsize
    nbytes = {itemsize * int(width or 1) for width in re.findall(r"feinsum_copy_float\d\dx?(\d?)\(&", source)}
    assert nbytes == {min(16, itemsize * number) for number in multiples}


@pytest.mark.parametrize(("terms", "along"), [(320, False), (3136, True)])
def test_results_leave_in_short_runs_where_sums_are_long(terms: int, along: bool) -> None:
    """The rows then begin with the letter that the operand lies along, and not with the output's."""
    s = find_space("block_contraction")
    p = s.problem(contraction("kib,kc->cbi", k=terms, i=320, b=320, c=320), {}, GPU)
    plan = s.plan(
        p, {**s.default(p), "wide": True, "pipeline": "async 3", "packed": "none", "rows": "quick", "joined": False}
    )
    (operand,) = (k for k, term in enumerate(p.einsum.indexing.inputs) if len(term) == 3)
    side, quick = plan.operands.index(operand), p.einsum.indexing.inputs[operand][-1]
    assert ((plan.rows, plan.columns)[side][0] == quick) == along
    assert plan.width[side] == (2 if along else 1)


def test_only_what_can_be_copied_together_is_offered_so() -> None:
    """Rows that begin at odd numbers cannot."""
    s = find_space("block_contraction")
    even, odd = (contraction("ki,kj->ij", k=300, i=n, j=n) for n in (300, 301))
    assert [s.parameters(s.problem(e, {}, GPU))["wide"] for e in (even, odd)] == [(True, False), (False,)]


@pytest.mark.parametrize(("depth", "divided"), [(8, [8]), (16, [2, 8]), (32, [4, 8])])
def test_a_tile_takes_shorter_runs_of_two_sums_where_long_ones_stick_out(depth: int, divided: list[int]) -> None:
    """56 is seven runs of 8, and three and a half of 16."""
    s = find_space("block_contraction")
    p = s.problem(contraction("ilk,jlk->ij", i=560, j=560, k=56, l=56), {}, GPU)
    plan = s.plan(p, {**s.default(p), "split": "none", "joined": False, "depth": depth})
    assert sorted(n for n in plan.depths.values() if n > 1) == divided


@pytest.mark.parametrize(
    ("unit", "pipeline", "ahead"),
    [(UNITS[0], "registers 1", False), (UNITS[1], "async 3", True), (UNITS[0], "async 2", False)],
)
def test_units_for_float64_multiply_float32(simulator: fe.Device, unit: str, pipeline: str, ahead: bool) -> None:
    """However short a sum: numbers are float32 in memory and in tiles, and are rounded once, before functions of sums."""
    e = contraction("bda,dc->abc", "float32", a=20, b=3, c=11, d=29)
    shape = {"pipeline": pipeline, "depth": 16, "shape": "1 2 2 of 2 2", "ahead": ahead}
    for then in (e, e.then("gelu(v) + out")):
        source = prove_as_said(simulator, then, unit=unit, **shape)
        assert re.search(r"__local float tile_", source)
        assert re.search(r" double acc\[", source)
        assert "(float) (acc[" in source or "(float) acc[" in source


@pytest.mark.parametrize(("pipeline", "ahead"), [("async 3", True), ("async 2", False), ("registers 2", False)])
def test_a_unit_may_add_up_the_products_of_a_tile(simulator: fe.Device, pipeline: str, ahead: bool) -> None:
    """Of every tile anew, and their sums are added to results."""
    e = contraction("bda,dc->abc", "float32", a=20, b=3, c=12, d=150)
    shape = {"pipeline": pipeline, "depth": 16, "shape": "1 2 2 of 2 2", "ahead": ahead}
    source = prove_as_said(simulator, e, unit="tf32-mma-m16n8k8", split="none", wide=False, tilewise=True, **shape)
    assert "sum[" in source
    assert "feinsum_summed_split_mma_m16n8k8(sum[" in source


def test_tiles_are_added_up_by_the_unit_where_the_bound_of_float32_is_kept() -> None:
    """Tiles of 32 err by 88 roundoffs and one for every tile, those of 16 by 52."""
    s = find_space("block_contraction")
    refused = {}
    for terms in (48, 64, 96):
        p = s.problem(contraction("ki,kj->ij", "float32", k=terms, i=900, j=900), {}, GPU)
        for depth in (16, 32):
            c = {**s.default(p), "unit": "tf32-mma-m16n8k8", "pipeline": "async 3", "depth": depth, "split": "none"}
            refused[terms, depth] = s.constraint(p, {**c, "tilewise": True, "shape": "1 2 2 of 2 2"})
    assert {at for at, why in refused.items() if why is None} == {(64, 16), (96, 16), (96, 32)}
    assert "may err by more" in refused[48, 16]


def test_units_for_float64_are_offered_to_float32() -> None:
    """After what multiplies float32 as it is; one that takes many terms at a step is not."""
    s = find_space("block_contraction")
    products = (contraction("ik,kj->ij", "float32", i=90, j=80, k=k) for k in (24, 64))
    offered = [s.parameters(s.problem(e, {}, GPU))["unit"] for e in products]
    assert offered[0] == (MULTIPLY_ADD, *UNITS[:2])
    assert offered[1] == ("tf32-mma-m16n8k8", MULTIPLY_ADD, *UNITS[:2])


def test_long_sums_are_split_and_operands_packed(simulator: fe.Device) -> None:
    """The parts of a sum are results of a first launch, that a second sums; a packed operand is a copy before."""
    e = contraction("acd,dbc->ab", a=20, b=30, c=24, d=16)
    s = find_space("block_contraction")
    split = s.parameters(s.problem(e, {}, GPU))["split"]
    assert len(split) > 1
    assert prove(simulator, e, "block_contraction", {}, split=split[0]).count("__kernel") == 2
    thin = s.parameters(s.problem(contraction("ca,cb->ab", a=12, b=9, c=3_000_000), {}, GPU))["split"]
    parts = [3_000_000 / int(text.split()[-1]) for text in map(str, thin) if text != "none"]
    assert parts  # 12 x 9 results are few, and so are their parts
    assert all(GPU.compute_units < count < 100 * GPU.compute_units for count in parts)
    large = contraction("acd,dbc->ab", a=1024, b=1024, c=24, d=16)
    assert set(s.parameters(s.problem(large, {}, GPU))["packed"]) == {"none", "0", "1", "01"}


@pytest.mark.parametrize(("terms", "whole"), [(28, [28, 32]), (22, [24]), (24, []), (50, [52, 56]), (65, [])])
def test_short_sums_are_one_tile(simulator: fe.Device, terms: int, whole: list[int]) -> None:
    """First, whatever their length, through registers; all that was offered before is, as records may have it."""
    e = contraction("ak,kbc->abc", a=20, b=9, c=17, k=terms)
    s = find_space("block_contraction")
    offered = s.parameters(s.problem(e, {}, GPU))
    assert list(offered["depth"][: len(whole)]) == whole
    assert {4, 8, 16} - set(offered["depth"]) <= {16}
    assert {"registers 1", "async 3"} <= set(offered["pipeline"])
    if whole:
        assert s.default(s.problem(e, {}, GPU))["depth"] == whole[0]
        assert offered["pipeline"][0] == "registers 1"
        assert prove(simulator, e, "block_contraction", {}, depth=whole[0]).count("barrier(CLK_LOCAL_MEM_FENCE)") == 1


def test_what_has_no_registers_is_no_first_guess() -> None:
    """Where ordinary arithmetic multiplies an only tile: places of results take registers, too.  It is offered, as records
    may have it."""
    s = find_space("block_contraction")
    p = s.problem(contraction("abk,kcd->abcd", "float32", a=90, b=90, k=24, c=90, d=90), {}, GPU)
    assert str(s.default(p)["shape"]).endswith("of 8 8")
    shapes = [str(shape) for shape in s.parameters(p)["shape"]]
    of_multiply_adds = [shape.partition("of ")[2] for shape in shapes if shape.endswith(" 16")]
    assert of_multiply_adds[-1] == "8 16"
    assert of_multiply_adds.index("8 16") > max(k for k, tile in enumerate(of_multiply_adds) if tile == "4 16")


@pytest.mark.parametrize("unit", [SHORT, MULTIPLY_ADD])
@pytest.mark.parametrize("pipeline", ["async 3", "registers 1"])
@pytest.mark.parametrize("several", [True, False])
def test_shapes_are_counted_together_as_one_by_one(unit: str, pipeline: str, several: bool) -> None:
    """A plan of many block tiles has arrays of the numbers that plans of each of them have."""
    from feinsum.transforms.block_tiles.plans import residents

    s = find_space("block_contraction")
    p = s.problem(contraction("ik,jk->ij", i=200, j=300, k=64), {}, GPU)
    usual = replace(
        s.plan(p, s.default(p)), unit=unit, pipeline=TilePipeline.parse(pipeline), several=several, prefetch=False
    )
    every = [BlockShape.parse(x) for x in ("1 2 4 of 3 5", "4 1 1 of 1 1", "1 8 2 of 8 16", "2 1 2 of 4 12")]
    together = replace(usual, block_tile=BlockShapes.of(every))
    plans = [replace(usual, block_tile=shape) for shape in every]
    assert list(together.registers()) == [plan.registers() for plan in plans]
    assert list(together.local_bytes()) == [plan.local_bytes() for plan in plans]
    assert list(together.work_items) == [plan.work_items for plan in plans]
    assert list(residents(p, together)) == [residents(p, plan) for plan in plans]
    assert 0 in residents(p, together)


def test_blocks_that_one_round_takes_come_first() -> None:
    """132 blocks of 128 by 128 for 132 multiprocessors, and the estimate of a shape alone is that of all together."""
    from feinsum.transforms.block_tiles.plans import planned, residents
    from feinsum.transforms.block_tiles.work import block_seconds, product_work

    s = find_space("block_contraction")
    p = s.problem(contraction("ik,kj->ij", i=1500, j=1300, k=3000), {}, GPU)
    own, usual = planned(p, {**s.default(p), "packed": "none"})
    assert product_work(own, usual).groups == 132
    every = [BlockShape.parse(x) for x in ("1 2 4 of 4 4", "1 2 4 of 2 4")]
    together = replace(usual, block_tile=BlockShapes.of(every))
    times = block_seconds(own, together, residents(p, together))
    plans = [replace(usual, block_tile=shape) for shape in every]
    assert list(times) == pytest.approx([float(block_seconds(own, plan, residents(p, plan))) for plan in plans])
    assert times[0] < times[1]


def test_a_sum_of_unknown_length_is_no_one_tile() -> None:
    """However short it is expected to be."""
    s = find_space("block_contraction")
    p = s.problem(contraction("ak,kb->ab", a=20, b=30, k="K"), {"K": 28}, GPU)
    assert 28 not in s.parameters(p)["depth"]


def test_an_operand_that_is_computed_passes_through_registers(simulator: fe.Device) -> None:
    """Entries of several arrays, in a contraction of two operands and in a chain; the rewrite refuses other plans."""
    a, b, c, d = (fe.array(name, (20, 24)) for name in "ABCD")
    pair = fe.batched_einsum("ij,kj->ik", [[(a, b), c]])
    chain = fe.batched_einsum("ij,kj,lj->ik", [[(a, b), c, d]])
    for e, space in ((pair, "block_contraction"), (chain, "block_contraction_chain")):
        s = find_space(space)
        pipelines = {c["pipeline"] for c in s.configurations(s.problem(e, {}, GPU))}
        assert pipelines
        assert not any(name.startswith("async") for name in pipelines)
        prove(simulator, e, space, {})
    t_unit = generate_loopy(fe.batched_einsum("ij,jk->ik", [[(a, b), fe.array("X", (24, 8))]]))
    m = match_einsum(t_unit)
    names = dict(zip(m.einsum.indexing.inputs[0] + m.einsum.indexing.inputs[1][1], "ijk", strict=True))
    plan = blocks(pipeline=TilePipeline.parse("async 2"), vendor=NVIDIA)
    with pytest.raises(TransformError, match="is computed, so it cannot be copied asynchronously"):
        write(t_unit, m.relabel(names, (0, 1)), plan, {"i": 20, "j": 24, "k": 8})


def prove_as_said(device: fe.Device, e: fe.BatchedEinsum, **choices: Any) -> str:
    """Check a configuration that a space may not offer for so small a problem; the source."""
    s = find_space("block_contraction")
    c = {**s.default(s.problem(e, {}, GPU)), **choices}
    offering = replace(s, choices=lambda p: {name: (value,) for name, value in c.items()})
    program = realize(e, {}, offering, c, GPU)
    executable = build_simulated(device, program)
    verdict = Workload(e, e.resolve({}), device.queue).check(executable)
    assert verdict.ok, verdict.message
    return program.source


UPDATES = {
    "an only tile": ("registers 1", 24, "1 2 2 of 2 2", "down across number"),
    "several tiles": ("registers 2", 8, "1 2 2 of 2 2", "down across number"),
    "many results": ("async 2", 8, "1 1 4 of 4 4", "across number"),
}


@pytest.mark.parametrize("case", UPDATES)
def test_what_stands_in_the_output_is_loaded_before_it_is_stored_to(simulator: fe.Device, case: str) -> None:
    """A compiler moves no load before a store to the same array, so that each would wait for the one before.

    As many are loaded as registers hold.
    """
    pipeline, depth, shape, together = UPDATES[case]
    choices = {"unit": UNITS[1], "pipeline": pipeline, "depth": depth, "shape": shape}
    e = contraction("xik,xkj->xij", x=2, i=35, k=21, j=19)
    source = prove_as_said(simulator, e.then("2*v - beta*out"), **choices)
    (loaded,) = re.finditer(r"present\[(.*)\] = \(\(.*!\(beta == 0.0\).* \? out\[.*\] : ", source)
    (stored,) = re.finditer(r" out\[.*\] = 2.*present\[", source)
    assert loaded.start() < stored.start()
    assert source.count("out[") == 2, "nothing else reads it"
    assert [name.partition("_")[0] for name in re.findall(r"[a-z]\w*", loaded[1])] == together.split()


@pytest.mark.parametrize("packed", ["0", "1", "01"])
def test_packed_operands_are_right(simulator: fe.Device, packed: str) -> None:
    """Operands copied such that what is summed is quickest; a space offers it for large products alone."""
    prove_as_said(simulator, contraction("acd,dbc->ab", a=20, b=30, c=24, d=16), packed=packed)


def test_copies_to_another_order_are_made_in_tiles(simulator: fe.Device) -> None:
    """Of the quickest axes of operand and copy, so that both are moved in whole sectors."""
    e = contraction("xij,kjx->xik", x=9, i=20, j=40, k=30)
    (packed,) = (str(k) for k, letters in enumerate(by_operand(e)) if letters.endswith("a"))
    source = prove_as_said(simulator, e, packed=packed)
    assert re.findall(r"reqd_work_group_size\((\d+), (\d+)", source)[0] == ("8", "32")


def by_operand(e: fe.BatchedEinsum) -> tuple[str, ...]:
    """The indices of each operand of the canonical einsum, of which "a" is that of the batch."""
    return canonicalize_einsum(e).einsum.indexing.inputs


@pytest.mark.parametrize(("unit", "depth"), [(UNITS[0], 8), (UNITS[1], 16), ("tf32-mma-m16n8k8", 32)])
@pytest.mark.parametrize("buffers", [2, 3])
def test_fragments_loaded_a_step_ahead_are_right(
    simulator: fe.Device,
    unit: str,
    depth: int,
    buffers: int,
) -> None:
    """Over two, and over four steps of a tile, across the barriers between tiles, to the last of a sum that sticks out."""
    e = contraction("bda,dc->abc", "float32" if "tf32" in unit else "float64", a=20, b=3, c=11, d=93)
    choices = {"unit": unit, "depth": depth, "pipeline": f"async {buffers}", "shape": "1 2 2 of 2 2", "ahead": True}
    source = prove_as_said(simulator, e, **choices)
    assert source.count("barrier(CLK_LOCAL_MEM_FENCE)") == 2, "before the first tile, and in the loop over tiles"
    assert source.count('asm volatile("" ::: "memory");') == 3, "loads come before the products of the step before"


def test_indices_side_by_side_become_one(simulator: fe.Device) -> None:
    """Where operands are packed, those of rows, columns, and sums are: the tiles of a sum need no digits of two."""
    e = contraction("aebf,dfce->abcd", a=3, b=5, c=6, d=7, e=9, f=4)
    from feinsum.transforms.block_tiles.plans import bare_contraction as by_itself

    problem = by_itself(find_space("block_contraction").problem(e, {}, GPU), "none", "01")
    assert side_by_side(problem.einsum) == ("ab", "cd", "fe")
    source = prove_as_said(simulator, e, packed="01", joined=True, depth=4, pipeline="async 2", shape="1 2 2 of 1 1")
    assert "e_at[" in source
    assert "f_at[" not in source


def test_indices_that_are_not_side_by_side_are_not_joined() -> None:
    """Neither in another order, nor in arrays whose rows have gaps."""
    e = contraction("aebf,dfce->abcd", a=3, b=5, c=6, d=7, e=9, f=4)
    s = find_space("block_contraction")
    p = s.problem(e, {}, GPU)
    assert "side by side" in (s.constraint(p, {**s.default(p), "joined": True}) or "")
    t_unit = generate_loopy(contraction("abk,kc->abc", a=3, b=5, c=6, k=7))
    m = match_einsum(t_unit)
    (letters,) = side_by_side(m.einsum)
    with pytest.raises(TransformError, match="are not side by side in every array"):
        join(t_unit, m, letters[::-1])
    gaps = lp.tag_array_axes(t_unit, m.arrays[m.einsum.args[0][0][0].name], "stride:70,stride:10,stride:1")
    with pytest.raises(TransformError, match="does not lie in memory row by row"):
        join(gaps, m, letters)


@pytest.mark.parametrize(
    ("subscripts", "path", "launches"),
    [("bi,oij,bj->bo", "steps", 2), ("bi,oij,bj->bo", "0 1", 1), ("aib,bjc,cka->ijk", "steps", 2)],
)
def test_chains_are_right(simulator: fe.Device, subscripts: str, path: str, launches: int) -> None:
    """Step by step, or with two operands multiplied as they are loaded."""
    sizes = {letter: 5 + k for k, letter in enumerate(sorted(set(subscripts) - set(",->")))}
    e = contraction(subscripts, "float64", **sizes)
    assert prove(simulator, e, "block_contraction_chain", {}, path=path).count("__kernel") == launches


def test_the_code_is_as_planned() -> None:
    """Matrix unit and asynchronous copies are in it, and local memory is what the space counts."""
    e = contraction("bda,dc->abc", a=312, b=12, c=24, d=312)
    s = find_space("block_contraction")
    p = s.problem(e, {}, GPU)
    c = {**s.default(p), "unit": SHORT, "pipeline": "async 3"}
    source = realize(e, {}, s, c, GPU).source
    assert source.count("mma.sync.aligned.m16n8k4") == 1
    assert source.count("cp.async.ca.shared.global") == 1
    assert 'asm volatile("cp.async.wait_group 1;"' in source
    assert source.count("barrier(CLK_LOCAL_MEM_FENCE)") == 1
    assert s.plan is not None
    declared = sum(8 * eval(size) for size in re.findall(r"__local double \w+\[([\d *]+)\]", source))
    assert declared == s.plan(p, c).local_bytes()


def test_refused_configurations_say_why() -> None:
    """A CPU, for which no tiles are ranked, a tile that is no whole number of steps, two long indices in one group."""
    s = find_space("block_contraction")
    usual = contraction("bda,dc->abc", a=312, b=12, c=24, d=312)
    assert not list(s.configurations(s.problem(usual, {}, CPU)))
    assert len(s.parameters(s.problem(usual, {}, CPU))["shape"]) == 1
    p = s.problem(usual, {}, GPU)
    c = s.default(p)
    assert "no whole steps of 16" in (s.refusal(p, {**c, "unit": "fp64-mma-m16n8k16", "depth": 8}) or "")
    assert "local memory of its own" in (s.constraint(s.problem(usual, {}, CPU), c) or "")
    long = contraction("bda,dc->abc", a="N", b="M", c=24, d=312)
    q = s.problem(long, {"N": 100, "M": 100}, GPU)
    assert "several indices of unknown length" in (s.constraint(q, c) or "")


def blocks(**changes: Any) -> BlockTiles:
    usual: dict[str, Any] = {
        "operands": (0, 1),
        "rows": "i",
        "columns": "k",
        "sums": "j",
        "batch": "",
        "runs": {},
        "depths": {"j": 8},
        "unit": SHORT,
        "block_tile": BlockShape((1, 1, 1), (1, 1)),
        "along_sums": (True, False),
    }
    return BlockTiles(**{**usual, **changes})


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (blocks(rows="k", columns="i"), "is no product of k by j and j by i"),
        (blocks(depths={"j": 6}), "tiles of depth 6 are no whole steps of 4"),
    ],
)
def test_plans_that_do_not_fit_an_einsum_are_refused(plan: BlockTiles, message: str) -> None:
    """By what writes the kernel, whoever calls it."""
    t_unit = generate_loopy(fe.einsum("ij,jk->ik", fe.array("A", (32, 16)), fe.array("B", (16, 8))))
    m = match_einsum(t_unit)
    names = dict(zip(m.einsum.indexing.inputs[0] + m.einsum.indexing.inputs[1][1], "ijk", strict=True))
    with pytest.raises(TransformError, match=message):
        write(t_unit, m.relabel(names, (0, 1)), plan, {"i": 32, "j": 16, "k": 8})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prefetch": True}, "fragments of 2 steps of .* are not loaded a step ahead"),
        (
            {"prefetch": True, "pipeline": TilePipeline(True, 2), "vendor": NVIDIA, "depths": {"j": 12}},
            "fragments of 3 steps",
        ),
        ({"prefetch": True, "pipeline": TilePipeline(True, 2), "vendor": NVIDIA, "several": False}, "fragments of 2 steps"),
        ({"pipeline": TilePipeline(True, 2)}, "vendor has no asynchronous copies"),
        ({"rows": ""}, "has no rows or no columns"),
        ({"unit": "no such unit"}, "there is no matrix unit"),
    ],
)
def test_plans_whose_parts_do_not_fit_are_none(changes: dict[str, Any], message: str) -> None:
    """Before there is a kernel to write."""
    with pytest.raises(TransformError, match=message):
        blocks(**{"prefetch": False, **changes}).local_bytes()


@pytest.mark.parametrize(
    "part",
    [
        BlockShape((1, 2, 4), (3, 12)),
        TilePipeline(True, 3),
        TilePipeline(False, 1),
        SumSplit("k", 64),
        SumSplit(),
        Packing((0, 1)),
        Packing((1,)),
        Packing(),
        ChainPath((0, 2)),
        ChainPath((1, 2)),
        ChainPath(),
    ],
    ids=str,
)
def test_parts_of_plans_are_read_as_they_are_written(part: Any) -> None:
    """What configurations hold is text; a plan holds what it means."""
    assert type(part).parse(str(part)) == part


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (BlockShape, "1 2 2 of 4"),
        (BlockShape, "0 2 2 of 4 4"),
        (TilePipeline, "async 1"),
        (TilePipeline, "registers 0"),
        (TilePipeline, "async"),
        (SumSplit, "k"),
        (SumSplit, "k 0"),
        (Packing, "10"),
        (Packing, ""),
        (ChainPath, "2 0"),
        (ChainPath, "0 0"),
        (ChainPath, "0 3"),
    ],
)
def test_other_texts_are_no_parts_of_plans(kind: Any, text: str) -> None:
    """The error shows the text."""
    with pytest.raises(TransformError, match=text or "''"):
        kind.parse(text)


def test_every_parameter_is_described_at_a_field_of_the_plan() -> None:
    """So pages and the command line find its meaning there."""
    e = contraction("bda,dc->abc", a=312, b=12, c=24, d=312)
    for name, einsum in (
        ("block_contraction", e),
        ("block_contraction_chain", contraction("aib,bjc,cka->ijk", **dict.fromkeys("abcijk", 8))),
    ):
        s = find_space(name)
        assert set(s.described) == set(s.parameters(s.problem(einsum, {}, GPU)))


def test_a_chain_asks_whether_a_step_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration that blocks refuse makes no kernel: it was handed to the transformation past the refusal."""
    from feinsum.transforms.block_tiles import chains

    s = find_space("block_contraction_chain")
    e = contraction("aib,bjc,cka->ijk", **dict.fromkeys("abcijk", 8))
    nearest = chains.nearest_block_tile
    monkeypatch.setattr(chains, "nearest_block_tile", lambda *args: {**(nearest(*args) or {}), "depth": 7})
    with pytest.raises(TransformError, match=r"'block_contraction' refuses .*depth is 7, not one of"):
        realize(e, {}, s, s.default(s.problem(e, {}, GPU)), GPU)
