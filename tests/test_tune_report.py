"""The report of a tuning run: a table, which parameters matter, plots, a page, plain data."""

from __future__ import annotations

import json
import math
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from profiles import CPU

import feinsum as fe
from feinsum.report import plots
from feinsum.report.board import read_run
from feinsum.report.commands import command
from feinsum.report.insight import influences
from feinsum.tune.final import Final
from feinsum.tune.report import TuningReport
from feinsum.tune.task import make_task
from feinsum.tune.trial import Outcome, Trial

pytestmark = pytest.mark.slow

GEMM = fe.einsum("ij,jk->ik", fe.array("A", ("N", 16)), fe.array("B", (16, 16)))
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
TASK = make_task(GEMM, {"N": 1000}, CPU)


def record(status: str, *samples_s: float, protocol: int = 1, **configuration: Any) -> fe.TuningRecord:
    """A record of a space that exists in this test only."""
    trial = Trial(TASK.subject.canonical.key, TASK.sizes, CPU.id, "tiles", 3, configuration)
    return TASK.record(trial, Outcome(status, "<b>oops</b>" if status != "ok" else "", samples_s), protocol)


def landscape() -> tuple[fe.TuningRecord, ...]:
    """Times that depend much on the width, little on unrolling and not at all on the order; and two failures."""
    good = [
        record("ok", t := 1e-3 * width * (1.03 if unroll else 1.0), t, t, width=width, unroll=unroll, order=order)
        for width in (4, 2, 1)
        for unroll in (True, False)
        for order in ("<ij>", "<ji>")
    ]
    return (
        *good,
        record("wrong", width=8, unroll=True, order="<ij>"),
        record("timeout", width=8, unroll=False, order="<ij>"),
    )


@pytest.fixture
def report() -> TuningReport:
    records = landscape()
    best, tie = records[10:12]
    winner = record("ok", 1.01e-3, 1.0e-3, 1.02e-3, protocol=2, **best.configuration)
    final = Final(winner, ((tie, 1.0e-3), (best, 1.01e-3)), (tie,))
    return TuningReport(TASK.subject, {"N": 1000}, CPU, records, winner, "records.sqlite", 12.0, final=final)


def test_the_table_begins_with_the_winner(report: TuningReport) -> None:
    """With the samples of the final; then come the others, and what is to be said of all."""
    head, first, *rest = report.table(rows=3).splitlines()
    assert head.split() == ["time", "(ms)", "±", "GFLOP/s", "GB/s", "space,", "configuration"]
    assert first.split(maxsplit=4) == ["1.01", "1.0%", "0.5069", "0.2555", "tiles: order=<ij> unroll=False width=1"]
    assert [line.partition("  tiles: ")[2] for line in rest[:2]] == [
        "order=<ji> unroll=False width=1",
        "order=<ij> unroll=True width=1",
    ]
    assert rest[2:] == [
        "the first is the simplest of those that are equally fast; the others are tiles: order=<ji> unroll=False width=1",
        "4 configurations are within 5% of the best",
        "what matters in tiles@3: width 100%, unroll 0%, order 0%; interactions and noise 0%",
        "14 configurations in 12 s; 1 wrong, 1 timeout; records in records.sqlite",
    ]


def test_parameters_that_matter_are_named() -> None:
    """Where there are enough records to tell them apart."""
    (influence,) = influences(landscape()).values()
    assert list(influence.shares) == ["width", "unroll", "order"]
    assert influence.shares["width"] > 0.9
    assert influences(landscape()[:7]) == {}
    several = [record("ok", 1e-3 * k, a=k, b=-k, c=k % 3) for k in range(1, 11)]
    assert influences(several) == {}, "ten records cannot tell twenty effects apart"


