"""What differs between a checkout and an installation: where transforms and tuning_db lie, and how extras are installed."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
ROOMS = ("transforms", "tuning_db")


class _Beside:
    """A finder of ``feinsum.transforms`` and ``feinsum.tuning_db``, and of no other folder of the checkout."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        package, _, room = name.rpartition(".")
        if package != "feinsum" or room not in ROOMS:
            return None
        # PathFinder looks for the last part of a name in the directories it is given.
        return PathFinder.find_spec(name, [str(ROOT)], target)


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


def serve() -> None:
    """Let the rooms beside this package be imported as parts of it, if this is a checkout."""
    if is_checkout():
        sys.meta_path.insert(0, _Beside)  # before the finder of an editable installation, which may be of another checkout
