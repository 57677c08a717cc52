"""The target of a tile's products: the results of a work-item, or sums of the tile that are added to these at its end.

The unit for tf32 rounds sums towards zero.  Over a few steps the loss is small, and the ordinary adder, which rounds
correctly, adds one sum of a tile in place of one of each step::

    for tile:
        sum = 0
        for step: sum += A(step) B(step)      by the unit
        D += sum                              by the ordinary adder
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Self

from pymbolic.primitives import Variable

from feinsum.skeletons.block_tiles.frame import BlockFrame


@dataclass(frozen=True)
class TileSums:
    """The sums of a work-item.

    :ivar results: the array of its results.
    :ivar array: the array that products are added to.
    """

    frame: BlockFrame
    results: Any
    array: Any

    @classmethod
    def of(cls, frame: BlockFrame, results: Any) -> Self:
        """The sums of a plan."""
        return cls(frame, results, Variable(frame.fragments("sum", _tile_shape(frame))) if frame.plan.tilewise else results)

    def clear(self, after: Collection[str]) -> list[str]:
        """Set the sums of a tile to zero, if it has any; the instruction for it."""
        if not self.frame.plan.tilewise:
            return []
        loops, place = self._places("zero")
        return [self.frame.draft.assign(self.array[place], 0.0, self.frame.inside | loops, after)]

    def add(self, multiplied: str) -> str:
        """Add the sums of a tile to the results when the instruction `multiplied` is done; the last instruction."""
        if not self.frame.plan.tilewise:
            return multiplied
        loops, place = self._places("sum")
        value = self.results[place] + self.array[place]
        return self.frame.draft.assign(self.results[place], value, self.frame.inside | loops, [multiplied])

    def _places(self, name: str) -> tuple[set[str], tuple[Any, ...]]:
        loops = self.frame.draft.unrolled((name,) * 3, _tile_shape(self.frame))
        return set(loops), tuple(map(Variable, loops))


def _tile_shape(frame: BlockFrame) -> tuple[int, int, int]:
    return (*frame.plan.block_tile.warp_tile, frame.plan.fragments.registers[2])
