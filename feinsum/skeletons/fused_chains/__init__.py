"""Fused chains: contractions one after the other by one work-group, partial results in local memory.

``steps`` has what a group does with a block, and ``plan`` how it goes from block to block; ``arrangements`` puts the events
of a block in order and lays out local memory; ``kernel`` has what every event is written with, ``tiles`` and ``products``
have the two kinds of contraction, and ``write`` does all in order.
"""

from feinsum.skeletons.fused_chains.plan import ContractionOrder, FusedChain
from feinsum.skeletons.fused_chains.steps import (
    BlockSteps,
    ChainStep,
    MatrixSharing,
    TileSharing,
    matrices_of,
    sharing_of,
)
from feinsum.skeletons.fused_chains.write import write

__all__ = [
    "BlockSteps",
    "ChainStep",
    "ContractionOrder",
    "FusedChain",
    "MatrixSharing",
    "TileSharing",
    "matrices_of",
    "sharing_of",
    "write",
]
