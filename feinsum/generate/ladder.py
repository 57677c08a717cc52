"""The ladder: where `generate` looks for a configuration, from the best evidence to none.

exact        a record of this einsum at these lengths on this device and driver
lengths      a record of this einsum at other lengths
pattern      a record of an einsum that differs in lengths of fixed axes, nearest lengths first
driver       any of these on another driver version of this device
architecture any of these on another device of the same architecture
cost model   what the cost model expects to be quickest, in all spaces that match
default      the default configuration of the most specific space that matches
generic      the default configuration of the space that accepts every einsum
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from feinsum.canonicalization import CanonicalEinsum, parse_key
from feinsum.database import TuningRecord, best_known
from feinsum.database.stores import Stores
from feinsum.devices import DeviceProfile
from feinsum.einsum import BatchedEinsum
from feinsum.errors import FeinsumError, TransformError
from feinsum.favourites import SECONDS, expected_s, favourites
from feinsum.generate.origin import Origin
from feinsum.registry import matching_spaces
from feinsum.space import Problem, TransformSpace

logger = logging.getLogger(__name__)

_FAVOURITES = 6
"""Configurations of the cost model that are tried before it is taken to be wrong about the einsum."""


@dataclass(frozen=True)
class Choice:
    """A configuration, and why it was taken.

    :ivar rung: one of :data:`feinsum.generate.origin.RUNGS`.
    :ivar record: the evidence; None from the cost model on.
    :ivar expected_s: the time expected at the lengths asked for, in seconds, where the cost model has a say.
    """

    rung: str
    space: TransformSpace
    configuration: Mapping[str, Any]
    record: TuningRecord | None = None
    expected_s: float | None = None

    @property
    def origin(self) -> Origin:
        """The same as plain data."""
        return Origin(self.rung, self.space.name, self.space.version, self.configuration, self.record, self.expected_s)


def candidates(
    canonical: CanonicalEinsum, lengths: Mapping[str, int], profile: DeviceProfile, stores: Stores
) -> Iterator[Choice]:
    """The configurations to try, best evidence first; a configuration comes once.

    :param lengths: the length of each index of the canonical einsum.
    """
    e = canonical.einsum
    matching = {s.name: s for s in matching_spaces(e)}
    problems = {name: s.problem(e, e.sizes_from(lengths), profile) for name, s in matching.items()}
    seen: set[tuple[str, tuple[tuple[str, Any], ...]]] = set()
    for choice in _climb(canonical, lengths, profile, stores, matching, problems):
        identity = (choice.space.name, tuple(sorted(choice.configuration.items())))
        if identity not in seen:
            seen.add(identity)
            if _accepts(choice, problems[choice.space.name]):
                yield _at_our_lengths(choice, e, e.sizes_from(lengths), profile)


def _climb(
    canonical: CanonicalEinsum,
    lengths: Mapping[str, int],
    profile: DeviceProfile,
    stores: Stores,
    matching: Mapping[str, TransformSpace],
    problems: Mapping[str, Problem],
) -> Iterator[Choice]:
    current = [(s.name, s.version) for s in matching.values()]
    best = best_known(stores, canonical.key, lengths, profile.id, profile.driver, current)
    if best is not None:
        yield Choice("exact", matching[best.space], best.configuration, best)
    found = stores.winners(pattern_key=canonical.pattern.key, spaces=current)
    wanted = canonical.pattern.renaming.lengths(_given_lengths(canonical, lengths))
    for rung, records in _by_rung(found, canonical, profile).items():
        for record in sorted(records, key=lambda r: _distance(wanted, r.pattern_sizes)):
            yield Choice(rung, matching[record.space], record.configuration, record)
    e = canonical.einsum
    favoured = favourites(e, e.sizes_from(lengths), profile, tuple(matching.values()), seconds=SECONDS)
    for f in islice(favoured, _FAVOURITES):
        yield Choice("cost model", f.space, f.configuration, expected_s=f.expected_s)
    for s in matching.values():
        try:
            configuration = s.default(problems[s.name])
        except TransformError:
            continue
        except Exception as error:  # a bug of a space is a miss
            _report(s, error)
            continue
        yield Choice("default" if s.rank > 0 else "generic", s, configuration)


def _at_our_lengths(choice: Choice, e: BatchedEinsum, sizes: Mapping[str, int], profile: DeviceProfile) -> Choice:
    """A choice with the time expected of it: that of its record, changed as the cost model says lengths change it.

    :param sizes: the lengths of long axes asked for.
    """
    r = choice.record
    if choice.rung == "exact" or r is None or r.median_s is None:
        return choice
    try:
        recorded = parse_key(r.einsum_key)
        now = expected_s(e, sizes, profile, choice.space, choice.configuration)
        then = expected_s(recorded, recorded.sizes_from(r.sizes), profile, choice.space, choice.configuration)
    except FeinsumError:
        return choice  # it was accepted at other lengths, or on another device, only
    except Exception as error:  # a bug of a space is a miss
        _report(choice.space, error)
        return choice
    return replace(choice, expected_s=r.median_s * now / then)


def _accepts(choice: Choice, problem: Problem) -> bool:
    try:
        return choice.space.refusal(problem, choice.configuration) is None
    except Exception as error:  # a bug of a space is a miss
        _report(choice.space, error)
        return False


def _report(space: TransformSpace, error: Exception) -> None:
    logger.warning("space '%s' fails when asked what it accepts: %s: %s", space.name, type(error).__name__, error)


def _by_rung(
    records: Iterable[TuningRecord], canonical: CanonicalEinsum, profile: DeviceProfile
) -> dict[str, list[TuningRecord]]:
    rungs: dict[str, list[TuningRecord]] = {"lengths": [], "pattern": [], "driver": [], "architecture": []}
    for record in records:
        if record.device != profile.id:
            if record.architecture == profile.architecture:
                rungs["architecture"].append(record)
        elif record.driver != profile.driver:
            rungs["driver"].append(record)
        else:
            rungs["lengths" if record.einsum_key == canonical.key else "pattern"].append(record)
    return rungs


def _given_lengths(canonical: CanonicalEinsum, lengths: Mapping[str, int]) -> dict[str, int]:
    return canonical.renaming.inverse.lengths(lengths)


def _distance(ours: Mapping[str, int], theirs: Mapping[str, int]) -> float:
    """How far apart two sets of lengths are: the sum of the logarithms of their ratios."""
    return sum(abs(math.log(max(1, length) / max(1, theirs.get(letter, 1)))) for letter, length in ours.items())
