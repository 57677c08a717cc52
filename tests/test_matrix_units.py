"""Matrix units: what a rewrite makes of a sum of products, proved on a CPU whose sub-groups simulate the unit."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from loopy.kernel.array import FixedStrideArrayDimTag
from profiles import CPU, GPU
from pymbolic import evaluate
from simulated_units import UNOPTIMISED, build_simulated, simulate

import feinsum as fe
from feinsum.compile.executable import build_executable
from feinsum.compile.realize import realize
from feinsum.devices.opencl import build_program
from feinsum.errors import TransformError
from feinsum.lower import generate_loopy
from feinsum.match import match_einsum
from feinsum.registry import find_space
from feinsum.rewrites import contract_first
from feinsum.skeletons.instructions.matrix_units import (
    COLUMNS,
    DEPTH,
    FRAGMENTS,
    ROWS,
    SUB_GROUP,
    column_of,
    column_of_b,
    depth_of,
    fragment_unit,
    row_of,
)
from feinsum.skeletons.instructions.summing_units import (
    SUMS,
    multiply_and_sum,
)
from feinsum.skeletons.warp_tiles import Prefetch, TallProduct, WarpTiles, write
from feinsum.skeletons.warp_tiles.tiling import Share
from feinsum.space import space
from feinsum.validate import Workload

SHORT = "fp64-mma-m16n8k4"
SPLIT = "tf32-mma-m16n8k8"


def gradient(i: int, j: int, rows: int = 1, dtype: str = "float64") -> fe.BatchedEinsum:
    metric, matrix = fe.array("J", (3, 3, "E"), dtype), fe.array("D", (3, i, j), dtype)
    return fe.batched_einsum(
        "xre,rij,ej->xei", [[metric, matrix, fe.array(f"u{row}", ("E", j), dtype)] for row in range(rows)]
    )


def lift(i: int, j: int, rows: int) -> fe.BatchedEinsum:
    matrix, metric = fe.array("R", (i, 2, j)), fe.array("J", (2, "E"))
    return fe.batched_einsum("ifj,fe,fej->ei", [[matrix, metric, fe.array(f"v{row}", (2, "E", j))] for row in range(rows)])


OPERATORS = {
    "dg_mass_mma": ("e,ij,ej->ei", {"e": "E", "i": 5, "j": 6}),
    "dg_face_mass_mma": ("ifj,fe,fej->ei", {"e": "E", "i": 5, "f": 3, "j": 3}),
    "dg_divergence_mma": ("xre,rij,xej->ei", {"e": "E", "i": 4, "j": 5, "x": 2, "r": 2}),
    "dg_derivative_mma": ("re,rij,ej->ei", {"e": "E", "i": 5, "j": 4, "r": 2}),
    "dg_gradient_mma": ("xre,rij,ej->xei", {"e": "E", "i": 35, "j": 35, "x": 3, "r": 3}),
    "dg_matrix_mma": ("ij,ej->ei", {"e": "E", "i": 5, "j": 6}),
}


def operator(name: str, rows: int = 1, dtype: str = "float64", **lengths: int) -> fe.BatchedEinsum:
    """The einsum of a space; each row has its own last operand."""
    subscripts, sizes = OPERATORS[name]
    sizes = {**sizes, **lengths}
    inputs = subscripts.partition("->")[0].split(",")
    shapes = [tuple(sizes[letter] for letter in letters) for letters in inputs]
    shared = [fe.array(f"A{k}", shape, dtype) for k, shape in enumerate(shapes[:-1])]
    return fe.batched_einsum(subscripts, [[*shared, fe.array(f"u{row}", shapes[-1], dtype)] for row in range(rows)])


def tall(columns: int, *sums: int, **more: int) -> TallProduct:
    """A product of float64."""
    return TallProduct(np.dtype(np.float64), columns, sums, **more)


def configuration(**choices: Any) -> dict[str, Any]:
    usual = {"staged": True, "tiles": 0, "parts": 1, "sub_groups": 4, "together": 2, "prefetch": "none", "unit": SHORT}
    return {**usual, **choices}


def test_lanes_hold_every_element_of_a_tile_once() -> None:
    """Over all lanes, the index formulas of A, B and the result cover their fragments without overlap."""
    lanes, halves = range(SUB_GROUP), range(2)
    a = {(evaluate(row_of(lane, half)), evaluate(depth_of(lane, 0))) for lane in lanes for half in halves}
    b = {(evaluate(column_of_b(lane)), evaluate(depth_of(lane, 0))) for lane in lanes}
    d = {
        (evaluate(row_of(lane, half)), evaluate(column_of(lane, number)))
        for lane in lanes
        for half in halves
        for number in range(2)
    }
    assert a == {FRAGMENTS.a.place(lane, half) for lane in lanes for half in halves}
    assert all((evaluate(row_of(lane, 0)), evaluate(depth_of(lane, 0))) == FRAGMENTS.a.place(lane, 0) for lane in lanes)
    assert all(evaluate(depth_of(lane, 0)) == FRAGMENTS.b.place(lane, 0)[0] for lane in lanes)
    assert len(a) == ROWS * DEPTH
    assert len(b) == COLUMNS * DEPTH
    assert len(d) == ROWS * COLUMNS
    assert {row for row, _ in d} == set(range(ROWS))
    assert {column for _, column in d} == {column for column, _ in b} == set(range(COLUMNS))


@pytest.mark.parametrize(
    ("i", "j", "rows", "dtype", "choices"),
    [
        (5, 7, 2, "float64", {"prefetch": "all"}),
        (72, 3, 1, "float64", {"staged": False, "parts": 2, "sub_groups": 8, "together": 1}),
        (9, 9, 1, "float64", {"unit": "fp64-mma-m16n8k8", "tiles": 2, "together": 1}),
        (9, 10, 2, "float32", {"unit": SPLIT, "prefetch": "values"}),
        (32, 20, 1, "float32", {"unit": SPLIT, "staged": False, "sub_groups": 8, "together": 1}),
        (9, 12, 2, "float32", {"unit": SPLIT, "sums": "whole", "burst": 8, "wide": True}),
        (20, 35, 1, "float32", {"unit": SPLIT, "sums": "split", "prefetch": "all"}),
        (8, 9, 1, "float64", {"burst": 8, "wide": True, "tiles": 2, "together": 1}),
        (28, 9, 2, "float64", {"staged": False, "burst": 8, "wide": True, "sub_groups": 8, "together": 1}),
        (5, 4, 1, "float32", {}),
        (11, 10, 2, "float32", {"unit": SPLIT, "sums": "split", "prefetch": "copies"}),
        (5, 7, 2, "float64", {"prefetch": "copies"}),
        (8, 9, 1, "float32", {"prefetch": "copies", "tiles": 2, "together": 1}),
        (9, 13, 2, "float32", {"unit": SPLIT, "sums": "whole", "prefetch": "copies and held", "burst": 0}),
        (28, 5, 1, "float64", {"staged": False, "sub_groups": 8, "together": 1, "burst": 0, "wide": True}),
        (28, 6, 1, "float64", {"sub_groups": 8, "together": 1, "burst": 0, "prefetch": "copies and held", "stagger": 500}),
    ],
)
def test_the_gradient_is_right_at_any_length(
    simulator: fe.Device, i: int, j: int, rows: int, dtype: str, choices: dict[str, Any]
) -> None:
    """One element, a prime number of them, and more than the groups take at once; float32 on either unit.

    With several outputs, indices of 64 bits.
    """
    e = gradient(i, j, rows, dtype)
    s, small = find_space("dg_gradient_mma"), replace(GPU, compute_units=2)
    program = realize(e, {"E": 1000}, s, configuration(**choices), small, wide=rows > 1)
    executable = build_simulated(simulator, program)
    for length in (1, 67, 700):
        verdict = Workload(e, e.resolve({"E": length}), simulator.queue).check(executable)
        assert verdict.ok, verdict.message


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", [name for name in OPERATORS if name != "dg_gradient_mma"])
def test_other_operators_are_right(simulator: fe.Device, name: str, dtype: str) -> None:
    """The first configuration of each space, for two outputs of which one shares all but its field."""
    e, s = operator(name, 2, dtype), find_space(name)
    small = replace(GPU, compute_units=2)
    program = realize(e, {"E": 1000}, s, s.default(s.problem(e, {"E": 1000}, small)), small)
    executable = build_simulated(simulator, program)
    verdict = Workload(e, e.resolve({"E": 131}), simulator.queue).check(executable)
    assert verdict.ok, verdict.message


LAYOUTS = [
    ("dg_face_mass_mma", "ifj,fe,jef->ei", "float32"),
    ("dg_face_mass_mma", "jfi,ef,jfe->ie", "float64"),
    ("dg_gradient_mma", "erx,jri,je->xie", "float64"),
    ("dg_gradient_mma", "xre,ijr,ej->eix", "float32"),
    ("dg_derivative_mma", "er,jir,ej->ie", "float32"),
    ("dg_mass_mma", "e,ji,je->ei", "float64"),
    ("dg_divergence_mma", "rxe,jir,jex->ei", "float64"),
    ("dg_divergence_mma", "erx,ijr,exj->ie", "float32"),
    ("dg_matrix_mma", "ji,je->ie", "float64"),
    ("dg_matrix_mma", "rij,ej->eri", "float32"),
    ("dg_matrix_mma", "rij,ej->rei", "float64"),
    ("dg_matrix_mma", "rij,erj->eri", "float64"),
    ("dg_matrix_mma", "ijr,jre->rie", "float32"),
    ("dg_matrix_mma", "ij,ejr->eir", "float64"),
    ("dg_matrix_mma", "irj,rje->ie", "float32"),
]


@pytest.mark.parametrize(("name", "subscripts", "dtype"), LAYOUTS)
def test_axes_stand_in_any_order(simulator: fe.Device, name: str, subscripts: str, dtype: str) -> None:
    """Of operands, which may be given in any order, too, and of the output; without copies of rows where there are none."""
    lengths: dict[str, int | str] = {"e": "E", "i": 5, "j": 6, "f": 3, "x": 2, "r": 3}
    inputs, output = subscripts.split("->")
    terms = inputs.split(",")[::-1]
    arrays = [fe.array(f"A{k}", tuple(lengths[x] for x in term), dtype) for k, term in enumerate(terms)]
    e, s = fe.einsum(f"{','.join(terms)}->{output}", *arrays), find_space(name)
    small = replace(GPU, compute_units=2)
    p = s.problem(e, {"E": 1000}, small)
    assert (p.sizes["j"], p.sizes["i"]) == (6, 5)
    c = s.default(p)
    assert c["staged"] == c["wide"] == ("ei" in output)
    verdict = Workload(e, e.resolve({"E": 131}), simulator.queue).check(
        build_simulated(simulator, realize(e, {"E": 1000}, s, c, small))
    )
    assert verdict.ok, verdict.message


IN_PARTS: dict[str, Any] = {"staged": False, "parts": 2, "weighted": True, "sub_groups": 8, "together": 1}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", [name for name in OPERATORS if name != "dg_gradient_mma"])
def test_groups_may_share_the_columns_of_a_tile(simulator: fe.Device, name: str, weighted: bool) -> None:
    """Each with its part of the matrices, where all of them do not fit local memory, the last part a shorter one.

    Of 9 blocks of columns, three times 3, or 5 for two groups and 4 for two others.
    """
    e, s = operator(name, 2, i=68), find_space(name)
    small = replace(GPU, compute_units=4 if weighted else 2)
    own = {"everywhere": True} if name == "dg_face_mass_mma" else {}
    shared = {"parts": 2, "weighted": True} if weighted else {"parts": 3}
    choices = configuration(staged=False, sub_groups=8, together=1, **shared, **own)
    program = realize(e, {"E": 1000}, s, choices, small)
    executable = build_simulated(simulator, program)
    for length in (1, 131, 700):
        verdict = Workload(e, e.resolve({"E": length}), simulator.queue).check(executable)
        assert verdict.ok, verdict.message


def test_parts_have_groups_by_their_columns() -> None:
    """Of 15 blocks two parts have 8 and 7, and groups in proportion; a part has none twice, nor none at all."""
    plan = WarpTiles(tall(120, 120), SHORT, 8, persistent_groups=66, n_split=2, weighted=True)
    assert plan.shares == (Share(0, 70, 0, 8), Share(70, 62, 8, 7))
    assert replace(plan, weighted=False).shares == (Share(0, 66, 0, 8),)
    for none in ({"persistent_groups": 0}, {"n_split": 16, "persistent_groups": 8}):
        with pytest.raises(TransformError, match="leave one without"):
            replace(plan, **none)
    e, s = operator("dg_divergence_mma", 1, i=72, j=34), find_space("dg_divergence_mma")
    p = s.problem(e, {"E": 1000}, GPU)
    assert "as many columns" in (s.refusal(p, configuration(**{**IN_PARTS, "parts": 3}, slices=3)) or "")


@pytest.mark.parametrize(
    ("name", "i", "j", "dtype", "choices"),
    [
        (
            "dg_divergence_mma",
            68,
            37,
            "float64",
            {"staged": False, "parts": 3, "sub_groups": 8, "together": 1, "slices": 3},
        ),
        ("dg_divergence_mma", 9, 33, "float32", {"slices": 5}),
        ("dg_divergence_mma", 12, 34, "float32", {"unit": SPLIT, "sums": "split", "slices": 3}),
        ("dg_divergence_mma", 10, 33, "float64", {"unit": "fp64-mma-m16n8k8", "slices": 2}),
        ("dg_divergence_mma", 9, 34, "float64", {"prefetch": "copies", "slices": 2}),
        ("dg_divergence_mma", 12, 36, "float32", {"unit": SPLIT, "sums": "whole", "slices": 2, "prefetch": "copies"}),
        ("dg_divergence_mma", 9, 34, "float64", {"prefetch": "copies and held", "slices": 3, "burst": 0}),
        (
            "dg_divergence_mma",
            12,
            36,
            "float32",
            {"unit": SPLIT, "sums": "split", "slices": 2, "prefetch": "copies and held"},
        ),
        ("dg_divergence_mma", 9, 6, "float64", {"prefetch": "copies and held", "tiles": 2, "together": 1}),
        ("dg_divergence_mma", 9, 6, "float64", {"prefetch": "copies", "tiles": 2, "together": 1}),
    ],
)
def test_sums_may_go_slice_by_slice_and_values_be_copied(
    simulator: fe.Device, name: str, i: int, j: int, dtype: str, choices: dict[str, Any]
) -> None:
    """With the accumulators of all columns in registers, and the values of one slice of the sum."""
    e, s = operator(name, 2, dtype, i=i, j=j), find_space(name)
    small = replace(GPU, compute_units=2)
    program = realize(e, {"E": 1000}, s, configuration(**choices), small)
    executable = build_simulated(simulator, program)
    for length in (1, 131):
        verdict = Workload(e, e.resolve({"E": length}), simulator.queue).check(executable)
        assert verdict.ok, verdict.message


@pytest.mark.parametrize(
    ("name", "rows", "i", "j", "choices"),
    [
        ("dg_mass_mma", 3, 9, 10, {"prefetch": "values"}),
        ("dg_gradient_mma", 3, 9, 7, {"prefetch": "all"}),
        ("dg_gradient_mma", 2, 9, 6, {"prefetch": "copies and held", "burst": 0}),
        ("dg_face_mass_mma", 2, 5, 6, {"prefetch": "copies"}),
        ("dg_derivative_mma", 3, 28, 9, {"staged": False, "wide": True, "sub_groups": 8, "together": 1}),
        ("dg_divergence_mma", 2, 68, 34, {"staged": False, "parts": 3, "slices": 3, "sub_groups": 8, "together": 1}),
        ("dg_divergence_mma", 2, 9, 34, {"slices": 3, "prefetch": "copies and held"}),
        ("dg_divergence_mma", 2, 66, 34, {**IN_PARTS, "slices": 5, "prefetch": "copies", "wide": True}),
    ],
)
def test_products_may_be_computed_in_turn(
    simulator: fe.Device, name: str, rows: int, i: int, j: int, choices: dict[str, Any]
) -> None:
    """Each where the one before left off: with fewer tiles than sub-groups, as many, and some more."""
    e, s = operator(name, rows, i=i, j=j), find_space(name)
    small = replace(GPU, compute_units=2)
    own = {"everywhere": True} if name == "dg_face_mass_mma" else {}
    program = realize(e, {"E": 1000}, s, configuration(in_turn=True, **own, **choices), small)
    executable = build_simulated(simulator, program)
    for length in (1, 131, 256, 300, 700):
        verdict = Workload(e, e.resolve({"E": length}), simulator.queue).check(executable)
        assert verdict.ok, verdict.message


def test_groups_that_come_and_go_compute_no_products_in_turn() -> None:
    """Their tiles are theirs alone; nor is there a turn where one product is all there is."""
    t_unit = generate_loopy(operator("dg_mass_mma", 2, i=9))
    t_unit, m = contract_first(t_unit, match_einsum(t_unit), (1, 2))
    with pytest.raises(TransformError, match="come and go"):
        write(t_unit, m, WarpTiles(tall(9, 6, products=2), SHORT, 4, tiles=2, product_major=True), 1, "e", "i")
    s = find_space("dg_derivative_mma")
    e = operator("dg_derivative_mma", 1, i=28)
    p = s.problem(e, {"E": 1000}, GPU)
    assert "several" in (s.constraint(p, {**s.default(p), "in_turn": True}) or "")


def test_what_is_held_is_copied_where_values_come_in_slices() -> None:
    """For no slice is it read from global memory again; and it has to be an element of an array."""
    e, s = operator("dg_divergence_mma", 2, i=9, j=34), find_space("dg_divergence_mma")
    choices = configuration(prefetch="copies and held", slices=3)
    loop = realize(e, {"E": 1000}, s, choices, GPU).source.partition("for (int slice")[2]
    assert loop.count("A0[") == loop.count("&(A0[") > 0
    t_unit = generate_loopy(e)
    m = match_einsum(t_unit)
    metric, kernel = m.rules[0][0], t_unit[m.kernel_name]
    rule = kernel.substitutions[metric]
    doubled = {**kernel.substitutions, metric: rule.copy(expression=2 * rule.expression)}
    t_unit, m = contract_first(t_unit.with_kernel(kernel.copy(substitutions=doubled)), m, (0, 2))
    product = tall(9, 2, 34, held=4, planes=2, products=2)
    plan = WarpTiles(product, SHORT, 4, persistent_groups=2, k_slices=3, prefetch=Prefetch.COPIES_AND_HELD)
    with pytest.raises(TransformError, match=f"'{metric}' is computed"):
        write(t_unit, m, plan, None, "e", "i", held={metric: "xre"})


def test_sub_groups_begin_late_where_several_share_a_scheduler() -> None:
    """Four by four; groups that come and go begin when others end."""
    e, s = operator("dg_mass_mma", 1, i=28), find_space("dg_mass_mma")
    choices = configuration(sub_groups=8, together=1, stagger=1000)
    assert "int late = 1000 * (lid(1) / 4);" in realize(e, {"E": 1000}, s, choices, GPU).source
    p = s.problem(e, {"E": 1000}, GPU)
    assert "not staggered" in (s.constraint(p, s.completed({**choices, "sub_groups": 4, "together": 2})) or "")


@pytest.mark.parametrize("name", ["dg_divergence_mma", "dg_derivative_mma"])
def test_matrices_of_120_nodes_are_shared_by_groups(name: str) -> None:
    """Three of float64 are larger than any local memory: a space has a configuration for them all the same."""
    e, s = operator(name, 1, i=120, j=120, r=3), find_space(name)
    assert s.default(s.problem(e, {"E": 1000}, GPU))["parts"] > 1


@pytest.mark.parametrize("choices", [{}, {"staged": False, "wide": True}])
def test_outputs_that_share_no_product_are_written_in_turn(simulator: fe.Device, choices: dict[str, Any]) -> None:
    """The three components of a gradient: each output has a metric of its own, and all pass through one place."""
    metrics = [fe.array(f"J{x}", (3, "E")) for x in range(3)]
    matrix, field = fe.array("D", (3, 28, 9)), fe.array("u", ("E", 9))
    e = fe.batched_einsum("re,rij,ej->ei", [[metric, matrix, field] for metric in metrics])
    small, c = replace(GPU, compute_units=2), configuration(sub_groups=8, together=1, **choices)
    program = realize(e, {"E": 1000}, find_space("dg_derivative_mma"), c, small)
    executable = build_simulated(simulator, program)
    verdict = Workload(e, e.resolve({"E": 131}), simulator.queue).check(executable)
    assert verdict.ok, verdict.message


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_are_right_on_the_unit_itself(name: str, dtype: str) -> None:
    """Where there is such a device, the first configuration of each space is proved on it."""
    found = next((device for device in fe.devices() if device.usable and SHORT in device.profile.matrix_units), None)
    if found is None:
        pytest.skip(f"no device with {SHORT}")
    e, s = operator(name, 2, dtype), find_space(name)
    program = realize(e, {"E": 5003}, s, s.default(s.problem(e, {"E": 5003}, found.profile)), found.profile)
    for length in (1, 5003):
        verdict = Workload(e, e.resolve({"E": length}), found.queue).check(build_executable(found.context, program))
        assert verdict.ok, verdict.message


@pytest.mark.parametrize("everywhere", [False, True])
def test_a_sum_over_two_indices_pads_the_last(simulator: fe.Device, everywhere: bool) -> None:
    """A face mass operator, whose instructions are the products themselves, with the metric held in registers."""

    @space(pattern="ifj,fe,fej->ei", version=1, parameters={})
    def lift_space(t_unit: Any, m: Any, p: Any) -> Any:
        held = {row[1]: "fe" for row in m.rules}
        product = tall(5, 2, 3, held=2, planes=2, products=2)
        plan = WarpTiles(product, "fp64-mma-m16n8k8", 2, persistent_groups=2, staged=True, clamped_loads=everywhere)
        return write(t_unit, m, plan, None, "e", "i", held=held)

    e = lift(5, 3, 2)
    program = realize(e, {"E": 1000}, lift_space, {}, GPU)
    executable = build_simulated(simulator, program)
    verdict = Workload(e, e.resolve({"E": 131}), simulator.queue).check(executable)
    assert verdict.ok, verdict.message


@pytest.mark.parametrize("depth", [4, 8])
def test_the_code_calls_the_unit_in_step_with_its_depth(depth: int) -> None:
    """Ten numbers j are three steps of 4, or two of 8, each for three r; loops to unroll keep the code short."""
    c = configuration(unit=f"fp64-mma-m16n8k{depth}")
    source = realize(gradient(10, 10), {"E": 1000}, find_space("dg_gradient_mma"), c, GPU).source
    assert source.count("mma.sync.aligned.") == 1
    assert f"mma.sync.aligned.m16n8k{depth}.row.col.f64.f64.f64.f64" in source
    assert len(re.findall(rf"= feinsum_mma_m16n8k{depth}\(", source)) == 1
    assert f"for (int step = 0; step <= {-(-10 // depth) - 1}; ++step)" in source
    assert source.count("barrier(CLK_LOCAL_MEM_FENCE)") == 1, "no work-group waits in the loop over tiles"


def test_copies_of_long_arrays_pass_sizes_of_32_bits() -> None:
    """Which the instruction takes, where indices, and numbers computed with them, have 64."""
    c = configuration(prefetch="copies")
    source = realize(gradient(10, 10), {"E": 1000}, find_space("dg_gradient_mma"), c, GPU, wide=True).source
    assert "long size = " in source
    assert '"r"((int)(size))' in source


def test_local_memory_is_what_the_code_declares() -> None:
    """The space counts bytes as the kernel uses them."""
    c = configuration()
    source = realize(gradient(10, 10), {"E": 1000}, find_space("dg_gradient_mma"), c, GPU).source
    declared = sum(8 * eval(size) for size in re.findall(r"__local double \w+\[([\d *]+)\]", source))
    assert declared == WarpTiles(tall(10, 10, matrices=3, results=3), SHORT, c["sub_groups"], staged=True).local_bytes()


def test_the_space_refuses_what_the_unit_cannot_do() -> None:
    """No unit, mixed types, another long index: each is told."""
    s = find_space("dg_gradient_mma")
    metric, matrix = fe.array("J", (3, 3, "E")), fe.array("D", (3, 5, 5))
    refusals = {
        "has no fp64-mma-m16n8k4": (gradient(5, 5), CPU),
        "float64, or float32": (fe.einsum("xre,rij,ej->xei", metric, matrix, fe.array("u", ("E", 5), "float32")), GPU),
        "only e may be long": (
            fe.einsum("xre,rij,ej->xei", fe.array("J", (3, 3, "E")), fe.array("D", (3, "I", 5)), fe.array("u", ("E", 5))),
            GPU,
        ),
    }
    for reason, (e, profile) in refusals.items():
        problem = s.problem(e, dict.fromkeys(e.long_axes, 64), profile)
        assert not list(s.configurations(problem))
        c = {name: values[0] for name, values in s.parameters(problem).items()}
        assert reason in (s.refusal(problem, {**c, "staged": True, "tiles": 0}) or "")


@pytest.mark.parametrize(("j", "kept"), [(4, False), (10, True), (20, True)])
def test_splitting_is_offered_where_the_bound_of_float32_is_kept(j: int, kept: bool) -> None:
    """The error of a unit does not grow with the sum as the bound does, so short sums are left to the units for float64."""
    problem = find_space("dg_gradient_mma").problem(gradient(8, j, dtype="float32"), {"E": 1000}, GPU)
    offered = {c["unit"] for c in find_space("dg_gradient_mma").configurations(problem)}
    assert (SPLIT in offered) == kept
    assert SHORT in offered


def test_other_units_are_refused() -> None:
    """Fragments of 8 rows lie otherwise in the lanes; units for float32 do not multiply float64."""
    for name in ("fp64-mma-m8n8k4", "none"):
        with pytest.raises(TransformError, match=name):
            fragment_unit(name)
    t_unit = generate_loopy(fe.einsum("ik,ek->ei", fe.array("A", (4, 4)), fe.array("u", ("E", 4))))
    m = match_einsum(t_unit)
    m_letter, n_letter = m.einsum.indexing.output
    with pytest.raises(TransformError, match="too short for float64"):
        write(t_unit, m, WarpTiles(tall(4, 4), SPLIT, 4, persistent_groups=2), None, m_letter, n_letter)


TILE = 32
"""Products that the unit adds up before their sum is added, where it does so tile by tile."""


@lru_cache
def product_kernel(device: fe.Device, is_simulated: bool, sums: str) -> Any:
    """A kernel for A B, where A has 16 rows and B 8 columns, by a sub-group, step after step, as kernels call the unit."""
    u = fragment_unit(SPLIT)
    na, nb, nd = u.registers
    kind = u.dtype
    at = [f"A[(g + {8 * (i % 2)}) * K + k + t + {4 * (i // 2)}]" for i in range(na)]
    at += [f"B[(k + t + {4 * i}) * 8 + g]" for i in range(nb)]
    places = [f"D[(g + {8 * (i // 2)}) * 8 + 2 * t + {i % 2}]" for i in range(nd)]
    if sums in ("apart", "tilewise"):
        defined = u.function("summed" if sums == "tilewise" else "")
        results, rests = [f"d{i}" for i in range(nd)], []
    else:
        defined = f"{u.function('bits')}\n{u.function(sums)}"
        results, rests = [f"d{i}" for i in range(nd)], [f"rest{i}" for i in range(nd)]
        if sums == "split":
            b_read = at[na:]
            at = [
                *at[:na],
                *(f"feinsum_first_bits({x})" for x in b_read),
                *(f"{x} - feinsum_first_bits({x})" for x in b_read),
            ]
    helpers = "\n".join(u.helpers.values())
    call = re.findall(r"feinsum_\w*mma\w+", defined)
    numbers = [*results, *rests]
    stored = zip(places, results, rests or ["0"] * nd, strict=True)
    tiles = (
        f"if (k % {TILE} == 0) {{ {' '.join(f't{i} += d{i}; d{i} = 0;' for i in range(nd))} }}"
        if sums == "tilewise"
        else ""
    )
    source = f"""
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
{helpers}
{defined}
kernel __attribute__((reqd_work_group_size({SUB_GROUP}, 1, 1))) void product(
    global const {kind} *A, global const {kind} *B, global {kind} *D, int K) {{
  uint g = get_local_id(0) / 4, t = get_local_id(0) % 4;
  {kind} {", ".join(f"{x} = 0" for x in (*numbers, *(f"t{i}" for i in range(nd))))};
  for (int k = 0; k < K; k += {u.k}) {{
    {tiles}
    d0 = {call[0]}({", ".join([*numbers, *at, *(f"&{x}" for x in numbers[1:])])});
  }}
  {" ".join(f"{place} = t{i} + {result} + {rest};" for i, (place, result, rest) in enumerate(stored))}
}}"""
    return build_program(device.context, *((simulate(source), UNOPTIMISED) if is_simulated else (source,))).product


def product_by(device: fe.Device, is_simulated: bool, sums: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A B as the unit makes it, or a CPU that simulates it."""
    import pyopencl.array as cla

    product = product_kernel(device, is_simulated, sums)
    out = cla.zeros(device.queue, (16, 8), a.dtype)
    left, right = (cla.to_device(device.queue, x) for x in (a, b))
    product(device.queue, (SUB_GROUP,), (SUB_GROUP,), left.data, right.data, out.data, np.int32(a.shape[1]))
    return out.get()


