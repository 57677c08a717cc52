"""What spaces say of their work, mostly on GPUs: traffic, operations, occupancy, and how that orders configurations."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from profiles import CPU, GPU

import feinsum as fe
from feinsum.candidates import predicted
from feinsum.candidates.predicted import top_predictions
from feinsum.cost import Work, in_turn, nest_work
from feinsum.cost.model import CostModel
from feinsum.registry import find_space
from feinsum.skeletons.block_tiles import IndexGroup
from feinsum.space import Configuration, Instance, Problem
from feinsum.subscripts import parse_subscripts

UNKNOWING = CostModel({})
SHORT = "fp64-mma-m16n8k4"


def contraction(subscripts: str, dtype: str = "float64", **sizes: int) -> fe.BatchedEinsum:
    terms = subscripts.partition("->")[0].split(",")
    return fe.einsum(subscripts, *(fe.array(f"A{k}", tuple(sizes[x] for x in term), dtype) for k, term in enumerate(terms)))


PRODUCT = contraction("ij,jk->ik", i=2048, j=512, k=2048)
BLOCKS = find_space("block_contraction")


def asked(space: str, e: fe.BatchedEinsum) -> tuple[Problem, Configuration]:
    """A problem on a GPU, and the default configuration."""
    s = find_space(space)
    p = s.problem(e, {}, GPU)
    return p, s.default(p)


def test_small_blocks_load_operands_more_often() -> None:
    """The same operations and bytes of memory; a quarter of the block in each direction loads four times as much."""
    p, c = asked("block_contraction", PRODUCT)
    c = {**c, "unit": SHORT, "split": "none", "packed": "none"}
    large, small = (BLOCKS.work(p, {**c, "shape": shape}) for shape in ("1 2 4 of 4 4", "1 2 4 of 1 1"))
    assert (large.flops, large.bytes) == (small.flops, small.bytes)
    assert small.shared == 4 * large.shared
    assert small.stored == large.stored, "results are stored once by both"
    assert small.groups == 16 * large.groups
    assert small.seconds(GPU, 8) > 1.5 * large.seconds(GPU, 8)


def test_blocks_that_stick_out_do_more() -> None:
    """A row and a column more than whole blocks of 128 by 128."""
    p, c = asked("block_contraction", PRODUCT)
    q, _ = asked("block_contraction", contraction("ij,jk->ik", i=2049, j=512, k=2049))
    c = {**c, "unit": SHORT, "split": "none", "packed": "none", "shape": "1 2 4 of 4 4"}
    assert BLOCKS.work(q, c).flops / BLOCKS.work(p, c).flops == pytest.approx((17 / 16) ** 2)


def test_results_in_short_runs_take_longer() -> None:
    """Lanes along rows of the product, which lie apart in the output, store whole sectors for single numbers."""
    p, c = asked("block_contraction", contraction("ij,jk->ik", i=2048, j=16, k=2048))
    c = {**c, "unit": "multiply-add", "split": "none", "packed": "none", "shape": "1 2 2 of 4 8"}
    quick, slow = (BLOCKS.work(p, {**c, "rows": rows}).stored for rows in ("quick", "slow"))
    assert slow > 2 * quick


@pytest.mark.parametrize(
    ("parts", "most", "expected"),
    [({}, 100, 24), ({}, 8, 8), ({"a": 2}, 100, 24), ({"a": 2, "b": 3}, 100, 2), ({"b": 3}, 100, 1)],
    ids=["both letters", "no more than asked for", "in two digits", "part of the first", "the second first"],
)
def test_neighbours_of_a_fused_index_are_neighbours_in_memory(parts: dict[str, int], most: int, expected: int) -> None:
    """As far as its digits go through the axes of an array from the last on."""
    from feinsum.transforms.block_tiles.work import neighbouring_values

    sizes = {"a": 4, "b": 6, "c": 5}
    digits = IndexGroup("ab", sizes, parts).digits
    assert neighbouring_values("cba", sizes, digits, most) == expected
    assert neighbouring_values("abc", sizes, digits, most) == 1


def test_parts_of_a_sum_and_packed_operands_are_launches_of_their_own() -> None:
    """Partial results are written and read again, and copies are."""
    p, c = asked("block_contraction", contraction("acd,dbc->ab", a=64, b=64, c=256, d=256))
    whole = BLOCKS.work(p, {**c, "split": "none", "packed": "none"})
    split = BLOCKS.work(p, {**c, "split": "c 8", "packed": "none"})
    packed = BLOCKS.work(p, {**c, "split": "none", "packed": "01"})
    assert (whole.launches, split.launches, packed.launches) == (1, 2, 3)
    assert split.bytes > whole.bytes
    assert packed.bytes >= whole.bytes + 2 * 8 * 2 * 64 * 256 * 256, "both operands are read and written"
    assert split.seconds(GPU, 8) < whole.seconds(GPU, 8), "one block would leave all other compute units idle"


def test_a_chain_takes_as_long_as_its_steps() -> None:
    """Two contractions, one after the other; a product of operands that is made while it is loaded is none."""
    p, c = asked("block_contraction_chain", contraction("bi,oij,bj->bo", b=65536, i=64, j=64, o=64))
    s = find_space("block_contraction_chain")
    first, *_, last = s.parameters(p)["path"]
    joined, steps = (s.work(p, {**c, "path": path, "pipeline": "registers 2"}) for path in (first, last))
    assert joined.launches == 1 < steps.launches == len(steps.parts)
    assert steps.seconds(GPU, 8) == pytest.approx(sum(part.seconds(GPU, 8) for part in steps.parts))
    assert steps.bytes > p.einsum.min_bytes({})


@pytest.mark.parametrize(
    ("subscripts", "choices", "beside"),
    [
        ("bj,eij->ebi", {}, {}),
        ("bj,ije->ebi", {"elements": 1, "together": 1}, {"ije": 8}),
        ("bj,ije->ebi", {"elements": 8, "together": 1}, {"ije": 1}),
        ("bj,ije->eib", {"elements": 8, "together": 4, "across": 16}, {"ije": 1, "eib": 8}),
        ("bj,ije->eib", {"elements": 8, "together": 4, "across": 16, "staged": True}, {"ije": 1}),
    ],
    ids=["in rows", "one of a sector", "a sector", "results apart", "results staged"],
)
def test_sectors_that_are_used_in_part_are_moved_in_whole(
    subscripts: str, choices: dict[str, Any], beside: dict[str, int]
) -> None:
    """Of neighbours in memory that are no neighbours of lanes, seven of eight are moved in vain; none are on a CPU."""
    sizes = {"b": 16, "i": 16, "j": 16, "e": 4096}
    e, s = contraction(subscripts, "float32", **sizes), find_space("work_group_steps")
    c = {**asked("work_group_steps", e)[1], "unit": "none", "copy": "all", "stay": 0, "prefetch": False, **choices}
    p = s.problem(e, {}, GPU)
    axes = {subscripts[3:6]: 16 * 16 * 4096, subscripts[-3:]: 16 * 16 * 4096}
    moved = e.min_bytes({}) + sum((times - 1) * 4 * axes[letters] for letters, times in beside.items())
    assert s.work(p, c).bytes == pytest.approx(moved, rel=0.05)


def test_operands_whose_neighbours_are_other_items_are_packed_first() -> None:
    """No lanes load neighbours of them, which takes sectors of others along; where they are used often, a copy pays."""
    given, turned, seldom = (
        asked("block_contraction", contraction(subscripts, x=16, i=i, j=256, k=256))
        for subscripts, i in (("xij,xjk->xik", 256), ("xij,kjx->xik", 256), ("xij,kjx->xik", 64))
    )
    assert given[1]["packed"] == seldom[1]["packed"] == "none"
    p, c = turned
    assert set(BLOCKS.parameters(p)["packed"]) == {c["packed"], "none"}
    assert len(c["packed"]) == 1
    as_it_is, packed = (BLOCKS.work(p, {**c, "packed": name}).parts or () for name in ("none", c["packed"]))
    assert not as_it_is
    assert BLOCKS.work(p, {**c, "packed": "none"}).bytes > packed[-1].bytes == p.einsum.min_bytes({})


def test_larger_tiles_of_a_work_item_load_less() -> None:
    """Entries together in registers share what they multiply; a matrix unit is told of."""
    e = contraction("ai,bj,eij->eab", a=12, b=12, i=12, j=12, e=10_000)
    p, c = asked("work_group_steps", e)
    s = find_space("work_group_steps")
    c = {**c, "unit": "none", "elements": 4, "across": 5}
    few, many = (s.work(p, {**c, "together": together}) for together in (1, 4))
    assert many.loads < few.loads
    assert not many.matrix
    assert s.work(p, {**c, "unit": SHORT, "together": 1, "across": 16}).matrix


WORK = Work(flops=1e12, bytes=1e6, groups=1e5, items=256, registers_bytes=128)


@pytest.mark.parametrize(
    "change",
    [
        {"items": 2, "registers_bytes": 0},
        {"items": 64, "registers_bytes": 2000},
        {"local_bytes": 200_000, "items": 32},
        {"groups": 1e9},
        {"groups": 133},
        {"groups": 1},
    ],
    ids=["few work-items", "many registers", "much local memory", "groups with nothing to do", "one too many", "one"],
)
def test_what_leaves_a_gpu_idle_takes_longer(change: dict[str, Any]) -> None:
    """Compute units that hold few work-items, or wait for groups to begin, or for the last of them."""
    assert replace(WORK, **change).seconds(GPU, 8) > 1.2 * WORK.seconds(GPU, 8)


def test_works_in_turn_are_added_up() -> None:
    """Times, and what can be counted; of one alone nothing is changed."""
    small = replace(WORK, flops=1e10, groups=10)
    both = in_turn([small, in_turn([WORK, small])])
    assert both.seconds(GPU, 8) == pytest.approx(2 * small.seconds(GPU, 8) + WORK.seconds(GPU, 8))
    assert (both.flops, both.launches, both.groups) == (WORK.flops + 2 * small.flops, 3, WORK.groups)
    assert in_turn([WORK]) is WORK


SHAPES = {
    "small matrices": contraction("bij,bjk->bik", b=100_000, i=16, j=16, k=16),
    "odd small matrices": contraction("bij,bjk->bik", b=50_000, i=7, j=5, k=9),
    "a product": contraction("ij,jk->ik", i=1000, j=999, k=1001),
    "a tall product": contraction("ij,jk->ik", i=1_000_000, j=64, k=64),
    "a long sum": contraction("ki,kj->ij", i=64, j=64, k=1_000_000),
    "tensors": contraction("gdbc,efga->abcdef", a=16, b=16, c=16, d=16, e=16, f=16, g=24),
    "tensors in float32": contraction("aebf,fdec->abcd", "float32", a=72, b=72, c=24, d=72, e=24, f=24),
    "attention": contraction("bhqd,bhkd->bhqk", "float32", b=4, h=8, q=1024, k=1024, d=64),
    "three operands": contraction("ijk,jr,kr->ir", i=256, j=256, k=256, r=32),
}


@pytest.mark.parametrize("e", SHAPES.values(), ids=SHAPES)
def test_the_first_guess_without_records_is_in_blocks(e: fe.BatchedEinsum) -> None:
    """Where operands are used often; many times quicker than a work-item for each entry, and no miracle."""
    found = top_predictions(Instance.at(e, {}, GPU), model=UNKNOWING)
    first = found[0]
    assert first.space.name in ("block_contraction", "block_contraction_chain", "work_group_steps", "dg_matrix_mma")
    generic = next(f for f in found if f.space.name == "generic")
    assert generic.expected_s > 1.5 * first.expected_s
    assert first.expected_s > e.min_bytes() / 10e12


def test_rows_that_are_read_across_come_from_memory_again() -> None:
    """By lanes along the output's rows: what lies beside a number is for other work-groups, unless it is summed over."""
    across, along, summed = (
        nest_work(parse_subscripts(text), {"i": 1000, "j": 1000}, 8, lane, 64)
        for text, lane in (("ij->ji", "i"), ("ij->ij", "j"), ("ij->i", "i"))
    )
    assert across.bytes > 2 * along.bytes
    assert summed.bytes == 8 * (1000 * 1000 + 1000)


