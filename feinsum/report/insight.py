"""The importance of parameters in the spaces of a run, from its records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from feinsum.space.chain import STEPS

if TYPE_CHECKING:
    from feinsum.database import TuningRecord
    from feinsum.search.importance import Importance

_FEWEST = 8
"""Records of a space below which nothing is said about its parameters."""


def influences(records: Iterable[TuningRecord]) -> dict[str, Importance]:
    """Space -> the importance of its parameters, for the spaces with enough right records."""
    from feinsum.search.importance import importance

    by_space: dict[str, list[TuningRecord]] = {}
    for record in records:
        if record.median_s is not None and STEPS not in record.configuration:  # a chain is no point of a search
            by_space.setdefault(f"{record.space}@{record.space_version}", []).append(record)
    return {
        space: importance((r.configuration, r.median_s) for r in many)
        for space, many in by_space.items()
        if len(many[0].configuration) > 1 and len(many) >= max(_FEWEST, _effects(many))
    }


def _effects(records: list[TuningRecord]) -> int:
    """How many effects are told apart, and so how many records it takes at least: one for each choice but the first."""
    seen: dict[str, set[object]] = {}
    for record in records:
        for name, value in record.configuration.items():
            seen.setdefault(name, set()).add(value)
    return 1 + sum(len(values) - 1 for values in seen.values())
