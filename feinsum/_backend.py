"""``oe.contract(..., backend="feinsum")``: opt_einsum is told which module computes for this package, when it is loaded.

Otherwise opt_einsum would call ``feinsum.einsum``, which only describes.  Loading opt_einsum with this package would take a
tenth of the time that ``import feinsum`` takes, so this module waits until somebody imports it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

_DISPATCH = "opt_einsum.backends.dispatch"
_BACKEND = "feinsum.interop.opt_einsum_backend"


def register() -> None:
    """Tell opt_einsum now, or when it is loaded."""
    if _DISPATCH in sys.modules:
        _tell(sys.modules[_DISPATCH])
    else:
        sys.meta_path.insert(0, _Watch())


def _tell(dispatch: Any) -> None:
    aliases = getattr(dispatch, "_aliases", None)  # opt_einsum 3.4 has no public way
    if isinstance(aliases, dict):
        aliases.setdefault("feinsum", _BACKEND)


class _Watch(MetaPathFinder):
    """A finder that finds one module as the others do, and has :func:`register` called after it is loaded."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != _DISPATCH:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Telling(spec.loader)
        return spec


class _Telling(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _tell(module)
