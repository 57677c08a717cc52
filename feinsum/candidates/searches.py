"""Searches: what was tried of an einsum where a record was measured, and what the cost model expects of the rest.

A record is the quickest of what was tried, which may have been one configuration of one space.  So the record of a search
that was narrow, or ended before its final, is doubted where an untried prediction of the cost model is expected to
be clearly faster.  Curated records are never doubted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from feinsum.candidates.predicted import Prediction
from feinsum.database import TuningRecord
from feinsum.space import TransformSpace
from feinsum.timing import FINAL_PROTOCOL

LEAST_S = 10e-6
"""The shortest time of a kernel in which differences matter: a call takes about as long."""
_JUDGED = 6
"""Configurations of a space after which a search has judged it, as the tuner does."""


@dataclass(frozen=True)
class Doubt:
    """The reason why a record may not be the quickest.

    :ivar text: in words, with the evidence.
    :ivar gain: the share of the record's time that the cost model expects the rival to take, by the time that was measured
        or that it expects of the record's configuration, whichever promises less.
    """

    text: str
    gain: float


@dataclass(frozen=True)
class PastSearch:
    """The trials of an einsum at certain lengths, on one device and driver, by the present versions of spaces.

    :ivar trials: the records of it, whatever their outcome.
    :ivar curated: whether the record in question comes with feinsum: what it was compared with is not recorded here.
    """

    trials: tuple[TuningRecord, ...]
    curated: bool = False

    @cached_property
    def finished(self) -> bool:
        """Whether a final was held."""
        return any(r.protocol == FINAL_PROTOCOL for r in self.trials)

    @cached_property
    def tried(self) -> frozenset[tuple[str, Mapping[str, Any]]]:
        """The configurations that were tried, each with the name of its space."""
        return frozenset((r.space, r.configuration) for r in self.trials)

    def has_judged(self, space: TransformSpace) -> bool:
        """Whether it ended, and tried enough of a space to know what that can do."""
        return self.finished and sum(name == space.name for name, _ in self.tried) >= _JUDGED

    def is_wide(self, spaces: Sequence[TransformSpace]) -> bool:
        """Whether it has judged all spaces that are made for the einsum."""
        special = [s for s in spaces if s.rank > 0]
        return self.curated or all(map(self.has_judged, special or spaces))

    def leaves_open(self, rival: Prediction) -> bool:
        """Whether it says nothing of a configuration: neither that was tried, nor its space judged."""
        s, wanted = rival.space, rival.space.completed(rival.configuration)
        if self.curated or self.has_judged(s):
            return False
        return all(name != s.name or s.completed(c) != wanted for name, c in self.tried)

    def describe(self) -> str:
        """The width of the search, in words."""
        count, names = len(self.tried), sorted({name for name, _ in self.tried})
        end = "" if self.finished else ", without a final"
        return f"of {count} configuration{'' if count == 1 else 's'} tried of {', '.join(names)}{end}"
