"""Entrants: the choices of the ladder that are worth a try beside the first, where nobody measured the einsum itself.

The default of a space is what its author would try first.  A search of the cost model finds what the model wrongly takes
for quick, and about that all that it found may be wrong in the same way; the author's guess does not depend on the model.
"""

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
_PLACE_OF_DEFAULT = 2
"""So many enter before the default of the first one's space, if it was not among them."""


def entrants(first: Choice, others: Iterable[Choice], most: int = ENTRANTS) -> list[Choice]:
    """The first choice of the ladder, and at most so many with it that are expected to be quick and differ from each other;
    among them the default of the first one's space, unless little is expected of it.

    :param others: the other choices, one record of each rung.
    """
    guessed = [choice for choice in islice(others, _POOL) if choice.expected_s is not None]
    quickest = min(_seconds(choice) for choice in (first, *guessed))
    hopeful = [choice for choice in guessed if _seconds(choice) < _HOPELESS * quickest]
    found = spread([first, *hopeful], most, _seconds, lambda choice: (choice.space.name, choice.configuration))
    default = next((c for c in hopeful if c.rung == "default" and c.space is first.space), None)
    if default is not None and default not in found[:_PLACE_OF_DEFAULT]:
        rest = [choice for choice in found[_PLACE_OF_DEFAULT:] if choice is not default]
        found = [*found[:_PLACE_OF_DEFAULT], default, *rest][:most]
    return found


def _seconds(choice: Choice) -> float:
    return math.inf if choice.expected_s is None else choice.expected_s
