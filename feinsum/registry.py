"""The registry of transform spaces: those in ``transforms/``, those of installed packages, and those of files.

A package contributes spaces through the entry-point group ``feinsum.transforms``; each entry point names a module, all
of whose :class:`TransformSpace` objects are taken, or one such object.  The environment variable ``FEINSUM_TRANSFORMS``
names files, which need not be installed; processes that tune inherit it.
"""

from __future__ import annotations

import logging
import os
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from hashlib import blake2b
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from feinsum.apart import TimedStep, is_overdue, run_in_thread
from feinsum.einsum import BatchedEinsum
from feinsum.errors import TransformError, is_shortage
from feinsum.interrupts import load_module
from feinsum.space import Missed, TransformSpace
from feinsum.space.attempts import asking, is_deadly

logger = logging.getLogger(__name__)

ENTRY_POINT_GROUP = "feinsum.transforms"
VARIABLE = "FEINSUM_TRANSFORMS"
"""The environment variable with files of spaces, separated as in ``PATH``."""


@lru_cache(maxsize=1)
def spaces() -> tuple[TransformSpace, ...]:
    """Every registered transform space, those of higher rank first, then by name.

    :raises TransformError: if two spaces have one name.
    """
    return run_in_thread(_every_space)


def _every_space() -> tuple[TransformSpace, ...]:
    found: dict[str, TransformSpace] = {}
    for candidate in (*_own_spaces(), *_contributed(), *_of_files()):
        if found.setdefault(candidate.name, candidate) is not candidate:
            raise TransformError(f"two transform spaces are named '{candidate.name}'; rename one of them")
    return tuple(sorted(found.values(), key=lambda s: (-s.rank, s.name)))


def find_space(name: str) -> TransformSpace:
    """The space of a name.

    :raises TransformError: if there is none, with the names there are.
    """
    for candidate in spaces():
        if candidate.name == name:
            return candidate
    raise TransformError(f"no transform space is named '{name}'; there are {', '.join(s.name for s in spaces())}")


def matching_spaces(e: BatchedEinsum) -> tuple[TransformSpace, ...]:
    """The spaces whose pattern an einsum matches, most specific first; the generic space is always among them.

    One that fails when asked is left out, with a warning, and so is one that took too long to answer before.
    """
    return tuple(candidate for candidate in spaces() if _applies(candidate, e))


def _applies(s: TransformSpace, e: BatchedEinsum) -> bool:
    if is_overdue(s.name) or is_deadly(s.code):
        return False
    with Missed(s, "whether it applies"):
        return s.roles(e) is not None
    return False


def add_file(path: str | os.PathLike[str]) -> None:
    """Take the spaces of a Python file too, in this process and in those that it starts.

    A space that a script or notebook declares itself cannot be tuned: worker processes do not have it.  They run this file,
    as ``multiprocessing`` does, so statements other than declarations belong under ``if __name__ == "__main__"``.
    """
    os.environ[VARIABLE] = os.pathsep.join(dict.fromkeys([*_files(), os.path.abspath(path)]))
    spaces.cache_clear()


def file_digests() -> list[tuple[str, str]]:
    """The files of ``FEINSUM_TRANSFORMS`` with a digest of what is in each, empty for one that cannot be read."""
    return [(path, _file_digest(path)) for path in _files()]


def _file_digest(path: str) -> str:
    try:
        return blake2b(Path(path).read_bytes(), digest_size=8).hexdigest()
    except OSError:
        return ""


def name_everywhere(s: TransformSpace | str) -> str:
    """The name by which any process finds a space.

    :raises TransformError: if it would not find it, or another one.
    """
    if isinstance(s, str):
        return s
    if not any(_space_origin(s) == _space_origin(known) for known in spaces()):
        raise TransformError(
            f"space '{s.name}' of {_space_origin(s)[2]} is not known to worker processes; call"
            " feinsum.registry.add_file on the"
            f" file that declares it, name the file in {VARIABLE}, or install its module with an entry point of the group"
            f" '{ENTRY_POINT_GROUP}'; a cell of a notebook has to be written to a file"
        )
    return s.name


def _space_origin(s: TransformSpace) -> tuple[str, int, str]:
    return s.name, s.version, os.path.realpath(s.function.__code__.co_filename)


def _own_spaces() -> Iterable[TransformSpace]:
    package = load_module("feinsum.transforms")
    for module in _module_names(package.__path__, package.__name__):
        yield from _spaces_of(_loaded_space(module, partial(load_module, module)))


def _module_names(places: Iterable[str], package: str) -> Iterator[str]:
    """The names of all modules of a package and of the packages in it, without importing any."""
    for module in pkgutil.iter_modules(places):
        name = f"{package}.{module.name}"
        yield name
        if module.ispkg:
            yield from _module_names([os.path.join(place, module.name) for place in places], name)


def _contributed() -> Iterable[TransformSpace]:
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        loaded = _loaded_space(entry.value, entry.load)
        if loaded is None or isinstance(loaded, (TransformSpace, ModuleType)):
            yield from (loaded,) if isinstance(loaded, TransformSpace) else _spaces_of(loaded)
        else:
            logger.warning("'%s' is neither a module nor a transform space, but a %s", entry.value, type(loaded).__name__)


def _of_files() -> Iterable[TransformSpace]:
    for path in _files():
        yield from _spaces_of(_loaded_space(path, partial(_run_file, path), f"{path} {_file_digest(path)}"))


def _files() -> list[str]:
    return [path for path in os.environ.get(VARIABLE, "").split(os.pathsep) if path]


def _run_file(path: str) -> ModuleType:
    """The module in a file, under a name that changes with its content, since kernels are cached by it."""
    name = f"feinsum_file_{_file_digest(path)}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TransformError("this is no file of Python, whose name ends in .py")
    sys.modules[name] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _loaded_space(name: str, load: Callable[[], Any], code: str = "") -> Any:
    """The result of `load`; None, with a warning that names file and line, if it fails, as all other spaces go on.

    :param code: the file with a digest of what is in it, so that it is tried again once it is mended; else the module.
    """
    code = code or name
    if is_overdue(subject := ("module", name)) or is_deadly(code):
        return None
    try:
        with TimedStep(subject, f"loading the transform spaces of '{name}'"), asking(code):
            return load()
    except Exception as error:
        if is_shortage(error):
            raise
        what = error.msg if isinstance(error, SyntaxError) else error
        logger.warning(
            "the transform spaces of '%s' cannot be loaded: %s: %s%s", name, type(error).__name__, what, _error_line(error)
        )
        return None


def _error_line(error: Exception) -> str:
    """The line of a module at which its import failed, as `` (file, line n)``."""
    if isinstance(error, SyntaxError):
        return f" ({error.filename}, line {error.lineno})"
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.name == "<module>"]
    return f" ({lines[-1].filename}, line {lines[-1].lineno})" if lines else ""


def _spaces_of(module: ModuleType | None) -> Iterable[TransformSpace]:
    seen: dict[int, TransformSpace] = {}
    for value in vars(module).values() if module else ():
        if isinstance(value, TransformSpace):
            seen.setdefault(id(value), value)
    return seen.values()
