"""What the records of a run say about its spaces: which parameters matter."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from feinsum.database import TuningRecord
    from feinsum.search.importance import Importance

_ENOUGH = 8
"""Records of a space below which its parameters cannot be told apart."""


def influences(records: Iterable[TuningRecord]) -> dict[str, Importance]:
    """Space -> what its parameters explain, for the spaces with enough records that are right."""
    from feinsum.search.importance import importance

    by_space: dict[str, list[TuningRecord]] = {}
    for record in records:
        if record.median_s is not None:
            by_space.setdefault(f"{record.space}@{record.space_version}", []).append(record)
    return {
        space: importance((r.configuration, r.median_s) for r in many)
        for space, many in by_space.items()
        if len(many) >= _ENOUGH and len(many[0].configuration) > 1
    }
