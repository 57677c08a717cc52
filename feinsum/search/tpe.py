"""The multivariate tree-structured Parzen estimator of Optuna, every parameter a category.

It considers neither the constraint of the space nor earlier questions.  Refused configurations are reported to it as
failed, and a useless proposal is replaced by a configuration near it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from feinsum.search.grid import Grid, Point

if TYPE_CHECKING:
    import optuna

STARTUP = 10
"""Measured configurations before the first proposal."""
QUESTIONS = 2
"""Proposals of the estimator for one configuration; each costs some milliseconds."""
NEIGHBOURS = 64
"""Configurations tried around a useless proposal; every eight of them change one parameter more."""


class TPE:
    """A strategy of a search: see the module."""

    def __init__(self, grid: Grid, seed: int) -> None:
        from optuna.distributions import CategoricalDistribution

        self._grid = grid
        self._random = Random(seed)
        self._space: dict[str, Any] = {
            str(k): CategoricalDistribution(range(length)) for k, length in enumerate(grid.lengths)
        }
        self._study = _quiet_study(seed)
        self._measured = 0

    def learn(self, point: Point, median_s: float | None) -> None:
        """See :class:`~feinsum.search.sampler.Strategy`."""
        from optuna.trial import TrialState, create_trial

        self._measured += median_s is not None
        self._study.add_trial(
            create_trial(
                # Pruned trials rank below all that were measured; failed ones would be ignored.
                state=TrialState.PRUNED if median_s is None else TrialState.COMPLETE,
                value=median_s,
                params=dict(zip(self._space, point, strict=True)),
                distributions=self._space,
            )
        )

    def propose(self, is_fresh: Callable[[Point], bool]) -> Point | None:
        """See :class:`~feinsum.search.sampler.Strategy`."""
        if self._measured < STARTUP:
            return None
        for _ in range(QUESTIONS):
            point = self._question()
            if is_fresh(point):
                return point
            if not self._grid.accepts(point):
                self.learn(point, None)
        neighbours = (self._grid.changed(point, 1 + k // 8, self._random) for k in range(NEIGHBOURS))
        return next(filter(is_fresh, neighbours), None)

    def _question(self) -> Point:
        """Optuna's proposal, asked in a trial that it then ignores: its outcome is told as a trial of its own."""
        from optuna.trial import TrialState

        trial = self._study.ask(self._space)
        self._study.tell(trial, state=TrialState.FAIL)
        return tuple(trial.params[name] for name in self._space)


def _quiet_study(seed: int) -> optuna.Study:
    """A study in memory, made without Optuna's message about it and its warning that the sampler is experimental."""
    import optuna

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return optuna.create_study(
                sampler=optuna.samplers.TPESampler(
                    multivariate=True, n_startup_trials=STARTUP, constant_liar=False, seed=seed
                )
            )
    finally:
        optuna.logging.set_verbosity(verbosity)
