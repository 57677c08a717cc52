"""The importance of a space's parameters, from recorded times, with the slowdown of each choice and the configurations near
the best.

The time of a configuration c is split into one effect for each parameter and a rest, by least squares::

    log t(c) = μ + sum_p a_p(c_p) + rest,      importance of p = Cov(a_p(c_p), log t(c)) / Var log t(c)

The moments are taken over the configurations that worked.  In a full grid the a_p are the main effects of an analysis of
variance, and the covariance is the variance of a_p.  Where a search has favoured some combinations, effects are told apart
as far as the records allow; two that go against each other there have large variances, but not large covariances (J. W.
Pratt, "Dividing the indivisible", 1987).  An effect whose covariance is negative explains nothing.  With the variance of
the rest, which holds interactions and noise, all are scaled to add up to one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from feinsum.errors import SearchError

if TYPE_CHECKING:
    from feinsum.search.grid import Result
    from feinsum.space import Configuration, Value

RIDGE = 1e-3
"""Observations at effect zero added to each choice, so that those seen only together share their effect."""


@dataclass(frozen=True)
class Importance:
    """The shares of the variance that the parameters of a space explain.

    :ivar shares: parameter -> its share of the variance of log time, largest first.
    :ivar rest: the share that no parameter explains alone.
    :ivar slowdowns: parameter -> choice -> fastest time with that choice / fastest time; without
        the choices that never worked.
    """

    shares: Mapping[str, float]
    rest: float
    slowdowns: Mapping[str, Mapping[Value, float]]


def importance(results: Iterable[Result]) -> Importance:
    """The importance of each parameter.

    :param results: configurations with their times in seconds, None for those that failed.
    :raises SearchError: if none worked, or the configurations do not share their parameters.
    """
    worked = _worked(results)
    names = list(worked[0][0])
    log_t = np.log([median_s for _, median_s in worked])
    columns, owners = [], []
    for name in names:
        for choice in dict.fromkeys(configuration[name] for configuration, _ in worked):
            columns.append([configuration[name] == choice for configuration, _ in worked])
            owners.append(name)
    chosen = np.array(columns, dtype=float).T
    centred = chosen - chosen.mean(axis=0)
    effects = np.linalg.solve(centred.T @ centred + RIDGE * np.eye(len(owners)), centred.T @ (log_t - log_t.mean()))
    parts = {name: centred[:, [o == name for o in owners]] @ effects[[o == name for o in owners]] for name in names}
    deviation = log_t - log_t.mean()
    shared = {name: max(0.0, float(part @ deviation)) for name, part in parts.items()}
    rest = float(np.sum((deviation - sum(parts.values())) ** 2))
    total = sum(shared.values()) + rest or math.inf
    shares = {name: part / total for name, part in sorted(shared.items(), key=lambda item: -item[1])}
    return Importance(shares, rest / total, _slowdowns(worked))


def near_best(results: Iterable[Result], within: float = 0.05) -> list[tuple[Configuration, float]]:
    """The configurations whose time is within a share of the fastest, fastest first.

    :raises SearchError: if none worked, or the configurations do not share their parameters.
    """
    worked = _worked(results)
    return [(configuration, median_s) for configuration, median_s in worked if median_s <= (1 + within) * worked[0][1]]


def _slowdowns(worked: list[tuple[Configuration, float]]) -> dict[str, dict[Value, float]]:
    found: dict[str, dict[Value, float]] = {name: {} for name in worked[0][0]}
    for configuration, median_s in worked:
        for name, choice in configuration.items():
            found[name].setdefault(choice, median_s / worked[0][1])
    return found


def _worked(results: Iterable[Result]) -> list[tuple[Configuration, float]]:
    """The configurations that worked, fastest first."""
    worked = sorted(((c, median_s) for c, median_s in results if median_s is not None), key=lambda item: item[1])
    if not worked:
        raise SearchError("no configuration worked, so nothing can be said about the parameters; see why they failed")
    names = set(worked[0][0])
    for configuration, _ in worked:
        if set(configuration) != names:
            raise SearchError(
                f"one configuration has parameters {sorted(names)}, another {sorted(configuration)}; "
                "give the records of one version of one space"
            )
    return worked
