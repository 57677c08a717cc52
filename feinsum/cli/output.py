"""The output of commands: tables, drawn by rich on a terminal and plainly aligned elsewhere, figures, and JSON.

Texts of job files, stores and drivers may hold any character, and a terminal obeys some of them: it renames its window,
moves the cursor, or sends text back as if it were typed.  All output passes :func:`printable`.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from feinsum.report.figures import duration, figure

if TYPE_CHECKING:
    from rich.console import Console

    from feinsum.database import TuningRecord

PERFORMANCE = ("time", "±", "GFLOP/s", "GB/s")
"""The headings of the cells that :func:`performance` makes."""

_LEAST_TEXT = 20
"""Characters below which a column of text is not worth reading."""
_EDGES, _BETWEEN = 2, 3
"""Blanks that a table has at its edges and between columns."""


def printable(text: str) -> str:
    """`text` with control characters written out, as JSON would write them.

    >>> print(printable("\\x1b[2Jgone\\x9b0m"))
    \\u001b[2Jgone\\u009b0m
    """
    return "".join(c if c.isprintable() or c in "\n\t" else json.dumps(c)[1:-1] for c in text)


def say(text: object, *, err: bool = False) -> None:
    """Print a line, or several."""
    click.echo(printable(str(text)), err=err)


class StandardErrorHandler(logging.Handler):
    """Prints what is logged on the standard error, above a progress bar if there is one.

    :ivar stamped: whether warnings have their time, too.
    """

    stamped = False

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record."""
        text = self.format(record)
        if record.levelno < logging.WARNING or self.stamped:
            text = f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(record.created))} {text}"
        say(text, err=True)


def show_log(*names: str) -> None:
    """Show what some modules log of their progress, all that is logged with the time."""
    for name in names:
        logging.getLogger(name).setLevel(logging.INFO)
    for handler in logging.getLogger().handlers:
        if isinstance(handler, StandardErrorHandler):
            handler.stamped = True


def print_json(value: Any) -> None:
    """Print plain data as JSON."""
    say(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, left: Iterable[str] = ()) -> None:
    """Print a table; where a terminal is too narrow for it, each row as lines of its own.

    :param left: the headings of columns of text; columns of figures stand at the right.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    texts = set(left)
    if not sys.stdout.isatty():
        for line in table_lines(headings, rows, texts):
            click.echo(line)
        return
    from rich.console import Console

    console = Console()
    natural = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    room = console.width - _EDGES - _BETWEEN * (len(natural) - 1)
    widths = fitted(natural, {k for k, heading in enumerate(headings) if heading in texts}, room)
    if widths is None:
        for line in stacked(headings, rows):
            click.echo(line)
    else:
        _draw(console, headings, rows, texts, widths)


def _draw(
    console: Console, headings: Sequence[str], rows: Sequence[Sequence[str]], texts: set[str], widths: Sequence[int]
) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading, width in zip(headings, widths, strict=True):
        table.add_column(Text(heading), justify="left" if heading in texts else "right", width=width, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)


def fitted(widths: Sequence[int], texts: Collection[int], room: int) -> list[int] | None:
    """The widths of columns when those of text give way, the widest first, until all fit; None where they cannot.

    >>> fitted([6, 40, 100], {1, 2}, 80), fitted([6, 40, 100], {1, 2}, 30)
    ([6, 37, 37], None)
    """
    for most in range(max(widths), _LEAST_TEXT - 1, -1):
        found = [min(width, most) if k in texts else width for k, width in enumerate(widths)]
        if sum(found) <= room:
            return found
    return None


def stacked(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A line for each cell, and an empty one between rows.

    >>> stacked(["space", "ms"], [["generic", "1.5"], ["dg", "12"]])
    ['space  generic', 'ms     1.5', '', 'space  dg', 'ms     12']
    """
    width = max(map(len, headings))
    blocks = [[f"{name.ljust(width)}  {cell}".rstrip() for name, cell in zip(headings, row, strict=True)] for row in rows]
    return [line for k, block in enumerate(blocks) for line in ([""] if k else []) + block]


def table_lines(headings: Sequence[str], rows: Sequence[Sequence[str]], left: set[str]) -> list[str]:
    """The lines of a table without rules.

    >>> table_lines(["space", "ms"], [["generic", "1.5"], ["dg", "12"]], {"space"})
    ['space     ms', 'generic  1.5', 'dg        12']
    """
    columns = list(zip(headings, *rows, strict=True))
    padded = []
    for column in columns:
        width = max(map(len, column))
        padded.append([cell.ljust(width) if column[0] in left else cell.rjust(width) for cell in column])
    return ["  ".join(cells).rstrip() for cells in zip(*padded, strict=True)]


def performance(seconds: float, spread_s: float, flops: int, nbytes: int) -> list[str]:
    """Cells under :data:`PERFORMANCE`."""
    rates = figure(flops / seconds / 1e9), figure(nbytes / seconds / 1e9)
    return [duration(seconds), f"{spread_s / seconds:.1%}", *rates]


def record_as_json(record: TuningRecord) -> dict[str, Any]:
    """A record as plain data, with the figures that are computed from its samples."""
    return {"id": record.id, **record.to_dict(), "median_s": record.median_s, "spread_s": record.spread_s}
