"""Packed blocks: contractions on CPUs as products of matrices, both operands copied into the order they are read in."""

from feinsum.skeletons.packed_blocks.plan import MicroTile, PackedBlocks
from feinsum.skeletons.packed_blocks.write import write

__all__ = ["MicroTile", "PackedBlocks", "write"]
