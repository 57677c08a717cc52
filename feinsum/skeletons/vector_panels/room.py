"""The capacity of a core, in the terms of vector panels: lanes, accumulators, copies."""

from __future__ import annotations

from feinsum.devices import DeviceProfile

_MOST_VECTORS_IN_ROW = 8
"""Chosen by hand."""
PANEL_SHARES = (4, 32, 0)
"""The share of a core's cache for the copies of a work-group, as its reciprocal; 0: it copies nothing."""
_MANY_REGISTERS = 32
"""The registers of AVX-512, which broadcasts as it loads, and of NEON, which multiplies by a lane; AVX2, with 16, does
neither."""
_MOST_SUMMED = 1.1
"""Vectors of all tiles of a row, for each of the row; chosen by hand."""
_ACCUMULATORS = (6, 5, 4, 3)
"""Eighths of the registers for sums; the rest is for factors."""


def vector_widths(widest: int, row: int) -> tuple[int, ...]:
    """Lanes of a vector, the best guess first: the shortest vectors that hold a row in as few as the widest do.

    :param widest: the lanes of the widest vectors of the device.
    :param row: how many numbers stand in a row.
    """
    narrower = [n for n in (widest, widest // 2, widest // 4) if n >= 2]
    fewest = -(-row // widest)
    return tuple(sorted(narrower, key=lambda n: (-(-row // n) != fewest, n if -(-row // n) == fewest else -n)))


def lane_fill(length: int, width: int) -> float:
    """The share of the lanes that a row of `length` elements fills in vectors of `width`."""
    return length / (-(-length // width) * width)


def accumulator_counts(device: DeviceProfile) -> tuple[int, ...]:
    """The numbers of vectors that a core may sum at once, the best guess first."""
    return tuple(device.vectors * eighths // 8 for eighths in _ACCUMULATORS)


def vector_counts(device: DeviceProfile, row: int) -> tuple[int, ...]:
    """Vectors of a long row that are worth summing at once, the best guess first.

    With 16 registers four vectors leave room for two rows of sums, three for four.  Tiles that sum much twice, as three of
    three vectors do for a row of eight, come last.

    :param row: the vectors of the row.
    """
    counts = (4, 2, 3, 6) if device.vectors >= _MANY_REGISTERS else (3, 2, 4, 6)

    def is_wasteful(count: int) -> bool:
        tiles = -(-row // count)
        return tiles * -(-row // tiles) > _MOST_SUMMED * row

    return tuple(sorted(counts, key=is_wasteful))


def broadcast_registers(device: DeviceProfile) -> int:
    """Registers for a number in all lanes: instruction sets with many registers multiply by one in memory or in a lane."""
    return 0 if device.vectors >= _MANY_REGISTERS else 1


def most_vectors_in_row(device: DeviceProfile) -> int:
    """A row of more vectors is divided into tiles: the registers have to hold the sums of a row and what is multiplied."""
    return min(_MOST_VECTORS_IN_ROW, (device.vectors - broadcast_registers(device)) // 2)


def panel_bytes(device: DeviceProfile, share: int) -> int:
    """The bytes that a work-group may copy of an operand without the long index: one part in `share` of a core's cache."""
    return device.own_cache_bytes // share if share else 0
