"""Vendors: their units are data that agree with their text, and no module outside their room names one."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from profiles import CPU, GPU
from simulated_units import simulate
from simulated_vendor import SIMULATED, UNIT, Simulated
from tensor_programs import arguments_for
from tensor_updates import compare

import feinsum as fe
from feinsum.devices import device_checks
from feinsum.devices.vendors import known_vendors
from feinsum.devices.vendors.nvidia import NVIDIA
from feinsum.devices.vendors.nvidia.mma import HALF_UNITS
from feinsum.devices.vendors.runtimes import RUNTIMES, preference, runtime_of
from feinsum.devices.vendors.trials import copied_source, product_source
from feinsum.devices.vendors.units import FragmentLayout, LayoutDigit, MatrixUnit
from feinsum.errors import TransformError
from feinsum.languages.tensor.lowering.target import LEAST_ROWS, choose_target
from feinsum.registry import find_space
from feinsum.skeletons.instructions.matrix_units import FRAGMENTS, SUB_GROUP, fragment_unit
from transforms.block_tiles.choices import usable_units

ROOT = Path(__file__).parents[1]
UNITS = (*known_vendors.matrix_units().values(), *SIMULATED.matrix_units)
HALVES = replace(UNIT, name="simulated-halves", operand="bfloat16", dtype="float")
TYPES = {"float64": ("f64", "f64"), "float32": ("f32", "f32"), "float16": ("f16", "f32"), "bfloat16": ("bf16", "f32")}
"""The types of operands and results in programs, by the operand of a unit."""
DEVICE = replace(CPU, id="accelerator:simulated:some:4cu", kind="accelerator", matrix_units=(UNIT.name,))


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vendor that is listed with the real ones."""
    monkeypatch.setattr(known_vendors, "VENDORS", (*known_vendors.VENDORS, SIMULATED))


