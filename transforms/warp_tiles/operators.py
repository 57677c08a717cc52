"""Operators of discontinuous-Galerkin methods as tall products: which operand of an einsum plays which part.

Each multiplies a small matrix by the values u of a field at the nodes j of elements e; where the metric J joins differs::

    metric last     out[x, e, i] = Σ_r J[x, r, e] (Σ_j D[r, i, j] u[e, j])
    metric first    out[e, i] = Σ_rj D[r, i, j] (Σ_x J[x, r, e] u[x, e, j])
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from feinsum.skeletons.warp_tiles import TallProduct
from feinsum.space import Problem

ELEMENTS, NODES = "e", "i"
"""The index letters of rows and of columns."""


@dataclass(frozen=True)
class Operator:
    """The parts that the operands of an einsum play, by their numbers.

    :ivar metric_first: whether the metric scales the field as that is loaded, or the results as they are stored.
    """

    metric: int
    matrix: int
    field: int
    metric_first: bool = False

    def product(self, p: Problem) -> TallProduct:
        """What has to be multiplied.  Products with equal operands are computed once."""
        e, letters = p.einsum, p.einsum.indexing.inputs
        factors = (self.metric, self.matrix, self.field) if self.metric_first else (self.matrix, self.field)
        joined = set().union(*(letters[k] for k in factors))
        later = set(e.indexing.output).union(*(letters[k] for k in range(e.n) if k not in factors))
        sums = [x for x in letters[self.matrix] if x in joined - later]
        batch = [x for x in letters[self.matrix] if x in later and x != NODES]
        planes = [x for x in letters[self.field] if x not in (ELEMENTS, sums[-1])]
        components = [x for x in e.indexing.output if x not in (ELEMENTS, NODES)]
        outputs = Counter(tuple(row[k] for k in factors) for row in e.args)
        return TallProduct(
            e.dtypes[0],
            columns=p.sizes[NODES],
            sums=tuple(p.sizes[x] for x in sums),
            batch=p.count("".join(batch)),
            matrices=len({row[self.matrix] for row in e.args}),
            results=p.count("".join(components)) * max(outputs.values()),
            held=p.count(letters[self.metric].replace(ELEMENTS, "")) * len({row[self.metric] for row in e.args}),
            planes=p.count("".join(planes)),
            products=len(outputs),
        )
