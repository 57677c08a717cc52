"""Plans for CPUs: what a device profile says, which indices have which role, how sums and chains are divided."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from feinsum.transforms.steps import contractions
from feinsum.transforms.steps.choices import parts_that_fit
from feinsum.transforms.steps.plans import SplitSums, steps_plan
from feinsum.transforms.steps.step_schedules import in_parts, schedule_of_steps
from feinsum.transforms.vector_panels.choices import promising_choices, vectors_of_a_row
from feinsum.transforms.vector_panels.orders import _pair_orders, panel_orders
from feinsum.transforms.vector_panels.plans import fused_problem, panel_plan
from feinsum.transforms.vector_panels.work import panel_work, scattered_traffic
from kernels import run
from numpy.testing import assert_allclose
from profiles import CPU

import feinsum as fe
from feinsum.compile.codegen import generate_program
from feinsum.compile.realize import transformed
from feinsum.contraction import pairwise_schedule, with_aligned_axes
from feinsum.devices import DeviceProfile
from feinsum.errors import TransformError
from feinsum.registry import spaces
from feinsum.skeletons.vector_panels import PanelOrder, accumulator_counts, most_vectors_in_row, panel_bytes
from feinsum.space import Configuration, Problem

SPACES = {s.name: s for s in spaces()}
AVX2 = replace(CPU, architecture="x86-64-some-avx2", simd_bytes=32, vector_registers=16, core_cache_bytes=512 << 10)
"""A processor of 16 registers, half as long, with a smaller cache: Zen 3."""


def problem(subscripts: str, dtype: str = "float64", rows: int = 1, **sizes: int) -> Problem:
    """A problem in its own letters, whose rows have equal operands."""
    row = [
        fe.array(f"a{k}", [sizes[x] for x in term], dtype) for k, term in enumerate(subscripts.split("->")[0].split(","))
    ]
    e = fe.batched_einsum(subscripts, [row] * rows)
    return Problem(e, {x: sizes[x] for x in e.indexing.indices}, CPU)


def test_limits_come_from_the_profile() -> None:
    """Accumulators and copies follow registers and caches; an old profile without them means a processor of today."""
    assert accumulator_counts(CPU) == (24, 20, 16, 12)
    assert panel_bytes(CPU, 4) == 262144
    small = replace(CPU, simd_bytes=32, vector_registers=16, core_cache_bytes=256 << 10)
    assert accumulator_counts(small) == (12, 10, 8, 6)
    assert panel_bytes(small, 4) == 65536
    old = {key: value for key, value in CPU.to_dict().items() if key not in ("vector_registers", "core_cache_bytes")}
    unknown = DeviceProfile.from_dict(old)
    assert accumulator_counts(unknown) == accumulator_counts(CPU)
    assert panel_bytes(unknown, 4) == panel_bytes(CPU, 4)


@pytest.mark.parametrize(("j", "k", "fit"), [(40, 8, True), (40, 40, False)])
def test_all_slabs_together_stay_in_the_caches(j: int, k: int, fit: bool) -> None:
    """800 kB of one operand and 160 of another fit a cache of 1 MiB, twice 800 do not."""
    p = problem("ijk,je,ke->ie", i=16, j=j, k=k, e=10_000)
    tile = {"path": "012", "lane": "i", "long": "e", "panel": 4, "width": 8, "vectors": 4, "together": 2, "tile": 2500}
    c = {**tile, "accumulators": 24, "ahead": False, "slab": True, "rows": "together", "streaming": False, "part": 0}
    if fit:
        assert panel_plan(p, c).copied == {0: "i", 1: "e", 2: "e"}
    else:
        with pytest.raises(fe.TransformError, match="slabs of 1600000 bytes do not stay in the caches"):
            panel_plan(p, c)


WANTED: tuple[dict[str, int], ...] = (
    {"vectors": 0, "together": 0},
    {"vectors": 4, "together": 5},
    {"vectors": 6, "together": 8},
    {"vectors": 2, "together": 3, "accumulators": 8},
    {"vectors": 3, "together": 6, "accumulators": 24},
)
"""Values that steps ask for: nothing, too many registers, fewer, a number of accumulators, one that is no choice."""


def test_a_step_has_the_first_of_the_configurations_that_agree_best() -> None:
    """What is wanted of every step need not be possible in each: then as many of the values as can be together."""
    p = replace(problem("ij,ej->ei", "float32", i=24, j=3, e=20), device=AVX2)
    configurations = list(SPACES["vector_panels"].configurations(p))
    for wanted in WANTED:
        agreed = [sum(value in (contractions.OWN, c[name]) for name, value in wanted.items()) for c in configurations]
        assert contractions.nearest_step(p, wanted) == configurations[agreed.index(max(agreed))], wanted


def test_what_no_register_holds_is_not_sought_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 registers hold no tile of 4 by 5 vectors, whatever else is chosen: asking for each took half a minute."""
    panels, asked = SPACES["vector_panels"], 0

    def constraint(p: Problem, c: Configuration) -> str | None:
        nonlocal asked
        asked += 1
        return panels.constraint(p, c)

    p = replace(problem("ij,ej->ei", "float32", i=24, j=3, e=20), device=AVX2)
    wanted = {"vectors": 4, "together": 5}
    monkeypatch.setattr(contractions, "vector_panels", replace(panels, constraint=constraint))
    found = contractions.nearest_step(p, wanted)
    assert found is not None
    assert sum(found[name] == value for name, value in wanted.items()) == 1
    assert asked < math.prod(map(len, panels.parameters(p).values())) / 10


