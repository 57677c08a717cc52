"""The house: plans and the glossary share their words, families import plans and writers."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_type_hints

import pytest
from conftest import SLOW_S, TIMES
from processor import read_times

from feinsum.parameters import described_fields, parts_of
from feinsum.registry import spaces

ROOT = Path(__file__).parents[1]
SKELETONS = sorted(path.parent.name for path in (ROOT / "feinsum" / "skeletons").glob("*/write.py"))
SHARED = ("common", "instructions")
"""The rooms of skeletons that have no plan of their own."""
SPACES = [s for s in spaces() if s.plan is not None]
MOVES = {"generic", "matrix_product", "dg_gradient"}
"""The spaces that are written with moves: the tutorial's reading."""


def glossary() -> set[str]:
    """The words of kernels."""
    text = (ROOT / "doc" / "reference" / "glossary.rst").read_text(encoding="utf-8").partition("Words of the project")[0]
    return set(re.findall(r"^   (\S.*)$", text.partition(".. glossary::")[2], re.MULTILINE)) - {":sorted:"}


def plans() -> list[type]:
    """The plans of all spaces, and their parts."""
    made = [get_type_hints(s.plan)["return"] for s in SPACES]
    return sorted({part for plan in made for part in parts_of(plan)}, key=lambda plan: plan.__name__)


def test_the_glossary_and_the_plans_have_the_same_words() -> None:
    """At most thirty of them, and none that no plan needs."""
    used = {meaning.word for plan in plans() for meaning in described_fields(plan).values()}
    assert used == glossary()
    assert len(used) <= 30


@pytest.mark.parametrize("plan", plans(), ids=lambda plan: plan.__name__)
def test_a_plan_is_frozen_and_says_what_its_fields_mean(plan: type) -> None:
    """A field without a meaning is one that no parameter decides: it follows from the einsum or the device."""
    assert is_dataclass(plan)
    assert plan.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert described_fields(plan).keys() <= {f.name for f in fields(plan)}
    assert all(meaning.prose.endswith(".") for meaning in described_fields(plan).values())


def test_every_space_on_a_skeleton_has_a_plan() -> None:
    """The others are written with moves."""
    own = {s.name for s in spaces() if s.function.__module__.startswith("feinsum.transforms.")}
    assert own - {s.name for s in SPACES} == MOVES


@pytest.mark.parametrize("name", SKELETONS)
def test_a_skeleton_has_a_plan_and_a_writer(name: str) -> None:
    """Its room exports both."""
    room = importlib.import_module(f"feinsum.skeletons.{name}")
    assert "write" in room.__all__
    assert any(is_dataclass(getattr(room, exported)) for exported in room.__all__)


def imported(path: Path) -> Iterator[str]:
    """The modules that a module imports from, relative ones as they are written."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")


@pytest.mark.parametrize("path", sorted((ROOT / "transforms").rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_family_imports_what_its_skeleton_exports(path: Path) -> None:
    """And nothing from inside it; the instructions of vendors are for all."""
    inside = [name for name in imported(path) if re.match(r"feinsum\.skeletons\.\w+\.", name)]
    assert [name for name in inside if name.split(".")[2] not in SHARED] == []


def quick_tests(path: Path, slow: set[str]) -> list[str]:
    """The names of a module's tests that ``make quick`` runs."""
    names = [node.name for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)]
    return [name for name in names if name.startswith("test_") and f"tests/{path.name}::{name}" not in slow]


def test_quick_tests_reach_every_room() -> None:
    """Whatever takes long is left out while one edits, but no room is."""
    slow = {name for name, seconds in read_times(TIMES).items() if seconds >= SLOW_S}
    quick = [path for path in (ROOT / "tests").glob("test_*.py") if quick_tests(path, slow)]
    reached = {name for path in quick for name in imported(path)}
    rooms = [path.parent for path in (ROOT / "feinsum").glob("*/__init__.py")]
    rooms += [ROOT / "feinsum" / "skeletons" / name for name in (*SKELETONS, *SHARED)]
    missed = [room.name for room in rooms if not any(re.search(rf"\b{room.name}\b", name) for name in reached)]
    assert missed == []
