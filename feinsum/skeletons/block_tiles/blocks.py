"""How a contraction of two operands is dealt to work-groups: blocks of rows and columns, tiles as deep as fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

from feinsum.devices.ptx import SUB_GROUP
from feinsum.skeletons.block_tiles.fragments import Fragments, fragments


@dataclass(frozen=True)
class Blocks:
    """How a contraction of two operands is dealt to work-groups.

    :ivar operands: the operand that has the rows, and the one that has the columns.
    :ivar rows: letters of that operand and the output, the quickest first; so `columns`; `batch` are letters of all three,
        and `sums` of both operands alone.  A letter of unknown length is the last of its group.
    :ivar parts: how many neighbours along a letter are neighbours in its group; those of `sums` make the depth of a tile.
    :ivar unit: a matrix unit, or ``"multiply-add"``.
    :ivar sub_groups: sub-groups of a work-group: for items of the batch, along rows, along columns.
    :ivar tiles: fragments of a sub-group: along rows, along columns.
    :ivar along_sums: for each of the operands, whether neighbouring lanes load neighbours along the sums.
    :ivar buffers: tiles in local memory of each operand: with 2 there is one barrier a tile, with 1 there are two.
    :ivar asynchronous: whether tiles are copied without passing through registers, `buffers` - 1 of them ahead.
    :ivar wide: numbers of each operand that may be copied at once, where they lie in memory so that they can be.
    :ivar ahead: whether fragments of a step are loaded while those of the one before are multiplied, which takes a matrix
        unit, asynchronous copies, and an even number of steps.
    """

    operands: tuple[int, int]
    rows: str
    columns: str
    sums: str
    batch: str
    parts: Mapping[str, int]
    unit: str
    sub_groups: tuple[int, int, int]
    tiles: tuple[int, int]
    along_sums: tuple[bool, bool]
    buffers: int = 2
    asynchronous: bool = False
    wide: tuple[int, int] = (1, 1)
    ahead: bool = False

    @cached_property
    def fragments(self) -> Fragments:
        """What lanes hold."""
        return fragments(self.unit)

    @property
    def depth(self) -> int:
        """Length of a tile along the sums."""
        return prod(self.parts.get(x, 1) for x in self.sums)

    @property
    def steps(self) -> int:
        """Steps of the unit along a tile."""
        return self.depth // self.fragments.depth

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of a block."""
        _, down, across = self.sub_groups
        return down * self.tiles[0] * self.fragments.rows, across * self.tiles[1] * self.fragments.columns

    @property
    def work_items(self) -> int:
        """Work-items of a work-group."""
        return SUB_GROUP * prod(self.sub_groups)

    def layout(self, side: int, itemsize: int) -> tuple[int, int]:
        """The axes of a tile of an operand in local memory, the second padded."""
        long, short = (self.depth, self.shape[side]) if self.along_sums[side] else (self.shape[side], self.depth)
        return short, self.fragments.stride(long, itemsize, along_sums=self.along_sums[side])

    def local_bytes(self, itemsize: int) -> int:
        """Local memory of a work-group."""
        return self.buffers * self.sub_groups[0] * itemsize * sum(prod(self.layout(side, itemsize)) for side in (0, 1))

    def private_bytes(self, itemsize: int, *, several: bool = True) -> int:
        """What a work-item keeps at least: results, fragments of a step, and its share of the next tiles.

        :param several: whether sums have more than one tile; the only one is in local memory before products begin.
        """
        na, nb, nd = self.fragments.registers
        down, across = self.tiles
        loaded = 0 if self.asynchronous else sum(self.loads(side) for side in (0, 1))
        split = 2 if self.fragments.unit is not None and self.fragments.unit.dtype == "float" else 1
        multiplied = down * across * nd + split * (down * na + across * nb)
        return itemsize * (multiplied + loaded if several else max(multiplied, loaded))

    def loads(self, side: int) -> int:
        """Elements that a work-item loads of a tile."""
        return -(-self.sub_groups[0] * self.shape[side] * self.depth // self.work_items)
