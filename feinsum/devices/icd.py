"""The OpenCL drivers of this machine: every installable client driver (ICD), named in one directory that we write.

The loader reads ``OCL_ICD_VENDORS`` at the first OpenCL call, and the directory that it names replaces
``/etc/OpenCL/vendors``.  So we gather the libraries that the system, conda and pip have installed, and point the variable
at a list of them all.  A user who set the variable made a choice: then the drivers it names are the only ones.
"""

from __future__ import annotations

import ctypes
import glob
import hashlib
import importlib.util
import logging
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from feinsum.devices.json_store import cache_directory, private_temporary_directory
from feinsum.devices.vendors.runtimes import RUNTIMES
from feinsum.effects import set_variable
from feinsum.errors import DeviceError

logger = logging.getLogger(__name__)

VARIABLE = "OCL_ICD_VENDORS"
SYSTEM_DIRECTORY = Path("/etc/OpenCL/vendors")
DRIVER_DIRECTORIES = tuple(directory for runtime in RUNTIMES for directory in runtime.directories)

_LIBRARIES = tuple(runtime.library for runtime in RUNTIMES if runtime.library)
_LONGEST = 4095
"""Characters of a path that Linux opens."""

_FOUND, _CHOSEN = "found-", "chosen-"


def find_libraries() -> tuple[str, ...]:
    """The libraries that the loader should open, each once: absolute paths, or bare names that the linker resolves.

    Those of :func:`bundled_libraries` are left out, since pyopencl's loader opens them by itself.
    """
    choice = users_choice()
    candidates = _named_by(choice) if choice is not None else _installed()
    bundled = bundled_libraries()
    found: dict[str, str] = {_library_identity(name): "" for name in bundled}
    for name in candidates:
        found.setdefault(_library_identity(name), _resolved(name))
    return tuple(name for name in found.values() if name)


def bundled_libraries() -> tuple[str, ...]:
    """Drivers inside the pyopencl wheel (``pyopencl[pocl]``), which its loader opens whatever the variable says."""
    spec = importlib.util.find_spec("pyopencl")
    places = spec.submodule_search_locations if spec is not None else None
    return tuple(library for place in places or () for library in _listed_in(Path(place) / ".libs"))


def platforms_of(driver: ctypes.CDLL) -> set[int]:
    """The platforms that a driver offers to a loader (``cl_khr_icd``), as addresses; none if it is no such driver."""
    try:
        find = driver.clGetExtensionFunctionAddress
    except AttributeError:
        return set()
    find.restype, find.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
    address = find(b"clIcdGetPlatformIDsKHR")
    if not address:
        return set()
    integer, pointers = ctypes.c_uint, ctypes.POINTER(ctypes.c_void_p)
    ask = ctypes.CFUNCTYPE(ctypes.c_int, integer, pointers, ctypes.POINTER(integer))(address)
    number = integer(0)
    if ask(0, None, ctypes.byref(number)) or not number.value:
        return set()
    found = (ctypes.c_void_p * number.value)()
    return set() if ask(number, found, None) else {platform for platform in found if platform}


def enabling(library: str) -> str:
    """Advice for a driver that finds no device.

    >>> enabling("/usr/lib/libRusticlOpenCL.so.1")
    'RUSTICL_ENABLE names the drivers that it may use, as in RUSTICL_ENABLE=radeonsi,iris,llvmpipe'
    """
    name = Path(library).name.lower()
    known = (runtime.enabling for runtime in RUNTIMES if runtime.driver and runtime.driver in name)
    return next(known, "its manual says what it needs")


def users_choice() -> str | None:
    """The value of ``OCL_ICD_VENDORS`` unless feinsum, in this process or a parent of it, put it there."""
    value = os.environ.get(VARIABLE) or None
    if value is not None and Path(value).name.startswith(_FOUND) and Path(value).parent in _icd_directories():
        return None
    return value


def vendors_directory(libraries: Iterable[str]) -> Path:
    """A directory that names exactly `libraries`, for ``OCL_ICD_VENDORS``; the same for the same libraries.

    It lies among the temporary files where the disk of the cache is full.

    :raises DeviceError: if it can be written neither here nor there.
    """
    libraries = tuple(libraries)
    digest = hashlib.sha256("\n".join(libraries).encode()).hexdigest()[:16]
    name = (_FOUND if users_choice() is None else _CHOSEN) + digest
    why: list[str] = []
    for directory in _icd_directories():
        path = directory / name
        if path.is_dir() and tuple(_listed_in(path)) == libraries:
            return path
        try:
            directory.mkdir(parents=True, exist_ok=True)
            _replace_directory(path, {f"{k:02}.icd": library for k, library in enumerate(libraries)})
        except OSError as error:
            why.append(f"{directory}: {error.strerror}")
        else:
            return path
    raise DeviceError(f"the list of OpenCL drivers cannot be written; make room, or set TMPDIR ({'; '.join(why)})")


