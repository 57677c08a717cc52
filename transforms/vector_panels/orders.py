"""The orders in which vector panels may contract the operands of an einsum, and the multiplications of each."""

from __future__ import annotations

from itertools import combinations

from feinsum.contraction import pairwise_schedule
from feinsum.skeletons.vector_panels import PanelOrder
from feinsum.space import Problem


def orders(p: Problem) -> list[PanelOrder]:
    """The orders worth trying, fewest operations first.

    All of those for two or three operands, the cheapest pairs for more.
    """
    if p.einsum.n == 2:
        return [PanelOrder(((0, 1),))]
    if p.einsum.n > 3:
        return [_cheapest(p)]
    pairs = list(combinations(range(3), 2))
    steps = [((0, 1, 2),), *((pair,) for pair in pairs), *((pair, (0, 1)) for pair in pairs)]
    return sorted(map(PanelOrder, steps), key=lambda order: points(p, order))


def _cheapest(p: Problem) -> PanelOrder:
    """The cheapest pairwise steps, operands by their position among the remaining ones."""
    pool = list(range(p.einsum.n))
    steps = []
    for s, step in enumerate(pairwise_schedule(p.einsum, p.lengths).steps):
        steps.append(tuple(pool.index(k) for k in step.operands))
        pool = [k for k in pool if k not in step.operands] + [p.einsum.n + s]
    return PanelOrder(tuple(steps))


def points(p: Problem, order: PanelOrder) -> int:
    """Multiplications of an order, a partial result that several outputs share counted once."""
    e = p.einsum
    letters = list(e.indexing.inputs)
    rows: list[tuple[object, ...]] = [tuple(enumerate(row)) for row in e.args]
    total = 0
    for step in (*order.steps, tuple(range(e.n))):
        operands = step[: len(letters)]
        factors = [tuple(row[k] for k in operands) for row in rows]
        inside = set("".join(letters[k] for k in operands))
        if len(operands) > 1:
            times = e.b if len(operands) == len(letters) else len(set(factors))
            total += times * (len(operands) - 1) * p.count("".join(inside))
        rest = [x for k, x in enumerate(letters) if k not in operands]
        letters = [*rest, "".join(inside & set(e.indexing.output).union(*rest))]
        rows = [
            (*(x for k, x in enumerate(row) if k not in operands), factor)
            for row, factor in zip(rows, factors, strict=True)
        ]
    return total
