"""NVIDIA devices: what inline PTX reaches, and limits that the driver does not report."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest
from profiles import GPU

from feinsum.devices import Device, device
from feinsum.devices.vendors.nvidia import INSTRUCTIONS, NVIDIA
from feinsum.devices.vendors.nvidia.mma import HALF_UNITS, MATRIX_UNITS
from feinsum.devices.vendors.units import MatrixUnit
from feinsum.errors import DeviceError


def of_a(g: int, t: int, i: int) -> tuple[int, int]:
    """Row and column of a_i of .f64 and .tf32 after the PTX ISA; g and t are groupID and threadID_in_group."""
    return g + 8 * (i % 2), t + 4 * (i // 2)


def of_small_a(g: int, t: int, i: int) -> tuple[int, int]:
    return g, t


def of_b(g: int, t: int, i: int) -> tuple[int, int]:
    return t + 4 * i, g


def of_d(g: int, t: int, i: int) -> tuple[int, int]:
    return (g if i < 2 else g + 8), 2 * t + (i & 1)


def of_packed_a(g: int, t: int, i: int) -> tuple[int, int]:
    """The same of .f16 and .bf16 in .m16n8k16, whose register p holds numbers 2 p and 2 p + 1."""
    return (g if i < 2 or 4 <= i < 6 else g + 8), 2 * t + (i & 1) + (8 if i >= 4 else 0)


def of_packed_b(g: int, t: int, i: int) -> tuple[int, int]:
    return 2 * t + (i & 1) + (8 if i >= 2 else 0), g


@pytest.mark.parametrize("unit", NVIDIA.matrix_units, ids=lambda unit: unit.name)
def test_lanes_and_registers_are_those_of_the_ptx_isa(unit: MatrixUnit) -> None:
    """Section "Matrix fragments for mma" of each shape; of packed numbers the result alone is held as published."""
    layouts = [(unit.d, of_d)]
    if unit in MATRIX_UNITS:
        layouts += [(unit.a, of_small_a if unit.m == 8 else of_a), (unit.b, of_b)]
    for layout, published in layouts:
        for lane, register in product(range(32), range(layout.length)):
            assert layout.place(lane, register) == published(lane // 4, lane % 4, register)


@pytest.mark.parametrize("unit", HALF_UNITS, ids=lambda unit: unit.name)
def test_packed_numbers_are_multiplied_with_their_own(unit: MatrixUnit) -> None:
    """What the ISA calls column k of A and row k of B is one index of ours, in all lanes: sums have no order."""
    pairs = re.findall(r"uint p([ab])(\d).*?\b([ab]\d)\b.*?\b([ab]\d)\b", unit.function())
    assert len(pairs) == 6
    known: dict[int, int] = {}
    for (name, number, one, other), lane in product(pairs, range(32)):
        layout, published, depth = (unit.a, of_packed_a, 1) if name == "a" else (unit.b, of_packed_b, 0)
        for half, variable in enumerate((one, other) if unit.operand == "bfloat16" else (other, one)):
            own = layout.place(lane, int(variable[1:]))
            theirs = published(lane // 4, lane % 4, 2 * int(number) + half)
            assert own[1 - depth] == theirs[1 - depth]
            assert known.setdefault(own[depth], theirs[depth]) == theirs[depth]
    assert sorted(known) == sorted(known.values()) == list(range(unit.k))


@pytest.mark.parametrize("unit", MATRIX_UNITS, ids=lambda unit: unit.name)
def test_a_statement_names_each_register_in_order(unit: MatrixUnit) -> None:
    """Accumulators first, as they are read and written, then A, then B."""
    na, nb, nd = unit.registers
    statement = unit.statement("d", "a", "b")
    variables = re.findall(r'"\((?:as_uint)?\(?(\w+)\)', statement)
    assert variables == [*(f"d{i}" for i in range(nd)), *(f"a{i}" for i in range(na)), *(f"b{i}" for i in range(nb))]
    assert statement.count("%") == 2 * nd + na + nb


def promised(*capability: int) -> tuple[str, ...]:
    units, instructions = NVIDIA.promised(replace(GPU, compute_capability=capability))
    return (*units, *instructions)


def test_promises_follow_the_compute_capability() -> None:
    """Ampere multiplies float64 in one shape, Hopper in four; Pascal has nothing of this."""
    assert promised(6, 1) == ()
    assert promised(7, 5) == ("shfl-sync",)
    assert [name for name in promised(8, 6) if name.startswith("fp64")] == ["fp64-mma-m8n8k4"]
    assert set(promised(9, 0)) == {unit.name for unit in MATRIX_UNITS} | set(INSTRUCTIONS)


@pytest.fixture(scope="module")
def nvidia(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Device]:
    """The NVIDIA device of this machine, probed and measured here."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME"):
            patch.setenv(name, str(tmp_path_factory.mktemp(name)))
        patch.delenv("OCL_ICD_VENDORS", raising=False)
        try:
            yield device("gpu:nvidia")
        except DeviceError as error:
            pytest.skip(f"no NVIDIA device: {error}")


@pytest.mark.gpu
def test_an_nvidia_device_is_found_and_described(nvidia: Device) -> None:
    """Sub-groups of 32, local memory of its own, and a cache beyond the one that OpenCL reports."""
    profile = nvidia.profile
    assert profile.architecture == "nvidia-sm" + "".join(map(str, profile.compute_capability or ()))
    assert profile.sub_group_sizes == (32,)
    assert profile.local_memory_is_dedicated
    assert profile.max_registers_per_work_item == 255
    assert (profile.registers_per_compute_unit or 0) >= 32768
    assert profile.cache_bytes >= 2**20
    assert profile.simd_bytes == 0


@pytest.mark.gpu
def test_local_arrays_may_be_larger_than_the_driver_reports(nvidia: Device) -> None:
    """From Volta on; 226 KiB were seen on Hopper."""
    profile = nvidia.profile
    assert profile.static_local_memory_bytes >= profile.local_memory_bytes
    if profile.compute_capability == (9, 0):
        assert profile.static_local_memory_bytes >= 226 * 1024


@pytest.mark.gpu
def test_everything_the_capability_promises_is_built_and_right(nvidia: Device) -> None:
    """A driver that builds inline PTX at all builds all of it."""
    profile = nvidia.profile
    assert set(profile.matrix_units) | set(profile.instructions) == set(promised(*(profile.compute_capability or ())))


@pytest.mark.gpu
def test_matrix_units_have_a_peak(nvidia: Device) -> None:
    """Where there are float64 matrix units their rate is measured too."""
    has_units = any(name.startswith("fp64") for name in nvidia.profile.matrix_units)
    assert (nvidia.peaks.fp64_matrix_flops_per_s is not None) == has_units
