"""The ladder: where `generate` looks for a configuration, from the best evidence to none.

exact        a record of this einsum at these lengths on this device and driver
lengths      a record of this einsum at other lengths
pattern      a record of an einsum of the same subscripts, of other fixed lengths, types or number of rows, nearest first
driver       any of these on another driver version of this device
architecture any of these on another device of the same architecture
steps        a chain of steps, records of which are found on these rungs, where it is expected to be as quick as what is
cost model   what the cost model expects to be quickest, in all spaces that match
default      the default configuration of the most specific space that matches
generic      the default configuration of the space that accepts every einsum

Below the first, :mod:`feinsum.candidates.transfer` adapts what a record speaks for to what is asked.  A record of other
types comes before what the cost model expects, unless that is clearly better here and was not there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from feinsum.candidates.composed import StepOrigin, compositions, origins
from feinsum.candidates.origin import Origin
from feinsum.candidates.predicted import SECONDS, favourites
from feinsum.candidates.records import Inquiry, Question, time_at
from feinsum.candidates.transfer import adapt, is_better
from feinsum.canonicalization import CanonicalEinsum
from feinsum.database import TuningRecord
from feinsum.database.stores import Stores
from feinsum.devices import DeviceProfile
from feinsum.einsum import BatchedEinsum
from feinsum.errors import TransformError
from feinsum.registry import matching_spaces, report_failure
from feinsum.space import Problem, TransformSpace

_FAVOURITES = 6
"""Configurations of the cost model that are tried before it is taken to be wrong about the einsum."""


@dataclass(frozen=True)
class Choice:
    """A configuration, and why it was taken.

    :ivar rung: one of :data:`feinsum.candidates.origin.RUNGS`.
    :ivar record: the evidence; None from the cost model on.
    :ivar expected_s: the time expected at the lengths asked for, in seconds, where the cost model has a say.
    :ivar steps: of a chain: where the kernel of each step comes from.
    """

    rung: str
    space: TransformSpace
    configuration: Mapping[str, Any]
    record: TuningRecord | None = None
    expected_s: float | None = None
    steps: tuple[StepOrigin, ...] = ()

    @property
    def origin(self) -> Origin:
        """The same as plain data."""
        return Origin(
            self.rung, self.space.name, self.space.version, self.configuration, self.record, self.expected_s, self.steps
        )


def candidates(
    canonical: CanonicalEinsum,
    lengths: Mapping[str, int],
    profile: DeviceProfile,
    stores: Stores,
    inquiry: Inquiry | None = None,
) -> Iterator[Choice]:
    """The configurations to try, best evidence first; a configuration comes once.

    :param lengths: the length of each index of the canonical einsum.
    :param inquiry: what the stores are asked with, if it is wanted what they were asked.
    """
    e = canonical.einsum
    matching = {s.name: s for s in matching_spaces(e)}
    problems = {name: s.problem(e, e.sizes_from(lengths), profile) for name, s in matching.items()}
    inquiry = Inquiry(stores, profile) if inquiry is None else inquiry
    seen: set[tuple[str, tuple[tuple[str, Any], ...]]] = set()
    for choice in _climb(canonical, lengths, inquiry, matching, problems):
        identity = (choice.space.name, tuple(sorted(choice.space.completed(choice.configuration).items())))
        if identity not in seen:
            seen.add(identity)
            if _accepts(choice, problems[choice.space.name]):
                known = _at_our_lengths(choice, e, e.sizes_from(lengths), profile)
                yield _with_steps(known, e, problems[choice.space.name], stores)


def _climb(
    canonical: CanonicalEinsum,
    lengths: Mapping[str, int],
    inquiry: Inquiry,
    matching: Mapping[str, TransformSpace],
    problems: Mapping[str, Problem],
) -> Iterator[Choice]:
    e = canonical.einsum
    sizes = e.sizes_from(lengths)
    question = Question.about(canonical, lengths, matching.values())
    for rung, record in inquiry.precedents(question):
        s = matching[record.space]
        adapted = None if rung == "exact" else adapt(record, e, sizes, inquiry.profile, s)
        if adapted is not None:
            yield Choice(rung, s, adapted, record)
        yield Choice(rung, s, record.configuration, record)
    composed = [c for name, s in matching.items() for c in compositions(s, problems[name], inquiry)]
    guesses = [Choice("steps", c.space, c.configuration, None, c.expected_s, c.origins) for c in composed]
    favoured = favourites(e, sizes, inquiry.profile, tuple(matching.values()), seconds=SECONDS)
    guesses += [Choice("cost model", f.space, f.configuration, None, f.expected_s) for f in islice(favoured, _FAVOURITES)]
    guesses.sort(key=lambda choice: choice.expected_s or 0.0)
    for rung, record in inquiry.of_other_types(question):
        s = matching[record.space]
        adapted = adapt(record, e, sizes, inquiry.profile, s)
        if adapted is not None:
            beaten = any(is_better(f, record, adapted, e, sizes, inquiry.profile, s) for f in favoured[:1])
            guesses.insert(len(guesses) if beaten else 0, Choice(rung, s, adapted, record))
            break
    yield from guesses
    for s in matching.values():
        try:
            configuration = s.default(problems[s.name])
        except TransformError:
            continue
        except Exception as error:  # a bug of a space is a miss
            report_failure(s, error)
            continue
        yield Choice("default" if s.rank > 0 else "generic", s, configuration)


def _with_steps(choice: Choice, e: BatchedEinsum, problem: Problem, stores: Stores) -> Choice:
    """A choice with what is known of its steps, in the letters of the canonical einsum, if it is a chain."""
    if not choice.space.is_chain(choice.configuration):
        return choice
    found = choice.steps or origins(choice.space, problem, choice.configuration, Inquiry(stores, problem.device))
    roles = choice.space.roles(e)
    letters = {} if roles is None else roles.indices
    return replace(choice, steps=tuple(step.rename(letters) for step in found))


def _at_our_lengths(choice: Choice, e: BatchedEinsum, sizes: Mapping[str, int], profile: DeviceProfile) -> Choice:
    """A choice with the time expected of it where its record is of other lengths; `sizes` are those asked for."""
    if choice.rung == "exact" or choice.record is None:
        return choice
    return replace(choice, expected_s=time_at(choice.record, choice.configuration, e, sizes, profile, choice.space))


def _accepts(choice: Choice, problem: Problem) -> bool:
    try:
        return choice.space.refusal(problem, choice.configuration) is None
    except Exception as error:  # a bug of a space is a miss
        report_failure(choice.space, error)
        return False
