"""What paired samples of two versions say: a ratio with an interval, and whether it is slower beyond the noise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from feinsum.timing.races import median_interval

ERROR = 0.1
"""Intervals miss the true ratio with this probability, on either side in equal parts."""

Pair = tuple[float, float]
"""Seconds of the base and of this checkout, measured one after the other."""


@dataclass(frozen=True)
class Finding:
    """A line of the gate.

    :ivar pairs: none where one side failed, see `failure`.
    :ivar bound: how much longer than the base it may take, 0.05 for 5%.
    :ivar failure: why it was not measured.
    :ivar is_regression: whether only this checkout failed.
    """

    what: str
    pairs: Sequence[Pair]
    bound: float
    failure: str = ""
    is_regression: bool = False

    @property
    def interval(self) -> tuple[float, float]:
        """Of the median of the ratios of this checkout's time to the base's."""
        low, high = median_interval([math.log(new / old) for old, new in self.pairs], ERROR)
        return math.exp(low), math.exp(high)

    @property
    def ratio(self) -> float:
        """The median; above 1 is slower."""
        return median(new / old for old, new in self.pairs)

    @property
    def is_slower(self) -> bool:
        """Whether even the lower end of the interval is beyond the bound, or only this checkout fails."""
        return self.is_regression if not self.pairs else self.interval[0] > 1 + self.bound

    def cells(self) -> list[str]:
        """A line under :data:`HEADINGS`."""
        if not self.pairs:
            return [
                self.what,
                "-",
                "-",
                "-",
                "-",
                f"{self.bound:.0%}",
                "FAILS" if self.is_slower else "skipped",
                self.failure,
            ]
        (low, high), (old, new) = self.interval, (median(side) for side in zip(*self.pairs, strict=True))
        verdict = "SLOWER" if self.is_slower else "faster" if high < 1 else "ok"
        interval = f"{low:.3f} to {high:.3f}" if math.isfinite(high) else "too few pairs"
        return [
            self.what,
            _time(old),
            _time(new),
            f"{self.ratio:.3f}",
            interval,
            f"{self.bound:.0%}",
            verdict,
            self.failure,
        ]


HEADINGS = ("what", "base", "this", "this/base", "interval", "may be", "verdict", "remark")


def mean_of(findings: Iterable[Finding], bound: float) -> Finding:
    """The geometric mean of several, round by round."""
    rounds = zip(*(f.pairs for f in findings if f.pairs), strict=False)
    pairs = [tuple(math.exp(fmean(math.log(pair[k]) for pair in own)) for k in (0, 1)) for own in rounds]
    return Finding("kernels, geometric mean", [(old, new) for old, new in pairs], bound)


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.1f} ms"
