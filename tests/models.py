"""Cost models made by hand."""

from __future__ import annotations

import math

import numpy as np

from feinsum.cost.model import CostModel, Forest
from feinsum.registry import spaces

KINDS = ("cpu", "gpu")


def slower_with(feature: str, limit: float, times: float = 1000.0) -> CostModel:
    """A model of one tree: what has more of a feature than `limit` takes so many times as long."""
    forest = Forest(
        (feature,),
        asked=np.array([0, -1, -1]),
        beyond=np.array([2, 0, 0]),
        numbers=np.array([limit, 0.0, math.log(times)]),
        roots=np.array([0]),
        spaces=tuple(s.name for s in spaces()),
        factor=1.5,
    )
    return CostModel(dict.fromkeys(KINDS, forest))