@pytest.mark.parametrize("k", [8, 64, 1024])
@pytest.mark.parametrize("kind", ["signs", "spread", "worst"])
@pytest.mark.parametrize("sums", [*SUMS, "tilewise"])
def test_split_products_keep_their_bound(simulator: fe.Device, k: int, kind: str, sums: str) -> None:
    """Signs that cancel, magnitudes far apart, numbers whose last bits are all lost: |error| <= error u Σ |a| |b|, or
    sum_error where the unit adds the steps, or tile_error where it adds those of a tile.

    On the unit itself where there is one, and on the CPU that simulates it.
    """
    random = np.random.default_rng(k)
    a, b = random.standard_normal((16, k)), random.standard_normal((k, 8))
    if kind == "spread":
        a, b = a * 2.0 ** random.integers(-20, 20, a.shape), b * 2.0 ** random.integers(-20, 20, b.shape)
    if kind == "worst":
        a, b = 1 + 2.0**-11 - 2.0**-23 + 0 * a, 1 + 2.0**-10 - 2.0**-23 + 0 * b
    a, b = a.astype(np.float32), b.astype(np.float32)
    exact, scale = a.astype(float) @ b.astype(float), abs(a.astype(float)) @ abs(b.astype(float))
    u = fragment_unit(SPLIT)
    errors = {"apart": u.error(k), "tilewise": u.tile_error(k, TILE)}
    bound = (errors[sums] if sums in errors else u.sum_error(k, sums)) * 2.0**-24 * scale
    own = [d for d in fe.devices() if d.usable and SPLIT in d.profile.matrix_units]
    for device, is_simulated in [(simulator, True), *((d, False) for d in own)]:
        error = abs(product_by(device, is_simulated, sums, a, b) - exact)
        assert (error <= bound).all(), (device, (error / bound).max())


