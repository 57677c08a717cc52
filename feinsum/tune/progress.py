"""The progress bar of a tuning run."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from feinsum.einsum import BatchedEinsum

if TYPE_CHECKING:
    from feinsum.database import TuningRecord


@contextlib.contextmanager
def progress_bar(
    e: BatchedEinsum, trials: int | None, timeout: float | None
) -> Iterator[Callable[[int, int | None, TuningRecord | None, TuningRecord], None]]:
    """While the context lasts, show trials done, rate, failures and the best time, if standard error is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(file=sys.stderr)
    columns = (
        TextColumn("[progress.description]{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[state]}"),
    )
    failed = 0
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(e.subscripts, total=trials, state="building")

        def report(done: int, planned: int | None, best: TuningRecord | None, last: TuningRecord) -> None:
            nonlocal failed
            failed += last.status != "ok"
            state = f"best {best.median_s * 1e3:.4g} ms" if best is not None and best.median_s else "nothing yet"
            rate = bar.tasks[0].finished_speed or bar.tasks[0].speed or 0
            bar.update(task, completed=done, state=f"{state}, {failed} failed, {60 * rate:.0f} a minute")

        yield report
