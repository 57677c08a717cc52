"""How wide the integers are with which a kernel indexes: 32 bits, or 64 where an array has 2³¹ elements or more."""

from __future__ import annotations

import math
from collections.abc import Mapping

from feinsum.einsum import BatchedEinsum

_BEYOND = 2**24
"""So far beyond the end of an axis the last work-group may compute positions, to find out that they are."""


def index_dtype(e: BatchedEinsum, lengths: Mapping[str, int]) -> str:
    """``int64`` where an array or an output has 2³¹ elements or more, or nearly so many; else ``int32``."""
    shapes = (*e.array_indices.values(), e.indexing.output)
    return "int64" if any(math.prod(lengths[x] for x in letters) >= 2**31 - _BEYOND for letters in shapes) else "int32"