@pytest.mark.parametrize("sums", [*SUMS, "tilewise"])
@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan, np.finfo(np.float32).max])
def test_special_numbers_give_what_ieee_754_asks(simulator: fe.Device, special: float, sums: str) -> None:
    """The rest of a split infinity would be NaN, and scores that are masked with -inf are common.

    In each operand, alone, opposite each other, opposite a zero, and in half of the entries.
    """
    random = np.random.default_rng(0)
    a, b = (random.uniform(0.2, 0.4, shape) * random.choice([-1, 1], shape) for shape in ((16, 64), (64, 8)))
    a[0, 3] = a[1, 40] = b[9, 2] = b[50, 3] = special
    if not np.isfinite(special):
        a[2, 9], a[3, 50], a[4, 9] = special, -special, 0
        a[8:, ::2] = special
    a, b = a.astype(np.float32), b.astype(np.float32)
    with np.errstate(invalid="ignore"):
        exact, scale = a.astype(float) @ b.astype(float), abs(a.astype(float)) @ abs(b.astype(float))
    finite = np.isfinite(exact)
    own = [d for d in fe.devices() if d.usable and SPLIT in d.profile.matrix_units]
    for device, is_simulated in [(simulator, True), *((d, False) for d in own)]:
        found = product_by(device, is_simulated, sums, a, b)
        np.testing.assert_array_equal(found[~finite], exact.astype(np.float32)[~finite])
        bound = fragment_unit(SPLIT).tile_error(64, TILE) + 64
        assert (abs(found[finite] - exact[finite]) <= bound * 2.0**-24 * scale[finite]).all()


