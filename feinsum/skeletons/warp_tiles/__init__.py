"""Warp tiles: products of a long and two short indices on matrix units, a tile of rows to each warp.

The plan (``plan``, ``tiling``) is written as a kernel by ``write``, which joins the parts: ``loops`` deal tiles to warps;
``resident_factor`` is B in local memory; ``operands`` is A in registers, loaded (``registers``) or copied (``copies``);
``held`` is what else a tile needs; ``accumulators`` are the sums; ``epilogue`` is what is made of them, which leaves by
``lane_stores`` or ``staged_stores``.
"""

from feinsum.skeletons.warp_tiles.plan import Prefetch, WarpTiles
from feinsum.skeletons.warp_tiles.tiling import TallProduct
from feinsum.skeletons.warp_tiles.write import write

__all__ = ["Prefetch", "TallProduct", "WarpTiles", "write"]
