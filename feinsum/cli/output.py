"""What commands print: tables, drawn by rich on a terminal and plainly aligned elsewhere, figures, and JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from feinsum.database import TuningRecord

PERFORMANCE = ("time", "±", "GFLOP/s", "GB/s")
"""The headings of the cells that :func:`performance` makes."""


def print_json(value: Any) -> None:
    """Print plain data as JSON."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, left: Iterable[str] = ()) -> None:
    """Print a table.

    :param left: the headings of columns of text; columns of figures stand at the right.
    """
    rows = [list(row) for row in rows]
    texts = set(left)
    if not sys.stdout.isatty():
        for line in aligned(headings, rows, texts):
            click.echo(line)
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        is_text = heading in texts
        table.add_column(Text(heading), justify="left" if is_text else "right", no_wrap=not is_text, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)


def aligned(headings: Sequence[str], rows: Sequence[Sequence[str]], left: set[str]) -> list[str]:
    """The lines of a table without rules.

    >>> aligned(["space", "ms"], [["generic", "1.5"], ["dg", "12"]], {"space"})
    ['space     ms', 'generic  1.5', 'dg        12']
    """
    columns = list(zip(headings, *rows, strict=True))
    padded = []
    for column in columns:
        width = max(map(len, column))
        padded.append([cell.ljust(width) if column[0] in left else cell.rjust(width) for cell in column])
    return ["  ".join(cells).rstrip() for cells in zip(*padded, strict=True)]


def figure(value: float) -> str:
    """Three significant digits, and no exponent where a person would not write one.

    >>> figure(0.0123), figure(1.2345), figure(98765.4)
    ('0.0123', '1.23', '98,765')
    """
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def duration(seconds: float) -> str:
    """
    >>> duration(1.2e-5), duration(0.00345), duration(12)
    ('12 µs', '3.45 ms', '12 s')
    """
    for unit, scale in (("µs", 1e-6), ("ms", 1e-3)):
        if seconds < 1000 * scale:
            return f"{figure(seconds / scale)} {unit}"
    return f"{figure(seconds)} s"


def performance(seconds: float, spread_s: float, flops: int, nbytes: int) -> list[str]:
    """Cells under :data:`PERFORMANCE`."""
    rates = figure(flops / seconds / 1e9), figure(nbytes / seconds / 1e9)
    return [duration(seconds), f"{spread_s / seconds:.1%}", *rates]


def settings(configuration: Mapping[str, Any]) -> str:
    """``elements=16 unroll=False``"""
    return " ".join(f"{name}={value}" for name, value in configuration.items())


def record_as_json(record: TuningRecord) -> dict[str, Any]:
    """A record as plain data, with the figures that are computed from its samples."""
    return {"id": record.id, **record.to_dict(), "median_s": record.median_s, "spread_s": record.spread_s}