def test_only_units_for_tf32_sum_by_themselves() -> None:
    """Those for float64 do so in any case, and a matrix lies whole or split."""
    for unit, sums in ((SHORT, "whole"), (SPLIT, "apart")):
        with pytest.raises(TransformError, match=f"'{unit}' does not sum by itself with a matrix that is '{sums}'"):
            multiply_and_sum(fragment_unit(unit), sums, (), (), (), ())


def test_units_sum_by_themselves_where_the_bound_of_float32_is_kept() -> None:
    """60 products err by 59 roundoffs with a matrix that is split before, by 67 with one that is cut; 62 are allowed."""
    e = fe.einsum(
        "ifj,fe,fej->ei",
        *(fe.array(name, shape, "float32") for name, shape in (("R", (35, 4, 15)), ("J", (4, "E")), ("v", (4, "E", 15)))),
    )
    s = find_space("dg_face_mass_mma")
    offered = {(c["unit"], c["sums"]) for c in s.configurations(s.problem(e, {"E": 1000}, GPU))}
    assert {sums for unit, sums in offered if unit == SPLIT} == {"split", "apart"}
    assert {sums for unit, sums in offered if unit == SHORT} == {"apart"}


def test_wide_stores_want_rows_that_lie_one_after_the_other() -> None:
    """In an output whose strides are doubled they do not."""
    e = gradient(5, 5)
    s = find_space("dg_gradient_mma")
    t_unit = generate_loopy(e)
    kernel = t_unit.default_entrypoint
    apart = [
        FixedStrideArrayDimTag(2 * tag.stride, layout_nesting_level=tag.layout_nesting_level)
        for tag in kernel.arg_dict["out"].dim_tags
    ]
    arguments = [a.copy(dim_tags=tuple(apart)) if a.name == "out" else a for a in kernel.args]
    t_unit = t_unit.with_kernel(kernel.copy(args=arguments))
    with pytest.raises(TransformError, match="do not lie one after the other"):
        s.transform(t_unit, match_einsum(t_unit), configuration(wide=True), s.problem(e, {"E": 1000}, GPU))