def activate(libraries: Iterable[str]) -> None:
    """Let this process, and those it starts, see `libraries`; without effect once OpenCL has been called."""
    libraries = tuple(libraries)
    if users_choice() is None or set(libraries) != set(find_libraries()):
        set_variable(VARIABLE, str(vendors_directory(libraries)))


def _icd_directories() -> Iterator[Path]:
    """Where lists of drivers may lie; the second is made when it is needed."""
    yield cache_directory() / "icd"
    yield private_temporary_directory() / "icd"


def _replace_directory(path: Path, files: dict[str, str]) -> None:
    """Put a directory at `path` in one step, so that a process that reads it meanwhile sees all of it."""
    fresh = Path(tempfile.mkdtemp(dir=path.parent))
    try:
        for name, text in files.items():
            (fresh / name).write_text(text + "\n", encoding="utf-8")
        fresh.chmod(0o755)
    except OSError:
        shutil.rmtree(fresh)
        raise
    try:
        fresh.rename(path)
    except OSError:  # another process was faster, or the directory there was damaged
        for name in files:
            os.replace(fresh / name, path / name)
        for stray in set(os.listdir(path)) - set(files):
            (path / stray).unlink()
        shutil.rmtree(fresh)


def _installed() -> Iterator[str]:
    yield from _listed_in(Path(os.environ.get("OPENCL_VENDOR_PATH") or SYSTEM_DIRECTORY))
    for prefix in dict.fromkeys((sys.prefix, sysconfig.get_path("data"), sysconfig.get_path("data", "posix_user"))):
        # The file of Intel's wheel in etc/OpenCL/vendors names a library that only its build machine had.
        yield from (name for name in _listed_in(Path(prefix, "etc/OpenCL/vendors")) if os.path.isfile(_resolved(name)))
        packaged = [Path(prefix, runtime.packaged) for runtime in RUNTIMES if runtime.packaged]
        yield from (str(path) for path in packaged if path.is_file())
    mounted = [_resolved(f"{library}.so.1") for library in _LIBRARIES]
    yield from (name for name in mounted if os.path.isabs(name))


def _named_by(setting: str) -> Iterator[str]:
    """The libraries of a setting of ``OCL_ICD_VENDORS``: a directory, one .icd file or one library."""
    if os.path.isdir(setting):
        yield from _listed_in(Path(setting))
    elif setting.endswith(".icd"):
        yield from _icd_content(Path(setting))
    else:
        yield setting


def _listed_in(directory: Path) -> Iterator[str]:
    for file in sorted(glob.glob(os.path.join(glob.escape(str(directory)), "*.icd"))):
        yield from _icd_content(Path(file))


def _icd_content(file: Path) -> Iterator[str]:
    """The library that a file names, unless it holds something else: one damaged file must not hide the other drivers."""
    if not os.path.isfile(file):  # to open a named pipe would wait
        return
    try:
        with file.open("rb") as opened:
            name = opened.read(_LONGEST + 1).decode().strip()
    except (OSError, UnicodeDecodeError):
        return
    if len(name) > _LONGEST or not name.isprintable():
        logger.warning("%s names no library of a driver and is ignored", file)
    elif name:
        beside = os.path.join(file.parent, name)
        yield beside if os.path.isfile(beside) else name


def _library_identity(name: str) -> str:
    """Equal for two names of one library; copies of a vendor's driver in two directories are one driver too."""
    resolved = _resolved(name)
    resolved = os.path.realpath(resolved) if os.path.isabs(resolved) else resolved
    return next((library for library in _LIBRARIES if Path(resolved).name.startswith(library)), resolved)


def _resolved(name: str) -> str:
    """Where the dynamic linker finds a bare name, as far as its configuration says; else the name."""
    if os.sep in name:
        return name
    for directory in _search_path():
        if os.path.isfile(os.path.join(directory, name)):
            return os.path.join(directory, name)
    return name


def _search_path() -> Iterator[str]:
    yield from filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":"))
    for file in ("/etc/ld.so.conf", *sorted(glob.glob("/etc/ld.so.conf.d/*.conf"))):
        try:
            lines = Path(file).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            continue
        yield from (line.strip() for line in lines if line.startswith("/"))
    yield from ("/lib64", "/usr/lib64", "/lib", "/usr/lib", *DRIVER_DIRECTORIES)
