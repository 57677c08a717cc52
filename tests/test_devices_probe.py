"""Probing: a driver that cannot be opened, crashes or hangs costs nothing but its own devices."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from profiles import GPU

from feinsum.devices import icd, probe
from feinsum.devices.opencl import Address
from feinsum.devices.probe import Finding, Probe, _ProbeAnswer
from feinsum.devices.vendors.nvidia.mma import MATRIX_UNITS

INTEL = Path(sys.prefix, "lib/libintelocl.so")

needs_intel = pytest.mark.skipif(not INTEL.exists(), reason="the pip-installed Intel runtime is not here")
needs_compiler = pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc to compile a broken driver with")

ON_LOAD = """
#include <stdio.h>
#include <string.h>
#include <unistd.h>
__attribute__((constructor)) static void on_load(void)
{
  char command[65536] = {0};
  FILE *file = fopen("/proc/self/cmdline", "r");
  size_t length = fread(command, 1, sizeof command - 1, file);
  for (size_t k = 0; k < length; ++k) if (!command[k]) command[k] = ' ';
  if (strstr(command, WHEN)) HARM;
}
"""
"""A driver that does harm when it is opened by a process whose command line contains a word."""

CRASH, HANG = "*(volatile int *) 0 = 1", "for (;;) pause()"


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Caches of our own, and the drivers that each test names."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path / "vendors"))
    (tmp_path / "vendors").mkdir()
    return tmp_path


def install(home: Path, *libraries: Path) -> None:
    """Make `libraries` the drivers of this machine."""
    for k, library in enumerate(libraries):
        (home / f"vendors/{k}.icd").write_text(f"{library}\n")


def harmful(home: Path, harm: str, when: str) -> Path:
    """A driver without devices that does `harm` in workers whose command line contains `when`."""
    source, library = home / "driver.c", home / f"lib{'crash' if harm is CRASH else 'hang'}.so"
    source.write_text(ON_LOAD)
    command = ["gcc", "-shared", "-fPIC", f'-DWHEN="{when}"', f"-DHARM={harm}", "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    return library


def summary(found: Probe) -> dict[str, str]:
    """Why each device is unusable, by the end of its platform's name."""
    return {finding.profile.platform.rpartition("/")[2]: finding.why for finding in found.findings}


@needs_intel
def test_the_intel_runtime_is_usable_and_described(home: Path) -> None:
    """It has sub-groups, vectors and both floating-point types, and memory as the system says."""
    install(home, INTEL)
    (finding,) = probe.probe().findings
    profile = finding.profile
    assert finding.why == ""
    assert (profile.kind, profile.runtime, profile.fp64, profile.local_memory_is_dedicated) == ("cpu", "intel", True, False)
    assert profile.compute_units == len(os.sched_getaffinity(0))
    assert profile.simd_bytes in (16, 32, 64)
    assert set(profile.sub_group_sizes) <= {4, 8, 16, 32, 64}
    assert profile.sub_group_sizes
    assert profile.static_local_memory_bytes == profile.local_memory_bytes > 0
    assert profile.compute_capability is None
    assert profile.matrix_units == ()


