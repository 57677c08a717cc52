"""Diagnostics: what is wrong with a text, where, which rule says so, and where to look for the cause."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from feinsum.errors import LanguageError
from feinsum.languages.source import SourceText, Span

MOST_ERRORS = 20
"""More errors than that are counted and not shown; by then most are consequences of others."""


@dataclass(frozen=True)
class Note:
    """An explanation of a diagnostic, such as the definition of an operand; `line` is 0 where it has no place."""

    message: str
    file: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}: " if self.line else ""
        return f"{place}note: {self.message}"


@dataclass(frozen=True)
class Diagnostic:
    """An error or a warning; lines and columns count from 1, and the last ones belong to what is meant."""

    severity: Literal["error", "warning"]
    message: str
    line: int
    column: int
    end_line: int
    end_column: int
    rule: str
    notes: tuple[Note, ...] = ()
    file: str = "<text>"
    excerpt: str = ""

    def __str__(self) -> str:
        head = f"{self.file}:{self.line}:{self.column}: {self.severity}: {self.message} [{self.rule}]"
        excerpt = [f"    {line}" for line in self.excerpt.splitlines()]
        return "\n".join([head, *excerpt, *map(str, self.notes)])


def counted(number: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "index"), counted(2, "operand"), counted(0, "index")
    ('1 index', '2 operands', '0 indices')
    """
    if number == 1:
        return f"1 {noun}"
    return f"{number} {'indices' if noun == 'index' else noun + 's'}"


class Findings:
    """Diagnostics of one text, as they are found.

    :param ways_out: by rule, what to do where it is broken; the last note of each such diagnostic.
    """

    def __init__(self, source: SourceText, ways_out: Mapping[str, str] | None = None) -> None:
        self.source = source
        self._ways_out = ways_out or {}
        self._found: dict[tuple[Span, str, str], Diagnostic] = {}

    def error(self, rule: str, span: Span, message: str, notes: Iterable[Note] = ()) -> None:
        """Note that `rule` is broken."""
        self._add("error", rule, span, message, notes)

    def warn(self, rule: str, span: Span, message: str, notes: Iterable[Note] = ()) -> None:
        """Note what is accepted and yet odd."""
        self._add("warning", rule, span, message, notes)

    def note(self, message: str, span: Span) -> Note:
        """A note that points at `span`."""
        place = self.source.place(span)
        return Note(message, self.source.name, place.line, place.column)

    def _add(
        self, severity: Literal["error", "warning"], rule: str, span: Span, message: str, notes: Iterable[Note]
    ) -> None:
        place = self.source.place(span)
        told = (*notes, *(Note(self._ways_out[rule]) for _ in range(rule in self._ways_out)))
        self._found.setdefault(
            (span, rule, message),
            Diagnostic(severity, message, *place, rule, told, file=self.source.name, excerpt=self.source.excerpt(span)),
        )

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """The warnings, in order of place."""
        return self._of("warning")

    def _of(self, severity: str) -> tuple[Diagnostic, ...]:
        found = [d for d in self._found.values() if d.severity == severity]
        return tuple(sorted(found, key=lambda d: (d.line, d.column)))

    def raise_errors(self) -> None:
        """Raise the errors, if there are any, in order of place.

        :raises LanguageError: with at most :data:`MOST_ERRORS` of them.
        """
        if self._of("error"):
            raise self.as_error()

    def as_error(self) -> LanguageError:
        """The errors, of which there are some, as what is raised."""
        errors = self._of("error")
        return LanguageError(errors[:MOST_ERRORS], more=max(len(errors) - MOST_ERRORS, 0))


class recursion_guard:  # noqa: N801 - a manager of contexts, which enters sooner than one of contextlib
    """Refuse a program that is composed too deeply for the recursion of what walks through it.

    :raises LanguageError: in place of a RecursionError.
    """

    def __init__(self, source: SourceText) -> None:
        self._source = source

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is RecursionError:
            message = (
                "this program is composed too deeply to be walked through; compute parts of it as tensors of their own"
            )
            span = Span(0, min(1, len(self._source.text)))
            raise broken_rule(self._source, "nesting-depth", span, message) from None


def broken_rule(source: SourceText, rule: str, span: Span, message: str, notes: Sequence[Note] = ()) -> LanguageError:
    """The error that a program breaks a rule at one place, for what is found out one by one."""
    findings = Findings(source)
    findings.error(rule, span, message, notes)
    return findings.as_error()