def test_pairs_are_written_to_rows_of_even_length() -> None:
    """A lane that writes two neighbours at once would cut a row of 65 at its end."""
    s, c = find_space("dg_gradient_mma"), configuration(staged=False, wide=True, sub_groups=8, together=1)
    for i, refused in ((65, True), (66, False)):
        reason = s.refusal(s.problem(gradient(i, 5), {"E": 1000}, GPU), c)
        assert (reason == "pairs of numbers do not make rows of odd length") == refused


def test_a_factor_with_both_indices_is_refused() -> None:
    """In ``ek,ei->ei`` nothing is shared between rows, so there is no matrix B."""
    e = fe.einsum("eik,ek->ei", fe.array("A", ("E", 4, 4)), fe.array("u", ("E", 4)))
    t_unit = generate_loopy(e)
    m = match_einsum(t_unit)
    m_letter, n_letter = m.einsum.indexing.output
    with pytest.raises(TransformError, match="no product of factors"):
        write(t_unit, m, WarpTiles(tall(4, 4), SHORT, 4, persistent_groups=2), None, m_letter, n_letter)


def test_rows_that_no_plan_has_registers_for_offer_one_configuration() -> None:
    """All are refused, and nobody has to ask for thousands of plans to learn that."""
    s = find_space("dg_matrix_mma")
    for results, terms, few in ((24, 20, False), (2, 9000, True)):
        e = fe.einsum("ij,ej->ei", fe.array("D", (results, terms)), fe.array("u", (500, terms)))
        p = s.problem(e, {}, GPU)
        assert all(len(values) == 1 for values in s.parameters(p).values()) == few
        assert (next(s.configurations(p), None) is None) == few
