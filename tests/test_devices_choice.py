"""Choosing a device: by nothing, a word, a variable or an object of pyopencl."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from feinsum.devices import Device, DeviceProfile, build_program, describe_devices, device, device_choice, devices
from feinsum.devices.probe import Finding, Probe
from feinsum.devices.profile import unknown_profile
from feinsum.errors import DeviceError

BASE = unknown_profile("/lib/libx.so")


def profile(id_: str, name: str, platform: str, **more: object) -> DeviceProfile:
    """A profile of a device that nobody has."""
    kind, _, _, units = id_.split(":")
    facts = {"id": id_, "kind": kind, "name": name, "platform": platform, "compute_units": int(units.rstrip("cu"))}
    return replace(BASE, **{**facts, **more})  # type: ignore[arg-type]


POCL = profile("cpu:pocl:amd-epyc-9654:96cu", "cpu-znver4-AMD EPYC 9654", "Portable Computing Language")
INTEL = profile("cpu:intel:amd-epyc-9654:96cu", "AMD EPYC 9654", "Intel(R) OpenCL")
H200 = profile("gpu:nvidia:h200:132cu", "NVIDIA H200", "NVIDIA CUDA")
ARC = profile("gpu:intel:arc-a770:512cu", "Intel(R) Arc(TM) A770", "Intel(R) OpenCL Graphics")
BUILT_IN = profile("gpu:intel:uhd-770:800cu", "Intel(R) UHD 770", "Intel(R) OpenCL Graphics", host_unified_memory=True)
FPGA = profile("accelerator:intel:stratix:1cu", "Stratix", "Intel(R) FPGA")
ALL = (POCL, INTEL, FPGA, BUILT_IN, ARC, H200)


@pytest.fixture(autouse=True, scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Caches of our own, which the tests with real devices share, and drivers found by ourselves."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME"):
            patch.setenv(name, str(tmp_path_factory.mktemp(name)))
        patch.delenv("OCL_ICD_VENDORS", raising=False)
        patch.setattr(device_choice, "_known", None)
        yield


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user has not chosen anything."""
    monkeypatch.delenv("FEINSUM_DEVICE", raising=False)


def machine(
    monkeypatch: pytest.MonkeyPatch, profiles: Sequence[DeviceProfile], broken: Sequence[DeviceProfile] = ()
) -> None:
    """A machine on which probing found `profiles`, those of `broken` with a compiler that fails."""
    findings = tuple(Finding(p, None, "error: unknown target CPU" if p in broken else "") for p in profiles)
    monkeypatch.setattr(device_choice, "probe", lambda refresh: Probe((), findings))
    monkeypatch.setattr(device_choice, "activate", lambda libraries: None)
    monkeypatch.setattr(device_choice, "_known", None)
    monkeypatch.delitem(sys.modules, "pyopencl", raising=False)


def test_what_is_probed_again_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels, contexts and peaks belong to it; a device that changed is another."""
    machine(monkeypatch, (H200, INTEL, H200))
    before = devices()
    assert all(one is other for one, other in zip(before, devices(refresh=True), strict=True))
    changed = replace(INTEL, driver="another")
    monkeypatch.setattr(
        device_choice, "probe", lambda refresh: Probe((), (Finding(H200, None, ""), Finding(changed, None, "")))
    )
    gpu, cpu = devices(refresh=True)
    assert gpu is before[0]
    assert cpu is not before[2]
    assert cpu.profile.driver == "another"


def test_equal_devices_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have one id, and so the same records; a number at the end of a word means one of them."""
    machine(monkeypatch, (H200, INTEL, H200, POCL, H200), broken=(POCL,))
    gpus = [one for one in devices() if one.profile.kind == "gpu"]
    assert [(one.id, one.number, one.word) for one in gpus] == [
        (H200.id, 0, H200.id),
        (H200.id, 1, f"{H200.id}:1"),
        (H200.id, 2, f"{H200.id}:2"),
    ]
    assert str(gpus[1]) == f"NVIDIA H200 ({H200.id}:1)"
    for k, gpu in enumerate(gpus):
        for word in (gpu.word, f"gpu:{k}", f"h200:{k}", f"{H200.id}:{k}", f"NVIDIA:{k}"):
            assert device(word) is gpu, word
    assert device("cpu:0").profile == INTEL
    for word in ("gpu:3", "cpu:1", "gpu:x"):
        with pytest.raises(DeviceError, match="no OpenCL device fits"):
            device(word)


