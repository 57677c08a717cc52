"""``oe.contract(..., backend="feinsum")``: opt_einsum is told which module computes for this package, when it is loaded.

Otherwise opt_einsum would call ``feinsum.einsum``, which only describes.  Loading opt_einsum with this package would take a
tenth of the time that ``import feinsum`` takes, so this module waits until a program imports it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from feinsum.effects import lasts

_DISPATCH = "opt_einsum.backends.dispatch"
_BACKEND = "feinsum.interop.opt_einsum_backend"


def register() -> None:
    """Tell opt_einsum now, or when it is loaded."""
    if _DISPATCH in sys.modules:
        _tell_backend(sys.modules[_DISPATCH])
    else:
        sys.meta_path.insert(0, watch := _Watch())
        lasts("sys.meta_path", watch.leave)


def _tell_backend(dispatch: Any) -> None:
    aliases = getattr(dispatch, "_aliases", None)  # opt_einsum 3.4 has no public way
    if isinstance(aliases, dict) and aliases.setdefault("feinsum", _BACKEND) == _BACKEND:
        lasts(f"{_DISPATCH}:_aliases", lambda: aliases.pop("feinsum", None))


class _Watch(MetaPathFinder):
    """A finder that finds one module as other finders do, and calls :func:`_tell_backend` after it is loaded."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != _DISPATCH:
            return None
        self.leave()
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = partial(_execute, spec.loader)  # type: ignore[method-assign]
        return spec

    def leave(self) -> None:
        """Remove this finder from ``sys.meta_path``."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)


def _execute(loader: Any, module: ModuleType) -> None:
    del loader.exec_module  # the loader has the method of its class again
    loader.exec_module(module)
    _tell_backend(module)