def test_accumulators_that_spill_are_refused_by_the_registers_there_are() -> None:
    """The same tile is accepted with 32 registers and refused with 16."""
    p = problem("ij,ej->ei", i=32, j=8, e=100)
    tile = {"path": "01", "lane": "i", "long": "e", "panel": 4, "width": 8, "vectors": 4, "together": 4, "tile": 100}
    c = {**tile, "accumulators": 24, "ahead": False, "slab": False, "rows": "together", "streaming": False, "part": 0}
    assert panel_plan(p, c).register_tiles[-1].held == {"e": 4}
    with pytest.raises(fe.TransformError, match="16 accumulators do not stay in 16 registers"):
        panel_plan(replace(p, device=replace(CPU, vector_registers=16)), c)


def test_vectors_gathered_across_rows_wait_for_memory() -> None:
    """A[e] x[e], lanes along the rows of all A[e]: what no cache holds is counted twice, unless it is asked for ahead."""
    many, few = (replace(problem("eij,ej->ei", e=e, i=16, j=16), device=AVX2) for e in (200_000, 1000))
    assert 2 * many.count("eij") * 8 > AVX2.cache_bytes
    c = {**SPACES["vector_panels"].default(many), "streaming": True, "tile": 1000, "width": 4, "together": 1}
    assert c["lane"] == many.einsum.indexing.output[-1]
    for ahead, again in ((False, 16 * 16 * 8), (True, 0)):
        each = [panel_work(p, {**c, "ahead": ahead}).bytes / p.sizes[p.einsum.indexing.output[0]] for p in (many, few)]
        assert each[0] - each[1] == again


def test_cores_wait_for_short_pieces_of_an_operand_that_lie_apart() -> None:
    """Eight numbers of each of 200 rows: more where a group comes back to a row much later, less where it asks ahead."""
    p = replace(problem("adb,dc->abc", a=200, b=200, c=24, d=200), device=CPU)
    s, operand = SPACES["vector_panels"], 200**3 * 8
    first = {**s.default(p), "together": 8, "tile": 1000}
    assert s.default(p)["long"] == p.einsum.indexing.inputs[0][-1]
    jumps = panel_plan(p, {**first, "long": p.einsum.indexing.inputs[0][0], "ahead": False})
    goes_on, asks = (panel_plan(p, {**first, "ahead": ahead}) for ahead in (False, True))
    assert [scattered_traffic(p, plan) / operand for plan in (jumps, goes_on, asks)] == [4, 1, 0.5]
    rows = replace(problem("abd,dc->abc", a=200, b=200, c=24, d=200), device=CPU)
    assert scattered_traffic(rows, panel_plan(rows, s.default(rows))) == 0


@pytest.mark.parametrize(("dtype", "n"), [("float32", 64), ("float64", 32)])
def test_with_16_registers_a_row_of_eight_vectors_is_divided(dtype: str, n: int) -> None:
    """Lanes lie along it then, and not along the batch, whose numbers would be gathered; with 32 registers it is whole."""
    e = fe.einsum("enk,ekm->enm", *(fe.array(name, ("E", n, n), dtype) for name in "AB"))
    s = SPACES["vector_panels"]
    small, large = (s.problem(e, {"E": 1000}, device) for device in (AVX2, CPU))
    for p in (small, large):
        assert s.default(p)["lane"] == p.einsum.indexing.output[-1]
    (tile,) = panel_plan(small, s.default(small)).register_tiles
    assert tile.vectors <= 7
    assert (most_vectors_in_row(AVX2), most_vectors_in_row(CPU)) == (7, 8)


def test_with_16_registers_four_rows_of_three_vectors_are_the_first_guess() -> None:
    """Twelve sums, three vectors and a number in all lanes; with 32 a row of sums has four vectors, as it had before.

    On two cores of a Zen 5 restricted to AVX2, three rows of four vectors took twice as long: one register is wanting.
    """
    p = problem("ik,kj->ij", i=720, j=720, k=720)
    small, large = (replace(p, device=device) for device in (AVX2, CPU))
    first = SPACES["vector_panels"].default(small)
    (tile,) = panel_plan(small, first).register_tiles
    assert (tile.vectors, tile.accumulators) == (3, 12)
    with pytest.raises(fe.TransformError, match="12 accumulators do not stay in 16 registers"):
        panel_plan(small, {**first, "vectors": 4, "together": 3})
    assert SPACES["vector_panels"].parameters(large)["vectors"] == (4, 2, 3, 6)


