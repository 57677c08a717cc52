"""The progress bar of a tuning run: over the trials where their number is given, else over the time."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from feinsum.database import TuningRecord


@contextlib.contextmanager
def progress_bar(
    name: str, trials: int | None, timeout: float | None
) -> Iterator[Callable[[int, int | None, TuningRecord | None, TuningRecord], None]]:
    """While the context lasts, show what :func:`summary` says: on a terminal, or in the cell of a notebook.

    :param name: of what is tuned.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from feinsum.report.live import LiveBar

    console = Console(file=sys.stderr)
    columns = (
        TextColumn("[progress.description]{task.description}"),
        BarColumn(bar_width=16),
        TimeElapsedColumn(),
        TextColumn("{task.fields[state]}"),
    )
    course = Course(timeout)
    live = LiveBar()
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        first = "the first" if trials is None else f"1 of {trials}"
        task = bar.add_task(name, total=trials or timeout, state=f"building {first}")

        def report(done: int, planned: int | None, best: TuningRecord | None, last: TuningRecord) -> None:
            state = course.told(done, planned, best, last)
            seconds = course.seconds
            bar.update(task, completed=done if trials else seconds, state=state)
            live.update(done / trials if trials else seconds / (timeout or seconds), state)

        yield report
        live.finish()


class Course:
    """The course of a run in words.

    :param timeout: of the run, in seconds.
    """

    def __init__(self, timeout: float | None) -> None:
        self._start, self._timeout = time.monotonic(), timeout
        self._failures: Counter[str] = Counter()

    @property
    def seconds(self) -> float:
        """The seconds since its begin."""
        return time.monotonic() - self._start

    def told(self, done: int, planned: int | None, best: TuningRecord | None, last: TuningRecord) -> str:
        """The text of :func:`summary` after a trial."""
        if last.status != "ok":
            self._failures[last.status] += 1
        best_s, seconds = None if best is None else best.median_s, self.seconds
        left = left_s(done, planned, seconds, self._timeout)
        return summary(done, self._failures, best_s, seconds, left, planned)


def left_s(done: int, planned: int | None, seconds: float, timeout: float | None) -> float:
    """How much longer a run takes that has done so many trials of those planned, in seconds.

    >>> left_s(10, 40, 20.0, None), left_s(10, 40, 20.0, 30.0), left_s(3, None, 20.0, 30.0)
    (60.0, 10.0, 10.0)
    """
    by_number = [(planned - done) * seconds / max(done, 1)] if planned is not None else []
    by_time = [timeout - seconds] if timeout is not None else []
    return max(0.0, min([*by_number, *by_time], default=0.0))


def summary(
    done: int,
    failures: Mapping[str, int],
    best_s: float | None,
    seconds: float,
    left: float,
    planned: int | None = None,
) -> str:
    """Best so far, trials, rate, failures by kind and time left.

    >>> summary(30, {"wrong": 2, "timeout": 1}, 0.0012, 20.0, 95.0, 200)
    'best 1.2 ms, 30 of 200 tried, 90 a minute, 2 wrong, 1 timeout, 1:35 left'
    """
    fastest = f"best {best_s * 1e3:.4g} ms" if best_s else "nothing right yet"
    rate = f"{60 * done / max(seconds, 1e-9):.0f} a minute"
    failed = [f"{count} {status}" for status, count in failures.items()]
    tried = f"{done} tried" if planned is None else f"{done} of {planned} tried"
    return ", ".join([fastest, tried, rate, *failed, f"{int(left) // 60}:{int(left) % 60:02} left"])
