"""Exploring a transform space by hand: its configurations, the code of each, and the importance of its parameters.

>>> from feinsum.einsum import array, einsum
>>> e = einsum("ij,ej->ei", array("D", (8, 8)), array("u", ("E", 8)))
>>> x = explore(e, "cpu", sizes={"E": 1000}, space="generic")
>>> print(x.census)
10 of 10 combinations are configurations
>>> print(x.compare({"items": 16}, {"items": 32}).summary)
items: 16 -> 32
"""

from feinsum.exploration.controls import Controls
from feinsum.exploration.exploration import Exploration, explore
from feinsum.exploration.peer import PeerComparison, compare_with_numpy, roofline_with_peers
from feinsum.exploration.points import Comparison, KernelCode, SpacePoint

__all__ = [
    "Comparison",
    "Controls",
    "Exploration",
    "KernelCode",
    "PeerComparison",
    "SpacePoint",
    "compare_with_numpy",
    "explore",
    "roofline_with_peers",
]
