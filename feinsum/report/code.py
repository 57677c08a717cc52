"""Source code as html: in colours where pygments is installed, plain elsewhere; two sources line by line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher, unified_diff

from feinsum.report.html import Markup, element

LANGUAGES = {"opencl": "c", "python": "python", "loopy": "text"}
"""The languages shown, and the lexers of pygments that read them: OpenCL C is C with more types."""

_OPENCL_WORDS = re.compile(
    r'<span class="n">((?:__)?(?:kernel|global|local|constant|private|restrict)'
    r"|(?:u?(?:char|short|int|long)|float|double|half)(?:2|3|4|8|16))</span>"
)
_PLAIN = re.compile(r'<span class="(?:n|p|o|w|nb|nn|err)">([^<]*)</span>')
"""Tokens that have the colour of text anyway, which are most of them."""
_AROUND = 2
"""Lines in common that are shown on either side of a difference."""


def highlighted(source: str, language: str) -> Markup:
    """A source text as html.

    :param language: one of :data:`LANGUAGES`.
    """
    try:
        from pygments import highlight
        from pygments.formatters import HtmlFormatter
        from pygments.lexers import get_lexer_by_name
    except ModuleNotFoundError:
        return element("pre", source)
    lexer = get_lexer_by_name(LANGUAGES[language], stripnl=False)
    coloured = highlight(source, lexer, HtmlFormatter(nowrap=True))
    if language == "opencl":
        coloured = _OPENCL_WORDS.sub(r'<span class="kt">\1</span>', coloured)
    return element("pre", Markup(_PLAIN.sub(r"\1", coloured)))


def line_by_line(first: str, second: str) -> Markup:
    """Two texts beside each other, what differs marked by - and + and a tint, long stretches in common left out."""
    rows = []
    for sign, left, right in _paired_lines(first.splitlines(), second.splitlines()):
        less, more = ("less", "more") if sign == "≠" else ("", "")
        rows.append(
            element(
                "tr",
                element("td", "-" if less and left is not None else " ", kind="sign"),
                element("td", left or "", kind=less if left is not None else ""),
                element("td", "+" if more and right is not None else " ", kind="sign"),
                element("td", right or "", kind=more if right is not None else ""),
            )
        )
    return element("table", *rows, kind="lines") if rows else element("p", "the same")


def unified(first: str, second: str, names: tuple[str, str]) -> str:
    """The difference as text, in the form of ``diff -u``; empty if there is none."""
    return "\n".join(unified_diff(first.splitlines(), second.splitlines(), *names, lineterm=""))


def _paired_lines(first: Sequence[str], second: Sequence[str]) -> Iterator[tuple[str, str | None, str | None]]:
    """Lines that stand beside each other: ``=`` the same, ``≠`` different, None where there is no line."""
    groups = list(SequenceMatcher(None, first, second, autojunk=False).get_grouped_opcodes(_AROUND))
    end = 0
    for group in groups:
        yield from _left_out(first[end : group[0][1]])
        for tag, i, i_end, j, j_end in group:
            for k in range(max(i_end - i, j_end - j)):
                left = first[i + k] if i + k < i_end else None
                right = second[j + k] if j + k < j_end else None
                yield "=" if tag == "equal" else "≠", left, right
        end = group[-1][2]
    if groups:
        yield from _left_out(first[end:])


def _left_out(lines: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """A line that stands for those in common; few of them as they are."""
    if len(lines) <= _AROUND:
        yield from (("=", line, line) for line in lines)
    else:
        yield "=", f"… {len(lines)} lines in common", ""
