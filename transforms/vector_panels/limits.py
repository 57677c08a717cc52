"""What a core has room for, in the terms of vector panels: lanes, accumulators, copies, results of a tile."""

from __future__ import annotations

from feinsum.space import Problem

PANEL_SHARES = (4, 32, 0)
"""What a work-group copies for all its iterations may take such a part of a core's cache; 0: it copies nothing."""
_INSIDE_SHARE = 16
_ACCUMULATORS = (6, 5, 4, 3)
"""Eighths of the registers, the rest being for what is multiplied."""


def widths(p: Problem, row: int) -> tuple[int, ...]:
    """Lanes of a vector, the best guess first: the shortest vectors that hold a row in as few as the widest do."""
    widest = p.lanes
    narrower = [n for n in (widest, widest // 2, widest // 4) if n >= 2]
    fewest = -(-row // widest)
    return tuple(sorted(narrower, key=lambda n: (-(-row // n) != fewest, n if -(-row // n) == fewest else -n)))


def fill(length: int, width: int) -> float:
    """Which part of the vectors of a row is used."""
    return length / (-(-length // width) * width)


def accumulators(p: Problem) -> tuple[int, ...]:
    """How many vectors may be summed at once, the best guess first."""
    return tuple(p.device.vectors * eighths // 8 for eighths in _ACCUMULATORS)


def panel_bytes(p: Problem, share: int) -> int:
    """How much of the operands without the long index a work-group may copy."""
    return p.device.own_cache_bytes // share if share else 0


def inside_bytes(p: Problem) -> int:
    """How much of its results a work-group may keep for one tile."""
    return p.device.own_cache_bytes // _INSIDE_SHARE
