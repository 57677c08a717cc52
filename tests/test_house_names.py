"""Names: a class name stands once, module names repeat in parallel folders only, and few functions share theirs."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARALLEL = (r"(feinsum/skeletons|transforms)/\w+", r"feinsum/languages(/\w+)+")
"""Folders with the same parts: strategies and their skeletons, and the languages with their stages."""
SHARED_FUNCTIONS, SHARED_MODULES = 0.15, 0.25
"""The largest shares of module functions, and of modules, whose name stands more than once."""


@cache
def trees() -> dict[Path, ast.Module]:
    """Every module of feinsum and of its spaces, by its path below the root."""
    paths = [*(ROOT / "feinsum").rglob("*.py"), *(ROOT / "transforms").rglob("*.py")]
    return {path.relative_to(ROOT): ast.parse(path.read_text(encoding="utf-8")) for path in sorted(paths)}


def share(homes: dict[str, list[Path]]) -> float:
    """The share of definitions whose name stands in several places."""
    return sum(len(each) for each in homes.values() if len(set(each)) > 1) / sum(map(len, homes.values()))


def test_a_class_name_stands_once() -> None:
    """With or without an underscore, in the languages too: a stack trace names one class."""
    homes = defaultdict(list)
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                homes[node.name.lstrip("_")].append(path.as_posix())
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def modules() -> dict[str, list[Path]]:
    """The folders that have a module of a name."""
    homes = defaultdict(list)
    for path in trees():
        if path.stem not in ("__init__", "__main__"):
            homes[path.name].append(path.parent)
    return homes


def test_a_module_name_repeats_in_parallel_folders_only() -> None:
    """There it says which part of a strategy or a language the module is."""

    def is_parallel(folders: list[Path]) -> bool:
        return any(all(re.fullmatch(pattern, folder.as_posix()) for folder in folders) for pattern in PARALLEL)

    assert {name: folders for name, folders in modules().items() if len(folders) > 1 and not is_parallel(folders)} == {}
    assert share(modules()) <= SHARED_MODULES


def test_few_functions_share_their_name() -> None:
    """Functions that are looked up by name in parallel folders may; others say what they work on."""
    homes = defaultdict(list)
    for path, tree in trees().items():
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                homes[node.name.lstrip("_")].append(path)
    assert share(homes) <= SHARED_FUNCTIONS
