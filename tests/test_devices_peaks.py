"""Peaks: measured once, by running kernels, and remembered for a device and its driver."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feinsum as fe
from feinsum.devices import Device, Peaks, device, handle, measure_peaks, peaks
from feinsum.devices.peaks import remember_peaks, remembered_peaks
from feinsum.devices.profile import unknown_profile
from feinsum.errors import DeviceError

PROFILE = replace(unknown_profile("/lib/libx.so"), id="gpu:nvidia:h200:132cu", driver="580.1")
PEAKS = Peaks(
    fp32_flops_per_s=6e13,
    fp64_flops_per_s=3e13,
    fp64_matrix_flops_per_s=6.6e13,
    copy_bytes_per_s=4.3e12,
    read_bytes_per_s=4.4e12,
    launch_s=1e-5,
    round_trip_s=2e-5,
    processor_share=1.0,
    spread={"copy_bytes_per_s": 0.01},
)


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A data directory of our own: where peaks are kept."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path / "feinsum/peaks"


def test_peaks_are_remembered_for_device_and_driver(home: Path) -> None:
    """Another device or another driver has its own."""
    assert remembered_peaks(PROFILE) is None
    remember_peaks(PROFILE, PEAKS)
    assert remembered_peaks(PROFILE) == PEAKS
    assert remembered_peaks(replace(PROFILE, driver="581")) is None
    assert remembered_peaks(replace(PROFILE, id="gpu:nvidia:h200:66cu")) is None
    assert [file.name.partition("-1")[0] for file in home.iterdir()] == ["gpu-nvidia-h200"]


def test_a_device_without_float64_has_no_rate_for_it() -> None:
    """The error names the type, and four-byte numbers have one."""
    single = replace(PEAKS, fp64_flops_per_s=None, fp64_matrix_flops_per_s=None)
    remember_peaks(PROFILE, single)
    assert remembered_peaks(PROFILE) == single
    with pytest.raises(ValueError, match="no rate for complex128"):
        single.flops_per_s("complex128")
    assert single.flops_per_s("complex64") == single.flops_per_s(np.int32) == single.flops_per_s("float32") == 6e13


def test_the_rate_of_a_type_is_that_of_the_fastest_unit() -> None:
    """Matrix units count where the device has them."""
    assert PEAKS.flops_per_s(np.float64) == PEAKS.flops_per_s("complex128") == 6.6e13
    assert replace(PEAKS, fp64_matrix_flops_per_s=None).flops_per_s(np.float64) == 3e13


def test_peaks_of_a_busy_machine_are_measured_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a quiet one last."""
    busy = replace(PEAKS, processor_share=0.3)
    remember_peaks(PROFILE, busy)
    assert remembered_peaks(PROFILE) == busy
    now = peaks.time.time()
    monkeypatch.setattr(peaks.time, "time", lambda: now + 86_400)
    assert remembered_peaks(PROFILE) is None
    monkeypatch.setattr(peaks.time, "time", lambda: now)
    remember_peaks(PROFILE, PEAKS)
    monkeypatch.setattr(peaks.time, "time", lambda: now + 86_400)
    assert remembered_peaks(PROFILE) == PEAKS


