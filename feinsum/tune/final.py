"""The final of a tuning run: the fastest are timed again, in rounds, and the simplest of those that tie wins.

The fastest of many noisy measurements is partly the luckiest.  Timed in rounds, as a race (:mod:`feinsum.timing.races`),
all finalists share the disturbances of the machine.  Those within 2% of the fastest are a tie, which the configuration
with the fewest values other than the defaults wins.  The record of the winner states the confidence of all that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeAlias

from feinsum.database import TuningRecord
from feinsum.timing.races import BAND, PairedComparison, Race

FINALISTS = 10
TIE = BAND
"""The relative difference of times up to which finalists tie."""
_CHANCE = 1.25
"""Records that are so many times slower than the best do not enter the final."""

Rounds: TypeAlias = list[dict[str, list[float]]]
"""The samples in seconds of every round of a final, by the id of the trial."""


@dataclass(frozen=True)
class Final:
    """The outcome of a final.

    :ivar winner: the record of the winner, with the samples of the final.
    :ivar ranking: every finalist as it was recorded by its trial, with its median in the final in seconds, fastest first.
    :ivar ties: the other finalists that are as fast as the winner.
    :ivar verdict: how the winner compares with the fastest of those that are slower, in words.
    :ivar comparisons: how the winner compares with each of the others, by the ids of their trials.
    """

    winner: TuningRecord
    ranking: tuple[tuple[TuningRecord, float], ...]
    ties: tuple[TuningRecord, ...]
    verdict: str = ""
    comparisons: tuple[PairedComparison, ...] = ()


def finalists(records: Sequence[TuningRecord]) -> list[TuningRecord]:
    """The records worth timing again: the fastest of every configuration, ten at most, fastest first."""
    good = sorted((r for r in records if r.median_s is not None), key=lambda r: r.median_s or 0.0)
    first = {(r.space, r.configuration): r for r in reversed(good)}
    ordered = sorted(first.values(), key=lambda r: r.median_s or 0.0)
    return [r for r in ordered if (r.median_s or 0.0) <= _CHANCE * (ordered[0].median_s or 0.0)][:FINALISTS]


def decide(
    rounds: Rounds,
    contenders: Mapping[str, TuningRecord],
    complexity: Callable[[TuningRecord], int],
    record: Callable[[TuningRecord, Sequence[float], str], TuningRecord],
) -> Final | None:
    """Name the winner; None if no finalist could be timed again.

    :param rounds: the samples of the finalists in every round, by any name.
    :param contenders: what the trial of each finalist recorded, by the same names.
    :param complexity: how complicated a finalist is; the least complicated of those that tie wins.
    :param record: makes the winner's record from its trial's, its samples, and a message about the final.
    """
    race, samples_s = _race(rounds, contenders)
    leader = race.leader
    if leader is None:
        return None
    behind = {leader: 1.0, **{c.other: c.ratio for c in race.standings()}}
    equal = sorted((name for name in race.running if behind[name] <= 1 + TIE), key=behind.__getitem__)
    best = min(equal, key=lambda name: complexity(contenders[name]))
    ties = tuple(contenders[name] for name in equal if name != best)
    found = tuple(race.compare(best, name) for name in sorted(behind, key=behind.__getitem__) if name != best)
    medians = sorted((median(samples), name) for name, samples in samples_s.items())
    next_best = next((c for c in found if c.other not in equal), None)
    verdict = _verdict(next_best, contenders[next_best.other]) if next_best else ""
    message = "; ".join(filter(None, (tie_message(ties), verdict)))
    return Final(
        winner=record(contenders[best], samples_s[best], message),
        ranking=tuple((contenders[name], t) for t, name in medians),
        ties=ties,
        verdict=verdict,
        comparisons=found,
    )


def _race(rounds: Rounds, contenders: Mapping[str, TuningRecord]) -> tuple[Race, dict[str, list[float]]]:
    """The race that the rounds were, and all samples of each finalist that has any."""
    race = Race(tuple(contenders))
    samples_s: dict[str, list[float]] = {}
    for found in rounds:
        race.add({name: median(samples) for name, samples in found.items() if samples})
        for name, samples in found.items():
            samples_s.setdefault(name, []).extend(samples)
    return race, {name: samples for name, samples in samples_s.items() if samples}


def tie_message(ties: Sequence[TuningRecord]) -> str:
    """The message of the winner's record about those that tie with it; empty if there are none."""
    return f"as quick, within {TIE:.0%}: {'; '.join(map(_kernel_of_record, ties))}" if ties else ""


def _verdict(found: PairedComparison, other: TuningRecord) -> str:
    """How the winner compares with the fastest of those that are slower."""
    if found.verdict == "faster":
        how = f"{found.confidence:.0%} interval {found.low:.3g} to {found.high:.3g}"
    else:
        between = f", interval {found.low:.3g} to {found.high:.3g}" if found.low > 0 else ""
        how = f"inconclusive after {found.rounds} rounds{between}"
    return f"{found.ratio:.3g} times as fast ({how}) as {_kernel_of_record(other)}"


def _kernel_of_record(record: TuningRecord) -> str:
    return " ".join([record.space, *(f"{name}={value}" for name, value in record.configuration.items())])
