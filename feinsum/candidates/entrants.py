"""Entrants: the choices of the ladder that are worth a try beside the first, where nobody measured the einsum itself.

The default of a space is what its author would try first.  A search of the cost model finds what the model wrongly takes
for quick, and about that all that it found may be wrong in the same way; the author's guess does not depend on the model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TypeVar

from feinsum.candidates.ladder import Choice
from feinsum.candidates.spread import spread

T = TypeVar("T")
ENTRANTS = 4
_POOL = 12
"""Choices of the ladder among which entrants are looked for."""
HOPELESS = 2.0
"""What is expected to take so many times as long as the quickest does not enter."""
_PLACE_OF_DEFAULT = 2
"""So many enter before the default of the first one's space."""


def entrants(first: Choice, others: Iterable[Choice], most: int = ENTRANTS) -> list[Choice]:
    """The first choice of the ladder, and at most so many with it that are expected to be quick and differ from each other;
    among them the default of the first one's space, unless little is expected of it.

    :param others: the other choices, one record of each rung.
    """
    guessed = [choice for choice in islice(others, _POOL) if choice.expected_s is not None]
    quickest = min(_seconds(choice) for choice in (first, *guessed))
    hopeful = [choice for choice in guessed if _seconds(choice) < HOPELESS * quickest]
    found = spread([first, *hopeful], most, _seconds, lambda choice: (choice.space.name, choice.configuration))
    default = next((c for c in hopeful if c.rung == "default" and c.space is first.space), None)
    return found if default is None else with_default(found, default)[:most]


def with_default(found: Sequence[T], default: T) -> list[T]:
    """Entrants, with the default of a space in third place at the latest.

    >>> with_default("abcd", "c"), with_default("abcd", "d"), with_default("abcd", "e")
    (['a', 'b', 'c', 'd'], ['a', 'b', 'd', 'c'], ['a', 'b', 'e', 'c', 'd'])
    """
    before, behind = found[:_PLACE_OF_DEFAULT], found[_PLACE_OF_DEFAULT:]
    return list(found) if default in before else [*before, default, *(other for other in behind if other != default)]


def _seconds(choice: Choice) -> float:
    return math.inf if choice.expected_s is None else choice.expected_s
