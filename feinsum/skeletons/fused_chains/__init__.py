"""Fused chains: contractions one after the other by one work-group, partial results in local memory.

``steps`` describes the work of a group on a block, and ``plan`` how it goes from block to block; ``arrangements`` puts the
events of a block in order and lays out local memory; ``kernel`` has the loops and arrays of every event, ``tiles`` and
``products`` have the two kinds of contraction, and ``write`` puts these parts together.
"""

from feinsum.skeletons.fused_chains.accesses import GlobalAccess, global_accesses
from feinsum.skeletons.fused_chains.chain_steps import (
    BlockSteps,
    ChainStep,
    MatrixSharing,
    TileSharing,
    matrices_of,
    sharing_of,
)
from feinsum.skeletons.fused_chains.plan import ContractionOrder, FusedChain
from feinsum.skeletons.fused_chains.write import write

__all__ = [
    "BlockSteps",
    "ChainStep",
    "ContractionOrder",
    "FusedChain",
    "GlobalAccess",
    "MatrixSharing",
    "TileSharing",
    "global_accesses",
    "matrices_of",
    "sharing_of",
    "write",
]
