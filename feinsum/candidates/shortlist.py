"""The candidates of a selection: the choices of the ladder worth timing against its first, for an einsum without a record.

The default of a space is what its author would try first.  A search of the cost model finds configurations that the model
wrongly takes for fast, and it may be wrong about all of them in the same way; the author's guess does not depend on the
model.  And the model is less sure of how two spaces compare than of the configurations of one.  So the last candidate is of
another space, if one is not much slower.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TypeVar

from feinsum.candidates.diversity import spread_choices
from feinsum.candidates.ladder import ConfigurationChoice

T = TypeVar("T")
CANDIDATES = 4
_POOL = 12
"""Choices of the ladder that candidates are selected from."""
HOPELESS = 2.0
"""A choice that is expected to be slower than the fastest by this factor is not selected."""
FAR = 3.0
"""The factor for the fastest choice of other spaces, which comes last where all others are of one space.  Chosen by hand:
on a Granite Rapids `permutation` should take 2.1 times as long as `vector_panels` for ``nij,nji->nij``, and takes half."""
_PLACE_OF_DEFAULT = 2
"""Number of candidates before the default of the first one's space."""


def select_candidates(
    first: ConfigurationChoice, others: Iterable[ConfigurationChoice], most: int = CANDIDATES
) -> list[ConfigurationChoice]:
    """The first choice of the ladder, and at most so many with it that are expected to be quick and differ from each other;
    among them the default of the first one's space, unless little is expected of it, the quickest of another space, and a
    record that is doubted.

    :param others: the other choices, one record of each rung.
    """
    guessed = [choice for choice in islice(others, _POOL) if choice.expected_s is not None]
    quickest = min(_choice_seconds(choice) for choice in (first, *guessed))
    hopeful = [choice for choice in guessed if _choice_seconds(choice) < HOPELESS * quickest]
    found = spread_choices(
        [first, *hopeful], most, _choice_seconds, lambda choice: (choice.space.name, choice.configuration)
    )
    default = next((c for c in hopeful if c.rung == "default" and c.space is first.space), None)
    found = found if default is None else with_default(found, default)[:most]
    elsewhere = [choice for choice in guessed if choice.space is not first.space and choice.rung != "generic"]
    if most > 1 and elsewhere and all(choice.space is first.space for choice in found):
        other = min(elsewhere, key=_choice_seconds)
        found = [*found[: most - 1], other] if _choice_seconds(other) < FAR * quickest else found
    doubted = next((choice for choice in guessed if choice.is_doubted), None)
    if most > 1 and doubted is not None:  # it was measured, however it compares with guesses
        found = [found[0], doubted, *(choice for choice in found[1:] if choice is not doubted)][:most]
    return found


def with_default(found: Sequence[T], default: T) -> list[T]:
    """Candidates, with the default of a space in third place at the latest.

    >>> with_default("abcd", "c"), with_default("abcd", "d"), with_default("abcd", "e")
    (['a', 'b', 'c', 'd'], ['a', 'b', 'd', 'c'], ['a', 'b', 'e', 'c', 'd'])
    """
    before, behind = found[:_PLACE_OF_DEFAULT], found[_PLACE_OF_DEFAULT:]
    return list(found) if default in before else [*before, default, *(other for other in behind if other != default)]


def _choice_seconds(choice: ConfigurationChoice) -> float:
    return math.inf if choice.expected_s is None else choice.expected_s
