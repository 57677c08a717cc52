"""The time of a tuning run: the search ends early enough for a final, and trials still running at the end are stopped.

::

    |-- trials begin and are done ------------|-- final ---------|
    start                                     search ends        end

As long as nothing right is known the clock is patient: the trial at hand is finished, however late it gets.
"""

from __future__ import annotations

import math
import time

_FINAL_SHARE = 0.15
"""The share of the run that a final may take for its samples."""
_FINAL_S = (0.5, 5.0)
"""The least and the most that a final takes for its samples, in seconds."""
_MOST_RESERVED = 0.5
"""The largest share of the run that is set aside for the final."""
_LEAST_TRIAL_S = 0.01
"""The least seconds that proving and timing a trial take."""


class Budget:
    """The time that a run has.

    :param seconds: from now on; None for as long as it takes.
    :ivar patient: whether what has begun is finished, however late it gets.
    """

    def __init__(self, seconds: float | None = None, *, patient: bool = False) -> None:
        self.patient = patient
        self._start = time.monotonic()
        self._total_s = math.inf if seconds is None else seconds
        self._reserved_s = 0.0

    @property
    def left_s(self) -> float:
        """Until the end, in seconds; never below zero."""
        return max(0.0, self._start + self._total_s - time.monotonic())

    @property
    def search_left_s(self) -> float:
        """Until the end of the search, in seconds; never below zero."""
        return max(0.0, self.left_s - self._reserved_s)

    @property
    def patience_s(self) -> float:
        """Seconds for which the present action may go on: in the final, or while a variant is measured."""
        return math.inf if self.patient else self.left_s

    @property
    def search_patience_s(self) -> float:
        """Seconds for which the search may wait for variants that are being built."""
        return math.inf if self.patient else self.search_left_s

    def reserve(self, finalists: int, trial_s: float) -> None:
        """Set time aside for a final of so many.

        :param trial_s: what it takes to prove and time one, in seconds.
        """
        if self._total_s < math.inf:
            self._reserved_s = min(self._sampling_s(self._total_s) + finalists * trial_s, _MOST_RESERVED * self._total_s)

    def final(self, finalists: int, trial_s: float) -> tuple[int, float]:
        """How many of the finalists there is time for, one at least, and the seconds for their samples together."""
        share_s = self._sampling_s(min(self._total_s, time.monotonic() - self._start))
        spare_s = max(0.0, self.left_s - _FINAL_S[0])
        count = max(1, int(min(finalists, spare_s / max(trial_s, _LEAST_TRIAL_S))))
        return count, min(share_s, max(_FINAL_S[0], self.left_s - count * trial_s))

    @staticmethod
    def _sampling_s(run_s: float) -> float:
        return min(max(_FINAL_SHARE * run_s, _FINAL_S[0]), _FINAL_S[1])
