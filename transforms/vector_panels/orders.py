"""The orders in which vector panels may contract the operands of an einsum, and the multiplications of each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product

from feinsum.contraction import pairwise_schedule
from feinsum.skeletons.vector_panels import PanelOrder
from feinsum.space import Problem

_MOST_PAIRED = 6
"""Operands of which every order of pairs is counted: 2700."""


def panel_orders(p: Problem) -> list[PanelOrder]:
    """The orders worth trying, fewest operations first.

    All of those for two or three operands; for more the pairs that are the cheapest where every product is done for each of
    the long index, as a group does it, and those that are where a product without that index is done once.
    """
    if p.einsum.n == 2:
        return [PanelOrder(((0, 1),))]
    if p.einsum.n > 3:
        return list(dict.fromkeys((_cheapest_each_time(p), _cheapest_order(p))))
    pairs = list(combinations(range(3), 2))
    steps = [((0, 1, 2),), *((pair,) for pair in pairs), *((pair, (0, 1)) for pair in pairs)]
    return sorted(map(PanelOrder, steps), key=lambda order: points(p, order))


def _cheapest_order(p: Problem) -> PanelOrder:
    """The cheapest pairwise steps, operands by their position among the remaining ones."""
    pool = list(range(p.einsum.n))
    steps = []
    for s, step in enumerate(pairwise_schedule(p.einsum, p.lengths).steps):
        steps.append(tuple(pool.index(k) for k in step.operands))
        pool = [k for k in pool if k not in step.operands] + [p.einsum.n + s]
    return PanelOrder(tuple(steps))


def _cheapest_each_time(p: Problem) -> PanelOrder:
    """The pairs with the fewest multiplications if no product is kept from one of the long index to the next."""
    once = _cheapest_order(p)
    if p.einsum.n > _MOST_PAIRED:
        return once
    found = min(_pair_orders(p.einsum.n), key=lambda order: points_in_group(p, order))
    return found if points_in_group(p, found) < points_in_group(p, once) else once


def points_in_group(p: Problem, order: PanelOrder) -> int:
    """The multiplications of an order of pairs as groups do them: each of them for each of the longest index."""
    longest = max(p.einsum.indexing.output, key=lambda x: (p.is_long(x), p.sizes[x]))
    return points(p, order, longest if p.einsum.n > 3 else "")


def _pair_orders(n: int) -> Iterator[PanelOrder]:
    """Every order of pairs."""
    for chosen in product(*(combinations(range(left), 2) for left in range(n, 1, -1))):
        yield PanelOrder(chosen)


def points(p: Problem, order: PanelOrder, long: str = "") -> int:
    """Multiplications of an order, a partial result that several outputs share counted once.

    :param long: an index for each value of which all is done anew.
    """
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
            total += times * (len(operands) - 1) * p.count("".join(inside | set(long)))
        rest = [x for k, x in enumerate(letters) if k not in operands]
        letters = [*rest, "".join(inside & set(e.indexing.output).union(*rest))]
        rows = [
            (*(x for k, x in enumerate(row) if k not in operands), factor)
            for row, factor in zip(rows, factors, strict=True)
        ]
    return total
