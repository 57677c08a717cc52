"""The report of a tuning run: a table, which parameters matter, plots, a page, plain data."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from profiles import CPU

import feinsum as fe
from feinsum.report import plots
from feinsum.report.insight import influences
from feinsum.tune.final import Final
from feinsum.tune.report import TuningReport
from feinsum.tune.task import make_task
from feinsum.tune.trial import Outcome, Trial

pytestmark = pytest.mark.slow

GEMM = fe.einsum("ij,jk->ik", fe.array("A", ("N", 16)), fe.array("B", (16, 16)))
TASK = make_task(GEMM, {"N": 1000}, CPU)


def record(status: str, *samples_s: float, protocol: int = 1, **configuration: Any) -> fe.TuningRecord:
    """A record of a space that exists in this test only."""
    trial = Trial(TASK.canonical.key, TASK.sizes, CPU.id, "tiles", 3, configuration)
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
    return TuningReport(GEMM, {"N": 1000}, CPU, records, winner, "records.sqlite", 12.0, final=final)


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
        "as quick as the first, which is the simplest of them: tiles: order=<ji> unroll=False width=1",
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
    nothing = TuningReport(GEMM, {"N": 1000}, CPU, landscape()[-2:], None, "records.sqlite", 1.0)
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


def test_a_page_is_one_file_and_executes_nothing(report: TuningReport, tmp_path: Path) -> None:
    """Text from records is escaped; plots are within; nothing is loaded from elsewhere."""
    pytest.importorskip("matplotlib", reason="the extra 'report' is not installed")
    path = tmp_path / "report.html"
    report.write_html(path)
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert text.count("<svg") >= 3
    assert "order=&lt;ij&gt;" in text
    assert "<ij>" not in text
    assert "<script" not in text
    assert report._repr_html_() in text
    with pytest.raises(fe.FeinsumError, match=r"cannot write .*: No such file or directory"):
        report.write_html(tmp_path / "gone" / "report.html")


def test_without_matplotlib_a_report_has_no_plots(report: TuningReport, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for they say what to install; html does without them."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.delitem(sys.modules, "feinsum.report.picture", raising=False)
    with pytest.raises(fe.FeinsumError, match=r"plots need matplotlib, .* pip install 'feinsum\[report\]'"):
        report.plots()
    assert "<svg" not in report._repr_html_()
    assert "unroll=False width=1" in report._repr_html_()