def test_tiles_that_share_out_a_row_compute_and_store_no_more_than_it_has() -> None:
    """Three of three vectors for a row of eight sum one twice, and leave lines that memory has to put together."""
    p = replace(problem("ik,kj->ij", "float32", i=65536, j=64, k=16), device=AVX2)
    first = SPACES["vector_panels"].default(p)
    (tile,) = panel_plan(p, first).register_tiles
    assert (tile.vectors, tile.accumulators) == (2, 12)
    (whole, cached), (parts, cached_parts) = (
        [panel_work(p, {**first, "vectors": v, "together": 4, "streaming": s}) for s in (True, False)] for v in (2, 3)
    )
    assert parts.flops == whole.flops * 9 / 8
    # Each row has three ends of a tile inside of a line of 64 bytes, for which three lines are counted.
    assert (parts.bytes - cached_parts.bytes) - (whole.bytes - cached.bytes) == 65536 * 3 * 3 * 64
    assert vectors_of_a_row(p, p.einsum.indexing.output[-1]) == (2, 4, 6, 3)


@pytest.mark.parametrize("steps", [((0, 1),), ((1, 2), (0, 1)), ((0, 1, 2),), ((3, 11), (0, 35), (10, 2), (0, 1))])
def test_an_order_of_contraction_is_read_as_it_was_written(steps: tuple[tuple[int, ...], ...]) -> None:
    """A digit or letter for each operand, so that the tenth of many is not the second and the first."""
    order = PanelOrder(steps)
    assert PanelOrder.parse(order.text) == order
    assert len(order.text) == sum(map(len, steps)) + len(steps) - 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "one step at least"),
        ("0-1", "'0-1' is no order of contraction"),
        ("00", "each once"),
        ("02", "of which 2 are left"),
    ],
)
def test_what_is_no_order_of_contraction_is_refused(text: str, reason: str) -> None:
    """Text that nothing wrote, an operand twice, an operand that is not there."""
    with pytest.raises(fe.TransformError, match=reason):
        PanelOrder.parse(text).contractions(problem("ij,ej->ei", i=8, j=8, e=100).einsum)


def test_a_chain_of_more_than_ten_operands_has_a_plan() -> None:
    """Position 10 was written with two digits and read as two positions, which raised an IndexError."""
    letters = "abcdefghijkl"
    subscripts = ",".join((*(a + b for a, b in pairwise(letters)), "zl")) + "->az"
    lengths = {**dict.fromkeys(letters, 3), "z": 50, "a": 9}
    e, s = problem(subscripts, **lengths).einsum, SPACES["vector_panels"]
    c = s.default(s.problem(e, {}, CPU))
    data = numbers(e, lengths)
    wanted = np.einsum(subscripts, *(data[entry[0].name] for entry in e.args[0]), optimize=True)
    assert_allclose(run(transformed(e, {}, s, c, CPU), **data)["out"], wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("subscripts", "dtype", "sizes", "lane", "long"),
    [
        ("ij,ej->ei", "float64", {"i": 20, "j": 20, "e": 9999}, "i", "e"),
        ("ij,je->ie", "float64", {"i": 20, "j": 20, "e": 9999}, "e", "i"),
        ("bij,bjk->bik", "float64", {"b": 999, "i": 32, "j": 32, "k": 32}, "k", "i"),
        ("bij,bjk->bik", "float64", {"b": 999, "i": 16, "j": 16, "k": 16}, "k", "b"),
        ("ce,ab->bce", "float32", {"a": 1, "b": 64, "c": 20, "e": 8}, "e", "b"),
        ("eq,kl,lqe->ekq", "float64", {"e": 999, "k": 56, "l": 56, "q": 9}, "k", "e"),
        ("acd,db->abc", "float64", {"a": 156, "b": 148, "c": 12, "d": 156}, "c", "b"),
        ("aedf,fbec->abcd", "float32", dict.fromkeys("abcdef", 20), "d", "b"),
        ("ecbfa,fd->abcde", "float32", {"a": 24, "b": 16, "c": 16, "d": 16, "e": 24, "f": 16}, "e", "d"),
        ("fga,gdbc->abcdf", "float64", {"a": 16, "b": 12, "c": 12, "d": 16, "f": 144, "g": 16}, "f", "d"),
    ],
)
def test_roles_of_indices(subscripts: str, dtype: str, sizes: dict[str, int], lane: str, long: str) -> None:
    """Lanes run along the last index that fills them, tiles along the longest that is no batch of matrices large enough."""
    found = promising_choices(problem(subscripts, dtype, **sizes))
    assert (found.lanes[0], found.longs[0]) == (lane, long)