def code_of(path: Path) -> str:
    """A module without comments and docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            said = [n for n in body if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)]
            node.body = [n for n in body if n not in said] or [ast.Pass()]  # type: ignore[attr-defined]
    return ast.unparse(tree)


def modules() -> Iterator[Path]:
    """All modules but those whose subject is a vendor: its own, and the launches of CUDA on the arrays of others."""
    own = (ROOT / "feinsum/devices/vendors", ROOT / "feinsum/interop/cuda")
    for path in (*(ROOT / "feinsum").rglob("*.py"), *(ROOT / "transforms").rglob("*.py")):
        if not any(path.is_relative_to(room) for room in own):
            yield path


def test_no_module_outside_names_a_vendor() -> None:
    """Neither a vendor, nor its assembly, nor a runtime whose defects are a row of the table."""
    named = {
        path.relative_to(ROOT).as_posix(): found
        for path in modules()
        if (found := re.findall(r"nvidia|ptx|pocl|\basm\b", code_of(path), re.IGNORECASE))
    }
    assert named == {}


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_lanes_hold_all_of_each_matrix(unit: MatrixUnit) -> None:
    """Each element of D once; those of A and B at least once.  The text of a place says what the data say."""
    shapes = ((unit.a, unit.m, unit.k), (unit.b, unit.k, unit.n), (unit.d, unit.m, unit.n))
    for layout, rows, columns in shapes:
        places = list(product(range(unit.lanes), range(layout.length)))
        held = Counter(layout.place(*place) for place in places)
        assert set(held) == set(product(range(rows), range(columns)))
        assert layout is not unit.d or set(held.values()) == {1}
        for lane, register in places:
            text = (expression.replace("/", "//") for expression in layout.text(str(lane), register))
            assert tuple(map(eval, text)) == layout.place(lane, register)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_tile_is_repeated_to_make_a_unit(unit: MatrixUnit) -> None:
    """Register after register, along the sum."""
    tile = unit.tile
    for whole, part, axis in ((unit.a, tile.a, 1), (unit.b, tile.b, 0)):
        assert whole.length * tile.depth == part.length * unit.k
        for lane, register in product(range(unit.lanes), range(whole.length)):
            place = list(part.place(lane, register % part.length))
            place[axis] += tile.depth * (register // part.length)
            assert whole.place(lane, register) == tuple(place)


def test_names_are_those_of_one_unit() -> None:
    """Of units in records, and of the functions of their text, in kernels for different numbers too."""
    names = [unit.name for unit in UNITS]
    functions = [unit.called(kind) for unit in UNITS for kind in unit.kinds]
    assert len(set(names)) == len(names)
    assert len(set(functions)) == len(functions)


@pytest.mark.parametrize("unit", NVIDIA.matrix_units, ids=lambda unit: unit.name)
def test_kernels_that_try_units_are_right(simulator: fe.Device, unit: MatrixUnit) -> None:
    """On a CPU that simulates units of 16 rows after the PTX ISA, with numbers that every format holds."""
    if unit.m != 16:
        pytest.skip("units of 8 rows are not simulated")
    random = np.random.default_rng(0)
    shapes = (unit.m, unit.k), (unit.k, unit.n), (unit.m, unit.n)
    a, b, d = (random.integers(-8, 9, shape).astype(unit.number) for shape in shapes)
    source = product_source(unit).replace("kernel ", f"kernel __attribute__((reqd_work_group_size({SUB_GROUP}, 1, 1))) ")
    (found,) = device_checks._run_check(simulator.cl_device, simulate(source), [a, b], [d], SUB_GROUP, SUB_GROUP)
    np.testing.assert_array_equal(found, d + a @ b)


def test_the_kernel_that_tries_copies_is_right(simulator: fe.Device) -> None:
    """Neighbouring lanes exchange what each has copied."""
    assert NVIDIA.copies is not None
    x = np.random.default_rng(0).standard_normal((SUB_GROUP, 4), dtype=np.float32)
    source = simulate(copied_source(NVIDIA.copies, SUB_GROUP))
    (y,) = device_checks._run_check(simulator.cl_device, source, [x], [np.zeros_like(x)], SUB_GROUP, SUB_GROUP)
    np.testing.assert_array_equal(y, x[np.arange(SUB_GROUP) ^ 1])


@pytest.mark.usefixtures("simulated")
@pytest.mark.parametrize("unit", SIMULATED.matrix_units, ids=lambda unit: unit.name)
def test_a_new_unit_is_tried(simulator: fe.Device, unit: MatrixUnit) -> None:
    """By the probe's kernel, which is generated from its data."""
    assert device_checks.feature_works(simulator.cl_device, unit.name)