@pytest.mark.parametrize(
    ("profiles", "best"),
    [
        (ALL, H200),
        ((POCL, INTEL), INTEL),
        ((POCL, BUILT_IN, ARC), ARC),
        ((POCL, BUILT_IN), BUILT_IN),
        ((INTEL, FPGA), FPGA),
        ((POCL,), POCL),
    ],
)
def test_without_a_choice_the_best_device_is_taken(
    monkeypatch: pytest.MonkeyPatch, profiles: Sequence[DeviceProfile], best: DeviceProfile
) -> None:
    """GPUs before CPUs, memory of its own before shared memory, and runtimes that vectorise before PoCL."""
    machine(monkeypatch, profiles)
    assert device().profile == best
    assert devices()[0].profile == best


@pytest.mark.parametrize(
    ("word", "chosen"),
    [
        ("cpu", INTEL),
        ("GPU", H200),
        ("accelerator", FPGA),
        ("pocl", POCL),
        ("PoCL", POCL),
        ("portable", POCL),
        ("nvidia", H200),
        ("h200", H200),
        (" a770 ", ARC),
        ("intel", ARC),
        ("epyc", INTEL),
        ("cpu:pocl", POCL),
        ("cpu:pocl:amd-epyc-9654:96cu", POCL),
        ("cpu:intel:amd-epyc-9654:96cu", INTEL),
    ],
)
def test_a_word_chooses_the_best_device_that_fits_it(
    monkeypatch: pytest.MonkeyPatch, word: str, chosen: DeviceProfile
) -> None:
    """Kinds, ids and parts of id, name or platform, in any case; the variable means the same as the argument."""
    machine(monkeypatch, ALL)
    assert device(word).profile == chosen
    monkeypatch.setenv("FEINSUM_DEVICE", word)
    assert device().profile == chosen


def test_an_argument_overrides_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable is for those who cannot change the program."""
    machine(monkeypatch, ALL)
    monkeypatch.setenv("FEINSUM_DEVICE", "gpu")
    assert device("cpu").profile == INTEL


def test_unusable_devices_are_passed_over_while_others_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that cannot build kernels does not stand in the way of one that can."""
    machine(monkeypatch, (INTEL, POCL), broken=[INTEL])
    assert device("cpu").profile == POCL
    assert [d.usable for d in devices()] == [True, False]


def test_choosing_an_unusable_device_says_why_it_is_unusable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather than taking another one behind the user's back."""
    machine(monkeypatch, (INTEL, POCL), broken=[POCL])
    with pytest.raises(DeviceError, match=r"'pocl' is usable.*unknown target CPU"):
        device("pocl")


