"""A genetic algorithm over accepted configurations: the fittest measured ones are crossed and mutated.

The population is the best that was measured so far, so that no question waits for the end of a generation.  A child takes
each parameter from either parent and then changes each with probability 1/n; refused children are discarded.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from feinsum.search.grid import Grid, Point

POPULATION = 16
"""Measured configurations that may be parents; so many are measured before the first child."""
TOURNAMENT = 3
"""The fittest of so many drawn at random becomes a parent."""
BIRTHS = 64
"""Children tried for one configuration."""


class Genetic:
    """A strategy of a search: see the module."""

    def __init__(self, grid: Grid, seed: int) -> None:
        self._grid = grid
        self._random = Random(seed)
        self._population: dict[Point, float] = {}

    def learn(self, point: Point, median_s: float | None) -> None:
        """See :class:`~feinsum.search.sampler.Strategy`."""
        if median_s is not None:
            self._population[point] = median_s
            if len(self._population) > POPULATION:
                del self._population[max(self._population, key=self._population.__getitem__)]

    def propose(self, is_fresh: Callable[[Point], bool]) -> Point | None:
        """See :class:`~feinsum.search.sampler.Strategy`."""
        if len(self._population) < POPULATION:
            return None
        return next(filter(is_fresh, (self._child() for _ in range(BIRTHS))), None)

    def _child(self) -> Point:
        crossed = tuple(map(self._random.choice, zip(self._parent(), self._parent(), strict=True)))
        mutations = sum(self._random.random() < 1 / len(crossed) for _ in crossed)
        return self._grid.changed(crossed, mutations, self._random)

    def _parent(self) -> Point:
        drawn = self._random.choices(list(self._population), k=TOURNAMENT)
        return min(drawn, key=self._population.__getitem__)