def test_a_wrong_layout_is_refused(simulator: fe.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose statement puts results elsewhere."""
    wrong = Simulated()
    turned = FragmentLayout((LayoutDigit(4, 1, 0), LayoutDigit(4, 0, 1)), UNIT.d.registers)
    wrong.matrix_units = (replace(UNIT, d=turned),)
    monkeypatch.setattr(known_vendors, "VENDORS", (wrong,))
    assert not device_checks.feature_works(simulator.cl_device, UNIT.name)


@pytest.mark.parametrize("case", range(3))
@pytest.mark.parametrize("unit", [*SIMULATED.matrix_units, HALVES], ids=lambda unit: unit.name)
def test_programs_multiply_by_a_new_unit(
    simulator: fe.Device, unit: MatrixUnit, case: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tensor language takes any shape, and sizes that fill no fragment."""
    if unit.m < LEAST_ROWS:
        pytest.skip("programs use no units of so few rows")
    vendor = Simulated()
    vendor.matrix_units = (unit,)
    monkeypatch.setattr(known_vendors, "VENDORS", (vendor,))
    sizes, turned = (
        ((2 * unit.m, 2 * unit.n, 6 * unit.k), "n.n"),
        ((unit.m + 5, 2 * unit.n + 3, 4 * unit.k + 1), "t.n"),
        ((2 * unit.m + 6, unit.n - 1, max(unit.k - 1, 1)), "n.t"),
    )[case]
    m, n, k = sizes
    a = f"{m}x{k}" if turned[0] == "n" else f"{k}x{m}"
    b = f"{k}x{n}" if turned[2] == "n" else f"{n}x{k}"
    factor, total = TYPES[unit.operand]
    text = f"""func @product(%A: memref<{factor}x{a}>, %B: memref<{factor}x{b}>, %C: memref<{total}x{m}x{n}>) {{
        %alpha = constant 0.5 : {factor}  %beta = constant 1.0 : {total}
        gemm.{turned} %alpha, %A, %B, %beta, %C
    }}"""
    target = choose_target(fe.program(text).function(), replace(DEVICE, matrix_units=(unit.name,)))
    assert (target.subgroup_size, target.units) == (unit.lanes, (unit.name,))

    def arguments() -> dict[str, np.ndarray]:
        return arguments_for(fe.program(text).function(), np.random.default_rng(3), 3)

    kernel = compare(simulator, text, arguments, target)
    assert kernel.emitted.units == (unit.name,)


@pytest.mark.parametrize("unit", [UNIT, HALVES], ids=lambda unit: unit.name)
def test_sub_groups_are_those_of_the_units(unit: MatrixUnit, monkeypatch: pytest.MonkeyPatch) -> None:
    """On any kind of device; small results and other types take as many work-items as before."""
    vendor = Simulated()
    vendor.matrix_units = (unit,)
    monkeypatch.setattr(known_vendors, "VENDORS", (vendor,))
    factor, total = TYPES[unit.operand]

    def sub_group(factor: str, total: str, rows: int) -> int:
        text = f"""func @f(%A: memref<{factor}x{rows}x8>, %B: memref<{factor}x8x8>, %C: memref<{total}x{rows}x8>) {{
            %alpha = constant 0.5 : {factor}  %beta = constant 1.0 : {total}
            gemm.n.n %alpha, %A, %B, %beta, %C
        }}"""
        return choose_target(fe.program(text).function(), profile).subgroup_size

    profile = replace(GPU, matrix_units=(unit.name,), instructions=())
    assert [sub_group(factor, total, 64), sub_group(factor, total, 8), sub_group("f32", "f32", 64)] == [16, 8, 32]


@pytest.mark.usefixtures("simulated")
def test_skeletons_refuse_fragments_that_they_do_not_know() -> None:
    """They are written for one layout of 16 rows, and compare data."""
    with pytest.raises(TransformError, match="do not have 16 rows, or lie otherwise in the lanes"):
        fragment_unit(UNIT.name)


def test_skeletons_leave_units_for_other_numbers_out() -> None:
    """One for numbers of two bytes lies in the lanes as those for float32 do, and is not for float32."""
    assert HALF_UNITS[0].tile == FRAGMENTS
    device = replace(GPU, matrix_units=(*GPU.matrix_units, *(unit.name for unit in HALF_UNITS)))
    e = fe.einsum("ik,kj->ij", *(fe.array(name, (512, 512), "float32") for name in "AB"))
    found = usable_units(find_space("block_contraction").problem(e, {}, device), 512)
    assert "tf32-mma-m16n8k8" in found
    assert not {*found} & {unit.name for unit in HALF_UNITS}


@pytest.mark.usefixtures("simulated")
def test_a_device_has_a_vendor_by_its_runtime() -> None:
    """A CPU has none; what a driver does not build is not had."""
    assert [known_vendors.vendor_of(profile) for profile in (GPU, DEVICE, CPU)] == [NVIDIA, SIMULATED, None]
    assert fe.Device(GPU).vendor is NVIDIA
    assert known_vendors.vendor_with(UNIT) is SIMULATED
    for asked in (known_vendors.copies_of, known_vendors.shuffles_of):
        assert asked(GPU) is not None
        assert asked(replace(GPU, instructions=())) is asked(DEVICE) is asked(CPU) is None


def test_runtimes_are_told_by_their_platforms() -> None:
    """Each has a name of its own; one that is unknown has nothing peculiar, and is as good as PoCL."""
    platforms = [runtime.platform for runtime in RUNTIMES]
    assert not any(one in other for one, other in product(platforms, platforms) if one != other)
    assert len({runtime.name for runtime in RUNTIMES}) == len(RUNTIMES)
    assert runtime_of("some-new-runtime").broken_barriers == runtime_of("some-new-runtime").target_variable == ""
    assert preference("some-new-runtime") == preference("pocl") > preference("intel") > preference("nvidia")
