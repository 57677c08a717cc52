"""NVIDIA devices: what inline PTX reaches, and limits that the driver does not report."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from feinsum.devices import Device, device
from feinsum.devices.ptx import INSTRUCTIONS, MATRIX_UNITS, MatrixUnit, candidates, product_source
from feinsum.errors import DeviceError


@pytest.mark.parametrize("unit", MATRIX_UNITS, ids=lambda unit: unit.name)
def test_the_lanes_of_a_sub_group_hold_each_element_once(unit: MatrixUnit) -> None:
    """The index expressions of the kernel, evaluated for all lanes, cover A, B and D without overlap."""
    sizes = {"A": unit.m * unit.k, "B": unit.k * unit.n, "D": unit.m * unit.n}
    for name, size in sizes.items():
        pattern = rf"= {name}\[(.*)\];" if name != "D" else r"^  D\[(.*)\] ="
        expressions = re.findall(pattern, product_source(unit), re.MULTILINE)
        held = [eval(e, {}, {"g": lane // 4, "t": lane % 4}) for e in expressions for lane in range(32)]
        assert sorted(held) == list(range(size))


@pytest.mark.parametrize("unit", MATRIX_UNITS, ids=lambda unit: unit.name)
def test_a_statement_names_each_register_in_order(unit: MatrixUnit) -> None:
    """Accumulators first, as they are read and written, then A, then B."""
    na, nb, nd = unit.registers
    statement = unit.statement("d", "a", "b")
    variables = re.findall(r'"\((?:as_uint)?\(?(\w+)\)', statement)
    assert variables == [*(f"d{i}" for i in range(nd)), *(f"a{i}" for i in range(na)), *(f"b{i}" for i in range(nb))]
    assert statement.count("%") == 2 * nd + na + nb


def test_candidates_follow_the_compute_capability() -> None:
    """Ampere multiplies float64 in one shape, Hopper in four; Pascal has nothing of this."""
    assert candidates((6, 1)) == ()
    assert candidates((7, 5)) == ("shfl-sync",)
    assert [name for name in candidates((8, 6)) if name.startswith("fp64")] == ["fp64-mma-m8n8k4"]
    assert set(candidates((9, 0))) == {unit.name for unit in MATRIX_UNITS} | set(INSTRUCTIONS)


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
    assert set(profile.matrix_units) | set(profile.instructions) == set(candidates(profile.compute_capability or ()))


@pytest.mark.gpu
def test_matrix_units_have_a_peak(nvidia: Device) -> None:
    """Where there are float64 matrix units their rate is measured too."""
    has_units = any(name.startswith("fp64") for name in nvidia.profile.matrix_units)
    assert (nvidia.peaks.fp64_matrix_flops_per_s is not None) == has_units
