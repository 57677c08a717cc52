"""Rooms that stand beside this package in a checkout, and inside it where it is installed: transforms and tuning_db."""

from __future__ import annotations

import sys
from collections.abc import Sequence
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


def serve() -> None:
    """Let the rooms beside this package be imported as parts of it, if this is a checkout."""
    if all((ROOT / room / "__init__.py").exists() for room in ROOMS):
        sys.meta_path.insert(0, _Beside)  # before the finder of an editable installation, which may be of another checkout
