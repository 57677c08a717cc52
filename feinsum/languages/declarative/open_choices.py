"""Choices: what a program leaves open, its tuned numbers and which way of each alternative to take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from feinsum.languages.declarative import syntax
from feinsum.languages.declarative.syntax import DeclarativeFunction

_MOST: Final = 256
"""The largest tuned number that is tried: powers of two and divisors of the length up to it; and the length itself."""
_DEFAULT: Final = 16
"""The largest number that is taken without a choice."""


@dataclass(frozen=True)
class OpenChoice:
    """Something that is left open.

    :ivar name: as configurations spell it: that of the tuned number, or of the alternative.
    :ivar node: where it is written.
    :ivar key: by which the unfolding of programs knows it.
    """

    name: str
    node: syntax.DeclarativeCall | syntax.Alternative
    key: str

    @property
    def ways(self) -> tuple[str, ...]:
        """The names of the ways of an alternative; none of a tuned number."""
        return tuple(way.name for way in self.node.ways) if isinstance(self.node, syntax.Alternative) else ()


def choices_of(function: DeclarativeFunction) -> tuple[OpenChoice, ...]:
    """All choices that a program leaves open, in the order of the text."""
    named = {id(n.value): n.name for n in syntax.walk_nodes(function.body) if isinstance(n, syntax.Let)}
    return tuple(_open_choices(function, named))


def _open_choices(function: DeclarativeFunction, named: Mapping[int, str]) -> Iterator[OpenChoice]:
    count = 0
    for node in syntax.walk_nodes(function.body):
        if isinstance(node, syntax.DeclarativeCall) and node.function == "tune":
            name = named.get(id(node), "")
            yield OpenChoice(name, node, name)
        elif isinstance(node, syntax.Alternative):
            yield OpenChoice(named.get(id(node)) or f"alternative{count}", node, key_of(node))
            count += 1


def key_of(node: syntax.Alternative) -> str:
    """The key by which the unfolding knows an alternative."""
    return f"alternative {node.span.start}"


def default_number(length: int) -> int:
    """The default of a tuned number, by its length: the largest power of two up to both 16 and the length.

    >>> default_number(5), default_number(1000)
    (4, 16)
    """
    return 1 << (max(1, min(length, _DEFAULT)).bit_length() - 1)


def numbers_for(length: int) -> tuple[int, ...]:
    """The choices of a tuned number of a length: powers of two and divisors, and the length; the default first.

    >>> numbers_for(12)
    (8, 1, 2, 3, 4, 6, 12)
    """
    most = min(length, _MOST)
    found = [n for n in range(1, most + 1) if length % n == 0 or n & (n - 1) == 0]
    return tuple(dict.fromkeys([default_number(length), *found, length]))
