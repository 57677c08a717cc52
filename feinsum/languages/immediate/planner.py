"""Planning: an einsum as loops over matrix products, in the fewest operations and the cheapest orders of partial results.

First indices of one operand alone are summed.  Then every set of operands is split in two in every way (dynamic programming
over subsets); among the splits with the fewest operations the orders of partial results decide (:mod:`.index_orders`).  Of
several outputs the trees are given (:mod:`.joint_orders`), and what one of them has made costs the others nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

from feinsum.errors import SubscriptError
from feinsum.languages.immediate.index_orders import Cost, Costs, OrderNode, Table, index_orders

MOST_OPERANDS: Final = 10
"""Every set of them is looked at: 59 049 splits of ten."""

Operands: TypeAlias = frozenset[int]
Path: TypeAlias = Sequence[tuple[int, ...]]
Tree: TypeAlias = Mapping[Operands, tuple[Operands, Operands]]
"""The two parts of each set of operands that is multiplied."""


@dataclass(frozen=True)
class Expression:
    """An einsum in the letters and orders of the language, the fastest index of each term first.

    :ivar terms: of the operands.
    :ivar lengths: by letter.
    :ivar itemsize: bytes of an element.
    """

    terms: tuple[str, ...]
    output: str
    lengths: Mapping[str, int]
    itemsize: int = 8

    def __post_init__(self) -> None:
        for term in (*self.terms, self.output):
            if len(set(term)) < len(term):
                raise SubscriptError(f"'{term}' has an index twice; the immediate language has no diagonals")
        for letter in self.output:
            if not any(letter in term for term in self.terms):
                raise SubscriptError(f"index '{letter}' of the output is in no operand")


class Planner:
    """Finds the best schedule of an expression.

    :param tree: the order of contraction, if it is given.
    :param made: partial results that are there for nothing, as they lie.
    """

    def __init__(
        self, expression: Expression, tree: Tree | None = None, made: Mapping[Operands, OrderNode] | None = None
    ) -> None:
        self._e = expression
        self._costs = Costs(expression.lengths, expression.itemsize)
        self._everything: Operands = frozenset(range(len(expression.terms)))
        self._flops: dict[Operands, int] = {}
        self._tables: dict[Operands, Table] = {}
        self._given, self._made = tree, dict(made or {})
        if tree is None and len(expression.terms) > MOST_OPERANDS:
            raise SubscriptError(
                f"'{expression}' has {len(expression.terms)} operands; orders of up to {MOST_OPERANDS} are searched"
            )

    @cached_property
    def best(self) -> tuple[Cost, OrderNode]:
        """The cost of the best schedule, and the schedule."""
        return self._table(self._everything)[self._e.output]

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return self._least(self._everything)

    def work_of(self, tree: Tree) -> dict[Operands, int]:
        """The operations of each set of operands in a tree, and of each operand that is summed by itself."""
        work = {frozenset([k]): self._least(frozenset([k])) for k in self._everything}
        work |= {operands: self._work(*parts) for operands, parts in tree.items()}
        return {operands: flops for operands, flops in work.items() if flops}

    def text(self, tree: Tree) -> str:
        """A tree as a text that does not depend on the order of operands that have other indices.

        >>> Planner(Expression(("ij", "jk", "kl"), "il", dict.fromkeys("ijkl", 2))).text(tree_of([(1, 2), (0, 1)], 3))
        '((jk kl) ij)'
        """

        def show(operands: Operands) -> str:
            if operands not in tree:
                return " ".join(self._e.terms[k] for k in operands)
            return f"({' '.join(sorted(map(show, tree[operands])))})"

        return show(self._everything)

    def kept(self, operands: Operands) -> str:
        """The indices of the product of some operands that are needed elsewhere, sorted."""
        inside = {x for k in operands for x in self._e.terms[k]}
        outside = {x for k in self._everything - operands for x in self._e.terms[k]} | set(self._e.output)
        return "".join(sorted(inside & outside))

    def _splits(self, operands: Operands) -> Iterator[tuple[Operands, Operands]]:
        """Every pair of sets that some operands are of; the first has the first operand."""
        if self._given is not None:
            yield self._given[operands]
            return
        first, *rest = sorted(operands)
        for bits in range(2 ** len(rest) - 1):
            left = frozenset([first, *(x for k, x in enumerate(rest) if bits >> k & 1)])
            yield left, operands - left

    def _work(self, left: Operands, right: Operands) -> int:
        """Operations of a product of two partial results."""
        involved = set(self.kept(left)) | set(self.kept(right))
        return self._costs.size(involved) * (1 + (involved != set(self.kept(left | right))))

    def _least(self, operands: Operands) -> int:
        """The fewest operations for the product of some operands."""
        if operands not in self._flops:
            if len(operands) == 1:
                (k,) = operands
                term = self._e.terms[k]
                self._flops[operands] = 0 if len(self.kept(operands)) == len(term) else self._costs.size(term)
            else:
                pairs = self._splits(operands)
                self._flops[operands] = min(self._least(a) + self._least(b) + self._work(a, b) for a, b in pairs)
        return self._flops[operands]

    def _table(self, operands: Operands) -> Table:
        if operands not in self._tables:
            make = self._there if operands in self._made else self._leaf if len(operands) == 1 else self._inner
            self._tables[operands] = make(operands)
        return self._tables[operands]

    def _there(self, operands: Operands) -> Table:
        node = self._made[operands]
        table: Table = {node.letters: ((0, 0, 0, 0, f"<{node.letters}>"), node)}
        return self._costs.transposed(table, self._orders(operands))

    def _hints(self) -> list[str]:
        return sorted({*self._e.terms, self._e.output})

    def _orders(self, operands: Operands) -> list[str]:
        return index_orders(self.kept(operands), self._hints())

    def _leaf(self, operands: Operands) -> Table:
        (k,) = operands
        kept = self.kept(operands)
        table = self._costs.leaf(k, self._e.terms[k])
        if len(kept) < len(self._e.terms[k]):
            table = self._costs.summed({self._e.terms[k]: table[self._e.terms[k]]}, kept, self._hints())
        elif operands == self._everything and self._e.output not in table:
            table = self._costs.transposed({self._e.terms[k]: table[self._e.terms[k]]}, [self._e.output])
        return table

    def _inner(self, operands: Operands) -> Table:
        wanted = self._orders(operands)
        if operands == self._everything:
            wanted = list(dict.fromkeys([*wanted, self._e.output]))
        found: Table = {}
        for left, right in self._splits(operands):
            if self._least(left) + self._least(right) + self._work(left, right) > self._least(operands):
                continue
            mine = self._costs.product(self._table(left), self._table(right), self.kept(operands), wanted)
            for order, one in mine.items():
                if order not in found or one[0] < found[order][0]:
                    found[order] = one
        return self._costs.transposed(found, wanted)


def tree_of(path: Path, count: int) -> Tree:
    """The tree of a path: positions of operands for each step, as in opt_einsum.

    >>> [sorted(map(sorted, parts)) for parts in tree_of([(1, 2), (0, 1)], 3).values()]
    [[[1], [2]], [[0], [1, 2]]]
    """
    return dict(_splits_of(path, count))


def _splits_of(path: Path, count: int) -> Iterator[tuple[Operands, tuple[Operands, Operands]]]:
    pool: list[Operands] = [frozenset([k]) for k in range(count)]
    for positions in path:
        taken = [pool[k] for k in positions]
        pool = [one for k, one in enumerate(pool) if k not in positions]
        while len(taken) > 1:
            left, right, *rest = taken
            yield left | right, (left, right)
            taken = [left | right, *rest]
        pool += taken
    while len(pool) > 1:
        left, right, *rest = pool
        yield left | right, (left, right)
        pool = [left | right, *rest]
