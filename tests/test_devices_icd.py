"""Finding OpenCL drivers: every one that is installed, each once, unless the user named some."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from feinsum.devices import icd, json_store


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with no drivers and a home of its own: the directory in which both are."""
    for name in ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH", "LD_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(icd, "SYSTEM_DIRECTORY", tmp_path / "vendors")
    monkeypatch.setattr(icd, "DRIVER_DIRECTORIES", ())
    monkeypatch.setattr(icd.sys, "prefix", str(tmp_path / "prefix"))
    monkeypatch.setattr(icd.sysconfig, "get_path", lambda *_: str(tmp_path / "prefix"))
    monkeypatch.setattr(icd, "bundled_libraries", lambda: ())
    (tmp_path / "vendors").mkdir()
    return tmp_path


def library(path: Path) -> str:
    """An empty file in the place of a library."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    return str(path)


def named(directory: Path, **libraries: str) -> None:
    """Vendor files, one for each library."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in libraries.items():
        (directory / f"{name}.icd").write_text(text + "\n")


def test_a_machine_without_drivers_has_none() -> None:
    """No vendor file and no library in the usual places is no driver."""
    assert icd.find_libraries() == ()


def test_the_pip_installed_intel_runtime_is_found_beside_the_systems_drivers(machine: Path) -> None:
    """The wheel's own vendor file names a path of its build machine, so the library itself is looked for."""
    pocl = library(machine / "libpocl.so.2")
    named(machine / "vendors", pocl=pocl)
    named(machine / "prefix/etc/OpenCL/vendors", intel="/opt/build/lib/libintelocl.so")
    intel = library(machine / "prefix/lib/libintelocl.so")
    assert icd.find_libraries() == (pocl, intel)


def test_drivers_of_a_conda_environment_are_found(machine: Path) -> None:
    """Conda keeps working vendor files below its prefix."""
    pocl = library(machine / "prefix/lib/libpocl.so")
    named(machine / "prefix/etc/OpenCL/vendors", pocl=pocl)
    assert icd.find_libraries() == (pocl,)


def test_a_library_with_two_names_is_opened_once(machine: Path) -> None:
    """A link and its target are one driver."""
    target = library(machine / "libone.so.1.0")
    (machine / "libone.so").symlink_to(target)
    named(machine / "vendors", a=target, b=str(machine / "libone.so"))
    assert icd.find_libraries() == (target,)


@pytest.mark.parametrize("listed", [True, False])
def test_nvidias_driver_is_found_once_whether_a_vendor_file_names_it_or_not(
    machine: Path, monkeypatch: pytest.MonkeyPatch, listed: bool
) -> None:
    """Containers mount the library in a directory of its own, often without the vendor file."""
    nvidia = library(machine / "nvidia/lib64/libnvidia-opencl.so.1")
    monkeypatch.setattr(icd, "DRIVER_DIRECTORIES", (str(machine / "nvidia/lib64"),))
    if listed:
        named(machine / "vendors", nvidia="libnvidia-opencl.so.1")
    assert icd.find_libraries() == (nvidia,)


