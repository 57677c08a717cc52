"""A report as html: tables, and plots as SVG within, so that one file is all."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE = (
    ".feinsum td, .feinsum th {padding: 0.1em 0.6em; text-align: right}"
    " .feinsum .text {text-align: left; font-family: monospace}"
    " .feinsum svg {max-width: 24em; height: auto}"
)


def fragment(
    title: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    notes: Iterable[str],
    figures: Mapping[str, Figure],
) -> str:
    """A table, whose last column is text, with notes below and figures after them."""
    head = "".join(f"<th{_kind(k, headings)}>{escape(text)}</th>" for k, text in enumerate(headings))
    body = "".join(
        "<tr>" + "".join(f"<td{_kind(k, headings)}>{escape(cell)}</td>" for k, cell in enumerate(row)) + "</tr>"
        for row in rows
    )
    below = "".join(f"<p>{escape(note)}</p>" for note in notes)
    drawn = "".join(map(svg, figures.values()))
    return (
        f'<div class="feinsum"><style>{_STYLE}</style><h3>{escape(title)}</h3>'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}<div>{drawn}</div></div>"
    )


def page(title: str, content: str) -> str:
    """A whole page around a fragment."""
    head = f'<meta charset="utf-8"><title>{escape(title)}</title>'
    return f"<!DOCTYPE html><html><head>{head}</head><body>{content}</body></html>\n"


def svg(figure: Figure) -> str:
    """A figure as an element of html."""
    import matplotlib as mpl

    target = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "feinsum"}):  # the same figure is the same text
        figure.savefig(target, format="svg", metadata={"Date": None})
    text = target.getvalue()
    return text[text.index("<svg") :]


def _kind(column: int, headings: Sequence[str]) -> str:
    return ' class="text"' if column == len(headings) - 1 else ""
