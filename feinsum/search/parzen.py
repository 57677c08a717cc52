"""A tree-structured Parzen estimator over accepted configurations that were not asked before.

The best seventh of what was measured has density l(x), the rest and the failures g(x), both of the form ::

    p(x) = (prod_p 1/L_p + sum_k prod_p (δ(x_p, x_kp) + ω) / (1 + ω L_p)) / (n + 1),    ω = 1 / (n + 1)

for n observed points x_k and L_p choices of parameter p, which are categories without order.  Of some samples of l(x),
the one with the largest l(x)/g(x) is proposed.  Configurations that are refused or were asked before are no samples: on
these an estimator that knows nothing of the space wastes most of its questions once it has found a good region.

Bergstra, Bardenet, Bengio and Kégl, "Algorithms for hyper-parameter optimization", NIPS 2011, section 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from feinsum.search.grid import Grid, Point

STARTUP = 10
"""Measured configurations before the first proposal."""
GOOD = 0.15, 25
"""The share of the measured configurations that l(x) describes, and at most how many."""
SAMPLES = 32
"""Candidates among which the largest l(x)/g(x) is chosen."""
ROUNDS = 16
"""How often `SAMPLES` points are drawn in search of that many candidates."""

Points = npt.NDArray[np.int64]
"""Points: `(n, p)`."""


class Parzen:
    """A strategy of a search: see the module."""

    def __init__(self, grid: Grid, seed: int) -> None:
        self._lengths = np.array(grid.lengths)
        self._random = np.random.default_rng(seed)
        self._losses: dict[Point, float] = {}

    def learn(self, point: Point, median_s: float | None) -> None:
        """See :class:`~feinsum.search.sampler.Strategy`."""
        self._losses[point] = math.inf if median_s is None else median_s

    def propose(self, is_fresh: Callable[[Point], bool]) -> Point | None:
        """See :class:`~feinsum.search.sampler.Strategy`."""
        measured = sum(map(math.isfinite, self._losses.values()))
        if measured < STARTUP:
            return None
        share, most = GOOD
        ranked = np.array(sorted(self._losses, key=self._losses.__getitem__))
        good, rest = np.split(ranked, [min(math.ceil(share * measured), most)])
        candidates: dict[Point, None] = {}
        for _ in range(ROUNDS):
            candidates.update(dict.fromkeys(filter(is_fresh, map(tuple, self._sample(good).tolist()))))
            if len(candidates) >= SAMPLES:
                break
        if not candidates:
            return None
        points = np.array(list(candidates))
        best = np.argmax(self._log_density(good, points) - self._log_density(rest, points))
        return tuple(points[best].tolist())

    def _sample(self, observed: Points) -> Points:
        """Samples of the density of `observed`."""
        n = len(observed)
        kernels = self._random.integers(n + 1, size=SAMPLES)
        anything = self._random.integers(self._lengths, size=(SAMPLES, len(self._lengths)))
        kept = self._random.random(anything.shape) < 1 / (1 + self._lengths / (n + 1))
        return np.where(kept & (kernels < n)[:, None], observed[np.minimum(kernels, n - 1)], anything)

    def _log_density(self, observed: Points, points: Points) -> npt.NDArray[Any]:
        """The logarithm of the density of `observed` at `points`: `(n,)`."""
        weight = 1 / (len(observed) + 1)
        miss = np.log(weight / (1 + weight * self._lengths))
        gain = math.log((1 + weight) / weight)
        hits = sum(np.equal.outer(points[:, p], observed[:, p]).astype(np.int16) for p in range(len(self._lengths)))
        kernels = gain * hits + miss.sum()
        prior = np.full((len(points), 1), -np.log(self._lengths).sum())
        total: npt.NDArray[Any] = np.logaddexp.reduce(np.hstack([kernels, prior]), axis=1)
        return total - math.log(len(observed) + 1)
