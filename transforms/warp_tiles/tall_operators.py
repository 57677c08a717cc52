"""Operators of discontinuous-Galerkin methods as tall products, with the roles of the operands of an einsum.

Each multiplies a small matrix by the values u of a field at the nodes j of elements e; they differ in where the metric J
joins, if there is one::

    metric last     out[x, e, i] = Σ_r J[x, r, e] (Σ_j D[r, i, j] u[e, j])
    metric first    out[e, i] = Σ_rj D[r, i, j] (Σ_x J[x, r, e] u[x, e, j])
    no metric       out[r, e, i] = Σ_j D[r, i, j] u[r, e, j], where D, u or both have r

The axes of each may stand in any order.  Eight neighbouring elements meet four values in an access of a warp, so elements
that lie side by side are read and written as well as the values of one; rows alone can be copied, and stored, as such.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from feinsum.einsum import BatchedEinsum
from feinsum.skeletons.warp_tiles import TallProduct
from feinsum.space import Problem

ELEMENTS, NODES, VALUES = "e", "i", "j"
"""The index letters of rows, of columns, and of the sum over the values of a field."""


@dataclass(frozen=True)
class Operator:
    """The roles of the operands of an einsum, by their numbers.

    :ivar metric: None where there is none.
    :ivar metric_first: whether the metric scales the field as that is loaded, or the results as they are stored.
    """

    metric: int | None
    matrix: int
    field: int
    metric_first: bool = False

    def product(self, p: Problem) -> TallProduct:
        """The tall product of an operator.  Products with equal operands are computed once."""
        return _operator_product(self, p.einsum, tuple(p.sizes.items()))

    def reads_rows(self, p: Problem) -> bool:
        """Whether the values of a field are rows, one after the other."""
        return p.einsum.indexing.inputs[self.field].endswith(ELEMENTS + VALUES)

    @staticmethod
    def stores_rows(p: Problem) -> bool:
        """Whether the results are, of one component or of all."""
        return ELEMENTS + NODES in p.einsum.indexing.output


@lru_cache(maxsize=256)
def _operator_product(parts: Operator, e: BatchedEinsum, sizes: tuple[tuple[str, int], ...]) -> TallProduct:
    """Asked for with every configuration."""
    lengths, letters = dict(sizes), e.indexing.inputs
    held = [parts.metric] if parts.metric is not None else []
    factors = (*(held if parts.metric_first else ()), parts.matrix, parts.field)
    joined = set().union(*(letters[k] for k in factors))
    later = set(e.indexing.output).union(*(letters[k] for k in range(e.n) if k not in factors))
    sums = sorted((x for x in letters[parts.matrix] if x in joined - later), key=VALUES.__eq__)
    batch = [x for x in sorted(joined & later) if x not in (ELEMENTS, NODES)]
    planes = [x for x in letters[parts.field] if x not in (ELEMENTS, sums[-1])]
    components = [x for x in e.indexing.output if x not in (ELEMENTS, NODES)]
    outputs = Counter(tuple(row[k] for k in factors) for row in e.args)

    def count(some: list[str]) -> int:
        return math.prod(lengths[x] for x in some)

    return TallProduct(
        e.dtypes[0],
        columns=lengths[NODES],
        sums=tuple(lengths[x] for x in sums),
        batch=count(batch),
        matrices=len({row[parts.matrix] for row in e.args}),
        results=count(components) * max(outputs.values()),
        held=sum(count([x for x in letters[k] if x != ELEMENTS]) * len({row[k] for row in e.args}) for k in held),
        planes=count(planes),
        fields=count([x for x in batch if x in letters[parts.field]]),
        shared=count([x for x in batch if x not in letters[parts.matrix]]),
        products=len(outputs),
    )
