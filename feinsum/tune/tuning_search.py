"""The search of a tuning run: every space that matches, each with its own sampler, asked alternately.

A sampler is told the results of earlier runs.  It begins with the winners of similar problems, then proposes the
predictions of the cost model and the default of the space, then explores::

    the configurations that a job says to begin with; unless it does, or names a sampler or a schedule, what
        :func:`feinsum.generate` would take or try without this run, so that it makes no user worse off
    chains of the best known steps (:mod:`feinsum.candidates.composed`)
    winners of this einsum at other lengths, then of others with the same subscripts, nearest first, on this device, then
        on others of its architecture (:mod:`feinsum.candidates.records`), each adapted
        (:mod:`feinsum.candidates.transfer`)
    the top predictions of the cost model
    the default configuration
    the proposals of the strategy
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any

from feinsum.apart import is_overdue, run_in_thread
from feinsum.candidates.composed import compositions
from feinsum.candidates.ladder import candidates
from feinsum.candidates.predicted import top_predictions
from feinsum.candidates.records import Inquiry, Question
from feinsum.candidates.shortlist import select_candidates
from feinsum.candidates.transfer import nearest_configuration
from feinsum.contraction import ContractionSchedule
from feinsum.database import Database, TuningRecord, best_known, open_stores
from feinsum.errors import FeinsumError, SearchError, SpaceError, TransformError
from feinsum.search.sampler import Sampler, make_sampler
from feinsum.space import Configuration, Instance, Missed, Problem, TransformSpace, describe_failure
from feinsum.timing import PROTOCOL
from feinsum.tune.task import Task
from feinsum.tune.trial import Trial

_GENERIC_TRIALS = 6
"""Trials given to the generic space where others match: enough to stand in for them."""
_TRIED = 6
"""Trials after which a space is judged by its best configuration."""
_MOST_BEHIND = 8.0
"""A space gets a trial for each so many of the fastest space, however slow it is."""
_ALIKE = 5
"""Configurations of similar problems to begin with."""
_TOP_PREDICTIONS = 5
"""Number of predictions of the cost model that are tried next."""
_LOOKED_AT, _SECONDS = 300, 1.0
"""Configurations of a space that it evaluates for that, and seconds for it at most: about as long as a trial."""


@dataclass
class SpaceSearch:
    """A space with its sampler, and how many configurations it was asked for.

    :ivar known: the best record of every configuration that was tried before.
    :ivar chains: configurations that are asked before those of the sampler: chains, and those asked for by the caller.
    :ivar composed: all that were ever among them.
    :ivar best_s: the time of the fastest, in seconds.
    """

    space: TransformSpace
    sampler: Sampler
    known: list[TuningRecord]
    asked: int = 0
    exhausted: bool = False
    chains: list[Mapping[str, Any]] = field(default_factory=list)
    composed: list[Mapping[str, Any]] = field(default_factory=list)
    best_s: float = math.inf

    def ask(self) -> Mapping[str, Any] | None:
        """A configuration that was not asked before; None when there is none left, or the space fails when asked, or
        takes too long to find one."""
        if is_overdue(subject := ("search", id(self))) or is_overdue(self.space.name):
            return None
        with Missed(self.space, "for a configuration", subject=subject):
            if self.chains:
                return self.chains.pop(0)
            while (found := self.sampler.ask()) is not None and found in self.composed:
                pass  # which was asked before the search began
            return found
        return None


class TuningSearch:
    """The spaces that compete for a task.

    :param only: the name of the only space that takes part; None for all.
    :param trials: how many configurations are going to be asked for, if that is known.
    :param sampler: see :func:`feinsum.search.make_sampler`; one that is named decides alone what comes first.
    :param begin: configurations to try first, or parts of some: see :class:`feinsum.tune.jobs.Job`.
    :param schedule: an order of contraction, in the letters of the given einsum, whose chain is tried before all others.
    :param first: configurations to try before those, each with the name of its space.
    :ivar best: the winner of the last final, or else the fastest record; None while none is right.
    :raises TransformError: if no space takes part, or takes too long to say so.
    :raises SearchError: if `begin` names a parameter that no participating space has.
    """

    def __init__(
        self,
        task: Task,
        store: Database,
        only: str | None,
        trials: int | None,
        sampler: str | None,
        begin: Sequence[Configuration] = (),
        schedule: ContractionSchedule | None = None,
        first: Sequence[tuple[str, Configuration]] = (),
    ) -> None:
        if only is not None and is_overdue(only):
            raise SpaceError(f"space '{only}' took too long to answer")
        able = task.subject.spaces()
        matching = [s for s in able if only in (None, s.name)]
        if not matching:
            names = ", ".join(s.name for s in able)
            raise TransformError(f"no transform space named {only!r} applies to '{task.subject.name}'; {names} do")
        share = None if trials is None else max(1, trials // max(1, sum(s.rank > 0 for s in matching)))
        self._task, self._store, self._schedule = task, store, schedule
        self._searches = {
            s.name: c for s in matching if (c := _entered(task, store, s, share, sampler, only, begin)) is not None
        }
        self._spaces = [(s.name, s.version) for s in matching]
        self.best = self._best_known()
        self.compose()
        if sampler is None and schedule is None and not begin:
            self._put_untuned_first()
        for name, configuration in reversed(first):
            self._put_first(name, configuration)

    def _best_known(self) -> TuningRecord | None:
        key, profile = self._task.subject.key, self._task.profile
        return best_known(self._store, key, self._task.sizes, profile.id, profile.driver, self._spaces)

    def _put_untuned_first(self) -> None:
        """Have what the ladder takes today, or its candidate selection times, tried unless it was tried here."""
        if self._task.instance is None:
            return
        choices = candidates(self._task.instance, open_stores(self._store), of_rung=1)
        first = next(choices, None)
        for choice in [] if first is None else reversed(select_candidates(first, choices)):
            self._put_first(choice.space.name, choice.space.completed(choice.configuration))

    def _put_first(self, name: str, configuration: Configuration) -> None:
        """Have a configuration tried before all others, unless it was tried, or its space takes no part."""
        c = self._searches.get(name)
        if c is not None and configuration not in [c.space.completed(r.configuration) for r in c.known]:
            c.chains = [configuration, *(chain for chain in c.chains if chain != configuration)]
            c.composed.append(configuration)
            self._searches = {name: c, **self._searches}  # whose turn it is among equals

    def refute(self, record: TuningRecord) -> None:
        """Forget a record that turned out to be wrong, after the store has."""
        space_search = self._searches[record.space]
        space_search.known = [r for r in space_search.known if r.configuration != record.configuration]
        self.best = self._best_known()

    def compose(self) -> int:
        """Put chains together from the known configurations of their steps, to be asked next; and say how many are
        waiting."""
        return run_in_thread(self._compose)

    def _compose(self) -> int:
        if self._task.instance is None:
            return 0
        inquiry = Inquiry(open_stores(self._store), self._task.profile)
        for c in self._searches.values():
            tried = [*(r.configuration for r in c.known), *c.composed]
            problem, asked = self._task.problem(c.space), self.asked(c.space)
            found = [made.configuration for made in compositions(c.space, problem, inquiry, asked)]
            fresh = [chain for chain in found if chain not in tried]
            c.chains = [*fresh, *c.chains]
            c.composed += fresh
            c.exhausted = c.exhausted and not c.chains
        return sum(len(c.chains) for c in self._searches.values())

    def asked(self, space: TransformSpace) -> tuple[ContractionSchedule, ...]:
        """The schedule asked for, in the letters of a space; empty if there is none."""
        instance = self._task.instance
        if self._schedule is None or instance is None or (roles := space.roles(instance.einsum)) is None:
            return ()
        canonical = instance.canonical
        given = roles.of_given(canonical.renaming)
        return (self._schedule.rename(given.reverse.indices, given.operands),)

    def spaces(self, reach: float | None) -> list[TransformSpace]:
        """The spaces that take part; with `reach`, only those whose best takes at most so many times as long as the best of
        all."""
        best_s = math.inf if self.best is None or self.best.median_s is None else self.best.median_s
        return [c.space for c in self._searches.values() if reach is None or c.best_s <= reach * best_s]

    @property
    def known(self) -> list[TuningRecord]:
        """The records of earlier runs, the best of every configuration."""
        return [record for space_search in self._searches.values() for record in space_search.known]

    def next_trial(self) -> Trial | None:
        """A trial of a chain, or else of the space whose turn it is; None when all are exhausted.

        Spaces take turns; one whose best takes n times as long as that of the fastest space gets a trial for each n of it.
        The generic space gets a few trials, and more only when nothing else is left.
        """
        return run_in_thread(self._next_trial)

    def _next_trial(self) -> Trial | None:
        while left := [c for c in self._searches.values() if not c.exhausted]:
            special = [c for c in left if c.space.rank > 0]
            generic = [c for c in left if c.space.rank == 0 and c.asked < _GENERIC_TRIALS]
            space_search = min(
                [c for c in left if c.chains] or [*special, *generic] or left,
                key=lambda c: self._turns(c) if c.space.rank > 0 else 2 * c.asked,
            )
            configuration = space_search.ask()
            if configuration is not None:
                space_search.asked += 1
                return self._task.trial(space_search.space, configuration)
            space_search.exhausted = True
        return None

    def _turns(self, c: SpaceSearch) -> float:
        """The trials of a space so far, each counted as often as it is behind."""
        if c.asked < _TRIED:
            return c.asked
        quickest = min(other.best_s for other in self._searches.values())
        return c.asked * (min(c.best_s / quickest, _MOST_BEHIND) if math.isfinite(c.best_s) else _MOST_BEHIND)

    def tell(self, record: TuningRecord) -> None:
        """Take the record of a trial."""
        space_search = self._searches[record.space]
        space_search.sampler.tell(space_search.space.completed(record.configuration), record.median_s)
        if record.median_s is not None:
            space_search.best_s = min(space_search.best_s, record.median_s)
            rival = math.inf if self.best is None or self.best.median_s is None else self.best.median_s
            self.best = record if record.median_s < rival else self.best

    def trial(self, record: TuningRecord) -> Trial:
        """The trial that a record of this search is of."""
        return self._task.trial(self._searches[record.space].space, record.configuration)

    def complexity(self, record: TuningRecord) -> int:
        """The number of parameters whose value is not that of the default configuration; in a chain, of all its steps."""
        return run_in_thread(self._complexity, record)

    def _complexity(self, record: TuningRecord) -> int:
        space = self._searches[record.space].space
        problem = self._task.problem(space)
        parts = space.parts(problem, record.configuration)
        if parts:
            return sum(_changes(part.space, part.problem, part.configuration) for part in parts)
        return _changes(space, problem, record.configuration)


def _entered(
    task: Task,
    store: Database,
    space: TransformSpace,
    share: int | None,
    sampler: str | None,
    only: str | None,
    begin: Sequence[Configuration],
) -> SpaceSearch | None:
    """The search of a space; None, with a warning, for a space that fails when asked what it accepts, unless it is the only
    one."""
    with Missed(space, passing=FeinsumError, answer=False) as missed:
        return _space_search(task, store, space, share, sampler, begin)
    if only is not None and missed.error is not None:
        raise SpaceError(describe_failure(space, missed.error)) from missed.error
    return None


def _space_search(
    task: Task,
    store: Database,
    space: TransformSpace,
    share: int | None,
    sampler: str | None,
    begin: Sequence[Configuration] = (),
) -> SpaceSearch:
    """A space with a sampler that knows what was tried before, and where to begin."""
    problem, profile = task.problem(space), task.profile
    first = _first_configuration(space, problem)
    tried = store.configurations_tried(
        task.subject.key, task.sizes, profile.id, space.name, space.version, profile.driver, PROTOCOL
    )
    made = make_sampler(
        sampler,
        space.parameters(problem),
        partial(space.refusal, problem),
        seed=task.seed,
        trials=share,
        start=[
            *_asked_for(space, problem, first, begin),
            *_foreseen(task, store, space, problem),
            *first,
        ],
        known=[(space.completed(configuration), record.median_s) for configuration, record in tried.items()],
    )
    known = list(tried.values())
    return SpaceSearch(
        space, made, known, best_s=min((r.median_s for r in known if r.median_s is not None), default=math.inf)
    )


def _asked_for(
    space: TransformSpace, problem: Problem, first: Sequence[Configuration], begin: Sequence[Configuration]
) -> list[dict[str, Any]]:
    """Configurations with some values given, the others being those of the default."""
    parameters = space.parameters(problem)
    for part in begin:
        if unknown := part.keys() - parameters.keys():
            known = ", ".join(sorted(parameters))
            raise SearchError(f"begin has {min(unknown)!r}, which is no parameter of '{space.name}'; {known} are")
    found = (nearest_configuration(problem, space, {**default, **part}) for default in first for part in begin)
    return [configuration for configuration in found if configuration is not None]


def _foreseen(task: Task, store: Database, space: TransformSpace, problem: Any) -> list[Mapping[str, Any]]:
    """Configurations expected to be fast by records of similar einsums, and then by the cost model; none for other
    subjects."""
    instance = task.instance
    if instance is None:
        return []
    return [*_from_similar_einsums(instance, store, space, problem), *_predicted_configurations(instance, space)]


def _from_similar_einsums(
    instance: Instance, store: Database, space: TransformSpace, problem: Problem
) -> list[Mapping[str, Any]]:
    """The best configurations of similar einsums, on this device and others of the architecture, or by an older version.

    Values that the problem does not admit are changed.
    """
    versions = tuple((space.name, version) for version in range(1, space.version + 1))
    question = replace(Question.of(instance, [space]), spaces=versions)
    inquiry = Inquiry(open_stores(store), instance.profile)
    found: list[Mapping[str, Any]] = []
    for _, record in chain(inquiry.precedents(question), inquiry.of_other_types(question)):
        fitting = nearest_configuration(problem, space, record.configuration)
        if fitting is not None and fitting not in found:
            found.append(fitting)
        if len(found) == _ALIKE:
            break
    return found


def _predicted_configurations(instance: Instance, space: TransformSpace) -> list[Mapping[str, Any]]:
    """The top predictions of the cost model."""
    found = top_predictions(instance, [space], looked_at=_LOOKED_AT, seconds=_SECONDS, share=math.inf)
    return [f.configuration for f in found[:_TOP_PREDICTIONS]]


def _first_configuration(space: TransformSpace, problem: Problem) -> list[dict[str, Any]]:
    try:
        return [space.default(problem)]
    except TransformError:
        return []


def _changes(space: TransformSpace, problem: Problem, configuration: Mapping[str, Any]) -> int:
    """The number of parameters whose value is not that of the default configuration."""
    default = next(iter(_first_configuration(space, problem)), {})
    return sum(default.get(name) != value for name, value in configuration.items())