def test_no_default_gathers_vectors_that_a_group_could_copy() -> None:
    """Where the lane lies apart in its operand, tiles run along an index of the other one, and a group turns a panel."""
    p = problem("aedf,fbec->abcd", "float32", **dict.fromkeys("abcdef", 20))
    s = SPACES["vector_panels"]
    turned, gathered = s.default(p), {**s.default(p), "long": "a", "panel": 0, "together": 1}
    assert turned["panel"]
    assert s.refusal(p, turned) is s.refusal(p, gathered) is None
    assert s.work(p, turned).loads < s.work(p, gathered).loads / 4


def test_partial_results_are_ordered_for_their_readers() -> None:
    """A batch first, then what is summed, then the rest of the output."""
    p = problem("bik,kj,bjl->bil", b=3, i=4, k=5, j=6, l=7)
    steps = with_aligned_axes(pairwise_schedule(p.einsum, p.lengths), p.einsum.indexing).steps
    assert steps[0].indexing.output == "bji"
    p = problem(",cba,cba->abc", a=3, b=4, c=5)
    schedule = with_aligned_axes(pairwise_schedule(p.einsum, p.lengths), p.einsum.indexing)
    schedule.check(p.einsum.indexing)


def test_a_sum_is_divided_until_a_panel_fits() -> None:
    """The slowest axes first; steps sum the parts, then a step of its own sums over them."""
    p = problem("cdae,edbc->ab", a=60, b=60, c=30, d=30, e=15)
    assert parts_that_fit(p, 262144).text == "c 1"
    assert parts_that_fit(problem("ij,ej->ei", i=20, j=20, e=99), 262144).text == "none"
    q = problem("ik,kj->ij", i=4, k=12, j=4)
    split = fe.einsum("iKk,Kkj->ij", fe.array("a0", (4, 3, 4)), fe.array("a1", (3, 4, 4))).indexing
    schedule = in_parts(pairwise_schedule(q.einsum), split, {"k": "K"})
    assert [str(step.indexing) for step in schedule.steps] == ["iKk,Kkj->Kij", "Kij->ij"]
    schedule.check(split)


KERNELS_OF_STEPS = {"vector_panels": 3, "reduction": 1, "elementwise_product": 1, "permutation": 1}
"""Space -> version: what makes the kernels of steps that are no chain."""


@pytest.mark.parametrize(("name", "version"), [("contraction_steps", 3), ("complex_steps", 1)])
def test_a_version_of_steps_is_one_of_the_kernels_that_they_are_made_of(name: str, version: int) -> None:
    """Steps have kernels of other spaces: who raises a version there raises it here, or old records are of other code."""
    assert {made: SPACES[made].version for made in KERNELS_OF_STEPS} == KERNELS_OF_STEPS
    assert SPACES[name].version == version


@pytest.mark.parametrize("parts", [{}, {"c": 1}, {"f": 5, "g": 2}, {"A": 1024, "b": 3, "z": 16}])
def test_parts_of_sums_are_read_as_they_were_written(parts: dict[str, int]) -> None:
    """Index and length by turns, or that no sum is divided."""
    assert SplitSums.parse(SplitSums(parts).text) == SplitSums(parts)


@pytest.mark.parametrize("text", ["", "c", "c x", "c 0", "cd 4", "c 4 c 2", "c -1"])
def test_what_names_no_parts_of_sums_is_refused(text: str) -> None:
    """Words that are missing, no length of a part, an index twice."""
    with pytest.raises(fe.TransformError, match=r"parts of|in parts"):
        SplitSums.parse(text)


def test_steps_need_vectors_and_more_than_one_launch() -> None:
    """A device without vector registers has no plan of steps, nor has what is one step for vector panels."""
    p = problem("ik,kj->ij", i=40, k=120, j=40)
    c = {"split": "k 60", "vectors": 0, "together": 4, "accumulators": 0, "turn": False}
    plan = steps_plan(p, c)
    assert (plan.split.parts, plan.wanted) == ({"k": 60}, {"vectors": 0, "together": 4, "accumulators": 0})
    with pytest.raises(fe.TransformError, match="there is one step"):
        steps_plan(p, {**c, "split": "none"})
    with pytest.raises(fe.TransformError, match="no vector registers"):
        steps_plan(replace(p, device=replace(CPU, simd_bytes=0)), c)


def test_what_leaves_the_caches_between_two_steps_is_traffic() -> None:
    """A sum over 23 thousand rows of vectors reads them all again for each few results, one over 500 finds them there."""
    s = SPACES["vector_panels"]
    for rows, again in ((20000, True), (500, False)):
        p = problem("ac,cb->ab", a=100, b=32, c=rows)
        c = {**s.default(p), "lane": "b", "long": "a", "panel": 0, "together": 4, "tile": 25, "slab": False, "ahead": False}
        assert s.refusal(p, c) is None
        assert (s.work(p, c).bytes > 2 * p.einsum.min_bytes()) == again


