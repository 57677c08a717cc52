"""Orders: in which order the indices of every partial result lie in memory, by dynamic programming over all of them.

    table[S][π] = min over S = L ∪ R, orders of L and R, and groups (m, n, k) of the indices that the product is over

    cost of a step = Σ_{T = A, B} bytes(T) s(T) r(T) + (1 + [accumulates]) bytes(C) s(C) + overhead · products

s is what is fetched for nothing where the first index of a tensor is not in the product; r counts that a tensor is read
again, from a cache, by loops over what it does not have.  Ties are broken as YATeTo does (Uphoff and Bader, *Yet another
tensor toolbox for discontinuous Galerkin methods*, ACM TOMS 46(4), 2020): fewer tensors with strides, fewer transposes,
more indices treated as one.  The cost ranks schedules; it is no time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Final, TypeAlias

LINE_BYTES: Final = 64
"""Bytes that a memory fetches at once."""
PRODUCT_BYTES: Final = 64
"""The overhead of a matrix product, in bytes that could be moved meanwhile."""
MOST_PERMUTED: Final = 4
"""Indices of a partial result up to which every order is tried."""

Cost: TypeAlias = tuple[int, int, int, int, str]
"""Quarters of bytes, tensors with strides, transposes, minus fused indices, and a text that decides between equals."""


@dataclass(frozen=True)
class OrderNode:
    """A tensor and how it is made.

    :ivar letters: its indices, the fastest one first.
    :ivar children: two for a product, one for a sum or transpose, none for an operand.
    :ivar groups: of a product, the indices m, n and k that are not looped over.
    :ivar operand: the number of the operand that it is.
    """

    letters: str
    children: tuple[OrderNode, ...] = ()
    groups: tuple[str, str, str] = ("", "", "")
    operand: int = -1


Table: TypeAlias = dict[str, tuple[Cost, OrderNode]]
"""The best way to make a tensor, for each order of its indices."""


@dataclass(frozen=True)
class Costs:
    """The cost of steps.

    :ivar lengths: by letter.
    :ivar itemsize: bytes of an element.
    """

    lengths: Mapping[str, int]
    itemsize: int

    def size(self, letters: Iterable[str]) -> int:
        """The product of lengths."""
        return math.prod(self.lengths[x] for x in letters)

    def waste(self, order: str, inside: str) -> int:
        """Elements fetched for one that is used, where a product goes over the indices `inside`."""
        here = [x for x in order if x in inside]
        if not here or order[0] in inside:
            return 1
        return max(1, min(self.size(order[: order.index(here[0])]), LINE_BYTES // self.itemsize))

    def tensor(self, order: str, inside: str, quarters: int) -> tuple[int, int]:
        """The cost of reading or writing a tensor, and whether it is read with a stride."""
        waste = self.waste(order, inside)
        return self.size(order) * self.itemsize * waste * quarters, int(waste > 1)

    def again(self, loops: Iterable[str], term: str) -> int:
        """Quarters of the cost of reading a tensor that loops read again and again."""
        return 4 + min(self.size(x for x in loops if x not in term), 4) - 1

    def leaf(self, number: int, letters: str) -> Table:
        """An operand as it is, and in the orders that a transpose makes."""
        table = {letters: ((0, 0, 0, 0, letters), OrderNode(letters, operand=number))}
        return self.transposed(table, index_orders(letters, [letters]))

    def summed(self, source: Table, kept: str, hints: Sequence[str]) -> Table:
        """A tensor with some of its indices summed over."""
        table: Table = {}
        for order in index_orders(kept, hints):
            for letters, (cost, node) in source.items():
                bytes_, strided = self.tensor(letters, kept or letters, 4)
                mine = self.tensor(order, kept, 4)
                text = f"({cost[4]}>{order})"
                total = (cost[0] + bytes_ + mine[0], cost[1] + strided + mine[1], cost[2], cost[3], text)
                _offer(table, order, total, OrderNode(order, (node,)))
        return table

    def transposed(self, table: Table, wanted: Iterable[str]) -> Table:
        """The table with one more way to each order: a copy in another one."""
        found = dict(table)
        for order in wanted:
            for letters, (cost, node) in table.items():
                if letters != order and (not node.children or len(node.children) == 2):
                    bytes_ = 2 * 4 * self.size(order) * self.itemsize
                    total = (cost[0] + bytes_, cost[1], cost[2] + 1, cost[3], f"{cost[4]}~{order}")
                    _offer(found, order, total, OrderNode(order, (node,)))
        return found

    def product(self, left: Table, right: Table, kept: str, wanted: Sequence[str]) -> Table:
        """The best products of two tensors, for each wanted order of the result."""
        a, b = set(next(iter(left))), set(next(iter(right)))
        out = set(kept)
        common = a & b & out
        classes = [sorted(one) for one in ((a & out) - common, (b & out) - common, (a & b) - out)]
        known = [*left, *right, *wanted]
        table: Table = {}
        for m in _groups(classes[0], known):
            for n in _groups(classes[1], known):
                for k in _groups(classes[2], known):
                    self._products(table, left, right, wanted, common, classes, (m, n, k))
        return table

    def _products(
        self,
        table: Table,
        left: Table,
        right: Table,
        wanted: Sequence[str],
        common: set[str],
        classes: Sequence[Sequence[str]],
        groups: tuple[str, str, str],
    ) -> None:
        m, n, k = groups
        inside = m + n + k
        loops = [x for x in (*common, *classes[0], *classes[1], *classes[2]) if x not in inside]
        a = self._cheapest(left, (m, k), inside, loops)
        b = self._cheapest(right, (n, k), inside, loops)
        if a is None or b is None:
            return
        accumulates = any(x in loops for x in classes[2])
        calls = 4 * PRODUCT_BYTES * self.size(loops)
        fused = sum(len(group) - 1 for group in groups if len(group) > 1)
        between = "*".join(sorted((a[0][4], b[0][4])))
        for order in wanted:
            if m not in order or n not in order:
                continue
            bytes_, strided = self.tensor(order, inside, 8 if accumulates else 4)
            cost = (
                a[0][0] + b[0][0] + bytes_ + calls,
                a[0][1] + b[0][1] + strided,
                a[0][2] + b[0][2],
                a[0][3] + b[0][3] - fused,
                f"({between}>{order})",
            )
            _offer(table, order, cost, OrderNode(order, (a[1], b[1]), groups))

    def _cheapest(
        self, table: Table, groups: tuple[str, str], inside: str, loops: Sequence[str]
    ) -> tuple[Cost, OrderNode] | None:
        """The best order of an operand in which the groups stand together."""
        best: tuple[Cost, OrderNode] | None = None
        for order, (cost, node) in table.items():
            if groups[0] in order and groups[1] in order:
                bytes_, strided = self.tensor(order, inside, self.again(loops, order))
                total = (cost[0] + bytes_, cost[1] + strided, *cost[2:])
                if best is None or total < best[0]:
                    best = total, node
        return best


def _offer(table: Table, order: str, cost: Cost, node: OrderNode) -> None:
    if order not in table or cost < table[order][0]:
        table[order] = cost, node


def index_orders(letters: Iterable[str], hints: Sequence[str]) -> list[str]:
    """Orders of some indices that are worth trying: all of them for few, else those that terms have, and with one moved.

    >>> index_orders("ba", [])
    ['ab', 'ba']
    """
    ranked = sorted(letters)
    if len(ranked) <= MOST_PERMUTED:
        return ["".join(order) for order in permutations(ranked)]
    found = dict.fromkeys("".join(x for x in (*hint, *ranked) if x in ranked) for hint in (*hints, ""))
    plain = ["".join(dict.fromkeys(order)) for order in found]
    moved = [order.replace(x, "") for order in plain for x in ranked]
    ends = [text for order, x in zip(moved, ranked * len(plain), strict=True) for text in (x + order, order + x)]
    return list(dict.fromkeys([*plain, *ends]))


def _groups(letters: Sequence[str], known: Sequence[str]) -> Iterator[str]:
    """Groups of indices that may be treated as one: none, one, and more that stand together somewhere."""
    yield ""
    seen = set()
    for order in known:
        for start in range(len(order)):
            for stop in range(start + 1, len(order) + 1):
                group = order[start:stop]
                if not set(group) <= set(letters):
                    break
                if group not in seen:
                    seen.add(group)
                    yield group
