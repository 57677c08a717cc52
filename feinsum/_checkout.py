"""A checkout or an installation: where transforms and tuning_db lie, and how extras are installed."""

from __future__ import annotations

import re
import shlex
import sys
from importlib import metadata
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ("transforms", "tuning_db")


def is_checkout() -> bool:
    """Whether this package stands in a checkout."""
    return all((ROOT / room / "__init__.py").exists() for room in ROOMS)


def how_to_install(extra: str) -> str:
    """The command that installs an extra of ``setup.cfg``; an index need not have feinsum itself."""
    if is_checkout():
        return f"`pip install '.[{extra}]'` in {ROOT}"
    return f"`pip install {' '.join(map(shlex.quote, _packages(extra)))}`"


def _packages(extra: str) -> list[str]:
    """The requirements of an extra as pip takes them, without markers."""
    try:
        declared = metadata.requires("feinsum") or []
    except metadata.PackageNotFoundError:  # copied, not installed
        declared = []
    mark = re.compile(rf"""\bextra\s*==\s*["']{re.escape(extra)}["']""")
    split = [one.partition(";") for one in declared]
    return [name.strip() for name, _, marker in split if mark.search(marker)] or [f".[{extra}]"]


def serve_checkout() -> None:
    """Import the rooms beside this package as parts of it, if this is a checkout.

    Python finds them by no finder, or by that of an editable installation, which may be of another checkout.
    """
    for room in ROOMS if is_checkout() else ():
        spec = PathFinder.find_spec(f"feinsum.{room}", [str(ROOT)])  # it looks for the last part of the name
        if spec is not None and spec.loader is not None and spec.name not in sys.modules:
            sys.modules[spec.name] = module = module_from_spec(spec)
            spec.loader.exec_module(module)
            setattr(sys.modules["feinsum"], room, module)
