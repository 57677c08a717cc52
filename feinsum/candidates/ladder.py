"""The ladder: where `generate` looks for a configuration, from the best evidence to none.

exact        a record of this einsum at these lengths on this device and driver
lengths      a record of this einsum at other lengths
pattern      a record of an einsum of the same subscripts, of other fixed lengths, types or number of rows, nearest first
driver       any of these on another driver version of this device
architecture any of these on another device of the same architecture
steps        a chain of steps with records on these rungs, where it is expected to be no slower than the next
cost model   the configurations that the cost model expects to be the fastest, in all spaces that match, chains among them
default      the default configuration of the most specific space that matches
generic      the default configuration of the space that accepts every einsum

Below the first rung, :mod:`feinsum.candidates.transfer` adapts the configuration of a record to the einsum.  A record of
another einsum comes before the top predictions of the cost model, unless one of these is expected to be clearly faster here
and was not there: twice as fast if the measured configuration can stay as it is, a tenth faster if it has to change.  Then
the record stands among the predictions by its time.  On a rung the nearest record comes first, unless one of another space
promises much less time here: that space may have been younger than the nearest record, or not been tried.

A record of a narrow search (:mod:`feinsum.candidates.searches`), of this einsum or another, is doubted if the cost model
expects an untried one to beat it: candidate selection decides, or, without one, a prediction of half its time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from feinsum.apart import remembered
from feinsum.candidates.composed import StepOrigin, best_chains, origins
from feinsum.candidates.origin import Origin
from feinsum.candidates.predicted import SECONDS, Prediction, expected_s, top_predictions, unlike_each_other
from feinsum.candidates.records import Inquiry, Question, scaled_s, time_at
from feinsum.candidates.searches import LEAST_S, Doubt, PastSearch
from feinsum.candidates.transfer import MUCH_BETTER, WORTHWHILE, adapt, is_better, nearest_configuration
from feinsum.database import TuningRecord
from feinsum.database.stores import Stores
from feinsum.errors import FeinsumError, TransformError
from feinsum.registry import matching_spaces
from feinsum.report.figures import duration
from feinsum.space import Instance, Missed, Problem, TransformSpace

_MORE_PROMISING = 0.7
"""The share of the time of the nearest record that one of another space may promise at most to come first: half of the
predictions on a CPU are off by 1.4 and more."""
_TOP_PREDICTIONS = 6
"""Configurations of the cost model, unlike each other, that are tried before it is taken to be wrong about the einsum."""
_OF_ONE_LAUNCH = 0.6
"""The share of the time expected of one launch that a chain without records may be expected to take at most to come before
it, if its partial results leave the caches of a CPU, or local memory of a GPU: the model knows few such steps, and one on a
Zen 4 took five times as long as expected, another on an H200 three times.  Candidate selection may try it all the same."""


@dataclass(frozen=True)
class ConfigurationChoice:
    """A configuration, and why it was taken.

    :ivar rung: one of :data:`feinsum.candidates.origin.RUNGS`.
    :ivar record: the evidence; None from the cost model on.
    :ivar expected_s: the time expected at the lengths asked for, in seconds, where the cost model has a say.
    :ivar steps: of a chain: where the kernel of each step comes from.
    :ivar selection: see :class:`Origin`.
    :ivar doubt: the same.
    """

    rung: str
    space: TransformSpace
    configuration: Mapping[str, Any]
    record: TuningRecord | None = None
    expected_s: float | None = None
    steps: tuple[StepOrigin, ...] = ()
    selection: tuple[tuple[str, float], ...] = ()
    doubt: str = ""

    @property
    def is_doubted(self) -> bool:
        """Whether its record is what is doubted."""
        return bool(self.doubt) and self.record is not None

    @property
    def origin(self) -> Origin:
        """The origin of the choice as plain data."""
        return Origin(
            self.rung,
            self.space.name,
            self.space.version,
            self.configuration,
            self.record,
            self.expected_s,
            self.steps,
            self.selection,
            self.doubt,
        )


def candidates(
    here: Instance, stores: Stores, inquiry: Inquiry | None = None, *, of_rung: int | None = None
) -> Iterator[ConfigurationChoice]:
    """The configurations to try, best evidence first; a configuration comes once.

    :param inquiry: what the stores are asked with, if it is wanted what they were asked.
    :param of_rung: how many records of each rung count; None for all.
    """
    matching = {s.name: s for s in matching_spaces(here.einsum)}
    problems = {name: here.problem(s) for name, s in matching.items()}
    inquiry = Inquiry(stores, here.profile) if inquiry is None else inquiry
    seen: set[tuple[str, tuple[tuple[str, Any], ...]]] = set()
    for choice in _climb_ladder(here, inquiry, matching, problems, of_rung):
        identity = (choice.space.name, tuple(sorted(choice.space.completed(choice.configuration).items())))
        if identity not in seen:
            seen.add(identity)
            if _accepts(choice, problems[choice.space.name]):
                known = _at_our_lengths(choice, here)
                yield _with_steps(known, here, problems[choice.space.name], stores)


def _climb_ladder(
    here: Instance,
    inquiry: Inquiry,
    matching: Mapping[str, TransformSpace],
    problems: Mapping[str, Problem],
    of_rung: int | None,
) -> Iterator[ConfigurationChoice]:
    question, favoured = Question.of(here, matching.values()), _Favoured(here, tuple(matching.values()))
    beaten: list[ConfigurationChoice] = []
    doubted: list[ConfigurationChoice] = []
    seen: Counter[str] = Counter()
    for rung, record in _most_promising_first(inquiry.precedents(question), question, here, matching):
        if any(rung == choice.rung for choice in beaten) or seen[rung] == of_rung:
            continue  # what is farther away than one that was beaten
        if any(record == choice.record for choice in doubted):
            continue  # an exact one is among those at other lengths, too
        seen[rung] += 1
        s = matching[record.space]
        adapted = record.configuration if rung == "exact" else adapt(record, here, s)
        if adapted is not None:
            choice = ConfigurationChoice(rung, s, adapted, record)
            found = favoured.doubt(choice, inquiry.search(record, question))
            if found is not None:
                choice = _at_our_lengths(replace(choice, doubt=found.text), here)
                doubted.append(choice)
                if found.gain < MUCH_BETTER:
                    seen[rung] -= 1  # the next may be of a wide search
                    continue
            as_measured = ConfigurationChoice(rung, s, record.configuration, record)
            share = MUCH_BETTER if _accepts(as_measured, problems[s.name]) else WORTHWHILE
            if record.einsum_key != question.einsum_key and favoured.beat(choice, share):
                beaten.append(_at_our_lengths(choice, here))
                continue
            yield choice
        if rung != "exact":
            yield ConfigurationChoice(rung, s, record.configuration, record)
    told = doubted[0].doubt if doubted else ""
    best = favoured.unlike_each_other
    composed = [c for name, s in matching.items() for c in best_chains(s, problems[name], inquiry)]
    limit_s = _OF_ONE_LAUNCH * best[0].expected_s if best and _is_one_launch(best[0], problems) else math.inf
    chains: dict[bool, list[ConfigurationChoice]] = {True: [], False: []}
    for c in composed:
        leads = c.rung == "steps" or c.is_cached or c.expected_s < limit_s
        chains[leads].append(
            ConfigurationChoice(c.rung, c.space, c.configuration, None, c.expected_s, c.origins, doubt=told)
        )
    models = [ConfigurationChoice("cost model", f.space, f.configuration, None, f.expected_s, doubt=told) for f in best]
    first_of_rung = {choice.rung: choice for choice in reversed(doubted)}
    leading = sorted(
        [*chains[True], *beaten, *first_of_rung.values(), *models[:1]], key=lambda choice: choice.expected_s or 0.0
    )
    guesses = [*leading, *chains[False], *models[1:]]
    for rung, record in inquiry.of_other_types(question):
        s = matching[record.space]
        adapted = adapt(record, here, s)
        if adapted is not None:
            choice = ConfigurationChoice(rung, s, adapted, record)
            guesses.insert(len(guesses) if favoured.beat(choice, WORTHWHILE) else 0, choice)
            break
    yield from guesses
    for s in matching.values():
        configuration = None
        with Missed(s, expected=TransformError):  # which says that nothing of it is accepted on this device
            configuration = s.default(problems[s.name])
        if configuration is not None:
            yield ConfigurationChoice(
                "default" if s.rank > 0 else "generic", s, configuration, None, favoured.default_s(s), doubt=told
            )


def _is_one_launch(prediction: Prediction, problems: Mapping[str, Problem]) -> bool:
    s = prediction.space
    with Missed(s):
        return s.work(problems[s.name], prediction.configuration).launches == 1
    return False


def _most_promising_first(
    found: Iterable[tuple[str, TuningRecord]], question: Question, here: Instance, matching: Mapping[str, TransformSpace]
) -> Iterator[tuple[str, TuningRecord]]:
    """The records of other einsums on a rung led by the nearest, or by the nearest of a space that promises much less time.

    Those of the einsum itself, at whatever lengths, come as they are.
    """
    for (rung, own), group in groupby(found, key=lambda each: (each[0], each[1].einsum_key == question.einsum_key)):
        if own:
            yield from group
            continue
        records = [record for _, record in group]
        leaders = {record.space: record for record in reversed(records)}
        first = records[0]
        if len(leaders) > 1:
            promises = {name: _promise_s(record, here, matching[name]) for name, record in leaders.items()}
            best = min(promises, key=promises.__getitem__)
            if promises[best] < _MORE_PROMISING * promises[first.space]:
                first = leaders[best]
        yield from ((rung, record) for record in (first, *(other for other in records if other is not first)))


def _promise_s(record: TuningRecord, here: Instance, space: TransformSpace) -> float:
    """The time that a record promises for what its space accepts here and is nearest to it; infinite if there is none."""
    configuration: Mapping[str, Any] | None = record.configuration
    if not space.is_chain(record.configuration):
        configuration = None
        with Missed(space, expected=FeinsumError):
            configuration = nearest_configuration(here.problem(space), space, record.configuration)
    promised = None if configuration is None else scaled_s(record, configuration, here, space)
    return math.inf if promised is None else promised


class _Favoured:
    """The top predictions of the cost model, searched for when they are first needed."""

    def __init__(self, here: Instance, spaces: tuple[TransformSpace, ...]) -> None:
        self._here, self._spaces = here, spaces

    @remembered
    def unlike_each_other(self) -> list[Prediction]:
        """The best, and others that are quick and differ from it; see :func:`unlike_each_other`."""
        return unlike_each_other(self._found, _TOP_PREDICTIONS)

    def default_s(self, space: TransformSpace) -> float | None:
        """The time expected of the default of a space, in seconds; None if nothing of it was looked at."""
        return next((f.default_s for f in self._found if f.space is space), None)

    @remembered
    def _found(self) -> list[Prediction]:
        return top_predictions(self._here, self._spaces, seconds=SECONDS, share=math.inf)

    def doubt(self, choice: ConfigurationChoice, search: PastSearch) -> Doubt | None:
        """Why the choice of a record may not be the quickest; None if there is no reason to think so."""
        record = choice.record
        if record is None or search.is_wide(self._spaces):
            return None
        time_s = record.median_s if choice.rung == "exact" else self._time_s(choice, record)
        own = choice.space.name, choice.space.completed(choice.configuration)
        rivals = (f for f in self.unlike_each_other if (f.space.name, f.space.completed(f.configuration)) != own)
        rival = next(filter(search.leaves_open, rivals), None)
        if rival is None or time_s is None or time_s < LEAST_S:
            return None
        modelled_s = self._modelled_s(choice)
        share, modelled = rival.expected_s / time_s, rival.expected_s / modelled_s if modelled_s else 0.0
        # By the model's own time of the record's configuration the rival takes half, and it may err alike about both.
        within_error = 0 < modelled < MUCH_BETTER and share < 1 / MUCH_BETTER
        if not within_error and (share >= WORTHWHILE or (modelled >= WORTHWHILE and share >= MUCH_BETTER)):
            return None
        expected = f"an untried one of {rival.space.name} is expected to take {duration(rival.expected_s)}"
        text = f"record {record.id} of {choice.space.name} is the best {search.describe()}: {duration(time_s)}; {expected}"
        return Doubt(text, max(share, modelled))

    def _time_s(self, choice: ConfigurationChoice, record: TuningRecord) -> float | None:
        """The time of the choice of a record: as it was measured on this device, or as the cost model expects it here."""
        if record.device == self._here.profile.id:
            return time_at(record, choice.configuration, self._here, choice.space)
        return self._modelled_s(choice)

    def _modelled_s(self, choice: ConfigurationChoice) -> float | None:
        """The time that the cost model expects of a choice, measured or not; None if its space refuses it."""
        with Missed(choice.space, expected=FeinsumError):
            return expected_s(self._here, choice.space, choice.configuration)
        return None

    def beat(self, choice: ConfigurationChoice, share: float) -> bool:
        """Whether the first is expected to beat what was made of the record of a choice, beyond what the record refutes.

        :param share: see :func:`is_better`.
        """
        record = choice.record
        best = self.unlike_each_other[:1]
        return record is not None and any(
            is_better(f, record, choice.configuration, self._here, choice.space, share) for f in best
        )


def _with_steps(choice: ConfigurationChoice, here: Instance, problem: Problem, stores: Stores) -> ConfigurationChoice:
    """A choice with what is known of its steps, in the letters of the canonical einsum, if it is a chain."""
    if not choice.space.is_chain(choice.configuration):
        return choice
    found = choice.steps or origins(choice.space, problem, choice.configuration, Inquiry(stores, problem.device))
    roles = choice.space.roles(here.einsum)
    letters = {} if roles is None else roles.indices
    return replace(choice, steps=tuple(step.rename(letters) for step in found))


def _at_our_lengths(choice: ConfigurationChoice, here: Instance) -> ConfigurationChoice:
    """A choice with the time expected of it where its record is of other lengths."""
    if choice.record is None or (choice.rung == "exact" and not choice.doubt):
        return choice
    if choice.rung == "exact":
        return replace(choice, expected_s=choice.record.median_s)
    return replace(choice, expected_s=time_at(choice.record, choice.configuration, here, choice.space))


def _accepts(choice: ConfigurationChoice, problem: Problem) -> bool:
    with Missed(choice.space):
        return choice.space.refusal(problem, choice.configuration) is None
    return False
