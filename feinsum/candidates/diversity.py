"""Spread choices: of the configurations that are expected to be quick, a few that differ from each other.

What is wrong about one expectation is wrong about its neighbours, too.  So the quickest comes first, and then, one after
the other, the choice with the least::

    expected time · (1 + λ · likeness)        likeness: the largest share of parameters in common with one that is in

On times of patterns left out of the training (``python -m benchmarks selection``) the quickest of four such configurations
takes 1.03 (H200) to 1.05 (two cores of Zen 3, 4 and 5) of the best that was measured, the first alone 1.13 to 1.28, the
first four 1.02 to 1.07; that was with λ = 1, and others from 0.3 to 2 changed it by less than 0.01.  After the idea of
maximal marginal relevance (J. Carbonell and J. Goldstein, SIGIR 1998).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from feinsum.space import Configuration
from feinsum.space.chain import STEPS, read_chain

LIKENESS = 0.5
"""λ above: a likely error of the model by half."""
T = TypeVar("T")


def spread_choices(
    found: Sequence[T],
    most: int,
    expected_s: Callable[[T], float],
    configured: Callable[[T], tuple[str, Configuration]],
) -> list[T]:
    """The first of some choices, and others that are quick and differ from those that are in.

    >>> times = {"a": 1.0, "b": 1.1, "c": 1.3}
    >>> likes = {"a": {"x": 1, "y": 1}, "b": {"x": 1, "y": 1}, "c": {"x": 2, "y": 2}}
    >>> spread_choices("abc", 2, lambda name: times[name], lambda name: ("space", likes[name]))
    ['a', 'c']

    :param most: how many at most.
    :param expected_s: the time expected of a choice, in seconds.
    :param configured: the name of its space, and its configuration.
    """
    left, likeness = list(found), [0.0] * len(found)
    told = [(space, _parameters_of(configuration)) for space, configuration in map(configured, found)]
    chosen: list[T] = []
    while left and len(chosen) < most:
        ranks = [expected_s(choice) * (1 + LIKENESS * share) for choice, share in zip(left, likeness, strict=True)]
        place = min(range(len(left)), key=ranks.__getitem__) if chosen else 0
        chosen.append(left.pop(place))
        likeness.pop(place)
        own = told.pop(place)
        likeness = [max(share, equal_share(other, own)) for other, share in zip(told, likeness, strict=True)]
    return chosen


def equal_share(a: tuple[str, Configuration], b: tuple[str, Configuration]) -> float:
    """The share of parameters that have the same value in both, those of steps where both are chains; 0 of other spaces.

    >>> equal_share(("generic", {"lane": "i", "items": 64}), ("generic", {"lane": "i", "items": 32}))
    0.5
    """
    if a[0] != b[0]:
        return 0.0
    own, theirs = _parameters_of(a[1]), _parameters_of(b[1])
    names = own.keys() | theirs.keys()
    same: int = sum(own.get(name) == theirs.get(name) for name in names)
    return same / max(1, len(names))


def _parameters_of(configuration: Configuration) -> Mapping[Any, Any]:
    """The parameters of a configuration, and of a chain what its steps are."""
    if STEPS not in configuration:
        return configuration
    links = read_chain(configuration[STEPS])
    told = ({"of": link.operands, "to": link.output, "by": link.space, **link.configuration} for link in links)
    return {(k, name): value for k, link in enumerate(told) for name, value in link.items()}
