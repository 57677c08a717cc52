"""Samplers choose the configuration to try next.

Every sampler is the same loop around two parts::

    ask  =  the first of: start configurations, a proposal of a strategy, an order of all points
            that is accepted by the space and was neither asked nor told before

The order makes a search complete: it ends with None once every accepted configuration was asked, however few they are and
however often a strategy repeats itself.  The strategy makes it fast.  Exhaustive and random search have none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from feinsum.errors import SearchError
from feinsum.search.genetic import Genetic
from feinsum.search.grid import Grid, Point, Refusal
from feinsum.search.parzen import Parzen
from feinsum.search.tpe import TPE

if TYPE_CHECKING:
    from feinsum.search.grid import Result
    from feinsum.space import Configuration, Value

SAMPLERS = ("exhaustive", "random", "parzen", "tpe", "genetic")
"""The names that :func:`make_sampler` knows."""
TRIALS = 200
"""The budget that is assumed where none is given."""
COUNTED = 100_000
"""Points that :func:`choose_sampler` looks at to see whether a space is small."""


class Sampler(Protocol):
    """The source of a tuner's configurations.  Several may be asked before one is told.

    :ivar name: one of :data:`SAMPLERS`.
    """

    name: str

    def ask(self) -> dict[str, Value] | None:
        """An accepted configuration that was neither asked nor told before; None when there is none left."""

    def tell(self, configuration: Configuration, median_s: float | None) -> None:
        """Tell the outcome of a configuration, whether it was asked or not, in any order.

        Told several times, the fastest counts.  A configuration outside the space says nothing about it and is ignored.

        :param median_s: its time in seconds; None, or a number that is no time, if it failed.
        """


class Strategy(Protocol):
    """A strategy that guides a search."""

    def propose(self, is_fresh: Callable[[Point], bool]) -> Point | None:
        """A fresh point worth trying: accepted, and neither asked nor told before; None if the strategy has none."""

    def learn(self, point: Point, median_s: float | None) -> None:
        """The time of a point in seconds, whether it was proposed or not, or a better one; None if it failed."""


STRATEGIES: Mapping[str, Callable[[Grid, int], Strategy]] = {"parzen": Parzen, "tpe": TPE, "genetic": Genetic}


class StrategySampler:
    """The :class:`Sampler` made of an order of all points and a strategy.

    :param start: asked first, without those that are refused or outside the grid.
    :param order: every point of the grid once.
    """

    def __init__(
        self, name: str, grid: Grid, start: Iterable[Configuration], strategy: Strategy | None, order: Iterator[Point]
    ) -> None:
        self.name = name
        self._grid = grid
        self._start = iter([point for point in map(grid.point, start) if point is not None])
        self._strategy = strategy
        self._order = order
        self._asked: set[Point] = set()
        self._told: dict[Point, float] = {}

    def ask(self) -> dict[str, Value] | None:
        """See :class:`Sampler`."""
        point = next(filter(self._is_fresh, self._start), None)
        if point is None and self._strategy is not None:
            point = self._strategy.propose(self._is_fresh)
        if point is None:
            point = next(filter(self._is_fresh, self._order), None)
        if point is None:
            return None
        self._asked.add(point)
        return self._grid.configuration(point)

    def tell(self, configuration: Configuration, median_s: float | None) -> None:
        """See :class:`Sampler`."""
        point = self._grid.point(configuration)
        if point is None:
            return
        loss = median_s if median_s is not None and 0 < median_s < math.inf else math.inf
        if loss >= self._told.get(point, math.nan):
            return
        self._told[point] = loss
        if self._strategy is not None:
            self._strategy.learn(point, None if loss == math.inf else loss)

    def _is_fresh(self, point: Point) -> bool:
        return point not in self._asked and point not in self._told and self._grid.accepts(point)


def choose_sampler(grid: Grid, trials: int | None) -> str:
    """The sampler for a space and a budget: everything if it fits the budget, otherwise the best of the manual's table.

    :param trials: how many configurations are going to be asked; None if that is not known.
    """
    trials = TRIALS if trials is None else trials
    accepted = sum(1 for _ in islice(filter(grid.accepts, islice(grid.graded(), COUNTED)), trials + 1))
    if accepted <= trials and grid.size <= COUNTED:
        return "exhaustive"
    return "parzen"


def make_sampler(
    name: str | None,
    parameters: Mapping[str, Sequence[Value]],
    refusal: Refusal,
    *,
    seed: int = 0,
    trials: int | None = None,
    start: Iterable[Configuration] = (),
    known: Iterable[Result] = (),
) -> Sampler:
    """A sampler of the configurations that a space accepts.

    :param name: one of :data:`SAMPLERS`; None leaves it to :func:`choose_sampler`.
    :param parameters: the choices of each parameter, best guess first.
    :param refusal: why a configuration made of these choices is refused, or None; asked before anything is handed out.
    :param seed: samplers made with equal arguments ask alike as long as they are told alike.
    :param trials: how many configurations are going to be asked, if that is known; it limits nothing.
    :param start: asked first, in this order; those that are refused or outside the space are skipped.
    :param known: results of earlier runs, told before the first question.
    :raises SearchError: if there is no sampler of this name, or `seed` or `trials` is out of range.
    """
    if name is not None and name not in SAMPLERS:
        raise SearchError(f"there is no sampler '{name}'; there are {', '.join(SAMPLERS)}")
    if not 0 <= seed < 2**32:
        raise SearchError(f"the seed of a sampler is {seed}; it must be at least 0 and below 2**32")
    if trials is not None and trials < 1:
        raise SearchError(f"a search of {trials} trials tries nothing; give at least 1")
    grid = Grid(parameters, refusal)
    name = name or choose_sampler(grid, trials)
    order = grid.graded() if name == "exhaustive" else grid.shuffled(seed)
    strategy = STRATEGIES[name](grid, seed) if name in STRATEGIES and grid.size > 1 else None
    sampler = StrategySampler(name, grid, start, strategy, order)
    for configuration, median_s in known:
        sampler.tell(configuration, median_s)
    return sampler
