"""The configurations that the cost model expects to be the fastest, among all spaces that match an einsum.

A space may have a million configurations, so not all are evaluated.  The search of a space starts at its default and at
what was the quickest of other einsums, as far as the cost model keeps it, and goes from the best configuration so far to
all that differ from it in one parameter, until none is better, and then on from what is about as quick and differs from
where it was, until enough have been evaluated.  Spaces take turns; those whose default is far behind are not searched.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import eq
from typing import Any

from feinsum.apart import remembered
from feinsum.candidates.diversity import spread_choices
from feinsum.cost import Work, in_turn
from feinsum.cost.features import Features, parameter_features, problem_features, waste_features, work_features
from feinsum.cost.model import CostModel, cost_model
from feinsum.errors import TransformError
from feinsum.registry import matching_spaces
from feinsum.space import Choices, Configuration, Instance, Missed, Problem, TransformSpace

LOOKED_AT = 400
"""Configurations that are asked about where time matters: a tenth of a millisecond each."""
SECONDS = 0.25
"""Seconds of the processor after which a search ends where time matters: a space that answers slowly shall not hold up the
others, and what else the machine does shall not matter."""
_HOPELESS = 3.0
"""A space whose default is expected to take so many times longer than the best is not searched."""
_ABOUT = 1.3
"""Where no neighbour is better, a search goes on from what is expected to take less than so many times as long as the
best."""
WORTHWHILE = 0.85
"""Where one kernel is wanted, a configuration has to be expected to take less than this share of the time of the default,
which is the surer guess."""


@dataclass(frozen=True)
class Prediction:
    """A configuration and the time that the cost model expects it to take, in seconds.

    :ivar default_s: the same of the default of its space.
    """

    space: TransformSpace
    configuration: Mapping[str, Any]
    expected_s: float
    default_s: float

    def is_worthwhile(self, share: float) -> bool:
        """Whether it is the default of its space, or expected to take less than a share of its time."""
        return self.expected_s == self.default_s or self.expected_s < share * self.default_s


def top_predictions(
    here: Instance,
    spaces: Sequence[TransformSpace] | None = None,
    *,
    looked_at: int = LOOKED_AT,
    seconds: float = math.inf,
    share: float = WORTHWHILE,
    model: CostModel | None = None,
) -> list[Prediction]:
    """Accepted configurations, best first by the times expected of them.

    :param spaces: where to look; by default all that match.
    :param looked_at: how many configurations to ask about, refused ones among them; the default of each space is extra.
    :param seconds: of the processor's time, after which no search goes on.
    :param share: configurations expected to take more than this share of the time of their space's default are left out.
    :param model: by default the one that is part of feinsum.
    """
    oracle = Oracle(here, model)
    searches = []
    for s in matching_spaces(here.einsum) if spaces is None else spaces:
        with Missed(s, expected=TransformError):  # which says that nothing of it is accepted on this device
            searches.append(_ModelSearch(oracle, s))
    end = time.thread_time() + seconds
    while looked_at > 0 and time.thread_time() < end and (promising := _promising_searches(searches)):
        with Missed(promising[0].space):  # what it found before stands
            looked_at -= promising[0].step(looked_at, end)
    found = [f for search in searches for f in search.found() if f.is_worthwhile(share)]
    return sorted(found, key=lambda f: f.expected_s)


def unlike_each_other(found: Sequence[Prediction], most: int) -> list[Prediction]:
    """The quickest of defaults and what is clearly quicker than these, then others that are quick and differ from it.

    :param found: all that was looked at, best first.
    """
    best = next((f for f in found if f.is_worthwhile(WORTHWHILE)), None)
    if best is None:
        return []
    ordered = [best, *(f for f in found if f is not best)]
    return spread_choices(ordered, most, lambda f: f.expected_s, lambda f: (f.space.name, f.configuration))


def expected_s(here: Instance, s: TransformSpace, configuration: Configuration) -> float:
    """The time that one configuration is expected to take, in seconds; that of a chain is the sum of its steps'.

    :raises TransformError: if the space does not apply or refuses it.
    """
    problem = here.problem(s)
    s.require(problem, configuration)
    if parts := s.parts(problem, configuration):
        return sum(expected_s(part.instance, part.space, part.configuration) for part in parts)
    return Oracle(here).predict(s, problem, s.parameters(problem), [configuration])[0]


def adapted(start: Configuration, choices: Choices, default: Configuration) -> dict[str, Any]:
    """The fastest configuration of another einsum, with values of the default where this einsum does not offer its own."""
    return {name: start[name] if start.get(name) in values else default[name] for name, values in choices.items()}


def finishing_work(here: Instance) -> Work:
    """The work of a launch that applies epilogues to sums in memory."""
    e = here.einsum
    entries = math.prod(here.lengths[x] for x in e.indexing.output)
    rows = [dtype.itemsize for dtype, own in zip(e.dtypes, e.epilogues, strict=True) if own] * (e.b if e.combines else 1)
    # Sums are written and read again, beside what the epilogues move.
    moved = e.min_bytes(here.sizes) - e.bare.min_bytes(here.sizes) + 2 * entries * sum(rows)
    operations = sum(own.operations for own in e.epilogues if own)
    return Work(flops=entries * operations, bytes=moved, groups=max(1, entries // 1024), items=256)


class Oracle:
    """The cost model, asked about one einsum on one device.

    :param model: by default the one that is part of feinsum.
    """

    def __init__(self, here: Instance, model: CostModel | None = None) -> None:
        self.here, self.profile, self.model = here, here.profile, model or cost_model()
        self._shared = problem_features(here.einsum, here.lengths, here.profile)
        self._of_values: dict[str, dict[tuple[str, Any], tuple[Features, int]]] = defaultdict(dict)

    def describe(
        self, s: TransformSpace, problem: Problem, choices: Choices, configuration: Configuration
    ) -> tuple[Features, float]:
        """The features of an accepted configuration, and the time that its work takes by itself, in seconds.

        :param choices: the parameters of the space for this problem.
        """
        work = s.work(problem, configuration)
        if self.here.einsum.epilogues and not s.finishes(self.here.einsum, configuration):
            work = in_turn([work, finishing_work(self.here)])
        known, indexing = self._of_values[s.name], problem.einsum.indexing
        own = parameter_features(s.name, s.rank, choices, configuration, problem.sizes, indexing, known)
        seconds = work.seconds(self.profile, problem.itemsize)
        found = {**self._shared, **work_features(work, self.profile, problem.itemsize)}
        return {**found, **waste_features(found, seconds), **own}, seconds

    def predict(
        self, s: TransformSpace, problem: Problem, choices: Choices, configurations: Sequence[Configuration]
    ) -> list[float]:
        """The times expected of accepted configurations, in seconds."""
        features, work_s = zip(*(self.describe(s, problem, choices, c) for c in configurations), strict=True)
        return [float(t) for t in self.model.predict_s(features, work_s, self.profile.kind)]


@dataclass
class _ModelSearch:
    """The search of one space.

    :ivar asked: the configurations that were asked about.
    :ivar expected: those that were accepted -> the time expected.
    :ivar centres: those whose neighbours were asked about.
    :ivar best: the accepted configuration that is expected to be the quickest.
    """

    oracle: Oracle
    space: TransformSpace
    asked: set[tuple[Any, ...]] = field(default_factory=set)
    expected: dict[tuple[Any, ...], float] = field(default_factory=dict)
    centres: list[tuple[Any, ...]] = field(default_factory=list)
    _alike: dict[tuple[Any, ...], int] = field(default_factory=dict)
    """The most parameters that an accepted configuration shares with a centre; all of one that is; -1 without centres."""

    def __post_init__(self) -> None:
        self.problem = self.oracle.here.problem(self.space)
        self.parameters = self.space.parameters(self.problem)
        self.best = self.default = tuple(self.space.default(self.problem).values())
        self.asked.add(self.default)
        self._look_at([self.default])

    @property
    def is_at_an_end(self) -> bool:
        """Whether no neighbour of the best is better."""
        return self._alike[self.best] == len(self.best)

    @remembered
    def next_centre(self) -> tuple[Any, ...] | None:
        """The point whose neighbours are next: the best, or else one about as fast that differs from former ones."""
        if not self.is_at_an_end:
            return self.best
        limit = _ABOUT * self.expected[self.best]
        left = [point for point, t in self.expected.items() if t < limit and self._alike[point] < len(point)]
        return min(left, key=lambda point: self.expected[point] * (1 + self._likeness(point)), default=None)

    def _likeness(self, point: tuple[Any, ...]) -> float:
        """The largest share of parameters that a point has in common with a centre."""
        return self._alike[point] / max(1, len(point))

    def step(self, most: int, end: float) -> int:
        """Look at neighbours of the next centre, so many at most, until a time of the clock; the number of them."""
        looked_at = 0 if self.centres else self._ask(self._starts(), most, end)
        centre = self.next_centre
        assert centre is not None, "only searches that have one are promising"
        self._go_to(centre)
        return max(1, looked_at + self._ask(self._neighbours(centre), most - looked_at, end))

    def _go_to(self, centre: tuple[Any, ...]) -> None:
        self.centres.append(centre)
        for point, alike in self._alike.items():
            self._alike[point] = max(alike, sum(map(eq, point, centre)))
        self.__dict__.pop("next_centre", None)

    def found(self) -> Iterator[Prediction]:
        """All configurations that were accepted."""
        for point, t in self.expected.items():
            yield Prediction(self.space, self._configuration(point), t, self.expected[self.default])

    def _ask(self, points: Iterable[tuple[Any, ...]], most: int, end: float) -> int:
        """Evaluate at most `most` points not evaluated yet; returns how many."""
        fresh = [point for point in dict.fromkeys(points) if point not in self.asked][:most]
        self.asked.update(fresh)
        self._look_at([point for point in fresh if time.thread_time() < end and self._accepts(point)])
        return len(fresh)

    def _starts(self) -> Iterator[tuple[Any, ...]]:
        """The fastest configurations of other einsums."""
        default = self._configuration(self.default)
        for c in self.oracle.model.starts(self.oracle.profile.kind, self.space.name):
            yield tuple(adapted(c, self.parameters, default).values())

    def _neighbours(self, point: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        for k, choices in enumerate(self.parameters.values()):
            for value in choices:
                yield (*point[:k], value, *point[k + 1 :])

    def _configuration(self, point: tuple[Any, ...]) -> dict[str, Any]:
        return dict(zip(self.parameters, point, strict=True))

    def _accepts(self, point: tuple[Any, ...]) -> bool:
        return self.space.constraint(self.problem, self._configuration(point)) is None

    def _look_at(self, points: Sequence[tuple[Any, ...]]) -> None:
        if points:
            configurations = [self._configuration(point) for point in points]
            times = self.oracle.predict(self.space, self.problem, self.parameters, configurations)
            for point, t in zip(points, times, strict=True):
                self.expected[point] = t
                self._alike[point] = max((sum(map(eq, point, centre)) for centre in self.centres), default=-1)
                if t < self.expected[self.best]:
                    self.best = point
            self.__dict__.pop("next_centre", None)


def _promising_searches(searches: Sequence[_ModelSearch]) -> list[_ModelSearch]:
    """The searches that may find something better: those with fewer turns first, then the one with the best so far.

    A space whose default is a bad guess would else have none left, as the neighbours of a few others take them all.  Where
    every search is at an end, they go on elsewhere.
    """
    ordered = sorted(searches, key=lambda s: s.expected[s.best])
    hopeful = [s for s in ordered if s.expected[s.best] < _HOPELESS * ordered[0].expected[ordered[0].best]]
    return sorted([s for s in hopeful if s.next_centre is not None], key=lambda s: (s.is_at_an_end, len(s.centres)))