def test_a_report_is_plain_data(report: TuningReport) -> None:
    """All that the table says, for machines."""
    data = json.loads(json.dumps(report.to_json()))
    assert report.best is not None
    assert data["best"] == report.best.to_dict()
    assert [tie["configuration"]["order"] for tie in data["ties"]] == ["<ji>"]
    assert len(data["near_best"]) == 4
    assert set(data["importance"]["tiles@3"]) == {"width", "unroll", "order"}
    assert data["failures"] == {"wrong": 1, "timeout": 1}


def test_a_run_without_anything_right_has_a_report(tmp_path: Path) -> None:
    """Which says how the trials ended; plots are empty, but there, save that of what cannot be told."""
    nothing = TuningReport(TASK.subject, {"N": 1000}, CPU, landscape()[-2:], None, "records.sqlite", 1.0)
    assert nothing.table().splitlines()[1:] == ["2 configurations in 1 s; 1 wrong, 1 timeout; records in records.sqlite"]
    assert nothing.near_best() == []
    assert nothing.to_json()["best"] is None
    nothing.write_html(tmp_path / "nothing.html")
    pytest.importorskip("matplotlib", reason="the extra 'report' is not installed")
    assert {"convergence", "distribution"} <= set(nothing.plots()) <= {"convergence", "distribution", "roofline"}


def test_plots_show_every_trial(report: TuningReport) -> None:
    """Convergence: a point for each right one, a cross for each failure, and the best so far, which never rises."""
    pytest.importorskip("matplotlib", reason="the extra 'report' is not installed")
    (axes,) = report.plots()["convergence"].axes
    trials, best, failed = axes.lines
    assert list(trials.get_xdata()) == list(range(1, 13))
    assert list(best.get_ydata()) == sorted(best.get_ydata(), reverse=True)
    assert list(failed.get_xdata()) == [13, 14]
    (axes,) = report.plots()["distribution"].axes
    assert axes.lines[0].get_xdata()[0] == 1
    assert axes.lines[0].get_ydata()[-1] == 1
    (axes,) = report.plots()["importance"].axes
    assert [label.get_text() for label in axes.get_yticklabels()][-1] == "width"


def test_no_trial_is_above_the_roofline(cpu: fe.Device) -> None:
    """Drawn from the measured peaks: slanted to the ridge, flat after it."""
    pytest.importorskip("matplotlib", reason="the extra 'report' is not installed")
    peaks = cpu.peaks
    (axes,) = plots.roofline(landscape(), peaks, GEMM.dtype).axes
    roof, trials = axes.lines
    (x0, x1, x2), (y0, y1, y2) = roof.get_xdata(), roof.get_ydata()
    assert x0 < x1 < x2
    assert y0 / x0 == pytest.approx(y1 / x1) == pytest.approx(peaks.copy_bytes_per_s / 1e9)
    assert y1 == pytest.approx(y2) == pytest.approx(peaks.flops_per_s("float64") / 1e9)
    assert len(trials.get_xdata()) == 12


def test_a_page_is_one_file_that_needs_no_other(report: TuningReport, tmp_path: Path) -> None:
    """Text from records is escaped, and data of theirs cannot end its element; nothing may be loaded from elsewhere."""
    pytest.importorskip("matplotlib", reason="the extra 'report' is not installed")
    path = tmp_path / "report.html"
    report.write_html(path)
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert "default-src 'none'" in text
    assert text.count("<svg") >= 3
    assert "order=&lt;ij&gt;" in text
    assert "<ij>" not in text
    assert "<b>" not in text
    assert not re.search(r'(src|href)\s*=\s*"(?!#)', text)
    assert text.count("<script") == text.count("</script>") == 3
    assert report._repr_html_() in text
    with pytest.raises(fe.FeinsumError, match=r"cannot write .*: No such file or directory"):
        report.write_html(tmp_path / "gone" / "report.html")


