"""Vector panels: contractions on CPUs in private vectors, one tile of a long index after another."""

from feinsum.skeletons.vector_panels.orders import MOST_OPERANDS, PanelContraction, PanelOrder
from feinsum.skeletons.vector_panels.plan import GroupTile, RegisterTile, VectorPanels, is_vectorizable
from feinsum.skeletons.vector_panels.room import (
    PANEL_SHARES,
    accumulator_counts,
    broadcast_registers,
    lane_fill,
    most_vectors_in_row,
    panel_bytes,
    vector_counts,
    vector_widths,
)
from feinsum.skeletons.vector_panels.write import write

__all__ = [
    "MOST_OPERANDS",
    "PANEL_SHARES",
    "GroupTile",
    "PanelContraction",
    "PanelOrder",
    "RegisterTile",
    "VectorPanels",
    "accumulator_counts",
    "broadcast_registers",
    "is_vectorizable",
    "lane_fill",
    "most_vectors_in_row",
    "panel_bytes",
    "vector_counts",
    "vector_widths",
    "write",
]