def test_partial_results_beyond_a_cache_are_refused() -> None:
    """Where each row keeps 160 KB for each of an index: with four of them, PoCL has no stack, and the process ended."""
    x, y = fe.array("x", ("O", "I", 20011), "float32"), fe.array("y", ("E", 20011), "float32")
    z = [fe.array(f"z{k}", ("E", "I"), "float32") for k in range(2)]
    e = fe.batched_einsum("oij,bj,bi->bo", [[x, y, z[k]] for k in (0, 0, 1)])
    s = SPACES["vector_panels"]
    p = s.problem(e, {"E": 1, "O": 2, "I": 5}, CPU)
    path = {"path": "02 01"}
    assert s.default(p)["path"] != path["path"]
    assert not any(s.configurations(p, path))
    large = s.problem(e, {"E": 1, "O": 2, "I": 5}, replace(CPU, core_cache_bytes=1 << 23))
    assert any(s.configurations(large, path))


def test_rows_together_share_the_registers() -> None:
    """Eighteen sums of each of three rows find no room at once, and are loaded and stored for each product."""
    J, D = fe.array("J", (3, 3, "E")), fe.array("D", (3, 20, 20))
    fields = [fe.array(f"u{k}", ("E", 20)) for k in range(3)]
    e = fe.batched_einsum("xre,rij,ej->xei", [[J, D, u] for u in fields])
    s = SPACES["vector_panels"]
    p = s.problem(e, {"E": 10000}, CPU)
    apart = next(c for c in s.configurations(p) if (c["rows"], c["accumulators"], c["together"]) == ("apart", 24, 2))
    works = [s.work(p, {**apart, "rows": rows}) for rows in ("apart", "together")]
    assert works[0].sums == works[1].sums == 18
    assert works[1].loads > 1.5 * works[0].loads
    few = {**apart, "accumulators": 12}
    assert s.work(p, few).sums == 6
    assert s.work(p, few).loads == s.work(p, {**few, "rows": "together"}).loads


@pytest.mark.parametrize("subscripts", ["ab,bc,c->a", "ab,ac,bc->a", "a,ab,b->", "ab,bc,ca->"])
def test_steps_reach_results_that_have_one_axis_or_none(subscripts: str) -> None:
    """Where no plan has a tile and lanes for all operands at once, steps have, or stream their longest operand by."""
    sizes = {"a": 60, "b": 50, "c": 70}
    p = problem(subscripts, **{x: sizes[x] for x in sizes if x in subscripts})
    steps = SPACES["contraction_steps"]
    assert SPACES["vector_panels"].roles(p.einsum) is None
    own = steps.problem(p.einsum, {}, CPU)
    t_unit = transformed(p.einsum, {}, steps, steps.default(own), CPU)
    rng = np.random.default_rng(5)
    data = {a.name: rng.uniform(-1, 1, [sizes[x] for x in letters]) for a, letters in p.einsum.array_indices.items()}
    wanted = np.einsum(subscripts, *(data[entry[0].name] for entry in p.einsum.args[0]))
    assert_allclose(run(t_unit, **data)["out"], wanted, rtol=1e-12, atol=1e-12)


def test_a_step_that_streams_an_operand_by_is_one_of_its_own_space() -> None:
    """A matrix-vector product in a chain sums along its rows in vectors, as it does alone."""
    p = problem("ab,bc,c->a", a=600, b=500, c=700)
    steps = SPACES["contraction_steps"]
    source = generate_program(transformed(p.einsum, {}, steps, steps.default(steps.problem(p.einsum, {}, CPU)), CPU)).source
    assert source.count("vload8") >= 4


