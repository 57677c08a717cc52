"""Index maps: ``{i[k]m, m(jn) to i(jn)[k]}`` says which index of which operand is which, and how they are looped over.

A letter in brackets is looped over, outside of the matrix product; letters in parentheses are treated as one index.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from feinsum.languages.source import Span

NO_INDICES: Final = "_"
"""The notation of a tensor of order 0."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One or more letters that stand together: plain, ``[k]`` or ``(jn)``."""

    letters: str
    kind: str = ""
    """``""``, ``"loop"`` or ``"fuse"``."""
    span: Span = field(default=Span(0, 0), compare=False)

    def __str__(self) -> str:
        before, behind = {"": ("", ""), "loop": ("[", "]"), "fuse": ("(", ")")}[self.kind]
        return f"{before}{self.letters}{behind}"


@dataclass(frozen=True, slots=True)
class OperandIndices:
    """The indices of one operand, the fastest one first."""

    marks: tuple[Mark, ...] = ()
    span: Span = field(default=Span(0, 0), compare=False)

    @property
    def letters(self) -> str:
        """Without marks.

        >>> parse_indices("i(jn)[k]").letters
        'ijnk'
        """
        return "".join(mark.letters for mark in self.marks)

    @property
    def loops(self) -> str:
        """The letters that are looped over."""
        return "".join(mark.letters for mark in self.marks if mark.kind == "loop")

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups of two letters or more; of one letter is what one letter is."""
        return tuple(mark.letters for mark in self.marks if mark.kind == "fuse" and len(mark.letters) > 1)

    def __str__(self) -> str:
        return "".join(map(str, self.marks)) or NO_INDICES


@dataclass(frozen=True, slots=True)
class IndexMap:
    """The indices of the operands and of the result.

    :ivar inputs: one or two.
    """

    inputs: tuple[OperandIndices, ...]
    output: OperandIndices
    span: Span = field(default=Span(0, 0), compare=False)

    @property
    def terms(self) -> tuple[OperandIndices, ...]:
        """The indices of all operands, those of the result last."""
        return (*self.inputs, self.output)

    @property
    def loops(self) -> str:
        """The letters that are looped over, in order of appearance."""
        return "".join(dict.fromkeys(x for term in self.terms for x in term.loops))

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups of letters, in order of appearance."""
        return tuple(dict.fromkeys(group for term in self.terms for group in term.groups))

    def letter_class(self, letter: str) -> str:
        """``"common"``, ``"m"``, ``"n"`` or ``"k"``, as the document sorts the indices of two operands.

        >>> fine = index_map(["i[k]m", "m(jn)"], "i(jn)[k]")
        >>> [fine.letter_class(x) for x in "ijkm"]
        ['m', 'n', 'm', 'k']
        """
        inside = "".join("ABC"[i] for i, term in enumerate(self.terms) if letter in term.letters)
        return {"ABC": "common", "AC": "m", "BC": "n", "AB": "k"}.get(inside, "")

    def __str__(self) -> str:
        return f"{{{', '.join(map(str, self.inputs))} to {self.output}}}"


def parse_indices(text: str) -> OperandIndices:
    """Indices from their text, which is right.

    >>> str(parse_indices("i(jn)[k]")), str(parse_indices(""))
    ('i(jn)[k]', '_')
    """
    kinds = {"": "", "[": "loop", "(": "fuse"}
    found = re.findall(r"([\[(]?)([A-Za-z]+)[\])]?", text)
    return OperandIndices(tuple(Mark(x, kinds[sign]) for sign, run in found for x in ([run] if sign else run)))


def index_map(inputs: Iterable[str], output: str) -> IndexMap:
    """A map from the texts of its terms."""
    return IndexMap(tuple(map(parse_indices, inputs)), parse_indices(output))


Complain = Callable[[Span, str], None]
"""Says what is wrong with characters of the text."""

_TOKENS: Final = re.compile(r"\s+|;[^\n]*|([A-Za-z_]+|.)", re.S)


def read_map(text: str, start: int, complain: Complain) -> IndexMap:
    """The map that a token says, which begins at `start`; what is wrong is told to `complain`."""
    tokens = [(t.group(1), start + t.start()) for t in _TOKENS.finditer(text) if t.group(1) is not None][1:-1]
    splits = [position for position, (word, _) in enumerate(tokens) if word == "to"]
    to = _the_arrow(tokens, splits)
    left, right = tokens[:to], tokens[to + 1 :]
    commas = [-1, *(k for k, (word, _) in enumerate(left) if word == ","), len(left)]
    arrow = tokens[to][1]
    inputs = [_read_term(left[a + 1 : b], arrow, complain) for a, b in pairwise(commas)]
    return IndexMap(tuple(inputs), _read_term(right, start + len(text) - 1, complain), Span(start, start + len(text)))


def _the_arrow(tokens: list[tuple[str, int]], candidates: list[int]) -> int:
    """Which ``to`` is the word: in ``{to to ot}`` and ``{_, to to to}`` the second one, for indices may be t and o."""
    fine = [k for k in candidates if k and k + 1 < len(tokens) and tokens[k - 1][0] != ","]
    return (fine or candidates)[0]


def _read_term(tokens: list[tuple[str, int]], end: int, complain: Complain) -> OperandIndices:
    """One term; `end` is where it would stand if it is not there."""
    if not tokens:
        complain(Span(end, end + 1), "an operand has no indices here; one of order 0 is written '_'")
        return OperandIndices()
    span = Span(tokens[0][1], tokens[-1][1] + len(tokens[-1][0]))
    if [word for word, _ in tokens] == [NO_INDICES]:
        return OperandIndices((), span)
    marks: list[Mark] = []
    opened: tuple[str, int] | None = None
    letters = ""
    for word, place in tokens:
        here = Span(place, place + len(word))
        if word in ("[", "(") and opened is None:
            opened, letters = (word, place), ""
        elif opened is not None and word == {"[": "]", "(": ")"}[opened[0]]:
            marks += _parse_mark(opened, letters, Span(opened[1], here.end), complain)
            opened = None
        elif word.isascii() and word.isalpha():
            letters += word
            if opened is None:
                marks += [Mark(x, "", Span(place + k, place + k + 1)) for k, x in enumerate(word)]
        else:
            complain(here, f"{word!r} is no index: indices are letters, [k] is looped over, (jn) are treated as one")
    if opened is not None:
        complain(Span(opened[1], opened[1] + 1), f"'{opened[0]}' is not closed")
    return OperandIndices(tuple(marks), span)


def _parse_mark(opened: tuple[str, int], letters: str, span: Span, complain: Complain) -> list[Mark]:
    if not letters:
        complain(span, "there is no index between these brackets")
        return []
    if opened[0] == "(":
        return [Mark(letters, "fuse", span)] if len(letters) > 1 else [Mark(letters, "", span)]
    if len(letters) > 1:
        inside = "".join(f"[{x}]" for x in letters)
        complain(span, f"one index is looped over in a pair of brackets; write {inside}")
    return [Mark(x, "loop", span) for x in letters]
