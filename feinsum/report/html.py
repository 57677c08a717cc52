"""Html for notebooks and pages: self-contained, without scripts, readable on light and on dark ground.

Any value but :class:`Markup` is text and is escaped, so that no name and no message is ever taken for html.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Text keeps the colour of the page; tints are half transparent and syntax colours of middle lightness (a contrast of
# 4.4 with black and with white), since a fragment cannot know whether the page around it is dark.
_STYLE = """\
.feinsum {line-height: 1.4; margin: .3em 0}
.feinsum h3 {font-size: 1.1em; margin: .2em 0 .4em}
.feinsum h4 {font-size: 1em; margin: .5em 0 .2em}
.feinsum table {border-collapse: collapse; margin: .2em 0; font-size: .95em; color: inherit}
.feinsum td, .feinsum th {padding: .1em .7em; text-align: right; vertical-align: baseline; white-space: nowrap}
.feinsum thead th {border-bottom: 1px solid #888}
.feinsum table td.text, .feinsum table th.text, .feinsum table.facts td, .feinsum table.facts th {text-align: left}
.feinsum table td.text, .feinsum table.facts td {white-space: normal}
.feinsum td.text, .feinsum code, .feinsum pre {font-family: monospace; font-size: .95em}
.feinsum code {background: none; color: inherit; padding: 0}
.feinsum pre {margin: 0; padding: .4em; overflow: auto; max-height: 32em; line-height: 1.3}
.feinsum pre {white-space: pre !important}
.feinsum pre {background: #8881; color: inherit}
.feinsum .formula {margin: .4em 0; font-size: 1.15em}
.feinsum svg {max-width: 30em; height: auto; background: white}
.feinsum summary {cursor: pointer}
.feinsum .beside {display: flex; flex-wrap: wrap; gap: 1em}
.feinsum .beside > div {flex: 1 1 24em; min-width: 0}
.feinsum .bar {display: inline-block; width: 10em; height: .75em; border: 1px solid #888; margin-right: .5em}
.feinsum .chip {display: inline-block; border: 1px solid #888; padding: 0 .4em; margin: .05em .2em .05em 0}
.feinsum .gauge {white-space: nowrap}
.feinsum thead ~ tbody .bar {width: 6em}
.feinsum .bar span {display: block; height: 100%; background: #3b7cc4}
.feinsum table.lines td {text-align: left; white-space: pre-wrap; font-family: monospace; padding: 0 .4em; width: 48%}
.feinsum table.lines tr {background: none !important}
.feinsum table.lines td.sign {width: 1em; white-space: pre}
.feinsum .lines .less {background: #d0404030} .feinsum .lines .more {background: #30a04030}
.feinsum .k, .feinsum .kt, .feinsum .kd, .feinsum .kr, .feinsum .ow {color: #3b7cc4} .feinsum .kt {font-weight: bold}
.feinsum .c1, .feinsum .cm, .feinsum .cp, .feinsum .cpf, .feinsum .sd {color: #777; font-style: italic}
.feinsum .s, .feinsum .s1, .feinsum .s2, .feinsum .nd {color: #b0602a}
.feinsum .mi, .feinsum .mf, .feinsum .mh, .feinsum .il {color: #2a8a50} .feinsum .nf {font-weight: bold}
"""


class Markup(str):
    """Html, as opposed to text."""

    __slots__ = ()


def markup(part: object) -> Markup:
    """Html as it is, anything else as escaped text.

    >>> markup("a < b"), markup(Markup("<br>"))
    ('a &lt; b', '<br>')
    """
    return part if isinstance(part, Markup) else Markup(escape(str(part)))


def display_block(*parts: object, title: object = "") -> str:
    """The display of an object: its parts under a title, with the style that they need."""
    head = element("h3", title) if title else ""
    return f'<div class="feinsum"><style>{_STYLE}</style>{head}{"".join(map(markup, parts))}</div>'


def element(tag: str, *parts: object, kind: str = "") -> Markup:
    """An element around its parts.

    >>> element("td", "<ij>", kind="text")
    '<td class="text">&lt;ij&gt;</td>'
    """
    attributes = f' class="{kind}"' if kind else ""
    return Markup(f"<{tag}{attributes}>{''.join(map(markup, parts))}</{tag}>")


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], text: Iterable[str] = ()) -> Markup:
    """A table.

    :param text: the headings of columns of text; columns of figures stand at the right.
    """
    kinds = ["text" if heading in set(text) else "" for heading in headings]
    head = (element("th", heading, kind=kind) for heading, kind in zip(headings, kinds, strict=True))
    body = (element("tr", *(element("td", cell, kind=kind) for cell, kind in zip(row, kinds, strict=True))) for row in rows)
    return element("table", element("thead", element("tr", *head)), element("tbody", *body))


def facts(values: Mapping[str, object]) -> Markup:
    """A line for each name and value; values that are empty are left out."""
    rows = (element("tr", element("th", name), element("td", value)) for name, value in values.items() if value)
    return element("table", *rows, kind="facts")


def bar(share: float, label: object) -> Markup:
    """A bar filled by a share between 0 and 1, and a label beside it."""
    filled = f'<span style="width: {100 * min(max(share, 0.0), 1.0):.0f}%"></span>'
    return element("span", element("span", Markup(filled), kind="bar"), label, kind="gauge")


def chip(share: float, text: object) -> Markup:
    """A small box with a text, tinted from the left by a share between 0 and 1."""
    percent = f"{100 * min(max(share, 0.0), 1.0):.0f}%"
    tint = f"background: linear-gradient(to right, #3b7cc455 {percent}, transparent {percent})"
    return Markup(f'<span class="chip" style="{tint}">{markup(text)}</span>')


def details(summary: object, *parts: object, shown: bool = False) -> Markup:
    """Parts that are folded away until the summary is clicked."""
    return Markup(
        f"<details{' open' if shown else ''}>{element('summary', summary)}{''.join(map(markup, parts))}</details>"
    )


def side_by_side_parts(**columns: object) -> Markup:
    """Parts side by side where there is room, each under its name."""
    return element("div", *(element("div", element("h4", name), part) for name, part in columns.items()), kind="beside")


def fragment(
    title: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    notes: Iterable[str],
    figures: Mapping[str, Figure],
    about: Mapping[str, object],
) -> str:
    """A table, whose last column is text, with notes below, figures after them, and what it is about at the end."""
    drawn = element("div", *map(svg, figures.values()))
    said = (element("p", note) for note in notes)
    return display_block(
        table(headings, rows, headings[-1:]), *said, drawn, details("of this run", facts(about), shown=True), title=title
    )


def svg(figure: Figure) -> Markup:
    """A figure as an element of html; its letters stay letters, which keeps it small."""
    import matplotlib as mpl

    target = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "feinsum", "svg.fonttype": "none"}):  # the same figure is the same text
        figure.savefig(target, format="svg", metadata={"Date": None})
    text = target.getvalue()
    return Markup(text[text.index("<svg") :])
