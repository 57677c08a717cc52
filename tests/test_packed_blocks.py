"""Packed blocks: products of matrices in every layout, at lengths that divide nothing, for vectors of several widths."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from feinsum.transforms.packed_blocks.choices import packed_choices
from feinsum.transforms.packed_blocks.plans import even, packed_plan
from feinsum.transforms.packed_blocks.work import packed_work
from profiles import CPU, GPU
from simulated_units import build_unoptimised

import feinsum as fe
from feinsum.compile.realize import realize
from feinsum.devices import DeviceProfile
from feinsum.errors import TransformError
from feinsum.registry import find_space, matching_spaces
from feinsum.skeletons.packed_blocks import MicroTile, PackedBlocks
from feinsum.space import Problem
from feinsum.validate import Workload

SPACE = find_space("packed_product")
AVX2 = replace(CPU, architecture="x86-64-some-avx2", simd_bytes=32, vector_registers=16, core_cache_bytes=512 << 10)
SSE = replace(AVX2, architecture="x86-64-some-sse", simd_bytes=16)
CRAMPED = replace(AVX2, core_cache_bytes=24 << 10)
"""A cache in which a block has a few tiles, so that there are several blocks and parts of sums."""
LENGTHS = {"a": 5, "b": 3, "c": 13, "d": 7, "e": 4, "f": 9, "g": 2}


def product(subscripts: str, dtype: str = "float64", rows: int = 1, **lengths: int | str) -> fe.BatchedEinsum:
    """Rows share the first operand."""
    axes: dict[str, int | str] = {**LENGTHS, **lengths}
    first, second = ([axes[x] for x in term] for term in subscripts.partition("->")[0].split(","))
    shared = fe.array("A", first, dtype)
    return fe.batched_einsum(subscripts, [[shared, fe.array(f"B{row}", second, dtype)] for row in range(rows)])


def planned(e: fe.BatchedEinsum, profile: DeviceProfile, sizes: dict[str, int], **wanted: Any) -> tuple[Any, PackedBlocks]:
    """The first configuration with some values wanted, whether it is a choice or not, and its plan."""
    p = SPACE.problem(e, sizes, profile)
    c = {**SPACE.default(p), **wanted}
    return c, packed_plan(p, c)


def prove(device: fe.Device, e: fe.BatchedEinsum, profile: DeviceProfile, sizes: dict[str, int], **wanted: Any) -> None:
    """Check a configuration, on whatever processor this is."""
    c, _ = planned(e, profile, sizes, **wanted)
    chosen = replace(SPACE, choices=lambda p: {name: (value,) for name, value in c.items()})
    executable = build_unoptimised(device, realize(e, sizes, chosen, c, profile))
    verdict = Workload(e, e.resolve(sizes), device.queue).check(executable)
    assert verdict.ok, f"{e} {c}: {verdict.message}"


@pytest.mark.parametrize(
    ("subscripts", "lengths"),
    [
        ("ik,kj->ij", {"i": 29, "k": 131, "j": 37}),
        ("ki,jk->ij", {"i": 16, "k": 1, "j": 24}),
        ("adec,ebd->abc", {}),
        ("aebf,dfce->abcd", {}),
        ("degb,gfac->abcdef", {}),
        ("gbda,fgdc->fabgc", {"f": 3}),
    ],
)
def test_layouts_are_right(subscripts: str, lengths: dict[str, int], cpu: fe.Device) -> None:
    """Letters before, between and behind each other, side by side or not, in several blocks and parts of sums or in one."""
    axes: dict[str, Any] = lengths
    prove(cpu, product(subscripts, **axes), CRAMPED, {}, depth=24)
    prove(cpu, product(subscripts, "float32", **axes), CPU, {})


@pytest.mark.parametrize(("long", "profile"), [("a", AVX2), ("c", CRAMPED), ("d", CPU), ("g", SSE)])
def test_long_axes_are_right(long: str, profile: DeviceProfile, cpu: fe.Device) -> None:
    """Rows, columns, sums or the batch of a length that is known when the kernel is called; two outputs."""
    e = product("gbda,gdc->gabc", rows=2, **{long: "N"})
    prove(cpu, e, profile, {"N": 31}, depth=16)


@pytest.mark.parametrize(("profile", "registers"), [(CPU, 32), (AVX2, 16), (SSE, 16)])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_blocks_follow_from_the_profile(profile: DeviceProfile, registers: int, dtype: str) -> None:
    """Every tile that is a choice has room in the registers, and both panels together in the cache of a core."""
    p = SPACE.problem(product("ik,kj->ij", dtype, i=700, j=710, k=720), {}, profile)
    for text in packed_choices(p)["tile"]:
        plan = packed_plan(p, {**SPACE.default(p), "tile": text})
        assert registers // 2 <= plan.registers() <= registers
        assert sum(plan.panel_bytes()) <= profile.own_cache_bytes
        assert plan.width * p.itemsize <= profile.simd_bytes
    with pytest.raises(TransformError, match="a register tile of 8 4 takes 37 registers of"):
        packed_plan(p, {**SPACE.default(p), "tile": "8 4"})


@pytest.mark.parametrize(
    ("length", "most", "of", "found"),
    [(720, 300, 6, 240), (720, 360, 12, 360), (7, 100, 4, 8), (100, 3, 8, 8), (25, 24, 4, 16)],
)
def test_blocks_are_about_equal(length: int, most: int, of: int, found: int) -> None:
    """As few as have room, each a whole number of tiles."""
    assert even(length, most, of) == found


def test_the_first_guess_stores_results_once_and_feeds_all_cores() -> None:
    """156 terms are one part, not two; 200x196 results of a long sum are several blocks, where one would have room."""
    short, few = (
        product("adc,db->abc", "float32", a=150, b=148, c=148, d=156),
        product("ik,kj->ij", "float32", i=200, j=196, k=39200),
    )
    p, q = (SPACE.problem(e, {}, AVX2) for e in (short, few))
    assert SPACE.default(p)["depth"] >= 156
    assert (
        packed_work(q, SPACE.default(q)).groups > 1 == packed_work(q, {**SPACE.default(q), "depth": 128, "share": 3}).groups
    )


@pytest.mark.parametrize(("text", "launches"), [("2*v - out", 1), ("where(v < 0, 0, v)", 1), ("exp(v)", 2)])
def test_functions_have_a_launch_of_their_own(text: str, launches: int) -> None:
    """Which calls them for all lanes at once; results are stored number by number here."""
    bare = fe.einsum("ik,kj->ij", fe.array("A", (30, 20), "float32"), fe.array("B", (20, 40), "float32"))
    configuration = SPACE.default(SPACE.problem(bare, {}, AVX2))
    assert len(realize(bare.then(text), {}, SPACE, configuration, AVX2).launches) == launches


def test_what_is_no_product_of_matrices_is_refused() -> None:
    """No sum, no rows, an index of one operand alone, or lanes that both have; and devices without vectors."""
    for subscripts in ("ac,cb->abc", "c,cb->b", "acd,cb->ab", "acg,cbg->abg"):
        assert "packed_product" not in {s.name for s in matching_spaces(product(subscripts))}
    p = SPACE.problem(product("ac,cb->ab"), {}, GPU)
    assert SPACE.refusal(p, SPACE.default(Problem(p.einsum, p.sizes, CPU))) is not None
    two = product("abc,cd->abd", a="N", b="M")
    with pytest.raises(TransformError, match="several indices of unknown length among the rows"):
        packed_plan(SPACE.problem(two, {"N": 5, "M": 6}, CPU), {"width": 8, "tile": "4 3", "depth": 128, "share": 3})


def test_a_thin_product_copies_more_than_it_multiplies() -> None:
    """So its work is more for each operation than that of a product with many rows."""
    thin, square = (SPACE.problem(product("ik,kj->ij", i=i, j=4000, k=512), {}, AVX2) for i in (8, 512))
    per_operation = [packed_work(p, SPACE.default(p)).flops / p.einsum.flops(p.lengths) for p in (thin, square)]
    assert per_operation[0] > 1.5 * per_operation[1]


@pytest.mark.parametrize("text", ["4 3", "1 1", "12 2"])
def test_tiles_are_read_as_they_are_written(text: str) -> None:
    """And what is none is refused."""
    assert str(MicroTile.parse(text)) == text
    for wrong in ("", "4", "4 x", "0 3", "4 3 2"):
        with pytest.raises(TransformError):
            MicroTile.parse(wrong)