def test_a_page_says_what_was_run_and_how_to_run_it_again(report: TuningReport, tmp_path: Path) -> None:
    """Device, driver, date and versions, and the command, which describes the same einsum."""
    report.write_html(tmp_path / "report.html")
    run = read_run(str(tmp_path / "report.html"))
    assert [r["status"] for r in run["records"]].count("ok") == 13
    assert run["best"] == report.best.id if report.best else None
    facts = run["facts"]
    assert CPU.driver in facts["driver"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", facts["date"])
    assert "numpy=" in facts["versions"]
    assert facts["command"].startswith("feinsum tune 'ij,jk->ik' --shape A=N,16 --shape B=16,16 --size N=1000")


def test_a_page_can_be_compared_with_an_earlier_one(report: TuningReport, tmp_path: Path) -> None:
    """Which is read as data; what is no such page is refused by name."""
    report.write_html(tmp_path / "earlier.html")
    report.write_html(tmp_path / "later.html", tmp_path / "earlier.html")
    text = (tmp_path / "later.html").read_text(encoding="utf-8")
    assert text.count('"format": "feinsum run 1"') == 2
    (tmp_path / "other.html").write_text("<p>no run</p>")
    with pytest.raises(fe.FeinsumError, match=r"other.html is no page of a tuning run; `feinsum tune --html` writes one"):
        report.write_html(tmp_path / "later.html", tmp_path / "other.html")


U, X = fe.array("u", ("E", 4), "float32"), fe.array("x", 5)
COMMANDS = {
    "batched": fe.batched_einsum("ej,ij->ei", [[(U, fe.array("v", ("E", 4))), fe.array("D", (4, 4))]] * 2),
    "anonymous": fe.einsum("ij,ji->", fe.array("A", (math.inf, 3)), fe.array("B", (3, math.inf))),
    "one array twice": fe.einsum("i,i->", X, X),
}


@pytest.mark.parametrize("e", COMMANDS.values(), ids=COMMANDS)
def test_the_command_of_an_einsum_describes_it(e: fe.BatchedEinsum) -> None:
    """Read by the command line, it gives the same einsum and lengths."""
    from feinsum.cli.description import describe_arguments

    sizes = dict.fromkeys(e.long_axes, 7)
    words = shlex.split(command("tune", e, sizes))
    given: dict[str, list[str]] = {}
    for option, value in zip(words[3::2], words[4::2], strict=True):
        given.setdefault({"--shape": "shapes", "--size": "sizes", "--row": "rows", "--dtype": "dtypes"}[option], []).append(
            value
        )
    request = describe_arguments(words[2], **given)
    assert request.einsum == e
    assert dict(request.sizes) == sizes


@pytest.mark.skipif(BROWSER is None, reason="no Chromium")
def test_a_browser_draws_the_page(report: TuningReport, tmp_path: Path) -> None:
    """Every configuration is a line and a row, of both runs; what is pointed at is told."""
    report.write_html(tmp_path / "earlier.html")
    report.write_html(tmp_path / "later.html", tmp_path / "earlier.html")
    text = (tmp_path / "later.html").read_text(encoding="utf-8")
    point = "<script>document.querySelector('#board .line').dispatchEvent(new Event('mouseenter'))</script></body>"
    (tmp_path / "later.html").write_text(text.replace("</body>", point), encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    done = subprocess.run(
        [str(BROWSER), *options, f"file://{tmp_path / 'later.html'}"], capture_output=True, text=True, check=True
    )
    drawn = done.stdout
    assert drawn.count("<polyline") == 26
    assert drawn.count('class="line') - drawn.count('class="line other') == 13
    assert 'class="line lit"' in drawn or 'class="line other lit"' in drawn
    assert "configuration={" in drawn
    assert "in both; this run took 1.000 times the time of the other in the median" in drawn


def test_without_matplotlib_a_report_has_no_plots(report: TuningReport, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for they say what to install; html does without them."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.delitem(sys.modules, "feinsum.report.picture", raising=False)
    with pytest.raises(fe.FeinsumError, match=r"plots need matplotlib, .*: `pip install '.*report"):
        report.plots()
    assert "<svg" not in report._repr_html_()
    assert "unroll=False width=1" in report._repr_html_()
