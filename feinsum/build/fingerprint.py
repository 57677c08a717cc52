"""The fingerprint of the code that makes kernels: a hash of its sources and of the versions of the libraries it uses.

It is part of every key of the disk cache, so an edited transform, a new loopy or a newly installed package of spaces
makes new entries.  Nothing is imported for it.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version

from feinsum._version import __version__

_LIBRARIES = ("loopy", "islpy", "pymbolic", "pyopencl", "numpy")
_ELSEWHERE = ("cli", "database", "exploration", "report", "search", "tune")
"""The rooms of feinsum in which kernels are neither made, chosen nor checked; a new room counts."""


@lru_cache(maxsize=1)
def code_fingerprint() -> str:
    """A hash of everything that decides how a kernel is made, except the einsum, the configuration and the device."""
    digest = blake2b(digest_size=16)
    for part in (__version__, *_versions(), *_site_directories()):
        digest.update(part.encode())
    for name in _sources():
        digest.update(os.path.basename(name).encode())
        with open(name, "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()


def curated_fingerprint(folders: Iterable[str]) -> str:
    """The identity of the present curated records and cost model: names, sizes and times of their files.

    :param folders: those of records that other packages contribute.
    """
    places = (*_source_places("feinsum.tuning_db"), *filter(os.path.isdir, folders))
    files = sorted(entry.path for folder in places for entry in os.scandir(folder))
    stats = [os.stat(file) for file in files if file.endswith((".json", ".jsonl"))]
    return ",".join(f"{status.st_ino}:{status.st_size}:{status.st_mtime_ns}" for status in stats)


def _versions() -> Iterator[str]:
    for name in _LIBRARIES:
        try:
            yield f"{name} {version(name)}"
        except PackageNotFoundError:
            continue


def _site_directories() -> Iterator[str]:
    """Where packages are installed, and when that was last done: it may have brought transform spaces."""
    for path in sys.path:
        if os.path.basename(path) in ("site-packages", "dist-packages") and os.path.isdir(path):
            yield f"{path} {os.stat(path).st_mtime_ns}"


def _sources() -> Iterable[str]:
    here = os.path.dirname(os.path.dirname(__file__))
    rooms = (entry.path for entry in os.scandir(here) if entry.name not in _ELSEWHERE)
    return sorted(path for place in (*rooms, *_source_places("feinsum.transforms")) for path in _python_files(place))


def _python_files(place: str) -> Iterator[str]:
    """The Python files at a path or anywhere below it."""
    if place.endswith(".py"):
        yield place
    for folder, _, names in os.walk(place):
        yield from (os.path.join(folder, name) for name in names if name.endswith(".py"))


def _source_places(package: str) -> Iterable[str]:
    found = importlib.util.find_spec(package)
    return (found.submodule_search_locations or ()) if found else ()