@pytest.mark.parametrize("word", ["volta", "gpu"])
def test_a_word_that_fits_nothing_lists_what_there_is(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    """Without advice for machines that have no device, as one of this machine works."""
    machine(monkeypatch, (INTEL, POCL))
    with pytest.raises(DeviceError, match=rf"no OpenCL device fits '{word}'.*cpu:intel:.*cpu:pocl:") as caught:
        device(word)
    assert "pip install" not in str(caught.value)


@pytest.mark.parametrize("url", ["postgresql://me:s3cr3t@host/records", "me:s3cr3t@host", "host=x password=s3cr3t"])
def test_a_url_in_place_of_a_device_is_not_repeated(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """``fe.query(e, url)`` gives the URL as the device, and a URL may hold a password."""
    machine(monkeypatch, (INTEL,))
    with pytest.raises(DeviceError, match=r"a URL is no device.*database=") as raised:
        device(url)
    assert "s3cr3t" not in str(raised.value)


@pytest.mark.parametrize("profiles", [(), (POCL,)])
def test_a_machine_without_a_usable_device_says_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch, profiles: Sequence[DeviceProfile]
) -> None:
    """The first thing that a new user may see."""
    machine(monkeypatch, profiles, broken=profiles)
    with pytest.raises(DeviceError, match=r"no usable OpenCL device.*pip install '\.\[cpu\]'"):
        device()


@pytest.mark.parametrize("wrong", [3, 2.5, ["cpu"], object()])
def test_other_objects_are_no_choice(wrong: object) -> None:
    """The error says what may be given."""
    with pytest.raises(DeviceError, match="chosen by a word"):
        device(wrong)  # type: ignore[arg-type]


def test_an_unusable_device_has_no_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its objects raise the reason instead of crashing."""
    machine(monkeypatch, (POCL,), broken=[POCL])
    with pytest.raises(DeviceError, match="unknown target CPU"):
        devices()[0].queue  # noqa: B018


def test_a_device_prints_as_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name and the id, which is what the user types."""
    machine(monkeypatch, (H200, POCL), broken=[POCL])
    good, bad = devices()
    assert str(good) == "NVIDIA H200 (gpu:nvidia:h200:132cu)"
    assert repr(good) == "<Device gpu:nvidia:h200:132cu>"
    assert repr(bad) == "<Device cpu:pocl:amd-epyc-9654:96cu unusable: error: unknown target CPU>"


def test_rows_for_the_command_line_are_plain_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """One dictionary a device; peaks are not measured for it."""
    machine(monkeypatch, (H200, POCL), broken=[POCL])
    good, bad = describe_devices()
    assert (good["id"], good["usable"], good["why"], good["peaks"]) == (H200.id, True, "", None)
    assert (bad["id"], bad["usable"], bad["why"]) == (POCL.id, False, "error: unknown target CPU")
    assert DeviceProfile.from_dict(good["profile"]) == H200


@pytest.fixture
def real() -> Device:
    """The best CPU device of this machine."""
    return device("cpu")


def test_a_device_runs_kernels(real: Device) -> None:
    """Its queue records times, and its context is shared by everybody in the process."""
    import numpy as np
    import pyopencl as cl

    x = np.arange(10, dtype=np.float32)
    y = cl.Buffer(real.context, cl.mem_flags.COPY_HOST_PTR, hostbuf=x)
    source = "kernel void twice(global float *y) { y[get_global_id(0)] *= 2; }"
    build_program(real.context, source).twice(real.queue, x.shape, None, y)
    cl.enqueue_copy(real.queue, x, y)
    assert x.tolist() == (2 * np.arange(10)).tolist()
    assert real.queue.properties & cl.command_queue_properties.PROFILING_ENABLE
    assert real.context is device(real.id).context
    assert device(real) is real


def test_objects_of_pyopencl_are_used_as_they_are(real: Device) -> None:
    """A queue or context of the user's own stays his own; the profile is the one that was probed."""
    import pyopencl as cl

    context = cl.Context([real.cl_device])
    queue = cl.CommandQueue(context)
    of_queue, of_context, of_device = device(queue), device(context), device(real.cl_device)
    assert of_queue.queue == queue
    assert of_queue.context == context == of_context.context
    assert of_context.queue.context == context
    assert of_device.context is real.context
    assert of_queue.profile == of_context.profile == of_device.profile == real.profile


def test_a_part_of_a_device_is_a_device_of_its_own(real: Device) -> None:
    """Sub-devices are in no list, and are described when they come."""
    import pyopencl as cl

    if real.profile.compute_units < 2:
        pytest.skip("a device of one compute unit has no parts")
    part = real.cl_device.create_sub_devices([cl.device_partition_property.EQUALLY, 1])[0]
    assert device(part).profile.id == real.profile.id.rpartition(":")[0] + ":1cu"


def test_threads_share_one_queue(real: Device) -> None:
    """Whoever asks first makes it."""
    fresh = Device(real.profile, real._address)
    queues = []
    threads = [threading.Thread(target=lambda: queues.append(fresh.queue)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(queue) for queue in queues}) == 1


def run(code: str) -> str:
    """What a new process prints that runs `code`, with warnings as errors."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.mark.skipif(not Path(sys.prefix, "lib/libintelocl.so").exists(), reason="no pip-installed Intel runtime here")
def test_the_intel_runtime_needs_no_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that never heard of OCL_ICD_VENDORS computes on it, also if it has imported pyopencl before."""
    monkeypatch.delenv("OCL_ICD_VENDORS", raising=False)
    code = "from feinsum.devices import device; d = device('cpu:intel'); print(d.queue.device.platform.name, d.usable)"
    assert run(code) == "Intel(R) OpenCL True"
    assert run("import pyopencl; " + code) == "Intel(R) OpenCL True"


def test_a_home_directory_that_cannot_be_written_does_not_matter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither to us nor to pyopencl and PoCL, which keep caches there."""
    monkeypatch.setenv("HOME", "/dev/null")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "OCL_ICD_VENDORS"):
        monkeypatch.delenv(name, raising=False)
    code = "from feinsum.devices import device, devices; print(device('cpu').usable, *(d.id for d in devices()))"
    usable, *ids = run(code).split()
    assert (usable, ids) == ("True", [known.id for known in devices()])


@pytest.mark.skipif(not Path(sys.prefix, "lib/libintelocl.so").exists(), reason="no pip-installed Intel runtime here")
def test_a_process_that_called_opencl_too_early_is_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The loader reads its list once; feinsum then reports what it cannot reach, and breaks nothing."""
    (tmp_path / "vendors").mkdir()
    code = (
        "import os; os.environ['OCL_ICD_VENDORS'] = %r\n"
        "import pyopencl as cl\n"
        "try: cl.get_platforms()\n"
        "except cl.Error: pass\n"
        "del os.environ['OCL_ICD_VENDORS']\n"
        "from feinsum.devices import device\n"
        "try: device('cpu:intel')\n"
        "except RuntimeError as error: print(error)"
    )
    monkeypatch.delenv("OCL_ICD_VENDORS", raising=False)
    assert "called OpenCL before feinsum" in run(code % str(tmp_path / "vendors"))
