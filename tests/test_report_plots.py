"""Plots: what they show, that shapes tell series apart, that axes have units, and files of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from test_tune_report import landscape

from feinsum.report import PlotError, Rooflines, choices, convergence, distribution, importance, rooflines, speedups
from feinsum.report.plots import SUFFIXES, save_picture

pytestmark = pytest.mark.slow

pytest.importorskip("matplotlib", reason="the extra 'report' is not installed")

CASES = {"a": 4.0, "b": 0.5, "c": 1.0}
PLOT = Rooflines("float64", {"ours": [(0.5, 4e9), (8.0, 6e10)], "numpy": [(0.5, 1e9)], "torch": [(8.0, 2e10)]}, 1e11, 1e10)


def test_every_series_has_a_mark_of_its_own() -> None:
    """Colours may be lost in print; every panel has its roof, and its peaks are written at it."""
    first, second = rooflines(PLOT, PLOT).axes
    for axes in (first, second):
        roof, *series = axes.lines
        assert [line.get_label() for line in series] == ["ours", "numpy", "torch"]
        assert len({line.get_marker() for line in series}) == 3
        assert list(series[0].get_xdata()) == [0.5, 8.0]
        assert list(series[0].get_ydata()) == pytest.approx([4, 60])
        assert max(roof.get_ydata()) == pytest.approx(100)
        assert {text.get_text() for text in axes.texts} == {"100 GFLOP/s", "10 GB/s"}
        assert axes.get_xlabel() == "operations / byte"
        assert axes.get_ylabel() == "GFLOP/s"
        low, high = axes.get_ylim()
        assert low < 1
        assert high > 100


def test_bars_of_speed_ups_begin_at_one() -> None:
    """To the right where we are faster, to the left and hatched where we are slower; the number at each."""
    (axes,) = speedups(CASES, "title", "numpy").axes
    bars = dict(zip([label.get_text() for label in axes.get_yticklabels()], axes.patches, strict=True))
    assert list(bars) == ["b", "c", "a"]
    assert (bars["a"].get_x(), bars["a"].get_width()) == (1, 3)
    assert (bars["b"].get_x(), bars["b"].get_width()) == (1, -0.5)
    assert [bool(bar.get_hatch()) for bar in bars.values()] == [True, False, False]
    assert {text.get_text() for text in axes.texts} == {"4", "0.5", "1"}
    assert axes.get_xlabel() == "times as fast as numpy"


def test_times_by_choice_are_those_of_the_records() -> None:
    """For the parameters that matter most; numbers in order; a bar at the fastest of each choice."""
    made = choices(landscape())
    assert [axes.get_xlabel() for axes in made.axes] == ["width", "unroll", "order"]
    width = made.axes[0]
    assert [label.get_text() for label in width.get_xticklabels()] == ["1", "2", "4"]
    assert [list(line.get_ydata()) for line in width.lines[1::2]] == [pytest.approx([t, t]) for t in (1, 2, 4)]
    assert width.get_ylabel() == "time (ms)"


def test_plots_of_nothing_say_so() -> None:
    """An empty frame would look like a mistake."""
    for draw in (convergence, distribution, importance, choices):
        (axes,) = draw([]).axes
        assert [text.get_text() for text in axes.texts] in (["nothing was right"], ["too few records"])


def test_a_notebook_shows_a_picture() -> None:
    """As a PNG of a few kilobytes, the same each time."""
    picture = convergence(landscape())
    data = picture._repr_png_()
    assert data.startswith(b"\x89PNG")
    assert len(data) < 30_000
    assert data == convergence(landscape())._repr_png_()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_pictures_are_written(suffix: str, tmp_path: Path) -> None:
    """In the format that the name says."""
    save_picture(speedups(CASES), tmp_path / f"picture{suffix}")
    start = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[suffix]
    assert (tmp_path / f"picture{suffix}").read_bytes().startswith(start)


def test_a_picture_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    """Another format, or a directory that is not there."""
    with pytest.raises(PlotError, match=r"ends in '.bmp'; a picture is .png, .svg, .pdf"):
        save_picture(speedups(CASES), "picture.bmp")
    with pytest.raises(PlotError, match=r"cannot write .*gone.*: No such file or directory"):
        save_picture(speedups(CASES), tmp_path / "gone" / "picture.png")


def test_bench_draws_what_it_measured(tmp_path: Path) -> None:
    """``feinsum bench --plot`` writes a picture and prints its table; a bad name is a mistake in one line."""
    command = [sys.executable, "-m", "feinsum", "bench", "ij,jk->ik", "--size", "i=8,j=8,k=8", "--seconds", "0.02"]
    picture = tmp_path / "roofline.png"
    done = subprocess.run(
        [*command, "--plot", str(picture), "--device", "cpu"], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "roofline" in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
    failed = subprocess.run(
        [*command, "--plot", "roofline.bmp", "--device", "cpu"], capture_output=True, text=True, check=False, timeout=120
    )
    assert failed.returncode != 0
    assert len(failed.stderr.splitlines()) == 1
    assert "a picture is .png, .svg, .pdf" in failed.stderr
