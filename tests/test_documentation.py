"""Every example is run: in the pages of doc/, and in docstrings of transforms/ and benchmarks/.

pytest itself runs those in docstrings of feinsum/, test_readme.py that of the README, test_docs_pages.py the commands.
"""

from __future__ import annotations

import doctest
import importlib
import warnings
from pathlib import Path

import pytest
from pages import PAGES

ROOT = Path(__file__).parents[1]
NEEDS = {"arrays": ("torch", "jax"), "coming-from": ("torch",)}
"""What pages have examples of that need not be installed."""
MODULES = {
    "feinsum.transforms": ROOT / "transforms",
    "benchmarks": ROOT / "benchmarks",
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_of_a_page_give_what_they_show(page: Path) -> None:
    """The page is read from top to bottom as one session."""
    for name in NEEDS.get(page.stem, ()):
        pytest.importorskip(name)
    with warnings.catch_warnings():
        # pyopencl warns of any text in the log of a successful build, loopy where it cannot infer E from shapes.
        warnings.simplefilter("ignore")
        failures, _ = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert not failures, f"{failures} examples of {page.name} give something else; the output above says which"


@pytest.mark.parametrize("package", MODULES)
def test_examples_of_docstrings_give_what_they_show(package: str) -> None:
    """Modules with examples are imported, and no other, as some need what only the extra `bench` brings."""
    room = MODULES[package]
    for path in (path for path in sorted(room.rglob("*.py")) if ">>> " in path.read_text(encoding="utf-8")):
        name = ".".join((package, *path.relative_to(room).with_suffix("").parts))
        failures, _ = doctest.testmod(importlib.import_module(name))
        assert not failures, f"{failures} examples of {path.name} give something else; the output above says which"