@pytest.mark.parametrize("name", ["vector_panels", "contraction_steps"])
@pytest.mark.parametrize("subscripts", [",,a,b->ab", ",cba,cba->abc", "a,b->ab", "ab,bc,cd,d->ab", "ab,cb,c->ab"])
@pytest.mark.parametrize("rows", [1, 2])
def test_odd_einsums_work_or_are_refused(name: str, subscripts: str, rows: int) -> None:
    """Scalars, transposed copies, sums to scalars, equal rows: the default is right, or there is none."""
    sizes = {"a": 6, "b": 10, "c": 5, "d": 7}
    e = problem(subscripts, "float64", rows, **{x: n for x, n in sizes.items() if x in subscripts}).einsum
    s = SPACES[name]
    p = s.problem(e, {}, CPU)
    configuration = next(s.configurations(p), None)
    if configuration is None:
        first = {key: values[0] for key, values in s.parameters(p).items()}
        assert s.refusal(p, first)
        return
    t_unit = transformed(e, {}, s, configuration, CPU)
    rng = np.random.default_rng(5)
    data = {a.name: rng.uniform(-1, 1, [sizes[x] for x in letters]) for a, letters in e.array_indices.items()}
    found = run(t_unit, **data)
    wanted = np.einsum(subscripts, *(data[entry[0].name] for entry in e.args[0]))
    for output in e.output_names:
        assert_allclose(found[output], wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("subscripts", "sizes", "roles", "ahead"),
    [
        ("efgd,ha,hijf,jc,iebg->abcde", "a=16 b=7 c=7 d=1 e=1 f=1 g=64 h=3 i=1 j=1", ("04 01 01 01", "d", "c"), False),
        ("efgd,ha,hijf,jc,iebg->abcde", "a=5 b=7 c=5 d=13 e=2 f=2 g=9 h=3 i=3 j=2", ("04 01 12 01", "d", "c"), False),
        ("cad,cea,ebd->ab", "a=127 b=10 c=9 d=3 e=3", ("01 01", "b", "a"), True),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_random_einsums_found_is_right(
    subscripts: str, sizes: str, roles: tuple[str, ...], ahead: bool, dtype: str
) -> None:
    """Two partial results that meet in a later step; prefetches for the rows of a tile, of which one axis is not theirs."""
    lengths = {x: int(n) for x, _, n in (entry.partition("=") for entry in sizes.split())}
    c: dict[str, Any] = dict(zip(("path", "lane", "long"), roles, strict=True))
    c |= {
        "panel": 0,
        "together": 1,
        "tile": 25,
        "width": 4,
        "vectors": 4,
        "accumulators": 24,
        "ahead": ahead,
        "slab": False,
        "rows": "together",
        "streaming": False,
    }
    check_against_numpy(subscripts, dtype, lengths, c)


def test_a_loop_may_have_the_name_of_one_that_was_divided() -> None:
    """Tiles of registers divide a loop of one step; what initialises those of the next one got its name."""
    lengths = {"a": 9, "b": 5, "c": 60, "d": 4, "e": 3, "f": 4, "g": 7}
    c = {"path": "01 02 02 01", "lane": "b", "long": "c", "panel": 0, "width": 4, "vectors": 2, "together": 8, "tile": 50}
    c |= {"accumulators": 20, "ahead": False, "slab": False, "rows": "together", "streaming": False, "part": 0}
    check_against_numpy("abd,ade,afg,gc,ef->abc", "float64", lengths, c)


NEIGHBOUR = "adc,aed,bf,fg,ge->abc"
"""A flux from a neighbour: three of its operands have no element, of which some orders multiply two by each other."""


def test_products_without_the_long_index_are_done_for_each_of_it() -> None:
    """So of orders that multiply as often, those come first that have none of them; all are counted once more here."""
    lengths = {"a": 500, "b": 56, "c": 9, "d": 9, "e": 56, "f": 21, "g": 21}
    p = problem(NEIGHBOUR, **lengths)
    first, *others = panel_orders(p)
    assert [order.text for order in (first, *others)] == ["14 03 12 01", "14 03 01 01"]

    def counted(order: PanelOrder) -> int:
        points = [math.prod(lengths[x] for x in {*"".join(step.inputs)} - {"a"}) for step in order.contractions(p.einsum)]
        return sum(points)

    assert counted(first) == min(map(counted, _pair_orders(5))) < counted(others[0])
    assert promising_choices(p).paths[0] == first.text


def test_partial_results_run_along_an_index_that_fits_a_row() -> None:
    """Of 21 numbers in six vectors, as those of 56 would be more than eight; where 56 are a row they are better filled."""
    lengths = {"a": 50, "b": 56, "c": 9, "d": 9, "e": 56, "f": 21, "g": 21}
    c = {"path": "14 03 01 01", "lane": "c", "long": "a", "panel": 4, "width": 4, "vectors": 3, "together": 1, "tile": 25}
    c |= {"accumulators": 12, "ahead": False, "slab": False, "rows": "together", "streaming": False, "part": 0}
    p = problem(NEIGHBOUR, **lengths)
    assert panel_plan(p, c).lane_axes == ("g", "c", "g", "c")
    assert panel_plan(p, {**c, "width": 8}).lane_axes == ("g", "c", "b", "c")
    check_against_numpy(NEIGHBOUR, "float64", lengths, {**c, "accumulators": 24})


def test_lanes_of_a_first_step_are_gathered_where_no_operand_has_them_in_rows() -> None:
    """Neither of the first two has d at its end: vectors of it are put together from numbers that lie apart."""
    lengths = {"a": 53, "b": 9, "c": 3, "d": 11, "e": 3}
    p = problem("ade,eca,bcd->ab", **lengths)
    c = {**SPACES["vector_panels"].default(p), "path": "01 01", "lane": "b", "long": "a", "panel": 4, "width": 8}
    c["ahead"] = False
    assert panel_plan(p, c).lane_axes == ("d", "b")
    assert panel_plan(problem("aed,eca,bcd->ab", **lengths), c).lane_axes == ("d", "b")
    check_against_numpy("ade,eca,bcd->ab", "float64", lengths, c)


def test_rows_that_lie_apart_may_be_asked_for_whatever_goes_across_them() -> None:
    """Matrices of elements that lie side by side: lanes go from row to row, of which there are 25 or nine."""
    s = SPACES["vector_panels"]
    for n, ahead in ((5, (True, False)), (3, (False,))):
        p = problem("ac,cba->ab", a=20_000, b=n, c=n)
        assert s.parameters(p)["ahead"] == ahead
    check_against_numpy("ac,cba->ab", "float32", {"a": 100, "b": 5, "c": 5}, {**s.default(p), "ahead": True, "tile": 25})


@pytest.mark.parametrize(
    ("subscripts", "path", "lengths", "asked"),
    [
        ("abcd,ae,bed->abc", "12", {"b": 9, "c": 3, "d": 3, "e": 7}, {"a0": 1}),
        ("abd,bd->ab", "01", {"b": 3, "d": 1}, {"a0": 1}),
        ("abd,abe,bde->ab", "02 01", {"b": 9, "d": 3, "e": 5}, {"a0": 1, "a1": 1}),
    ],
)
@pytest.mark.parametrize("together", [1, 4])
def test_what_vectors_are_gathered_from_is_asked_for(
    subscripts: str, path: str, lengths: dict[str, int], asked: dict[str, int], together: int
) -> None:
    """Whole lines of it or shares, all rows of every operand beside each other, and each in its own names."""
    s, p = SPACES["vector_panels"], problem(subscripts, a=103, **lengths)
    c = {**s.default(p), "path": path, "lane": "b", "long": "a", "together": together, "tile": 25, "ahead": True}
    source = generate_program(transformed(p.einsum, {}, s, c, CPU)).source
    assert source.count("__builtin_prefetch") == len(asked)
    for name, rows in asked.items():
        assert f"r < {rows};" in source or f"min({rows}, part_{name} * " in source
        numbers_at_once = together * math.prod(lengths[x] for x in _after(subscripts, name, "a"))
        assert (f"piece < {numbers_at_once};" in source) == (numbers_at_once > 8)
    check_against_numpy(subscripts, "float64", {"a": 103, **lengths}, c)


def _after(subscripts: str, name: str, letter: str) -> str:
    """The letters of an operand behind one of them."""
    return subscripts.split("->")[0].split(",")[int(name[1:])].partition(letter)[2]


def test_nothing_is_asked_for_that_vectors_find_in_rows() -> None:
    """Lanes go along the last index of all, so that the hardware foresees what they read."""
    s, p = SPACES["vector_panels"], problem("ad,db->ab", a=103, b=9, d=3)
    assert s.parameters(p)["ahead"] == (False,)
    with pytest.raises(TransformError, match="none is gathered beside it"):
        panel_plan(p, {**s.default(p), "ahead": True})


def test_rows_of_two_operands_are_asked_for_in_one_loop() -> None:
    """What one request declares has other names than what the other does."""
    lengths = {"a": 103, "b": 5, "c": 5}
    s, p = SPACES["vector_panels"], problem("cba,cba->ab", **lengths)
    c = {**s.default(p), "lane": "b", "long": "a", "tile": 25, "ahead": True}
    assert generate_program(transformed(p.einsum, {}, s, c, CPU)).source.count("__builtin_prefetch") == 2
    check_against_numpy("cba,cba->ab", "float64", lengths, c)


def test_a_row_of_single_numbers_is_not_asked_for() -> None:
    """One number for each a: the hardware foresees them, beside the rows of d that are gathered."""
    lengths = {"a": 103, "b": 9, "d": 3}
    s, p = SPACES["vector_panels"], problem("a,abd,bd->ab", **lengths)
    c = {**s.default(p), "path": "12", "lane": "b", "long": "a", "tile": 25, "ahead": True}
    source = generate_program(transformed(p.einsum, {}, s, c, CPU)).source
    assert source.count("__builtin_prefetch") == source.count("part_a1 = ") + source.count("int piece") == 1
    assert "(a1 + first_a1" in source
    check_against_numpy("a,abd,bd->ab", "float64", lengths, c)


def test_rows_of_a_long_sum_are_asked_for() -> None:
    """However many there are: the length of the sum need not be fixed."""
    e = fe.einsum("ij,je->ei", fe.array("A", (20, "J")), fe.array("u", ("J", "E")))
    s = SPACES["vector_panels"]
    p = s.problem(e, {"J": 500, "E": 20_000}, CPU)
    assert s.parameters(p)["ahead"] == (True, False)
    assert s.refusal(p, {**s.default(p), "ahead": True}) is None


PREMULTIPLIED = "adc,aed,be->abc"
"""Elements between two matrices, of which one is the same for all."""


@pytest.mark.parametrize(("path", "lane", "lanes"), [("12 01", "c", ("b", "c")), ("01 01", "b", ("c", "b"))])
def test_lanes_run_along_parts_of_a_row(path: str, lane: str, lanes: tuple[str, ...]) -> None:
    """Parts of 14 of a row of 42, by themselves or beside each other in registers, and the results where they belong."""
    lengths = {"a": 53, "b": 42, "c": 5, "d": 5, "e": 6}
    c = {"path": path, "lane": lane, "long": "a", "panel": 4, "width": 8, "vectors": 3, "together": 1, "tile": 25}
    c |= {"accumulators": 12, "ahead": False, "slab": False, "rows": "together", "streaming": False, "part": 14}
    plan = panel_plan(problem(PREMULTIPLIED, **lengths), c)
    assert (plan.lane_axes, plan.split_axis) == (lanes, ("b", 14))
    assert "b" in plan.divided
    with pytest.raises(fe.TransformError, match="has parts of 42"):
        panel_plan(problem(PREMULTIPLIED, **lengths), {**c, "part": 42})
    check_against_numpy(PREMULTIPLIED, "float32", lengths, c)


def test_rows_are_divided_where_results_would_be_turned_round() -> None:
    """Nine numbers leave nearly half of vectors of eight empty, and a quarter of those of four, which is no reason."""
    lengths = {"a": 5000, "b": 84, "c": 9, "d": 9, "e": 84}
    found = {}
    for dtype in ("float32", "float64"):
        p = replace(problem(PREMULTIPLIED, dtype, **lengths), device=AVX2)
        found[dtype] = SPACES["vector_panels"].default(p)["part"]
        assert promising_choices(p).parts[0] == found[dtype]
    assert found == {"float32": 21, "float64": 0}
    for subscripts, sizes in (("abd,cd->abc", {"b": 6, "c": 84}), (PREMULTIPLIED, {"b": 20, "c": 9, "e": 20})):
        p = replace(problem(subscripts, "float32", a=5000, d=9, **sizes), device=AVX2)
        assert promising_choices(p).parts == (0,)


@pytest.mark.parametrize(
    ("subscripts", "order"),
    [("cad,cdb->abc", "cab"), ("ec,edab->abcd", "cdab"), ("ade,ecb->cab", "acb"), ("ik,kj->ij", "ij"), ("ki,kj->ji", "ji")],
)
def test_a_product_may_be_written_as_its_operands_lie_and_turned_round_after(subscripts: str, order: str) -> None:
    """What both operands have, then one, then the other along whose rows lanes run; nothing is turned that lies so."""
    sizes = {"a": 6, "b": 10, "c": 5, "d": 7, "e": 9, "i": 6, "j": 10, "k": 5}
    p = problem(subscripts, **{x: n for x, n in sizes.items() if x in subscripts})
    schedule = schedule_of_steps(p, turn=True)
    assert schedule.steps[0].indexing.output == order
    assert len(schedule.steps) == (1 if order == p.einsum.indexing.output else 2)
    choices = SPACES["contraction_steps"].parameters(p)
    assert (True in choices["turn"]) == (len(schedule.steps) == 2)
    if True in choices["turn"]:
        c = {"split": "none", "vectors": 4, "together": 4, "accumulators": 24, "turn": True}
        check_against_numpy(subscripts, "float64", {x: p.sizes[x] for x in p.sizes}, c, "contraction_steps")


def check_against_numpy(
    subscripts: str, dtype: str, lengths: dict[str, int], c: dict[str, Any], space: str = "vector_panels"
) -> None:
    """Run a configuration, which has to be accepted."""
    s, p = SPACES[space], problem(subscripts, dtype, **lengths)
    assert s.refusal(p, c) is None
    data = numbers(p.einsum, lengths)
    wanted = np.einsum(subscripts, *(data[entry[0].name] for entry in p.einsum.args[0]), optimize=True)
    found = run(transformed(p.einsum, {}, s, c, CPU), **data)["out"]
    tolerance = 1e4 * np.finfo(dtype).eps
    assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


def numbers(e: fe.BatchedEinsum, lengths: dict[str, int]) -> dict[str, Any]:
    """Random arrays for an einsum, by name."""
    rng = np.random.default_rng(5)
    return {a.name: rng.uniform(-1, 1, [lengths[x] for x in k]).astype(a.dtype) for a, k in e.array_indices.items()}


def test_a_row_of_one_number_is_not_fused() -> None:
    """There is no lane in what is always 0."""

    def letters(length: int) -> str:
        e = fe.einsum("ai,iabc->abc", fe.array("A", (9, 4)), fe.array("B", (4, 9, length, 1)))
        return fused_problem(Problem(e, e.resolve({}), CPU))[1]

    assert letters(3) == "bc"
    assert letters(1) == ""


def test_the_tile_that_a_step_wants_lies_along_the_index_that_shares_its_loads() -> None:
    """Along the other one each product loads a vector: four times as slow on a Zen 4."""
    profile = replace(CPU, simd_bytes=64)
    e = fe.einsum("adc,bd->abc", fe.array("A", (150, 156, 148), "float32"), fe.array("B", (148, 156), "float32"))
    p = contractions.vector_panels.problem(e, {}, profile)
    found = contractions.nearest_step(p, {"vectors": 4, "together": 4, "accumulators": 16})
    assert found is not None
    assert [found[name] for name in ("lane", "vectors", "together")] == ["c", 4, 4]
    assert found["long"] == "b"
