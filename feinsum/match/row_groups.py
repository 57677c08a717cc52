"""Rows that belong together: the same indexing expression under other names of loops, and independent of each other.

    y0[e, i] = sum(j, D(i, j)*u(e, j))        and        y1[p, q] = sum(r, v(p, r)*D(q, r))

are two rows of ``ij,ej->ei``; the second with its operands in the order (1, 0) and p, q, r for e, i, j.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loopy.symbolic import SubstitutionMapper
from pymbolic.mapper.substitutor import make_subst_func
from pymbolic.primitives import Variable

from feinsum.match.einsum_grammar import Row
from feinsum.match.kernel_source import SourceKernel
from feinsum.subscripts import extended_bijection


@dataclass(frozen=True)
class Correspondence:
    """How a row reads in the terms of another.

    :ivar operands: operand k of the other row corresponds to operand ``operands[k]`` of this one.
    :ivar inames: iname of the other row -> iname of this one.
    """

    operands: tuple[int, ...]
    inames: Mapping[str, str]


def find_correspondence(first: Row, row: Row) -> Correspondence | None:
    """How `row` reads in the terms of `first`; None if it is another einsum or guarded by another predicate.

    Operands keep their order where that is possible.
    """
    if len(first.calls) != len(row.calls) or len(first.inames) != len(row.inames):
        return None
    start = _unify_inames(first, row, first.free, row.free, {})
    found = None if start is None else _assign_operands(first, row, (), start)
    if found is None or rename_inames(first.predicates, found.inames) != row.predicates:
        return None
    return found


def _assign_operands(first: Row, row: Row, operands: tuple[int, ...], inames: Mapping[str, str]) -> Correspondence | None:
    """Assign an operand of `row` to the next one of `first`, and so on, going back where that fails."""
    k = len(operands)
    if k == len(first.calls):
        return Correspondence(operands, inames)
    for candidate in sorted(range(len(row.calls)), key=lambda c: (c != k, c)):
        if candidate in operands:
            continue
        extended = _unify_inames(first, row, first.calls[k][1], row.calls[candidate][1], inames)
        found = None if extended is None else _assign_operands(first, row, (*operands, candidate), extended)
        if found is not None:
            return found
    return None


def _unify_inames(
    first: Row, row: Row, ours: Sequence[str], theirs: Sequence[str], inames: Mapping[str, str]
) -> dict[str, str] | None:
    """The one-to-one map `inames` extended so that `ours` reads `theirs` with equal lengths, or None."""
    extended = extended_bijection(ours, theirs, inames)
    return extended if extended is not None and all(first.lengths[a] == row.lengths[extended[a]] for a in ours) else None


def rename_inames(expressions: frozenset[Any], inames: Mapping[str, str]) -> frozenset[Any]:
    """The expressions with inames replaced."""
    if not expressions:
        return expressions
    mapper = SubstitutionMapper(make_subst_func({old: Variable(new) for old, new in inames.items()}))
    return frozenset(mapper(expression) for expression in expressions)


class InstructionOrder:
    """Which instructions must come after which, from the dependencies of a kernel."""

    def __init__(self, source: SourceKernel) -> None:
        instructions = source.kernel.instructions
        self._bit = {insn.id: 1 << k for k, insn in enumerate(instructions)}
        self._before: dict[str, int] = {}
        self._depends = {insn.id: insn.depends_on for insn in instructions}

    def mask(self, insn_ids: Iterable[str]) -> int:
        """A set of instructions as bits."""
        return sum(self._bit[insn_id] for insn_id in set(insn_ids))

    def before(self, insn_id: str) -> int:
        """The instructions that come before one, directly or through others, as bits."""
        todo, seen = [insn_id], set[str]()
        while todo:
            current = todo[-1]
            depends = [other for other in self._depends[current] if other in self._bit]
            if current not in seen and current not in self._before:
                seen.add(current)
                todo += [other for other in depends if other not in self._before and other not in seen]
                continue
            todo.pop()
            reached = self.mask(depends)
            for other in depends:
                reached |= self._before.get(other, 0)
            self._before[current] = reached
        return self._before[insn_id]
