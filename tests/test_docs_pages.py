"""The commands in the pages of doc/ are run as they stand, beside the examples that test_documentation.py runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import PAGES, blocks, copy_checkout, follow

pytestmark = pytest.mark.slow

FOLLOWED = [page for page in PAGES if any(block.language == "console" for block in blocks(page))]
ELSEWHERE = {"batch-tuning"}
"""Followed by test_batch_page.py, which needs a scheduler for it."""


@pytest.mark.parametrize("page", [p for p in FOLLOWED if p.stem not in ELSEWHERE], ids=lambda page: page.stem)
def test_the_commands_of_a_page_work(page: Path, tmp_path: Path) -> None:
    """In an empty directory; or in a copy of the checkout, where the page writes to it."""
    if any(block.file.startswith("transforms/") for block in blocks(page)):
        copy_checkout(tmp_path)
        assert follow(page, tmp_path, tmp_path)
    else:
        assert follow(page, tmp_path)


def test_there_are_commands() -> None:
    """So that a way of writing them that is not recognised does not pass for pages without any."""
    assert {"batch-tuning", "tutorial-einsum", "tutorial-engineer"} <= {page.stem for page in FOLLOWED}
