"""The progress bar of a tuning run: over the trials where their number is given, else over the time."""

from __future__ import annotations

import contextlib
import sys
import time
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
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(file=sys.stderr)
    columns = (
        TextColumn("[progress.description]{task.description}"),
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
        TextColumn("{task.fields[state]}"),
    )
    start = time.monotonic()
    failed = 0
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(e.subscripts, total=trials or timeout, state="building")

        def report(done: int, planned: int | None, best: TuningRecord | None, last: TuningRecord) -> None:
            nonlocal failed
            failed += last.status != "ok"
            seconds = time.monotonic() - start
            fastest = f"best {best.median_s * 1e3:.4g} ms" if best is not None and best.median_s else "nothing right yet"
            state = f"{done} tried, {failed} failed, {60 * done / seconds:.0f} a minute, {fastest}"
            bar.update(task, completed=done if trials else seconds, state=state)

        yield report