@pytest.mark.parametrize(
    "damage",
    [
        lambda record: {},
        lambda record: [record],
        lambda record: {**record, "format": 0},
        lambda record: {**record, "id": "cpu:intel:x:1cu"},
        lambda record: {**record, "peaks": None},
        lambda record: {**record, "peaks": {}},
        lambda record: {**record, "peaks": {**record["peaks"], "launch_s": "fast"}},
        lambda record: {**record, "peaks": {**record["peaks"], "launch_s": True}},
        lambda record: {**record, "peaks": {**record["peaks"], "copy_bytes_per_s": None}},
        lambda record: {**record, "peaks": {**record["peaks"], "copy_bytes_per_s": 0}},
        lambda record: {**record, "peaks": {**record["peaks"], "copy_bytes_per_s": float("inf")}},
        lambda record: {**record, "peaks": {**record["peaks"], "spread": 3}},
    ],
)
def test_damaged_peaks_are_no_peaks(home: Path, damage: Any) -> None:
    """They are measured again instead of dividing by what is there."""
    remember_peaks(PROFILE, PEAKS)
    (file,) = home.iterdir()
    file.write_text(json.dumps(damage(json.loads(file.read_text()))))
    assert remembered_peaks(PROFILE) is None


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Device, Peaks]]:
    """The CPU of this machine and its peaks, measured here once, though other tests keep the machine busy."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME"):
            patch.setenv(name, str(tmp_path_factory.mktemp(name)))
        patch.delenv("OCL_ICD_VENDORS", raising=False)
        real = device("cpu")
        with patch.context() as hasty:
            hasty.setattr(peaks, "_ATTEMPTS", 1)
            found = measure_peaks(real, refresh=True)
        yield real, found


def test_measured_peaks_are_possible(measured: tuple[Device, Peaks]) -> None:
    """A processor does more than one and less than a thousand operations per vector lane and nanosecond.

    Wide bounds on purpose: they catch a wrong unit, a loop that the compiler removed and a copy that never left the cache.
    """
    real, found = measured
    lanes = real.profile.compute_units * real.profile.simd_bytes / 4
    assert 1e8 < found.fp32_flops_per_s / lanes < 1e12
    assert found.copy_bytes_per_s < 1e13
    assert found.launch_s < 1
    assert (found.fp64_flops_per_s is not None) == real.profile.fp64
    assert found.fp64_matrix_flops_per_s is None
    assert 0 < found.processor_share <= 1
    assert set(found.spread) <= set(found.to_dict())
    assert len(found.spread) == 6


def test_peaks_are_measured_once(measured: tuple[Device, Peaks], monkeypatch: pytest.MonkeyPatch) -> None:
    """A new object for the same device, as in a new process, reads them; asking for a refresh measures again."""
    real, found = measured
    remember_peaks(real.profile, found)
    fresh = Device(real.profile, real._address)
    monkeypatch.setattr(handle, "_measured_peaks", lambda device: replace(found, launch_s=1.0))
    assert fresh.known_peaks == fresh.peaks == measure_peaks(fresh) == found
    assert measure_peaks(fresh, refresh=True).launch_s == 1.0
    assert fresh.peaks.launch_s == 1.0
    assert remembered_peaks(real.profile) == fresh.peaks


def test_peaks_of_an_unusable_device_are_refused() -> None:
    """With the reason why it is unusable."""
    with pytest.raises(DeviceError, match="broken driver"):
        Device(PROFILE, None, "broken driver").peaks  # noqa: B018


def test_a_busy_machine_is_measured_again_and_the_best_is_kept() -> None:
    """Up to three times; figures are the best of all where it stays busy, times among them."""
    slow = replace(PEAKS, processor_share=0.3, copy_bytes_per_s=1e9, launch_s=1.0, spread={"launch_s": 0.5})
    busy = replace(PEAKS, processor_share=0.5, fp32_flops_per_s=1e9)
    asked = iter([slow, PEAKS, busy])
    assert peaks.settled_figures(asked.__next__) == PEAKS
    assert next(asked) is busy
    kept = peaks.settled_figures(iter([slow, busy, slow]).__next__)
    assert (kept.copy_bytes_per_s, kept.fp32_flops_per_s) == (PEAKS.copy_bytes_per_s, PEAKS.fp32_flops_per_s)
    assert (kept.launch_s, kept.processor_share) == (PEAKS.launch_s, 0.5)
    assert kept.spread.get("launch_s") == PEAKS.spread.get("launch_s", 0.5)


def test_a_kernel_that_exceeds_the_peaks_has_them_measured_again(
    cpu: Device, store: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once: what was measured just now is believed, and then it is the record that is said to be from better times."""
    from test_ladder import BEST, E, add

    real = replace(cpu.peaks, processor_share=1.0)
    add(store, E, cpu, {"E": 1000}, BEST, median_s=1e-9)
    kernel = fe.generate(E, cpu, store, {"E": 1000})
    known = Device(cpu.profile, cpu._address)
    caplog.clear()
    monkeypatch.setattr(kernel, "device", known)
    monkeypatch.setattr(handle, "_measured_peaks", lambda device: replace(real, launch_s=1.0))
    long_ago = peaks.time.time() - 86_400
    with monkeypatch.context() as patch:
        patch.setattr(peaks.time, "time", lambda: long_ago)
        remember_peaks(cpu.profile, real)
    assert "of what the device can do now: it was faster when the record was measured" in kernel.explain()
    assert known.peaks.launch_s == 1.0
    assert ["are exceeded" in message for message in caplog.messages] == [True]
    kernel.explain()
    assert len(caplog.messages) == 1
    remember_peaks(cpu.profile, real)
