"""Entrants: the choices of the ladder that are worth a try beside the first, where nobody measured the einsum itself."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import islice

from feinsum.candidates.ladder import Choice
from feinsum.candidates.spread import spread

ENTRANTS = 4
_POOL = 12
"""Choices of the ladder among which entrants are looked for."""
_HOPELESS = 2.0
"""What is expected to take so many times as long as the quickest does not enter."""


def entrants(first: Choice, others: Iterable[Choice], most: int = ENTRANTS) -> list[Choice]:
    """The first choice of the ladder, and at most so many with it that are expected to be quick and differ from each other.

    :param others: the other choices, one record of each rung.
    """
    guessed = [choice for choice in islice(others, _POOL) if choice.expected_s is not None]
    quickest = min(_seconds(choice) for choice in (first, *guessed))
    hopeful = [choice for choice in guessed if _seconds(choice) < _HOPELESS * quickest]
    return spread([first, *hopeful], most, _seconds, lambda choice: (choice.space.name, choice.configuration))


def _seconds(choice: Choice) -> float:
    return math.inf if choice.expected_s is None else choice.expected_s