def test_a_reduction_is_no_product_in_blocks() -> None:
    """Sums, products without sums, and whatever reads each number once."""
    for e, name in (
        (contraction("ij,j->i", i=8192, j=8192), "reduction"),
        (contraction("ij,ij->ij", i=8192, j=8192), "elementwise_product"),
        (contraction("ij->ji", i=8192, j=8192), "permutation"),
    ):
        assert top_predictions(Instance.at(e, {}, GPU), model=UNKNOWING)[0].space.name == name


def test_quick_blocks_are_offered_beside_cheap_ones() -> None:
    """None of them twice; the best that was measured of these six axes on an H200 is among them."""
    p, _ = asked("block_contraction", contraction("dega,gfbc->abcdef", a=24, b=16, c=16, d=24, e=16, f=16, g=24))
    offered = BLOCKS.parameters(p)["shape"]
    assert len(set(offered)) == len(offered) == 28
    assert "1 1 4 of 4 4" in offered


def test_work_groups_are_offered_no_block_that_never_fits() -> None:
    """A matrix of two thousand rows fits in no local memory, so no unit is a choice, and few elements are."""
    p, c = asked("work_group_steps", contraction("ij,jk->ik", i=2048, j=2048, k=2048))
    choices = find_space("work_group_steps").parameters(p)
    assert choices["unit"] == ("none",)
    assert set(choices["elements"]) <= {1, 2}
    assert find_space("work_group_steps").refusal(p, c) is None