def test_copies_of_nvidias_driver_in_two_places_are_one(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both would list the same devices."""
    first = library(machine / "a/libnvidia-opencl.so.580.1")
    library(machine / "b/libnvidia-opencl.so.1")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(machine / "b"))
    named(machine / "vendors", nvidia=first)
    assert icd.find_libraries() == (first,)


def test_what_pyopencl_brings_is_left_to_its_loader(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loader of the wheel opens its own drivers in any case; naming them again would list them twice."""
    pocl = library(machine / "pyopencl/.libs/libpocl.so")
    monkeypatch.setattr(icd, "bundled_libraries", lambda: (pocl,))
    named(machine / "vendors", pocl=pocl)
    assert icd.find_libraries() == ()


@pytest.mark.parametrize("form", ["directory", "file", "library"])
def test_the_users_own_variable_names_the_only_drivers(machine: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """Whichever form of ``OCL_ICD_VENDORS`` is used, it is a choice, and is left as it is."""
    library(machine / "prefix/lib/libintelocl.so")
    mine = library(machine / "libmine.so")
    named(machine / "mine", mine=mine)
    setting = {"directory": str(machine / "mine"), "file": str(machine / "mine/mine.icd"), "library": mine}[form]
    monkeypatch.setenv("OCL_ICD_VENDORS", setting)
    assert icd.find_libraries() == (mine,)
    icd.activate(icd.find_libraries())
    assert os.environ["OCL_ICD_VENDORS"] == setting


def test_a_broken_driver_is_left_out_of_the_users_choice_too(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loader is then pointed to the rest of the choice, and a child process takes that for the choice."""
    good, bad = library(machine / "libgood.so"), library(machine / "libbad.so")
    named(machine / "mine", bad=bad, good=good)
    library(machine / "prefix/lib/libintelocl.so")
    monkeypatch.setenv("OCL_ICD_VENDORS", str(machine / "mine"))
    icd.activate((good,))
    assert os.environ["OCL_ICD_VENDORS"] != str(machine / "mine")
    assert icd.find_libraries() == (good,)


def test_a_child_process_looks_for_drivers_again(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that feinsum itself set is no choice of the user's."""
    monkeypatch.setenv("OCL_ICD_VENDORS", "")
    first = library(machine / "prefix/lib/libintelocl.so")
    icd.activate(icd.find_libraries())
    assert [file.read_text().strip() for file in Path(os.environ["OCL_ICD_VENDORS"]).iterdir()] == [first]
    second = library(machine / "libpocl.so")
    named(machine / "vendors", pocl=second)
    assert icd.find_libraries() == (second, first)


def test_vendors_directories_are_repaired(machine: Path) -> None:
    """A directory that was damaged is written again, and stray files go."""
    path = icd.vendors_directory(("/a.so", "/b.so"))
    (path / "00.icd").unlink()
    (path / "zz.icd").write_text("/evil.so")
    assert icd.vendors_directory(("/a.so", "/b.so")) == path
    assert sorted(file.read_text().strip() for file in path.iterdir()) == ["/a.so", "/b.so"]


def test_processes_may_write_the_same_directory_at_once(machine: Path) -> None:
    """Each of them finds it complete."""
    code = (
        "import sys; from feinsum.devices import icd\n"
        "path = icd.vendors_directory([f'/lib{k}.so' for k in range(20)])\n"
        "print(*sorted(file.read_text().strip() for file in path.glob('*.icd')))"
    )

    def run(_: int) -> str:
        return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout

    with ThreadPoolExecutor(4) as pool:
        outputs = set(pool.map(run, range(4)))
    assert outputs == {" ".join(sorted(f"/lib{k}.so" for k in range(20))) + "\n"}


def test_a_home_that_cannot_be_written_is_replaced_by_a_private_directory(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a login with a read-only home directory still finds its devices."""
    (machine / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(machine / "file" / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(machine))
    json_store.private_temporary_directory.cache_clear()
    try:
        path = icd.vendors_directory(("/a.so",))
        assert path.is_relative_to(machine)
        assert (path / "00.icd").read_text() == "/a.so\n"
        assert not json_store.cache_directory().parent.stat().st_mode & 0o077
    finally:
        json_store.private_temporary_directory.cache_clear()


def test_a_temporary_directory_that_others_could_write_is_not_used(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger could name a library there that this user would then open."""
    open_to_all = machine / f"feinsum-{os.getuid()}"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/cache")
    monkeypatch.setattr(tempfile, "tempdir", str(machine))
    json_store.private_temporary_directory.cache_clear()
    try:
        assert json_store.cache_directory() != open_to_all
    finally:
        json_store.private_temporary_directory.cache_clear()


def test_a_damaged_vendor_file_hides_no_other_driver(machine: Path) -> None:
    """Long lines, other programs' bytes, nothing, directories, pipes and what may not be read are ignored."""
    vendors = machine / "vendors"
    pocl = library(machine / "libpocl.so.2")
    named(vendors, long="x" * 100_000, path="/x" * 50_000, lines="one\ntwo", empty="", pocl=pocl)
    (vendors / "bytes.icd").write_bytes(bytes(range(256)))
    (vendors / "zeros.icd").write_bytes(b"lib\0.so")
    (vendors / "directory.icd").mkdir()
    os.mkfifo(vendors / "pipe.icd")
    (vendors / "nowhere.icd").symlink_to(machine / "gone")
    assert icd.find_libraries() == (pocl,)
    assert icd.vendors_directory([pocl]).is_dir()


@pytest.mark.parametrize("form", ["x" * 100_000, "/x" * 50_000 + ".icd", "/nonexistent/a.icd"])
def test_a_variable_that_names_no_driver_breaks_nothing(machine: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """The probe then says that the library cannot be opened."""
    for variable in ("OPENCL_VENDOR_PATH", "OCL_ICD_VENDORS"):
        monkeypatch.setenv(variable, form)
        assert set(icd.find_libraries()) <= {form}
