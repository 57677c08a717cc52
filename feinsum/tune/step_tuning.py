"""Tuning the steps of an einsum: each is an einsum with records of its own, and chains are made of the best of each.

search, a third of the time  ->  steps, if chains are in reach  ->  search goes on, chains of the best steps first
"""

from __future__ import annotations

from collections.abc import Callable

from feinsum.candidates.composed import steps_of
from feinsum.canonicalization import canonicalize_einsum
from feinsum.contraction import step_einsums
from feinsum.einsum import BatchedEinsum
from feinsum.errors import SearchError
from feinsum.space import TransformSpace
from feinsum.tune.report import TuningReport
from feinsum.tune.task import Task
from feinsum.tune.tuning_search import TuningSearch

WHEN = ("auto", "always", "never")
"""The times at which steps may be tuned: where it is worth while, before all else, or never."""
_REACH = 2.0
"""Times slower than the best that a space with chains may be, for steps to be worth tuning."""
_SEARCH_SHARE = 0.35
"""The share of the time after which it is decided whether to tune steps."""
_STEPS_SHARE = 0.4
"""The share of the time for all steps together."""
_LEAST_S = 3.0
"""The least seconds for a step; in less time there is no search."""

TuneStep = Callable[[BatchedEinsum, dict[str, int], float | None], TuningReport]
"""Tunes an einsum at lengths of its long axes, for so many seconds."""


class StepTuning:
    """Decides when the steps of a task are tuned, and for how long.

    :param when: one of :data:`WHEN`.
    :param trials: of the whole run, if their number is given; steps are then tuned only if `when` is ``"always"``.
    :param timeout: of the whole run, in seconds.
    :ivar reports: of the steps that were tuned.
    :raises SearchError: if `when` is something else.
    """

    def __init__(self, when: str, trials: int | None, timeout: float | None, tune: TuneStep) -> None:
        if when not in WHEN:
            raise SearchError(f"steps is {when!r}; it is one of {', '.join(map(repr, WHEN))}")
        self.reports: list[TuningReport] = []
        self._when, self._timeout, self._tune = when, timeout, tune
        self._open = when == "always" or (when == "auto" and trials is None and timeout is not None)

    def consider(self, task: Task, search: TuningSearch, seconds: float) -> int:
        """Tune the steps if it is time to do so, once, and let chains of their best configurations take part.

        :param seconds: how long the run has been going on.
        :return: how many chains there are to be tried now.
        """
        patience_s = 0.0 if self._when == "always" else _SEARCH_SHARE * (self._timeout or 0.0)
        if not self._open or seconds < patience_s:
            return 0
        self._open = False
        steps = _chain_steps(task, search, search.spaces(None if self._when == "always" else _REACH))
        share_s = None if self._timeout is None else _STEPS_SHARE * self._timeout / max(1, len(steps))
        if self._when == "auto" and (share_s or 0.0) < _LEAST_S:
            return 0
        for e, sizes in steps:
            self.reports.append(self._tune(e, sizes, share_s))
        return search.compose() if steps else 0


def _chain_steps(
    task: Task, search: TuningSearch, spaces: list[TransformSpace]
) -> list[tuple[BatchedEinsum, dict[str, int]]]:
    """The steps of the first chain of each space, each once, in the letters of the user, with the lengths of long axes."""
    found: dict[object, tuple[BatchedEinsum, dict[str, int]]] = {}
    instance = task.instance
    if instance is None:
        return []
    back = instance.canonical.renaming.inverse.indices
    for space in spaces:
        problem, roles = task.problem(space), space.roles(instance.einsum)
        letters = {} if roles is None else {ours: back[own] for ours, own in roles.indices.items()}
        for schedule in [*search.asked(space), *steps_of(space, problem)][:1]:
            for step in step_einsums(problem.einsum, schedule):
                e = BatchedEinsum(step.indexing.rename(letters), step.args)
                lengths = {letters[x]: problem.sizes[x] for x in step.indexing.indices}
                canonical = canonicalize_einsum(e)
                identity = canonical.key, tuple(sorted(canonical.renaming.lengths(lengths).items()))
                found.setdefault(identity, (e, e.sizes_from(lengths)))
    return list(found.values())
