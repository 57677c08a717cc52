"""The pages of doc/: they build without a warning, and nothing public is missing in them."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import click
import pytest

import feinsum as fe
import feinsum.errors
from feinsum.candidates.origin import RUNGS
from feinsum.cli import cli
from feinsum.registry import spaces

ROOT = Path(__file__).parents[1]
ROOMS = (
    "einsum",
    "canonicalization",
    "cost",
    "devices",
    "match",
    "search",
    "database",
    "rewrites",
    "report",
    "exploration",
)
PACKAGES = {"feinsum": fe, **{f"feinsum.{room}": importlib.import_module(f"feinsum.{room}") for room in ROOMS}}
"""Whose ``__all__`` says which of their names are for everybody."""


def public_names() -> dict[str, Any]:
    """Every public name and what it is; what two packages offer counts as a name of the first."""
    found: dict[str, Any] = {}
    for package, module in PACKAGES.items():
        for name in module.__all__:
            value = getattr(module, name)
            if name != "__version__" and not any(value is known for known in found.values()):
                found[f"{package}.{name}"] = value
    return found


PUBLIC = public_names()
CLASSES = {name: value for name, value in PUBLIC.items() if inspect.isclass(value)}
OURS = [s.name for s in spaces() if s.function.__module__.startswith("feinsum.transforms.")]


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """What the pages define, by the kind that Sphinx gives it; they are built as ``make doc`` does."""
    pytest.importorskip("sphinx", reason="the extra 'doc' is not installed")
    from sphinx.util.inventory import InventoryFile

    built = tmp_path_factory.mktemp("pages") / "html"
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "doc", str(built)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    with (built / "objects.inv").open("rb") as file:
        return {kind: set(items) for kind, items in InventoryFile.load(file, "", lambda uri, _: uri).items()}


def attributes(owner: type[Any]) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a class defines itself."""
    for name, value in vars(owner).items():
        if not name.startswith("_") and (callable(value) or isinstance(value, (property, cached_property, classmethod))):
            yield name, value


def commands(command: click.Command = cli, path: tuple[str, ...] = ("feinsum",)) -> Iterator[tuple[str, click.Command]]:
    """Every command and group, by what is typed for it."""
    yield " ".join(path), command
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from commands(child, (*path, name))


def options(command: click.Command) -> list[click.Option]:
    return [parameter for parameter in command.params if isinstance(parameter, click.Option)]


def test_every_public_name_has_an_entry(inventory: dict[str, set[str]]) -> None:
    """Functions, classes and errors, with the methods and properties of the classes."""
    defined = set().union(*(names for kind, names in inventory.items() if kind.startswith("py:")))
    errors = {name for name, value in vars(feinsum.errors).items() if inspect.isclass(value)} - set(fe.__all__)
    wanted = {*PUBLIC, *(f"feinsum.errors.{name}" for name in errors)}
    wanted |= {f"{name}.{own}" for name, value in CLASSES.items() for own, _ in attributes(value)}
    assert sorted(wanted - defined) == []


def test_every_command_and_option_has_an_entry(inventory: dict[str, set[str]]) -> None:
    """Commands have a section, options an entry under it."""
    for path, command in commands():
        assert f"command-{path.replace(' ', '-')}" in inventory["std:label"]
        for option in options(command):
            assert f"{path.replace(' ', '-')}.{option.opts[0]}" in inventory["std:cmdoption"]


def test_every_space_has_an_entry(inventory: dict[str, set[str]]) -> None:
    """A file that is put into transforms/ appears by itself."""
    assert OURS
    assert {f"space-{name}" for name in OURS} <= inventory["std:label"]


def test_every_notebook_is_a_page(inventory: dict[str, set[str]]) -> None:
    """With the outputs that it comes with."""
    assert {f"notebooks/{path.stem}" for path in (ROOT / "notebooks").glob("*.ipynb")} <= inventory["std:doc"]


@pytest.mark.parametrize("name", CLASSES)
def test_public_classes_say_what_their_parts_are(name: str) -> None:
    """Methods and properties have docstrings; the fields of data are told in the docstring of the class."""
    owner = CLASSES[name]
    assert [own for own, value in attributes(owner) if not inspect.getdoc(value)] == []
    fields = [] if issubclass(owner, BaseException) else getattr(owner, "__dataclass_fields__", {})
    told = set(re.findall(r"(?::(?:ivar|param) |`)(\w+)[:`]", owner.__doc__ or ""))
    assert [own for own in fields if own not in told and not own.startswith("_")] == []


@pytest.mark.parametrize(("path", "command"), list(commands()), ids=lambda value: value if isinstance(value, str) else "")
def test_commands_say_what_they_do(path: str, command: click.Command) -> None:
    """Each has help, and so has each of its options; an argument is named in the help of its command."""
    assert command.help
    assert [option.name for option in options(command) if not option.help] == []


def test_environment_variables_are_told() -> None:
    """Every variable of ours that a module reads is in the page on installation."""
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "feinsum").rglob("*.py"))
    page = (ROOT / "doc" / "start" / "install.rst").read_text(encoding="utf-8")
    found = set(re.findall(r'"(FEINSUM_[A-Z_]+)"', sources))
    assert {"FEINSUM_DEVICE", "FEINSUM_DATABASE"} <= found
    assert {name for name in found if f"``{name}``" not in page} == set()


def test_the_citation_is_of_this_version() -> None:
    """CITATION.cff names the version that it comes with."""
    assert f"\nversion: {fe.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_the_rungs_of_the_ladder_are_told() -> None:
    """The page on the design says what each of them means."""
    page = (ROOT / "doc" / "explanation" / "design.rst").read_text(encoding="utf-8")
    assert [rung for rung in RUNGS if not re.search(rf"^``{rung}`` +\w", page, re.MULTILINE)] == []


def test_python_in_the_pages_is_an_example_or_a_file() -> None:
    """Examples are written with >>>, which test_documentation.py runs, or are files that test_docs_pages.py writes."""
    from pages import PAGES, blocks

    plain = [(page.name, block.text) for page in PAGES for block in blocks(page) if block.language == "python"]
    assert [text for _, text in plain if text.startswith(">>>")] == []
    captioned = [block.text for page in PAGES for block in blocks(page) if block.file]
    assert [(name, text) for name, text in plain if text not in captioned] == []


def test_pages_are_few_and_short() -> None:
    """At most 20 in a folder, of 2500 words; the known limits in 1500, so that they are read."""
    from pages import DOC, PAGES

    folders = Counter(page.parent for page in PAGES)
    assert {folder.name for folder in folders} == {"doc", "start", "guides", "reference", "explanation"}
    assert max(folders.values()) <= 20
    words = {page.stem: len(page.read_text(encoding="utf-8").split()) for page in DOC.rglob("*.rst")}
    assert {name: count for name, count in words.items() if count > 2500} == {}
    assert words["limits"] <= 1500
