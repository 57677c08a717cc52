"""The choices of packed blocks that are worth trying for a problem, the best guess first."""

from __future__ import annotations

from feinsum.skeletons.packed_blocks import MicroTile
from feinsum.space import Choices, Problem

from .plans import product_of

_VECTORS = (3, 2, 4)
"""Of a row of a register tile, the best guess first; chosen by hand."""
_MOST_LOADS = 0.75
"""For each product of vectors; a core begins as many loads as products, but results are stored, too."""
DEPTHS = (128, 256, 192)
SHARES = (3, 6, 12)


def packed_choices(p: Problem) -> Choices:
    """Parameters of :mod:`feinsum.transforms.packed_blocks.contractions`."""
    widths = tuple(n for n in (p.lanes, p.lanes // 2) if n >= 2)
    return {
        "width": widths,
        "tile": tuple(str(tile) for tile in tiles(p, widths[0])),
        "depth": DEPTHS,
        "share": SHARES,
    }


def tiles(p: Problem, width: int) -> list[MicroTile]:
    """Register tiles, the best guess first: as many rows as registers are left for, unless that is wasted."""
    most = p.device.vectors
    found = [MicroTile(rows, n) for n in _VECTORS for rows in _rows((most - 1) // n - 1)]
    own = product_of(p)

    def rank(tile: MicroTile) -> tuple[float, float]:
        points = 1 + padding(own.count("rows"), own.count("columns"), tile, width)
        return round(points * max(1.0, loads(tile) / _MOST_LOADS), 2), loads(tile)

    return sorted(found, key=rank)[:8]


def _rows(most: int) -> list[int]:
    """Rows of a tile, from the most that it has room for down to half of them: fewer may divide the product with less
    waste."""
    return [n for n in range(most, max(0, most // 2 - 1), -1) if n > 0]


def padding(rows: int, columns: int, tile: MicroTile, width: int) -> float:
    """The superfluous entries that are computed for each entry of the result."""
    across = tile.vectors * width
    return -(-rows // tile.rows) * tile.rows * -(-columns // across) * across / (rows * columns) - 1


def loads(tile: MicroTile) -> float:
    """Loads for each product of vectors."""
    return 1 / tile.rows + 1 / tile.vectors
