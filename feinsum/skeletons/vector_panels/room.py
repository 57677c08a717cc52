"""What a core has room for, in the terms of vector panels: lanes, accumulators, copies."""

from __future__ import annotations

from feinsum.devices import DeviceProfile

MOST_VECTORS_IN_ROW = 8
"""A row of more vectors is divided into tiles; chosen by hand."""
PANEL_SHARES = (4, 32, 0)
"""What a work-group copies for all its iterations may take such a part of a core's cache; 0: it copies nothing."""
_ACCUMULATORS = (6, 5, 4, 3)
"""Eighths of the registers; the rest is for what is multiplied."""


def widths(widest: int, row: int) -> tuple[int, ...]:
    """Lanes of a vector, the best guess first: the shortest vectors that hold a row in as few as the widest do.

    :param widest: the lanes of the widest vectors of the device.
    :param row: how many numbers stand in a row.
    """
    narrower = [n for n in (widest, widest // 2, widest // 4) if n >= 2]
    fewest = -(-row // widest)
    return tuple(sorted(narrower, key=lambda n: (-(-row // n) != fewest, n if -(-row // n) == fewest else -n)))


def fill(length: int, width: int) -> float:
    """Which part of the lanes is used by a row of `length` numbers in vectors of `width`."""
    return length / (-(-length // width) * width)


def accumulator_counts(device: DeviceProfile) -> tuple[int, ...]:
    """How many vectors a core may sum at once, the best guess first."""
    return tuple(device.vectors * eighths // 8 for eighths in _ACCUMULATORS)


def panel_bytes(device: DeviceProfile, share: int) -> int:
    """The bytes that a work-group may copy of an operand without the long index: one part in `share` of a core's cache."""
    return device.own_cache_bytes // share if share else 0
