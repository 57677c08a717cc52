"""The final of a tuning run: the quickest are timed again, in turns, and the simplest of those that are as quick wins.

The quickest of many noisy measurements is partly the luckiest.  Timed in turns, all finalists share what the machine does
meanwhile; every other round goes in reverse, so that a drift favours none.  Medians within 2% of the lowest are a tie,
which the configuration with the fewest values other than the defaults wins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from feinsum.database import TuningRecord

FINALISTS = 10
ROUNDS = 4
TIE = 0.02
"""Medians that differ by no more than this, relatively, are the same for us."""
_CHANCE = 1.25
"""What is this many times slower than the best is out before the final."""


@dataclass(frozen=True)
class Final:
    """The outcome of a final.

    :ivar winner: the record of the winner, with the samples of the final.
    :ivar ranking: every finalist as it was recorded by its trial, with its median in the final in seconds, quickest first.
    :ivar ties: the other finalists that are as quick as the winner.
    """

    winner: TuningRecord
    ranking: tuple[tuple[TuningRecord, float], ...]
    ties: tuple[TuningRecord, ...]


def finalists(records: Sequence[TuningRecord]) -> list[TuningRecord]:
    """The records worth timing again: the quickest of every configuration, ten at most, quickest first."""
    good = sorted((r for r in records if r.median_s is not None), key=lambda r: r.median_s or 0.0)
    first = {(r.space, r.configuration): r for r in reversed(good)}
    ordered = sorted(first.values(), key=lambda r: r.median_s or 0.0)
    return [r for r in ordered if (r.median_s or 0.0) <= _CHANCE * (ordered[0].median_s or 0.0)][:FINALISTS]


def decide(
    samples_s: Mapping[str, Sequence[float]],
    contenders: Mapping[str, TuningRecord],
    complexity: Callable[[TuningRecord], int],
    record: Callable[[TuningRecord, Sequence[float], Sequence[TuningRecord]], TuningRecord],
) -> Final | None:
    """Name the winner; None if no finalist could be timed again.

    :param samples_s: the samples of each finalist in the final, in seconds, by any name.
    :param contenders: what the trial of each finalist recorded, by the same names.
    :param complexity: how complicated a finalist is; the least complicated of those that are as quick wins.
    :param record: makes the winner's record of what it was, its samples, and what is as quick.
    """
    medians = sorted((median(samples), name) for name, samples in samples_s.items() if samples)
    if not medians:
        return None
    equal = [name for t, name in medians if t <= (1 + TIE) * medians[0][0]]
    best = min(equal, key=lambda name: complexity(contenders[name]))
    ties = tuple(contenders[name] for name in equal if name != best)
    return Final(
        winner=record(contenders[best], samples_s[best], ties),
        ranking=tuple((contenders[name], t) for t, name in medians),
        ties=ties,
    )


def tie_message(ties: Sequence[TuningRecord]) -> str:
    """What the winner's record says of those that are as quick; nothing if there are none."""
    kernels = (" ".join([r.space, *(f"{name}={value}" for name, value in r.configuration.items())]) for r in ties)
    return f"as quick, within {TIE:.0%}: {'; '.join(kernels)}" if ties else ""