@needs_intel
def test_the_profile_of_the_intel_runtime_is_of_what_it_compiles_for(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every processor that the runtime supports knows SSE 4.2; that profile is remembered apart from the native one."""
    monkeypatch.delenv("CL_CONFIG_CPU_TARGET_ARCH", raising=False)
    install(home, INTEL)
    (native,) = probe.probe().findings
    monkeypatch.setenv("CL_CONFIG_CPU_TARGET_ARCH", "corei7")
    (played,) = probe.probe().findings
    assert (played.why, played.profile.simd_bytes, played.profile.vector_registers) == ("", 16, 16)
    assert played.profile.architecture.endswith("-sse")
    assert (played.profile.id == native.profile.id) == (native.profile.simd_bytes == 16)


@needs_intel
@needs_compiler
def test_a_driver_that_crashes_when_opened_is_named_and_left_out(home: Path) -> None:
    """The other drivers are probed all the same, and this process will not open the broken one."""
    broken = harmful(home, CRASH, when=" list ")
    install(home, broken, INTEL)
    found = probe.probe()
    assert summary(found) == {"Intel(R) OpenCL": "", "libcrash.so": "the driver crashed (SIGSEGV)"}
    assert found.libraries == (str(INTEL),)


@needs_intel
@needs_compiler
def test_a_driver_that_hangs_when_opened_is_named_and_left_out(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is given up after the time limit."""
    monkeypatch.setenv("FEINSUM_PROBE_TIMEOUT", "6")
    install(home, harmful(home, HANG, when=" list "), INTEL)
    found = probe.probe()
    assert summary(found) == {"Intel(R) OpenCL": "", "libhang.so": "the driver gave no answer within 6 s"}
    assert found.libraries == (str(INTEL),)


@needs_intel
@needs_compiler
@pytest.mark.parametrize(
    ("harm", "why"), [(CRASH, "the driver crashed (SIGSEGV)"), (HANG, "the driver gave no answer within 5 s")]
)
def test_a_device_that_breaks_when_used_is_listed_as_unusable(
    home: Path, monkeypatch: pytest.MonkeyPatch, harm: str, why: str
) -> None:
    """Listing devices proves nothing; building and running a kernel does."""
    if harm is HANG:
        monkeypatch.setenv("FEINSUM_PROBE_TIMEOUT", "5")
    install(home, INTEL, harmful(home, harm, when=" check "))
    assert summary(probe.probe()) == {"Intel(R) OpenCL": why}


def test_a_driver_that_cannot_be_opened_says_what_the_linker_says(home: Path) -> None:
    """Such as Intel's runtime without the package of the libraries that it needs."""
    (home / "libnone.so").write_text("no library " * 100)
    install(home, home / "libnone.so")
    (finding,) = probe.probe().findings
    assert "cannot be opened" in finding.why
    assert "invalid ELF header" in finding.why
    assert finding.profile.kind == "unknown"


def test_a_machine_without_drivers_has_no_findings(home: Path) -> None:
    """No driver is no error here; choosing a device is."""
    assert probe.probe().findings == ()


def remembered(home: Path) -> Path:
    """The only stored probe."""
    (file,) = (home / "cache/feinsum/devices").glob("*.json")
    return file


def no_questions(*_: object) -> Probe:
    """A stand-in for asking drivers where that would be wrong."""
    raise AssertionError("the drivers were asked again")


@needs_intel
def test_what_was_found_is_recalled_without_asking_the_drivers(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second process starts no other."""
    install(home, INTEL)
    found = probe.probe()
    monkeypatch.setattr(probe, "_probed_libraries", no_questions)
    assert probe.probe() == found


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "{",
        "[]",
        "null",
        '{"until": null, "libraries": [], "findings": [{}]}',
        '{"until": "soon", "libraries": [], "findings": []}',
        '{"until": null, "libraries": 3, "findings": []}',
        "[" * 100_000,
    ],
)
def test_a_damaged_cache_is_a_miss(home: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    """Whatever stands in the file, the devices are probed again and the file is mended."""
    answers = iter([Probe(("/a.so",), ()), Probe(("/b.so",), ())])
    monkeypatch.setattr(probe, "_probed_libraries", lambda _: next(answers))
    assert probe.probe().libraries == ("/a.so",)
    remembered(home).write_text(damage)
    assert probe.probe().libraries == ("/b.so",)
    assert json.loads(remembered(home).read_text())["libraries"] == ["/b.so"]


def test_a_stored_finding_that_lost_a_field_is_a_miss(home: Path) -> None:
    """A profile without its limits would fail later and elsewhere."""
    (home / "libnone.so").write_text("no library")
    install(home, home / "libnone.so")
    found = probe.probe()
    stored = json.loads(remembered(home).read_text())
    del stored["findings"][0]["profile"]["compute_units"]
    remembered(home).write_text(json.dumps(stored))
    assert probe.probe() == found


def test_failures_are_tried_again_later(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device may have failed because it was busy; a machine where all is well is asked once."""
    (home / "libnone.so").write_text("no library")
    install(home, home / "libnone.so")
    probe.probe()
    again = Probe((), ())
    monkeypatch.setattr(probe, "_probed_libraries", lambda _: again)
    assert probe.probe() != again
    now = probe.time.time()
    monkeypatch.setattr(probe.time, "time", lambda: now + 86_400)
    assert probe.probe() == again


def test_questions_that_a_cold_machine_left_unanswered_are_asked_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone, as many at once may take too long; what is unanswered then is guessed, but not for good."""
    address = Address("NVIDIA CUDA", "OpenCL 3.0", "Some GPU", "580.1", 0)
    late, asked = _ProbeAnswer(None, "the driver gave no answer within 60 s"), list[str]()

    def ask(task: str, arguments: list[Any], libraries: object) -> _ProbeAnswer:
        asked.append(task)
        if task == "list":
            return _ProbeAnswer(
                {"broken": {}, "idle": [], "devices": [{"profile": GPU.to_dict(), "address": address.to_dict()}]}, ""
            )
        if task == "static-local":
            return late if asked.count(task) <= unanswered else _ProbeAnswer(227 << 10, "")
        return _ProbeAnswer("" if task == "check" else True, "")

    monkeypatch.setattr(probe, "_ask_worker", ask)
    for unanswered, expected in ((1, 227 << 10), (2, GPU.local_memory_bytes)):
        asked.clear()
        (finding,) = probe.probe(refresh=True).findings
        assert finding.profile.static_local_memory_bytes == expected
        assert finding.profile.matrix_units == tuple(unit.name for unit in MATRIX_UNITS)
        assert (json.loads(remembered(home).read_text())["until"] is None) == (unanswered == 1)


def test_refreshing_asks_the_drivers_whatever_is_remembered(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a driver that was repaired in place."""
    probe.probe()
    again = Probe(("/x.so",), ())
    monkeypatch.setattr(probe, "_probed_libraries", lambda _: again)
    assert probe.probe() == Probe((), ())
    assert probe.probe(refresh=True) == again


IDLE = """
#include <stddef.h>
#include <string.h>
typedef struct platform { void **dispatch; } *platform;
static int ask_platforms(unsigned n, platform *found, unsigned *number);
static int ask_platform(platform p, unsigned name, size_t size, void *value, size_t *needed)
{
  const char *text = name == 0x0904 ? "cl_khr_icd" : name == 0x0920 ? "IDLE" : name == 0x0901 ? "OpenCL 3.0 idle" : "idle";
  if (needed) *needed = strlen(text) + 1;
  if (value && size > strlen(text)) strcpy(value, text);
  return 0;
}
static int ask_devices(platform p, unsigned long kind, unsigned n, void **found, unsigned *number)
{
  if (number) *number = 0;
  return -1;
}
static void *dispatch[256] = {ask_platforms, ask_platform, ask_devices};
static struct platform only = {dispatch};
static int ask_platforms(unsigned n, platform *found, unsigned *number)
{
  if (number) *number = PLATFORMS;
  if (n && found && PLATFORMS) *found = &only;
  return PLATFORMS ? 0 : -1001;
}
int clGetPlatformInfo(platform p, unsigned name, size_t size, void *value, size_t *needed)
{
  return ask_platform(p, name, size, value, needed);
}
void *clGetExtensionFunctionAddress(const char *name)
{
  if (!strcmp(name, "clIcdGetPlatformIDsKHR")) return ask_platforms;
  return !strcmp(name, "clGetPlatformInfo") ? ask_platform : NULL;
}
"""
"""A driver that offers a platform without devices, as rusticl does, or none at all, as NVIDIA's does without a GPU."""


@needs_compiler
@pytest.mark.parametrize("platforms", [0, 1])
@pytest.mark.parametrize("beside", [(), pytest.param((INTEL,), marks=needs_intel)], ids=["alone", "beside another"])
def test_a_driver_without_devices_is_named(home: Path, platforms: int, beside: tuple[Path, ...]) -> None:
    """It is no failure, so it is remembered for good."""
    source, library = home / "driver.c", home / "libRusticlOpenCL.so.1"
    source.write_text(IDLE)
    subprocess.run(["gcc", "-shared", "-fPIC", f"-DPLATFORMS={platforms}", "-o", str(library), str(source)], check=True)
    install(home, library, *beside)
    found = probe.probe()
    assert (found.idle, [finding.why for finding in found.findings]) == ((str(library),), [""] * len(beside))
    assert probe.probe() == found
    (memo,) = (home / "cache/feinsum/devices").glob("*.json")
    assert json.loads(memo.read_text())["until"] is None
    listed = subprocess.run([sys.executable, "-m", "feinsum", "devices"], capture_output=True, text=True, check=False)
    assert listed.returncode == (not beside)
    told = listed.stdout if beside else listed.stderr
    assert "libRusticlOpenCL.so.1 has no device here: RUSTICL_ENABLE names the drivers that it may use" in told


@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "RUSTICL_ENABLE", "HSA_OVERRIDE_GFX_VERSION", "ZE_AFFINITY_MASK"])
def test_the_list_of_devices_follows_the_variables_of_every_driver(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They hide devices, or show some."""
    monkeypatch.delenv(name, raising=False)
    before = probe._fingerprint(())
    monkeypatch.setenv(name, "1")
    assert probe._fingerprint(()) != before


def test_another_driver_or_driver_setting_is_another_key(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that was replaced, and a variable that hides devices, both change what there is."""
    library = home / "libone.so"
    library.write_text("1")
    keys = {probe._fingerprint((str(library),))}
    os.utime(library, (1, 1))
    keys.add(probe._fingerprint((str(library),)))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    keys.add(probe._fingerprint((str(library),)))
    assert len(keys) == 3


def test_findings_survive_json(home: Path) -> None:
    """What is stored is what was found."""
    (home / "libnone.so").write_text("no library")
    install(home, home / "libnone.so")
    (finding,) = probe.probe().findings
    assert isinstance(finding, Finding)
    stored = json.loads(json.dumps({"until": None, "libraries": [], "idle": [], "findings": [finding.to_dict()]}))
    assert probe._recalled(stored) == Probe((), (finding,))


def test_bundled_drivers_are_found_without_importing_pyopencl() -> None:
    """``import feinsum.devices`` and the search for drivers load nothing heavy."""
    code = (
        "import sys, feinsum.devices; from feinsum.devices import icd; icd.find_libraries(); icd.bundled_libraries()\n"
        "print(*{'pyopencl', 'loopy', 'optuna', 'sqlalchemy', 'platformdirs'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() in ("", "platformdirs")
    assert all(Path(name).is_absolute() for name in icd.bundled_libraries())


@pytest.mark.parametrize(("text", "limit_s"), [(None, 60), ("", 60), ("2.5", 2.5), ("soon", 60), ("-1", 60), ("nan", 60)])
def test_a_time_limit_that_is_none_gives_way_to_the_default(
    text: str | None, limit_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    """With a warning that names the variable, once."""
    probe._probe_limit_s.cache_clear()
    assert [probe._probe_limit_s(text), probe._probe_limit_s(text)] == [limit_s, limit_s]
    told = f"FEINSUM_PROBE_TIMEOUT={text!r} is not a number of seconds; using the default, 60"
    assert [record.getMessage() for record in caplog.records] == ([told] if text and limit_s == 60 else [])


def test_processes_that_start_together_ask_the_drivers_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others wait for the answer of the first, as many at a time may ask a driver for longer than it is given."""
    asked = []

    def slowly(_: object) -> Probe:
        asked.append(1)
        time.sleep(0.3)
        return Probe(("/a.so",), ())

    monkeypatch.setattr(probe, "_probed_libraries", slowly)
    with ThreadPoolExecutor(4) as pool:
        assert {found.libraries for found in pool.map(lambda _: probe.probe(), range(4))} == {("/a.so",)}
    assert len(asked) == 1
