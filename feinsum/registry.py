"""The registry of transform spaces: those in ``transforms/``, and those of installed packages.

A package contributes spaces through the entry-point group ``feinsum.transforms``; each entry point names a module, all
of whose :class:`TransformSpace` objects are taken, or one such object.
"""

from __future__ import annotations

import importlib
import logging
import pkgutil
import traceback
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any

from feinsum.einsum import BatchedEinsum
from feinsum.errors import TransformError
from feinsum.space import TransformSpace

logger = logging.getLogger(__name__)

ENTRY_POINT_GROUP = "feinsum.transforms"


@lru_cache(maxsize=1)
def spaces() -> tuple[TransformSpace, ...]:
    """Every registered transform space, those of higher rank first, then by name.

    :raises TransformError: if two spaces have one name.
    """
    found: dict[str, TransformSpace] = {}
    for candidate in (*_own(), *_contributed()):
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
    """The spaces whose pattern an einsum plays, most specific first; the generic space is always among them."""
    return tuple(candidate for candidate in spaces() if candidate.roles(e) is not None)


def _own() -> Iterable[TransformSpace]:
    package = importlib.import_module("feinsum.transforms")
    for module in pkgutil.iter_modules(package.__path__):
        name = f"feinsum.transforms.{module.name}"
        yield from _spaces_of(_loaded(name, partial(importlib.import_module, name)))


def _contributed() -> Iterable[TransformSpace]:
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        loaded = _loaded(entry.value, entry.load)
        if loaded is None or isinstance(loaded, (TransformSpace, ModuleType)):
            yield from (loaded,) if isinstance(loaded, TransformSpace) else _spaces_of(loaded)
        else:
            logger.warning("'%s' is neither a module nor a transform space, but a %s", entry.value, type(loaded).__name__)


def _loaded(name: str, load: Callable[[], Any]) -> Any:
    """What `load` brings; None, with a warning that names file and line, where it fails: all other spaces go on."""
    try:
        return load()
    except Exception as error:
        what = error.msg if isinstance(error, SyntaxError) else error
        logger.warning(
            "the transform spaces of '%s' cannot be loaded: %s: %s%s", name, type(error).__name__, what, _place(error)
        )
        return None


def _place(error: Exception) -> str:
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
