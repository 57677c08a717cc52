"""Reports of tuning runs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feinsum.database import TuningRecord
from feinsum.devices import DeviceProfile
from feinsum.einsum import BatchedEinsum
from feinsum.errors import FeinsumError
from feinsum.report.figures import listed, number, renamed_configuration, settings
from feinsum.tune.final import Final
from feinsum.tune.subject import EinsumSubject, Subject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from feinsum.search.importance import Importance

_HEADINGS = ("time (ms)", "±", "GFLOP/s", "GB/s", "space, configuration")
_WIDTHS = (10, 6, 8, 7)
_NEAR = 0.05


@dataclass(frozen=True)
class TuningReport:
    """The outcome of :func:`feinsum.autotune`.  Jupyter shows it with its plots, if matplotlib is there.

    :ivar subject: the einsum or program that was tuned.
    :ivar sizes: the lengths of its long axes.
    :ivar device: the profile of the device.
    :ivar records: one for each configuration tried in this run, in order.
    :ivar best: the winner of the final, or else the fastest known, of this run or an earlier one; None if none is right.
    :ivar database: where the records went.
    :ivar seconds: how long the run took.
    :ivar interrupted: whether the user ended the run.
    :ivar final: how the best did when they were timed again; None if there was nothing to decide.
    :ivar steps: reports of steps that were tuned for themselves in the same run.
    """

    subject: Subject
    sizes: Mapping[str, int]
    device: DeviceProfile
    records: tuple[TuningRecord, ...] = field(repr=False)
    best: TuningRecord | None
    database: str
    seconds: float
    interrupted: bool = False
    final: Final | None = field(default=None, repr=False)
    steps: tuple[TuningReport, ...] = field(default=(), repr=False)

    @property
    def einsum(self) -> BatchedEinsum | None:
        """The einsum, as it was given; None if a program was tuned."""
        return self.subject.canonical.given if isinstance(self.subject, EinsumSubject) else None

    @property
    def failures(self) -> dict[str, int]:
        """How many trials ended with each status but ``ok``."""
        return dict(Counter(record.status for record in self.records if record.status != "ok"))

    @property
    def ranking(self) -> list[TuningRecord]:
        """The winner of the final, then the right configurations of this run, fastest first."""
        good = sorted((r for r in self.records if r.median_s is not None), key=lambda r: r.median_s or 0.0)
        if self.final is None:
            return good
        winner = self.final.winner
        same = (winner.space, winner.configuration)
        return [winner, *(r for r in good if (r.space, r.configuration) != same)]

    def near_best(self, within: float = _NEAR) -> list[TuningRecord]:
        """The right configurations whose time is within a share of the best's, fastest first."""
        if self.best is None or self.best.median_s is None:
            return []
        return [r for r in self.ranking if (r.median_s or 0.0) <= (1 + within) * (self.best.median_s or 0.0)]

    def importance(self) -> dict[str, Importance]:
        """Space -> which of its parameters matter, for spaces with eight records; see :mod:`feinsum.search.importance`."""
        from feinsum.report.insight import influences

        return influences(self.records)

    def table(self, rows: int = 10) -> str:
        """The best configurations as text, with remarks on all."""
        *heads, last = _HEADINGS
        lines = [" ".join(text.rjust(n) for text, n in zip(heads, _WIDTHS, strict=True)) + "  " + last]
        for *cells, kernel in map(self._cells, self.ranking[:rows]):
            lines.append(" ".join(text.rjust(n) for text, n in zip(cells, _WIDTHS, strict=True)) + "  " + kernel)
        return "\n".join([*lines, *self._notes()])

    def plots(self) -> dict[str, Figure]:
        """Figures of matplotlib: convergence; distribution; importance, if the records tell parameters apart; roofline, if
        the device's peaks are known.

        :raises FeinsumError: if matplotlib is not installed.
        """
        from feinsum.devices.peaks import remembered_peaks
        from feinsum.report import plots

        figures: dict[str, Figure] = {
            "convergence": plots.convergence(self.records),
            "distribution": plots.distribution(self.records),
        }
        if self.importance():
            figures["importance"] = plots.importance(self.records)
        peaks = remembered_peaks(self.device)
        if peaks is not None:
            figures["roofline"] = plots.roofline(self.records, peaks, self.subject.dtype)
        return figures

    def write_html(self, path: str | os.PathLike[str], beside: str | os.PathLike[str] | None = None) -> None:
        """Write a page that needs no other file and no network.

        It has the table, the plots if matplotlib is there, and every configuration in parallel coordinates: point at a line
        to see what it is.

        :param beside: a page of an earlier run, to compare with; the page itself can be shown others, too.
        :raises FeinsumError: if a file cannot be read or written.
        """
        from feinsum.report.board import board_page, read_run

        other = None if beside is None else read_run(os.fspath(beside))
        try:
            text = board_page(self._title, self._run(), other, self._repr_html_())
            Path(path).write_text(text, encoding="utf-8")
        except OSError as error:
            raise FeinsumError(f"cannot write {path}: {error.strerror}") from None

    def _run(self) -> dict[str, Any]:
        """The data that the script of the page draws."""
        from feinsum.report.board import run_data

        records = list(self.records)
        if self.best is not None and self.best not in records:
            records.append(self.best)
        letters = self.subject.letters
        shown = {r.id: renamed_configuration(r.configuration, letters) for r in records}
        return run_data(self._title, self.facts, records, self.best, shown)

    @property
    def facts(self) -> dict[str, str]:
        """The einsum, device, time and command of the run, in words."""
        last = self.records[-1] if self.records else self.best
        return {
            "einsum": str(self.subject),
            "lengths": listed(self.sizes) or "fixed",
            "device": f"{self.device.name} ({self.device.id})",
            "driver": f"{self.device.platform}, {self.device.driver}",
            "date": "" if last is None else f"{last.created[:19].replace('T', ' ')} UTC",
            "versions": "" if last is None else listed(last.versions),
            "tried": self._tried,
            "records in": self.database,
            "command": self.subject.command(self.sizes, "--device", self.device.id),
        }

    def _repr_html_(self) -> str:
        from feinsum.report.html import fragment

        try:
            figures = self.plots()
        except FeinsumError:  # matplotlib is an extra
            figures = {}
        return fragment(self._title, _HEADINGS, map(self._cells, self.ranking[:10]), self._notes(), figures, self.facts)

    def to_json(self) -> dict[str, Any]:
        """The report as plain data."""
        return {
            "subscripts": self.subject.name,
            "sizes": dict(self.sizes),
            "device": self.device.id,
            "best": self.best.to_dict() if self.best else None,
            "ties": [r.to_dict() for r in self.final.ties] if self.final else [],
            "near_best": [r.to_dict() for r in self.near_best()],
            "importance": {space: dict(found.shares) for space, found in self.importance().items()},
            "tried": len(self.records),
            "failures": self.failures,
            "seconds": self.seconds,
            "database": self.database,
            "interrupted": self.interrupted,
            "steps": [step.to_json() for step in self.steps],
        }

    @property
    def summary(self) -> str:
        """The einsum, the best and the number of trials, in a line."""
        best = "nothing right" if self.best is None else f"{1e3 * (self.best.median_s or 0.0):.4g} ms by {self.best.space}"
        return f"{self.subject.name}: {best}; {self._tried}"

    @property
    def _tried(self) -> str:
        tried = f"{number(len(self.records), 'configuration')} in {self.seconds:.0f} s"
        failed = ", ".join(f"{count} {status}" for status, count in self.failures.items())
        return f"{tried}{f'; {failed}' if failed else ''}"

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        best = "nothing right" if self.best is None else f"best {1e3 * (self.best.median_s or 0.0):.4g} ms"
        tried = number(len(self.records), "configuration")
        return f"<TuningReport {self.subject.name} on {self.device.id}: {tried}, {best}>"

    @property
    def _title(self) -> str:
        lengths = " ".join(f"{name}={length}" for name, length in self.sizes.items())
        return f"{self.subject}{' at ' if lengths else ''}{lengths} on {self.device.name}"

    def _notes(self) -> list[str]:
        notes = [f"step {step.summary}" for step in self.steps]
        if self.final is not None and self.final.ties:
            tied = "; ".join(map(self._kernel, self.final.ties))
            notes.append(f"the first is the simplest of those that are equally fast; the others are {tied}")
        if self.final is not None and self.final.verdict:
            notes.append(f"the best is {self.final.verdict}")
        if len(near := self.near_best()) > 1:
            notes.append(f"{number(len(near), 'configuration')} are within {_NEAR:.0%} of the best")
        for space, found in self.importance().items():
            shares = ", ".join(f"{name} {share:.0%}" for name, share in list(found.shares.items())[:4])
            notes.append(f"what matters in {space}: {shares}; interactions and noise {found.rest:.0%}")
        return [*notes, f"{self._tried}; records in {self.database}"]

    def _cells(self, r: TuningRecord) -> list[str]:
        t = r.median_s or 1.0
        spread = (r.spread_s or 0.0) / t
        rates = f"{r.flops / t / 1e9:.4g}", f"{r.bytes / t / 1e9:.4g}"
        return [f"{t * 1e3:.4g}", f"{spread:.1%}", *rates, self._kernel(r)]

    def _kernel(self, r: TuningRecord) -> str:
        return f"{r.space}: {settings(r.configuration, self.subject.letters)}"
