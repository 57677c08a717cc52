"""The registry of transform spaces: those in ``transforms/``, and those of installed packages.

A package contributes spaces through the entry-point group ``feinsum.transforms``; each entry point names a module, all
of whose :class:`TransformSpace` objects are taken, or one such object.
"""

from __future__ import annotations

import importlib
import logging
import pkgutil
from collections.abc import Iterable
from functools import lru_cache
from importlib.metadata import entry_points
from types import ModuleType

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
        yield from _spaces_of(importlib.import_module(f"feinsum.transforms.{module.name}"))


def _contributed() -> Iterable[TransformSpace]:
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        try:
            loaded = entry.load()
        except Exception as error:  # whatever is wrong with somebody else's package, ours goes on
            logger.warning(
                "the transform spaces of '%s' cannot be loaded: %s: %s", entry.value, type(error).__name__, error
            )
            continue
        if isinstance(loaded, (TransformSpace, ModuleType)):
            yield from (loaded,) if isinstance(loaded, TransformSpace) else _spaces_of(loaded)
        else:
            logger.warning("'%s' is neither a module nor a transform space, but a %s", entry.value, type(loaded).__name__)


def _spaces_of(module: ModuleType) -> Iterable[TransformSpace]:
    seen: dict[int, TransformSpace] = {}
    for value in vars(module).values():
        if isinstance(value, TransformSpace):
            seen.setdefault(id(value), value)
    return seen.values()
