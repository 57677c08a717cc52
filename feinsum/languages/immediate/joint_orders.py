"""Orders of contraction for several outputs, chosen together: what two of them need is computed, and counted, once.

Each output takes a tree of pairwise products of its own.  Trees of up to 1.25 times the operations of the best one come
into question; the choice of one for each output that has the fewest operations in all is found by branch and bound.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from feinsum.languages.immediate.planner import Operands, Planner, Tree

MOST_ENUMERATED: Final = 6
"""Operands of which every tree is looked at: 945 of six."""
_SLACK: Final = 1.25
"""Operations of a tree on its own over those of the best one, up to which it is looked at."""
_FEW_TREES: Final = 15
"""The number of trees of four operands.  Of so few, each is tried that may be best for all outputs together: a tree takes
at least its own operations, and the best one at most so many for each output."""
_MOST_TREES: Final = 64
"""The most trees of one output."""
_MOST_VISITED: Final = 1 << 16
"""Choices that are looked at; then the best so far is taken."""


@dataclass(frozen=True)
class _Candidate:
    """A tree for one output.

    :ivar work: the operations of each of its partial results and of the result, by what these are.
    """

    tree: Tree
    work: Mapping[Hashable, int]

    @property
    def flops(self) -> int:
        """Operations of the tree on its own."""
        return sum(self.work.values())


def trees_together(planner: Planner, rows: Sequence[Sequence[Hashable]], given: Tree) -> list[Tree]:
    """A tree for each output.

    :param planner: of the expression that all outputs have in common.
    :param rows: what the operands of each output are.
    :param given: a tree for all outputs.
    :returns: trees that have no more operations than that, nor than operands from left to right.
    """
    operands = frozenset(range(len(rows[0])))
    found = list(_trees(operands)) if len(operands) <= MOST_ENUMERATED else [given, _left_to_right(len(operands))]
    flops = [sum(planner.work_of(tree).values()) for tree in found]
    kept = sorted(range(len(found)), key=lambda k: (flops[k], planner.text(found[k])))
    slack = _SLACK if len(found) > _FEW_TREES else max(_SLACK, len(rows))
    kept = [k for k in kept if flops[k] <= slack * flops[kept[0]]][:_MOST_TREES]
    choices = [found[k] for k in kept]
    each = [[_candidate_tree(planner, tree, row, number) for tree in choices] for number, row in enumerate(rows)]
    same = [_candidate_tree(planner, given, row, number) for number, row in enumerate(rows)]
    return [one.tree for one in _BranchAndBound(each, same).best]


def total_work(planner: Planner, rows: Sequence[Sequence[Hashable]], trees: Sequence[Tree]) -> int:
    """The operations of all outputs, what several need counted once."""
    return _total_operations(
        [_candidate_tree(planner, tree, row, k) for k, (row, tree) in enumerate(zip(rows, trees, strict=True))]
    )


def _trees(operands: Operands) -> Iterator[Tree]:
    """Every tree of pairwise products."""
    if len(operands) == 1:
        yield {}
        return
    first, *rest = sorted(operands)
    for bits in range(2 ** len(rest) - 1):
        left = frozenset([first, *(x for k, x in enumerate(rest) if bits >> k & 1)])
        for one in _trees(left):
            for other in _trees(operands - left):
                yield {operands: (left, operands - left), **one, **other}


def _left_to_right(count: int) -> Tree:
    """Operands as they stand, from left to right."""
    return {frozenset(range(k + 1)): (frozenset(range(k)), frozenset([k])) for k in range(1, count)}


def _candidate_tree(planner: Planner, tree: Tree, row: Sequence[Hashable], number: int) -> _Candidate:
    work: dict[Hashable, int] = {}
    for operands, flops in planner.work_of(tree).items():
        inside = frozenset(part for part in tree if part <= operands)
        # the result of an output is its own, also where another one has the same operands
        own = number if len(operands) == len(row) else None
        work[inside, frozenset((k, row[k]) for k in operands), own] = flops
    return _Candidate(tree, work)


def _total_operations(chosen: Sequence[_Candidate]) -> int:
    together: dict[Hashable, int] = {}
    for one in chosen:
        together.update(one.work)
    return sum(together.values())


class _BranchAndBound:
    """Branch and bound: outputs one after the other, and of each the trees that add the fewest operations first.

    :ivar best: the choice with the fewest operations that was found; of equal ones the first.
    """

    def __init__(self, each: Sequence[Sequence[_Candidate]], given: Sequence[_Candidate]) -> None:
        self._each, self._visited = each, 0
        self.best: Sequence[_Candidate] = given
        self._least = _total_operations(given)
        self._descend([], {}, 0)

    def _descend(self, chosen: list[_Candidate], made: Mapping[Hashable, int], total: int) -> None:
        if len(chosen) == len(self._each):
            if total < self._least:
                self.best, self._least = tuple(chosen), total
            return
        added = [sum(n for key, n in one.work.items() if key not in made) for one in self._each[len(chosen)]]
        for k in sorted(range(len(added)), key=added.__getitem__):
            self._visited += 1
            if total + added[k] >= self._least or self._visited > _MOST_VISITED:
                return
            one = self._each[len(chosen)][k]
            self._descend([*chosen, one], {**made, **one.work}, total + added[k])
