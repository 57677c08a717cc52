"""What a core has room for, in the terms of vector panels: lanes, accumulators, copies, results of a tile."""

from __future__ import annotations

from feinsum.space import Problem

PANEL_SHARES = (4, 32, 0)
"""What a work-group copies for all its iterations may take such a part of a core's cache; 0: it copies nothing."""
_INSIDE_SHARE = 16
_CORE_CACHE_BYTES = 1 << 20
"""Where the system does not say: what processors of today have."""
_LINE_BYTES = 64
_ACCUMULATORS = (6, 5, 4, 3)
"""Eighths of the registers, the rest being for what is multiplied."""


def lane_width(p: Problem) -> int:
    """The lanes of the widest vectors of the device."""
    return max(2, min(16, (p.device.simd_bytes or 16) // p.itemsize))


def widths(p: Problem, row: int) -> tuple[int, ...]:
    """Lanes of a vector, the best guess first: the shortest vectors that hold a row in as few as the widest do."""
    widest = lane_width(p)
    narrower = [n for n in (widest, widest // 2, widest // 4) if n >= 2]
    fewest = -(-row // widest)
    return tuple(sorted(narrower, key=lambda n: (-(-row // n) != fewest, n if -(-row // n) == fewest else -n)))


def fill(length: int, width: int) -> float:
    """Which part of the vectors of a row is used."""
    return length / (-(-length // width) * width)


def registers(p: Problem) -> int:
    """The vector registers of the device; accumulators that spill cost a factor of two."""
    return p.device.vector_registers or (32 if p.device.simd_bytes == 64 else 16)


def accumulators(p: Problem) -> tuple[int, ...]:
    """How many vectors may be summed at once, the best guess first."""
    return tuple(registers(p) * eighths // 8 for eighths in _ACCUMULATORS)


def core_cache_bytes(p: Problem) -> int:
    """The cache that is a core's own."""
    return p.device.core_cache_bytes or _CORE_CACHE_BYTES


def panel_bytes(p: Problem, share: int) -> int:
    """How much of the operands without the long index a work-group may copy."""
    return core_cache_bytes(p) // share if share else 0


def inside_bytes(p: Problem) -> int:
    """How much of its results a work-group may keep for one tile."""
    return core_cache_bytes(p) // _INSIDE_SHARE


def line_bytes(p: Problem) -> int:
    """The length of a cache line."""
    return p.device.cacheline_bytes or _LINE_BYTES
