"""Every example in the pages of doc/ is run."""

from __future__ import annotations

import doctest
import warnings
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parents[1] / "doc").glob("*.rst"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_of_a_page_give_what_they_show(page: Path) -> None:
    """The page is read from top to bottom as one session."""
    with warnings.catch_warnings():
        # pyopencl warns of any text in the log of a successful build, loopy where it cannot infer E from shapes.
        warnings.simplefilter("ignore")
        failures, _ = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert not failures, f"{failures} examples of {page.name} give something else; the output above says which"
