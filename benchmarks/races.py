"""``python -m benchmarks races``: what races say of kernels whose true times are known, and how long one takes.

A simulated machine drifts by 4%, has 0.7% of noise, is late with one sample in twenty and, if wanted, slowed by bursts now
and then.  Of each ratio of two kernels as many races are run as asked for, each on a machine of its own.  What a race says
is *right* where it names the faster kernel, or calls a tie what is one; *false* where it says anything that is not so.
Beside it, what the same number of samples say that are taken of one kernel after the other: that they differ where 95%
intervals of their medians do not meet.

Then two kernels of equal speed, for which a race takes longest, are raced on a device.  ``--page`` writes both as a page.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks import parser_of
from benchmarks.measure import sample_of
from benchmarks.report import list_table
from feinsum.timing.races import BAND, LOOKS, Race, median_interval, run_race

RATIOS: Final = (1.0, 1.01, 1.03, 1.05, 1.1, 1.3)
KERNEL_S: Final = 1e-4
"""Seconds of a simulated kernel."""
_ERROR: Final = 0.05
_PERIOD: Final = 60
"""Samples in which a machine drifts there and back."""


class Machine:
    """A simulated machine, whose times drift by 4%, have 0.7% of noise, and are late or slowed by a burst now and then."""

    def __init__(self, seed: int, *, bursts: bool = False, noise: float = 0.007) -> None:
        self._random, self._bursts, self._noise = random.Random(seed), bursts, noise
        self._phase, self._sample, self._slow = self._random.random(), 0, 0
        self.seconds = 0.0

    def time(self, seconds: float) -> float:
        """How long a kernel took that takes `seconds` when nothing disturbs it."""
        self._sample += 1
        drift = 0.04 * math.sin(2 * math.pi * (self._phase + self._sample / _PERIOD))
        late = self._random.expovariate(5) if self._random.random() < 0.05 else 0.0
        if self._bursts and not self._slow and self._random.random() < 0.02:
            self._slow = self._random.randint(1, 12)
        burst = 0.3 if self._slow else 0.0
        self._slow = max(self._slow - 1, 0)
        taken = seconds * math.exp(drift + late + burst + self._random.gauss(0, self._noise))
        self.seconds += taken
        return taken


def simulated_race(machine: Machine, kernels_s: dict[str, float]) -> Race:
    """A race of kernels whose true times are given."""

    def sampler(seconds: float) -> Callable[[], float]:
        return lambda: machine.time(seconds)

    return run_race({name: sampler(s) for name, s in kernels_s.items()}, clock=lambda: 0.0)


def differ_in_blocks(machine: Machine, kernels_s: dict[str, float], samples: int) -> bool:
    """Whether the intervals of the medians do not meet, if each kernel is timed for itself."""
    (low, high), (other_low, other_high) = (
        median_interval([machine.time(s) for _ in range(samples)], _ERROR) for s in kernels_s.values()
    )
    return low > other_high or other_low > high


@dataclass(frozen=True)
class Shares:
    """Of all races between two kernels: the shares that said something right, false, or nothing.

    :ivar held: the share whose interval held the true ratio.
    :ivar rounds: the median over races, and `most` the largest number.
    :ivar seconds: the longest that a race kept its machine busy.
    :ivar blocked: the share of runs that called the kernels different when timed one after the other.
    """

    right: float
    false: float
    undecided: float
    held: float
    rounds: float
    most: int
    seconds: float
    blocked: float


def shares(ratio: float, races: int, *, bursts: bool = False, noise: float = 0.007) -> Shares:
    """What races of two kernels say, of which one is `ratio` times as fast as the other."""
    kernels_s = {"a": KERNEL_S, "b": ratio * KERNEL_S}
    found = []
    for seed in range(races):
        machine = Machine(seed, bursts=bursts, noise=noise)
        comparison = simulated_race(machine, kernels_s).compare("a", "b")
        spent = machine.seconds
        blocked = differ_in_blocks(Machine(seed, bursts=bursts, noise=noise), kernels_s, LOOKS[1])
        found.append((comparison, spent, blocked))

    def share(that: Callable[..., bool]) -> float:
        return sum(bool(that(c)) for c, _, _ in found) / races

    true = {"faster"} if ratio > 1 else {"slower"} if ratio < 1 else set()
    true |= {"tie"} if 1 / (1 + BAND) <= ratio <= 1 + BAND else set()
    rounds = [c.rounds for c, _, _ in found]
    return Shares(
        right=share(lambda c: c.verdict in true),
        false=share(lambda c: c.verdict not in {*true, "undecided"}),
        undecided=share(lambda c: c.verdict == "undecided"),
        held=share(lambda c: c.low <= ratio <= c.high),
        rounds=median(rounds),
        most=max(rounds),
        seconds=max(seconds for _, seconds, _ in found),
        blocked=sum(blocked for *_, blocked in found) / races,
    )


def race_on(word: str) -> tuple[str, Race, float]:
    """A race of two programs that are as quick, with about 100 us each: the device, the race, its seconds."""
    import numpy as np
    import pyopencl.array as cla

    import feinsum as fe

    device = fe.device(word)
    count = 1 << (18 if device.profile.kind == "cpu" else 26)
    x = cla.to_device(device.queue, np.ones(count, np.float32))
    out = cla.empty_like(x)

    def timed(text: str) -> Callable[[], float]:
        kernel = fe.build(fe.program(f"x: Tensor<N; f32>\ny = {text}", "declarative"), device=device)
        kernel(x=x, out=out)
        return partial(sample_of, lambda: kernel(x=x, out=out), device.queue.finish, 1)

    samplers = {"sum": timed("x + 2"), "difference": timed("x - 2")}
    begin = time.perf_counter()
    race = run_race(samplers)
    return device.id, race, time.perf_counter() - begin


def page(races: int, word: str) -> str:
    """Both tables."""
    head = ["true ratio", "right", "false", "undecided", "interval holds it", "rounds", "one after the other: different"]
    parts = [".. this file is written by the command that it names", ""]
    for bursts in (False, True):
        rows = [head]
        for ratio in RATIOS:
            s = shares(ratio, races, bursts=bursts)
            told = [f"{x:.1%}" for x in (s.right, s.false, s.undecided, s.held)]
            rows.append([f"{ratio:.2f}", *told, f"{s.rounds:g}, at most {s.most}", f"{s.blocked:.0%}"])
        machine = "drift, noise, late samples and bursts" if bursts else "drift, noise and late samples"
        parts += [f"{races} races of two kernels for each ratio, on machines with {machine}:", "", *list_table(rows), ""]
    device, race, seconds = race_on(word)
    times = " and ".join(f"{1e6 * median([r[name] for r in race.rounds if name in r]):.0f}" for name in race.names)
    parts += [
        f"On {device} a race of two kernels of {times} us took {seconds:.2g} s and {len(race.rounds)} rounds: {race}.",
        "",
        f"Made by ``python -m benchmarks races --page``, {time.strftime('%Y-%m-%d')}.",
        "",
    ]
    return "\n".join(parts)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--races", type=int, default=600, help="of each ratio")
    parser.add_argument("--device", default="cpu", help="on which one race is run")
    parser.add_argument("--page", help="write the tables to this file")
    arguments = parser.parse_args()
    text = page(arguments.races, arguments.device)
    if arguments.page:
        Path(arguments.page).write_text(text, encoding="utf-8")
    else:
        print(text)