def test_who_else_has_the_processor_changes_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search ends by time of the processor: other clocks may run as they like."""
    here = Instance.at(PRODUCT, {}, GPU)
    undisturbed = top_predictions(here, [BLOCKS], share=math.inf, model=UNKNOWING)
    with monkeypatch.context() as patch:
        for clock in ("monotonic", "perf_counter", "time"):
            patch.setattr(time, clock, count(0, 100).__next__)
        assert top_predictions(here, [BLOCKS], share=math.inf, model=UNKNOWING, seconds=10) == undisturbed
    monkeypatch.setattr(time, "thread_time", count(0, 100).__next__)
    assert len(top_predictions(here, [BLOCKS], share=math.inf, model=UNKNOWING, seconds=10)) < len(undisturbed)


def test_spaces_alternate() -> None:
    """The neighbours of the best do not take all that is looked at; nor have hopeless ones and those done any, and those
    at an end come last."""

    def search(expected_s: float, turns: int, next_centre: str | None = "here", *, is_at_an_end: bool = False) -> Any:
        return SimpleNamespace(
            best="here",
            expected={"here": expected_s},
            centres=["there"] * turns,
            next_centre=next_centre,
            is_at_an_end=is_at_an_end,
        )

    quick, slow, waits = search(1.0, 2), search(2.5, 1), search(2.0, 1)
    hopeless, done, goes_on = search(3.5, 0), search(1.5, 0, None), search(1.2, 0, "elsewhere", is_at_an_end=True)
    assert predicted._promising_searches([hopeless, goes_on, slow, quick, done, waits]) == [waits, slow, quick, goes_on]


def test_a_search_goes_on_from_what_differs() -> None:
    """Where no neighbour is better: to what is about as quick, and unlike the places where it was."""
    here = Instance.at(PRODUCT, {}, GPU)
    search = predicted._ModelSearch(predicted.Oracle(here, UNKNOWING), BLOCKS)
    while not search.is_at_an_end:
        search.step(10_000, math.inf)
    best, former, elsewhere = search.best, list(search.centres), search.next_centre
    assert elsewhere is not None
    assert elsewhere not in former
    assert search.expected[elsewhere] < 1.3 * search.expected[best]
    assert search._likeness(elsewhere) <= max(
        search._likeness(point)
        for point, t in search.expected.items()
        if t <= search.expected[elsewhere] and point not in former
    )


def test_a_tuner_sees_what_is_hardly_better_than_the_default() -> None:
    """Where one kernel is wanted, the default stands for all that is about as quick; a search begins with the best."""
    few = top_predictions(Instance.at(PRODUCT, {}, GPU), [BLOCKS], model=UNKNOWING)
    many = top_predictions(Instance.at(PRODUCT, {}, GPU), [BLOCKS], share=math.inf, model=UNKNOWING)
    assert len(many) > len(few)
    assert {str(f.configuration) for f in few} <= {str(f.configuration) for f in many}
    assert [f.expected_s for f in many] == sorted(f.expected_s for f in many)


@pytest.mark.parametrize(
    "name", ["dg_gradient_mma", "dg_mass_mma", "dg_face_mass_mma", "dg_divergence_mma", "dg_derivative_mma"]
)
def test_tiles_of_matrix_units_are_padded(name: str) -> None:
    """16 by 16 nodes are whole tiles for units of any size; one node more makes three blocks of columns and longer sums."""
    s = find_space(name)

    def work(nodes: int) -> tuple[Work, int]:
        (pattern,) = s.patterns  # type: ignore[misc]
        inputs, lengths = pattern.inputs, {"x": 3, "r": 3, "f": 4, "e": 160_000, "i": nodes, "j": nodes}
        e = fe.einsum(str(pattern), *(fe.array(f"A{k}", [lengths[x] for x in term]) for k, term in enumerate(inputs)))
        p = s.problem(e, {}, GPU)
        alike = {"unit": SHORT, "tiles": 0, "sub_groups": 8, "together": 1, "prefetch": "none"}
        return s.work(p, {**s.default(p), **alike}), e.flops()

    (whole, flops), (more, more_flops) = work(16), work(17)
    assert whole.flops == flops
    assert more.flops == pytest.approx(more_flops * (24 * 20) / 17**2)
    assert whole.matrix
    assert whole.groups == GPU.compute_units
    assert more.local_bytes > whole.local_bytes > 0


def test_units_for_float64_are_no_quicker_for_float32() -> None:
    """Where products are the limit, the unit for tf32 is."""
    p, c = asked("dg_gradient_mma", contraction("xre,rij,ej->xei", "float32", x=3, r=3, e=10**5, i=84, j=84))
    both = {"parts": 1, "weighted": False, "sums": "apart", "burst": 8}
    double, split = (
        find_space("dg_gradient_mma").work(p, {**c, **both, "unit": unit}).seconds(GPU, 4)
        for unit in (SHORT, "tf32-mma-m16n8k8")
    )
    assert double > 1.5 * split


AVX2 = replace(CPU, architecture="x86-64-some-avx2", simd_bytes=32, vector_registers=16, core_cache_bytes=512 << 10)


@pytest.mark.parametrize(("terms", "again"), [(5000, True), (500, False)])
def test_lines_of_what_is_read_in_place_leave_the_cache(terms: int, again: bool) -> None:
    """Three vectors of each of 5000 rows lie on more lines than a core's cache holds, though they are fewer bytes."""
    e, s = contraction("ik,kj->ij", i=180, k=terms, j=240), find_space("vector_panels")
    p = s.problem(e, {}, AVX2)
    found = s.work(p, {**s.default(p), "panel": 0, "lane": "b", "long": "a", "vectors": 3, "together": 4})
    assert terms * 3 * 32 < AVX2.core_cache_bytes
    assert (found.bytes > 20 * e.min_bytes({})) == again


