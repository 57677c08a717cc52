"""Which record to trust: the winner of a final rather than a trial that was lucky."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, Unpack

from feinsum.database.record import TuningRecord
from feinsum.database.selection import Which
from feinsum.timing import FINAL_PROTOCOL

_LUCK = 1.1
"""The factor by which a trial must be faster than the winner of a final for its time to be believed."""


class _Best(Protocol):
    """An object that looks up the fastest record: a :class:`Database`, or :class:`Stores`."""

    def best(
        self, einsum_key: str, sizes: Mapping[str, int], device: str, **which: Unpack[Which]
    ) -> TuningRecord | None: ...


def best_known(
    store: _Best,
    einsum_key: str,
    sizes: Mapping[str, int],
    device: str,
    driver: str,
    spaces: Iterable[tuple[str, int]],
) -> TuningRecord | None:
    """The fastest winner of a final, unless a record is faster by more than luck; without finals, the fastest record."""
    pairs = tuple(spaces)
    winner = store.best(einsum_key, sizes, device, driver=driver, spaces=pairs, protocol=FINAL_PROTOCOL)
    quickest = store.best(einsum_key, sizes, device, driver=driver, spaces=pairs)
    if winner is None or quickest is None or (winner.median_s or 0.0) > _LUCK * (quickest.median_s or 0.0):
        return quickest  # as after a run that found it and was interrupted before its final
    return winner
