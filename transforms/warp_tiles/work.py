"""The work of a plan: columns and steps are padded; loads of some warps are hidden by products of others."""

from __future__ import annotations

from feinsum.cost import Work
from feinsum.skeletons.instructions.matrix_units import SUB_GROUP
from feinsum.skeletons.warp_tiles import WarpTiles
from feinsum.space import Problem

from .tall_operators import ELEMENTS


def work_of(p: Problem, plan: WarpTiles) -> Work:
    """The work that an accepted plan makes the device do, for the cost model."""
    tiles = -(-p.sizes[ELEMENTS] // plan.unit.m)
    return Work(
        # float64 takes twice as long.
        flops=plan.padding * p.einsum.flops(p.lengths) * (2 if plan.number.itemsize > plan.product.dtype.itemsize else 1),
        bytes=p.least_bytes,
        groups=plan.persistent_groups * plan.n_split or -(-tiles // (plan.warps * plan.tiles)),
        items=SUB_GROUP * plan.warps,
        registers_bytes=4 * plan.registers(),
        local_bytes=plan.local_bytes(),
        matrix=True,
    )