def test_what_groups_read_again_comes_from_the_shared_cache_at_half_the_price_of_memory() -> None:
    """Each group goes through a matrix of 92 kB: a core of 512 kB keeps it, one of 96 kB does not."""
    e, s = contraction("adc,db->abc", "float32", a=150, b=148, c=148, d=156), find_space("vector_panels")
    c = {**s.default(s.problem(e, {}, AVX2)), "path": "01", "lane": "c", "long": "a", "panel": 0, "together": 1, "tile": 1}
    shared = replace(AVX2, core_cache_bytes=96 << 10)
    devices = AVX2, shared, replace(shared, cache_bytes=96 << 10)
    kept, near, far = (s.work(s.problem(e, {}, device), c).bytes for device in devices)
    assert near - kept == (far - kept) / 2 > e.min_bytes({})


def test_a_copy_across_rows_reads_a_line_for_each_number() -> None:
    """Of a result that is written as its operands lie in memory, and turned by a launch more."""
    e, s = contraction("dbea,ec->abcd", a=32, b=36, c=24, d=30, e=40), find_space("contraction_steps")
    p = s.problem(e, {}, AVX2)
    copied = s.work(p, {**s.default(p), "split": "none", "turn": True})
    assert copied.bytes > 64 * 32 * 36 * 24 * 30
