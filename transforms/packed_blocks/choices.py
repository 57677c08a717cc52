"""The choices of packed blocks that are worth trying for a problem, the best guess first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from feinsum.errors import TransformError
from feinsum.skeletons.packed_blocks import MicroTile
from feinsum.space import Choices, Problem

from .plans import product_of
from .work import packed_work

_VECTORS = (3, 2, 4)
"""The vectors of a row of a register tile, the best guess first; chosen by hand."""
_MOST_LOADS = 0.75
"""For each product of vectors; a core begins as many loads as products, but results are stored, too."""
DEPTHS = (128, 256, 192)
SHARES = (3, 6, 12)
_WORTH = 0.95
"""Other sizes of blocks are better guesses than the first ones if they are to take less than this part of the time."""


def packed_choices(p: Problem) -> Choices:
    """Parameters of :mod:`feinsum.transforms.packed_blocks.contractions`."""
    widths = tuple(n for n in (p.lanes, p.lanes // 2) if n >= 2)
    found = packed_tiles(p, widths[0])
    first: dict[str, Any] = {"width": widths[0], "tile": str(found[0]), "depth": DEPTHS[0], "share": SHARES[0]}
    depths = _promising_values(p, first, "depth", DEPTHS)
    return {
        "width": widths,
        "tile": tuple(map(str, found)),
        "depth": depths,
        "share": _promising_values(p, {**first, "depth": depths[0]}, "share", SHARES),
    }


def _promising_values(p: Problem, c: Mapping[str, Any], name: str, values: tuple[int, ...]) -> tuple[int, ...]:
    """Values of a parameter, that of the least work first: it depends on how blocks divide the sum and feed all cores."""
    try:
        expected = {x: packed_work(p, {**c, name: x}).seconds(p.device, p.itemsize) for x in values}
    except TransformError:  # whatever the value is
        return values
    return tuple(sorted(values, key=lambda x: min(expected.values()) < _WORTH * expected[x]))


def packed_tiles(p: Problem, width: int) -> list[MicroTile]:
    """Register tiles, the best guess first: as many rows as registers are left for, unless that is wasted."""
    most = p.device.vectors
    found = [MicroTile(rows, n) for n in _VECTORS for rows in _tile_rows((most - 1) // n - 1)]
    own = product_of(p)

    def rank(tile: MicroTile) -> tuple[float, float]:
        points = 1 + padding(own.count("rows"), own.count("columns"), tile, width)
        return round(points * max(1.0, loads_per_product(tile) / _MOST_LOADS), 2), loads_per_product(tile)

    return sorted(found, key=rank)[:8]


def _tile_rows(most: int) -> list[int]:
    """Rows of a tile, from the most that it has room for down to half of them: fewer may divide the product with less
    waste."""
    return [n for n in range(most, max(0, most // 2 - 1), -1) if n > 0]


def padding(rows: int, columns: int, tile: MicroTile, width: int) -> float:
    """The superfluous entries that are computed for each entry of the result."""
    across = tile.vectors * width
    return -(-rows // tile.rows) * tile.rows * -(-columns // across) * across / (rows * columns) - 1


def loads_per_product(tile: MicroTile) -> float:
    """Loads for each product of vectors."""
    return 1 / tile.rows + 1 / tile.vectors
