"""`python -m benchmarks arrays`: its pages are those of its results, and a part of it runs.  No test asserts a time."""

from __future__ import annotations

from pathlib import Path

import pytest

import feinsum as fe
from benchmarks import report
from benchmarks.arrays import groups
from benchmarks.arrays.training import evaluated
from benchmarks.rows import read_rows

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results" / "h200"


def test_the_page_is_that_of_its_results(tmp_path: Path) -> None:
    """The report of an H200 is what the command makes of the rows next to it."""
    report.write_page(read_rows(RESULTS / "arrays.jsonl"), tmp_path / "page.rst")
    assert (tmp_path / "page.rst").read_text() == (RESULTS / "arrays.rst").read_text()


def test_what_fails_is_a_row_that_says_so() -> None:
    """An error of one group is told in a table of its own."""
    [row] = groups.measured("calls", None)
    assert "AttributeError" in row["failed"]
    [(title, _, [line])] = report.arrays([{"group": "calls", **row}])
    assert title == "calls: failed"
    assert "AttributeError" in line[1]


def test_what_a_step_evaluates() -> None:
    """An einsum and its two derivatives, in order, and the operator is as it was afterwards."""
    torch = pytest.importorskip("torch")
    from feinsum.interop import torch_operator

    evaluate = torch_operator._evaluate_tensors
    a, b = (torch.ones(shape, dtype=torch.float64, requires_grad=True) for shape in ((3, 4), (4, 2)))
    seen = evaluated(lambda: fe.torch.einsum("ij,jk->ik", a, b).sum().backward())
    assert [text for text, _ in seen] == ["ij,jk->ik", "ik,jk->ij", "ik,ij->jk"]
    assert seen[0][1] == [(3, 4), (4, 2)]
    assert torch_operator._evaluate_tensors is evaluate
