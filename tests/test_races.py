"""Races: intervals that hold what they promise, and verdicts on simulated machines that drift, burst and are late."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

import pytest

from feinsum.timing.races import BAND, LOOKS, PairedComparison, Race, median_interval, run_race

RUNS = 300
"""Simulated races of each kind."""
PERIOD = 60
"""Samples in which a machine drifts there and back."""


class Machine:
    """A simulated machine, whose times drift by 4%, have 0.7% of noise, and are late or slowed by a burst now and then."""

    def __init__(self, seed: int, *, bursts: bool = False, noise: float = 0.007) -> None:
        self._random, self._bursts, self._noise = random.Random(seed), bursts, noise
        self._phase, self._sample, self._slow = self._random.random(), 0, 0

    def time(self, seconds: float) -> float:
        """How long a kernel took that takes `seconds` when nothing disturbs it."""
        self._sample += 1
        drift = 0.04 * math.sin(2 * math.pi * (self._phase + self._sample / PERIOD))
        late = self._random.expovariate(5) if self._random.random() < 0.05 else 0.0
        if self._bursts and not self._slow and self._random.random() < 0.02:
            self._slow = self._random.randint(1, 12)
        burst = 0.3 if self._slow else 0.0
        self._slow = max(self._slow - 1, 0)
        return seconds * math.exp(drift + late + burst + self._random.gauss(0, self._noise))


def simulated_race(machine: Machine, kernels_s: dict[str, float]) -> Race:
    """A race of kernels whose true times are given."""

    def sampler(seconds: float) -> Callable[[], float]:
        return lambda: machine.time(seconds)

    return run_race({name: sampler(s) for name, s in kernels_s.items()}, clock=lambda: 0.0)


def differ_in_blocks(machine: Machine, kernels_s: dict[str, float], samples: int) -> bool:
    """Whether the intervals of the medians do not meet, if each kernel is timed for itself."""
    (low, high), (other_low, other_high) = (
        median_interval([machine.time(s) for _ in range(samples)], 0.05) for s in kernels_s.values()
    )
    return low > other_high or other_low > high


def races(kernels_s: dict[str, float], *, bursts: bool = False, noise: float = 0.007) -> Iterator[Race]:
    """Races of kernels whose true times are given."""
    for seed in range(RUNS):
        yield simulated_race(Machine(seed, bursts=bursts, noise=noise), kernels_s)


def share(verdicts: list[bool]) -> float:
    return sum(verdicts) / len(verdicts)


@pytest.mark.parametrize("bursts", [False, True])
@pytest.mark.parametrize("noise", [0.007, 0.05])
def test_equal_kernels_are_rarely_called_different(bursts: bool, noise: float) -> None:
    """In one race of twenty at most; where there is little noise most of them end as a tie."""
    verdicts = [race.compare("a", "b").verdict for race in races({"a": 1e-4, "b": 1e-4}, bursts=bursts, noise=noise)]
    assert share([v in ("faster", "slower") for v in verdicts]) <= 0.05
    if noise == 0.007:
        assert share([v == "tie" for v in verdicts]) >= 0.95


@pytest.mark.parametrize("bursts", [False, True])
@pytest.mark.parametrize("ratio", [1.04, 1.3, 0.8])
def test_different_kernels_are_told_apart(bursts: bool, ratio: float) -> None:
    """In 95 races of a hundred, by the right ratio, and early where they differ much."""
    found = [race.compare("a", "b") for race in races({"a": 1e-4, "b": ratio * 1e-4}, bursts=bursts)]
    assert share([c.verdict == ("faster" if ratio > 1 else "slower") for c in found]) >= 0.95
    assert share([c.low <= ratio <= c.high for c in found]) >= 0.95
    assert max(c.rounds for c in found) <= LOOKS[-1]
    if abs(math.log(ratio)) > 0.2:
        assert share([c.rounds == LOOKS[0] for c in found]) >= 0.5


@pytest.mark.parametrize("ratio", [1.0, 1.01, 1.03, 1.05])
def test_what_races_say_is_so(ratio: float) -> None:
    """The faster kernel is named, or a tie of what is one, in 95 races of a hundred; five at most say what is not so."""
    right = ({"faster"} if ratio > 1 else set()) | ({"tie"} if ratio <= 1 + BAND else set())
    verdicts = [race.compare("a", "b").verdict for race in races({"a": 1e-4, "b": ratio * 1e-4}, bursts=True)]
    assert share([v in right for v in verdicts]) >= 0.95
    assert share([v not in {*right, "undecided"} for v in verdicts]) <= 0.05


def test_pairing_is_what_matters() -> None:
    """Of two equal kernels, timed one after the other on the same machines, a third and more look different."""
    blocked = [differ_in_blocks(Machine(seed), {"a": 1e-4, "b": 1e-4}, LOOKS[1]) for seed in range(RUNS)]
    assert share(blocked) >= 0.3


def test_the_fastest_of_many_wins() -> None:
    """Those that are far behind are dropped on the way; what is said of pairs is true together in 95 races of a hundred."""
    kernels_s = {"a": 1.3e-4, "b": 1.0e-4, "c": 1.06e-4, "d": 2e-4}
    right, true = [], []
    for race in races(kernels_s, bursts=True):
        right.append(race.leader == "b")
        true.append(all(c.low <= kernels_s[c.other] / kernels_s[c.candidate] <= c.high for c in race.standings()))
        assert len(race.rounds) <= LOOKS[-1]
        assert "d" not in race.running
    assert share(right) >= 0.95
    assert share(true) >= 0.95


@pytest.mark.parametrize("error", [0.05, 0.0125])
def test_intervals_hold_the_median(error: float) -> None:
    """Of a skewed distribution too, and no order statistic nearer to the middle would do."""
    draw = random.Random(3)
    for n in (8, 13, 32):
        missed = 0
        for _ in range(2000):
            low, high = median_interval([draw.expovariate(math.log(2)) for _ in range(n)], error)
            missed += not low <= 1 <= high
        assert missed / 2000 <= 1.3 * error
        k = sorted(range(n)).index(int(median_interval(list(map(float, range(n))), error)[0]))
        assert 2 * sum(math.comb(n, j) for j in range(k + 1)) <= error * 2**n
        assert 2 * sum(math.comb(n, j) for j in range(k + 2)) > error * 2**n


def test_orders_are_reversed_every_round_and_failures_are_out() -> None:
    """So that a drift favours nobody; who has no time takes part no more."""
    race = Race(["a", "b", "c"])
    assert race.order == ("a", "b", "c")
    race.add({"a": 1.0, "b": 2.0, "c": 3.0})
    assert race.order == ("c", "b", "a")
    race.add({"a": 1.0, "c": 3.0})
    assert race.order == ("a", "c")
    assert race.leader == "a"
    assert [c.other for c in race.standings()] == ["b", "c"]
    race.add({})
    assert race.over
    assert race.leader is None


def test_a_race_stops_when_the_time_is_up() -> None:
    """After a whole round, and says that it knows nothing."""
    now = iter(range(100))
    race = run_race({"a": lambda: 1.0, "b": lambda: 1.0}, seconds=3, clock=lambda: float(next(now)))
    assert len(race.rounds) == 3
    assert str(race) == "a against b is undecided: 3 rounds are too few"


def test_verdicts_in_words() -> None:
    """A ratio with its interval, a tie with its band."""
    assert str(PairedComparison("a", "b", 1.0, 0.99, 1.015, 16)) == "a and b tie: within 2% of each other at 95%"
    assert str(PairedComparison("a", "b", 1.01, 0.97, 1.06, 64)) == "a against b is undecided: 0.97 to 1.06 times as fast"
    assert PairedComparison("a", "b", 0.8, 0.7, 0.9, 8).verdict == "slower"
