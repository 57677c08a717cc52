"""Races find the fastest of several candidates, with a confidence.

Candidates are timed once in every round, one after the other, and every other round goes in reverse::

    A B C | C B A | A B C | ...

Disturbances of the machine affect all of them, so only times of the same round are compared: of two candidates the
logarithm of the ratio of their times.  Its median is the estimate, and two of its order statistics are an interval that
holds the true median with a stated probability, whatever the distribution (the interval of the sign test: Conover,
*Practical Nonparametric Statistics*, section 3.2).

A race looks at its intervals after 8, 16, 32 and 64 rounds.  The probability of a false statement is divided evenly among
looks and pairs of candidates (Bonferroni), so that all statements about a race, whenever it stopped, are true together with
the stated confidence.  Rounds are taken to be independent of each other; a burst that outlasts a round slows all.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median
from typing import Literal

LOOKS = (8, 16, 32, 64)
"""The rounds after which a race checks whether it is decided; after the last one it is over."""
ERROR = 0.05
"""The probability, at most, that any statement about a race is false."""
BAND = 0.02
"""Ratios up to ``1 + BAND``, either way, are a tie."""

Verdict = Literal["faster", "slower", "tie", "undecided"]


@dataclass(frozen=True)
class PairedComparison:
    """The speed of a candidate relative to another one: ``time of the other / time of the candidate``.

    :ivar ratio: the median over rounds; `low` and `high` are the ends of its interval, 0 and infinity in too few rounds.
    :ivar rounds: in how many rounds both were timed.
    :ivar confidence: the probability, at least, that all intervals of the race hold the true medians.
    :ivar band: the largest distance of a ratio from 1 that is a tie.
    """

    candidate: str
    other: str
    ratio: float
    low: float
    high: float
    rounds: int
    confidence: float = 1 - ERROR
    band: float = BAND

    @property
    def verdict(self) -> Verdict:
        """``"tie"`` where the interval lies within the band, ``"undecided"`` where it holds 1 and reaches out of it."""
        if self.low >= 1 / (1 + self.band) and self.high <= 1 + self.band:
            return "tie"
        if self.low > 1:
            return "faster"
        return "slower" if self.high < 1 else "undecided"

    def __str__(self) -> str:
        """The verdict in words.

        >>> print(PairedComparison("a", "b", 1.31, 1.27, 1.36, 16))
        a is 1.31 (1.27 to 1.36) times as fast as b at 95%
        """
        if self.verdict == "tie":
            return f"{self.candidate} and {self.other} tie: within {self.band:.0%} of each other at {self.confidence:.0%}"
        if not math.isfinite(self.high):
            return f"{self.candidate} against {self.other} is undecided: {self.rounds} rounds are too few"
        interval = f"{self.low:.3g} to {self.high:.3g}"
        if self.verdict == "undecided":
            return f"{self.candidate} against {self.other} is undecided: {interval} times as fast"
        return f"{self.candidate} is {self.ratio:.3g} ({interval}) times as fast as {self.other} at {self.confidence:.0%}"


def median_interval(values: Sequence[float], error: float) -> tuple[float, float]:
    """An interval that misses the median of what the values were drawn from with probability `error` at most.

    It ends at the k-th value from below and from above, k as large as ``2 P(Binomial(n, 1/2) < k) <= error`` allows; it is
    infinite if that fails for k = 1.

    >>> median_interval([3.0, 1.0, 2.0, 5.0, 4.0, 6.0], 0.05)
    (1.0, 6.0)
    >>> median_interval([1.0, 2.0], 0.05)
    (-inf, inf)
    """
    n = len(values)
    k, below = 0, 0
    while k < n // 2 and 2 * (below := below + math.comb(n, k)) <= error * 2**n:
        k += 1
    if k == 0:
        return -math.inf, math.inf
    ordered = sorted(values)
    return ordered[k - 1], ordered[n - k]


class Race:
    """A race; the caller times its rounds and adds them.

    :param names: the candidates.
    :param error: the largest probability of a false statement.
    :param band: the largest distance of a ratio from 1 that is a tie.
    :param looks: after how many rounds to look; the last is the longest that a race can be.
    :ivar rounds: seconds by candidate for each round; those that were dropped, or failed, are missing from then on.
    :ivar running: the candidates that may still be the fastest.
    """

    def __init__(
        self, names: Sequence[str], *, error: float = ERROR, band: float = BAND, looks: Sequence[int] = LOOKS
    ) -> None:
        self.names = tuple(names)
        self.error, self.band, self.looks = error, band, tuple(looks)
        self.running = self.names
        self.rounds: list[Mapping[str, float]] = []
        self.over = not self.names

    @property
    def order(self) -> tuple[str, ...]:
        """The candidates of the next round, in order."""
        return self.running if len(self.rounds) % 2 == 0 else self.running[::-1]

    def add(self, seconds: Mapping[str, float]) -> None:
        """A round; a candidate without a time has failed and is out."""
        self.rounds.append(dict(seconds))
        self.running = tuple(name for name in self.running if name in seconds)
        if len(self.rounds) in self.looks:
            self._look()
        self.over = self.over or not self.running or len(self.rounds) >= self.looks[-1]

    def _look(self) -> None:
        """Drop candidates that are slower than another one; the race is over when the others tie."""
        found = [self.compare(a, b) for a, b in combinations(self.running, 2)]
        slower = {c.other if c.verdict == "faster" else c.candidate for c in found if c.verdict in ("faster", "slower")}
        self.running = tuple(name for name in self.running if name not in slower)
        left = [c for c in found if {c.candidate, c.other}.isdisjoint(slower)]
        self.over = all(c.verdict == "tie" for c in left)

    def compare(self, candidate: str, other: str) -> PairedComparison:
        """How two candidates compare in the rounds that they share."""
        shared = [r for r in self.rounds if candidate in r and other in r]
        ratios = [math.log(r[other] / r[candidate]) for r in shared]
        pairs = max(math.comb(len(self.names), 2), 1)
        low, high = median_interval(ratios, self.error / len(self.looks) / pairs)
        middle = math.exp(median(ratios)) if ratios else math.nan
        return PairedComparison(
            candidate, other, middle, math.exp(low), math.exp(high), len(shared), 1 - self.error, self.band
        )

    @property
    def leader(self) -> str | None:
        """The candidate of those still running that no other one beats in most rounds, or else the lowest median.

        None if all have failed.
        """
        times = {name: [r[name] for r in self.rounds if name in r] for name in self.running}
        ranked = sorted((name for name in times if times[name]), key=lambda name: median(times[name]))
        for name in ranked:
            if all(self.compare(name, other).ratio >= 1 for other in ranked if other != name):
                return name
        return ranked[0] if ranked else None

    def standings(self) -> Iterator[PairedComparison]:
        """How the leader compares with each of the others that were timed, in the order in which these were given."""
        leader = self.leader
        if leader is not None:
            timed = {name for r in self.rounds for name in r}
            yield from (self.compare(leader, other) for other in self.names if other != leader and other in timed)

    def __str__(self) -> str:
        return "; ".join(map(str, self.standings()))


def run_race(
    samplers: Mapping[str, Callable[[], float]],
    *,
    seconds: float = 10.0,
    error: float = ERROR,
    band: float = BAND,
    looks: Sequence[int] = LOOKS,
    clock: Callable[[], float] = time.monotonic,
) -> Race:
    """Run a race to its end.

    :param samplers: by name, a function that times a candidate once and returns its seconds.
    :param seconds: when to stop even if it is undecided, after the round at hand.
    """
    race = Race(tuple(samplers), error=error, band=band, looks=looks)
    end = clock() + seconds
    while not race.over:
        race.add({name: samplers[name]() for name in race.order})
        if clock() >= end:
            break
    return race
