"""The notebooks: each runs from top to bottom on a machine of somebody who begins, and is kept with small outputs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="the extra 'notebooks' is not installed")
pytest.importorskip("nbclient", reason="the extra 'notebooks' is not installed")

from notebooks.execute import execute, settled  # noqa: E402  (needs both)

pytestmark = pytest.mark.slow

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
LARGEST = 200_000
"""Bytes of a notebook that is kept."""
PICTURES = {"image/png", "text/html"}


NEEDS = {"05-a-model-of-torch": "torch"}
"""What notebooks import that need not be installed."""


FEWER = {r"\btrials=\d+": "trials=2", r"\.sample\(\d+": ".sample(3"}
"""What is found by trials is the same cell for two of them, as in the commands of pages."""


def with_few_trials(path: Path) -> Any:
    """A notebook whose runs are held to two or three trials."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        for pattern, fewer in FEWER.items():
            cell.source = re.sub(pattern, fewer, cell.source) if cell.cell_type == "code" else cell.source
    return notebook


def test_they_are_numbered() -> None:
    """A test of no notebook would succeed."""
    assert len(NOTEBOOKS) > 5
    assert [path.name[:2] for path in NOTEBOOKS] == [f"{k:02}" for k in range(1, len(NOTEBOOKS) + 1)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path) -> None:
    """In an empty directory and with an empty store, without an error; the cells that are kept with output have some."""
    pytest.importorskip(NEEDS.get(path.stem, "nbformat"))
    kept = with_few_trials(path)
    (here := tmp_path / "here").mkdir()
    nbformat.write(kept, tmp_path / path.name)
    done = execute(tmp_path / path.name, here, {"FEINSUM_DATABASE": str(tmp_path / "records.sqlite")})
    for before, after in zip(kept.cells, done.cells, strict=True):
        assert before.source == after.source
        if before.cell_type == "code":
            shows = [output.get("output_type") for output in before.outputs if output.get("name") != "stderr"]
            assert bool(shows) == any(output.get("name") != "stderr" for output in after.outputs), before.source


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_with_its_outputs(path: Path) -> None:
    """Every cell was executed, in order, by execute.py; there is something to see; no error, and not too much of it."""
    kept = nbformat.read(path, as_version=4)
    nbformat.validate(kept)
    code = [cell for cell in kept.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    assert PICTURES & {kind for output in outputs for kind in output.get("data", {})}
    assert path.stat().st_size < LARGEST
    assert nbformat.writes(settled(kept, Path("/nowhere"))) + "\n" == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_cells_of_a_notebook_are_short(path: Path) -> None:
    """What takes more than a screen belongs in the library; nothing of the machine that wrote it is left in the outputs."""
    for cell in nbformat.read(path, as_version=4).cells:
        assert len(cell.source.splitlines()) <= 30
    assert not re.search(r"/tmp/|/home/|/root/|site-packages", path.read_text(encoding="utf-8"))


def test_progress_is_shown_in_the_cell_that_works() -> None:
    """As a bar that is replaced as trials are done; what is kept is its last state, at which all are done."""
    kept = nbformat.read(NOTEBOOKS[1], as_version=4)
    (cell,) = (cell for cell in kept.cells if cell.source == "report = x.sample(24)")
    (output,) = cell.outputs
    assert "24 tried" in output.data["text/plain"]
    assert "width: 100%" in output.data["text/html"]


def test_a_page_without_widgets_gets_a_table() -> None:
    """The notebook was executed with ipywidgets; no kernel stands behind them any more, so the table is what is kept."""
    kept = nbformat.read(NOTEBOOKS[1], as_version=4)
    (cell,) = (cell for cell in kept.cells if cell.source == "x.controls()")
    (output,) = cell.outputs
    assert set(output.data) == {"text/plain", "text/html"}
