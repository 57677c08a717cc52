"""Block tiles: contractions of two tensors by work-groups, a block of the result to each, its operands in local memory.

``plan`` describes the block of a work-group, and ``notation`` how configurations write it.  ``fragments`` are the registers
of lanes, ``frame`` has the loops around everything, ``operands`` brings tiles to local memory, ``pipeline`` and
``prefetched`` order the copies and products of tiles, ``results`` stores what these add up to, and ``preparation`` has the
launches before and after; ``write`` puts these parts together.
"""

from feinsum.skeletons.block_tiles.fragment_layouts import MULTIPLY_ADD
from feinsum.skeletons.block_tiles.plan import BlockChain, BlockTiles
from feinsum.skeletons.block_tiles.plan_notation import BlockShape, BlockShapes, ChainPath, Packing, SumSplit, TilePipeline
from feinsum.skeletons.block_tiles.preparation import ITEMS, Preparation, axis_lanes, prepared, write_entry_by_entry
from feinsum.skeletons.block_tiles.write import write
from feinsum.skeletons.common.index_groups import GROUPS, IndexDigit, IndexGroup

__all__ = [
    "GROUPS",
    "ITEMS",
    "MULTIPLY_ADD",
    "BlockChain",
    "BlockShape",
    "BlockShapes",
    "BlockTiles",
    "ChainPath",
    "IndexDigit",
    "IndexGroup",
    "Packing",
    "Preparation",
    "SumSplit",
    "TilePipeline",
    "axis_lanes",
    "prepared",
    "write",
    "write_entry_by_entry",
]
