"""Warp tiles: products of a long and two short indices on matrix units, a tile of rows to each warp.

``write`` writes the plan (``plan``, ``tiling``) as a kernel and joins its parts: ``loops`` deal tiles to warps;
``resident_factor`` is B in local memory; ``operands`` is A in registers, loaded (``registers``) or copied (``copies``);
``held`` are the other operands of a tile; ``accumulators`` are the sums; ``epilogue`` makes the results of them, which
leave by ``lane_stores`` or ``staged_stores``.
"""

from feinsum.skeletons.warp_tiles.plan import Prefetch, WarpTiles
from feinsum.skeletons.warp_tiles.tiling import TallProduct
from feinsum.skeletons.warp_tiles.write import write

__all__ = ["Prefetch", "TallProduct", "WarpTiles", "write"]
