"""Source text: spans of it, and where these are in lines and columns, both from 1 as editors number them."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple


class Span(NamedTuple):
    """Characters `start` to `end` of a text, the last one excluded."""

    start: int
    end: int


class SourcePosition(NamedTuple):
    """The place of a span: its first character and its last one, from 1."""

    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True)
class SourceText:
    """A text and the name by which messages call it: a path, or ``<text>``."""

    text: str
    name: str = "<text>"

    @cached_property
    def _line_starts(self) -> list[int]:
        starts = [0]
        position = self.text.find("\n")
        while position >= 0:
            starts.append(position + 1)
            position = self.text.find("\n", position + 1)
        return starts

    def _point(self, offset: int) -> tuple[int, int]:
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def place(self, span: Span) -> SourcePosition:
        """The lines and columns of a span; an empty one is taken for the character that it stands before.

        >>> SourceText("a\\nbcd").place(Span(3, 5))
        SourcePosition(line=2, column=2, end_line=2, end_column=3)
        """
        return SourcePosition(*self._point(span.start), *self._point(max(span.end - 1, span.start)))

    def quoted(self, span: Span) -> str:
        """The text of a span in one line."""
        return " ".join(self.text[span.start : span.end].split())

    def excerpt(self, span: Span) -> str:
        """The line in which a span begins, and carets below as much of it as is on that line.

        >>> print(SourceText("x = sun(y)").excerpt(Span(4, 7)))
        x = sun(y)
            ^^^
        """
        line, column = self._point(span.start)
        start = self._line_starts[line - 1]
        end = self.text.find("\n", start)
        shown = self.text[start : end if end >= 0 else len(self.text)].rstrip("\r")
        margin = "".join("\t" if c == "\t" else " " for c in shown[: column - 1])
        carets = max(min(span.end - start, len(shown)) - (column - 1), 1)
        return f"{shown}\n{margin}{'^' * carets}"
