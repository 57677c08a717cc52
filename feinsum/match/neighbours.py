"""Other instructions in the loops around a row: whether the row can have loops of its own.

A transformation treats the loops of a batched einsum as its own, as if they were written apart from the rest::

    for e:                                       for e:
        t[e] = a[e] + 1                              t[e] = a[e] + 1
        y[e] = sum(j, D(j) * t_(e))    becomes   for e_0:
                                                     y[e_0] = sum(j, D(j) * t_(e_0))

That is the same computation if each array that one instruction writes is accessed by the other in the same iteration only.
A scalar t, overwritten in every iteration, would be an operand that is no array.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from loopy.kernel.instruction import MultiAssignmentBase

from feinsum.match.einsum_grammar import Row, Rule, refuse
from feinsum.match.expression_uses import Uses, find_uses
from feinsum.match.kernel_source import SourceKernel

Place = tuple[str | None, ...] | None
"""Where an array is accessed: the name at each axis (None for an expression), or None where that is not known."""


@dataclass(frozen=True)
class _Accesses:
    """The reads and writes of an instruction."""

    reads: Uses
    writes: Uses


class Neighbours:
    """The instructions of a kernel, by the arrays they access."""

    def __init__(self, source: SourceKernel) -> None:
        self._source = source
        self._accesses = {insn.id: _find_accesses(insn) for insn in source.kernel.instructions}
        self._readers: dict[str, list[str]] = defaultdict(list)
        self._writers: dict[str, list[str]] = defaultdict(list)
        for insn_id, accesses in self._accesses.items():
            for uses, having in ((accesses.reads, self._readers), (accesses.writes, self._writers)):
                for array in source.reads(uses):
                    having[array].append(insn_id)

    def check(self, row: Row) -> None:
        """Check that a row does not depend on running in the same loops as other instructions.

        :raises MatchError: naming the instruction, the array and the loop.
        """
        own, pair = self._accesses[row.insn_id], (row.insn_id, row.free)
        self.check_reads(row.insn_id, row.free, row.reads)
        for insn_id in self._writers[row.output]:
            self._check_pair(*pair, row.output, own.writes, insn_id, "writes", self._accesses[insn_id].writes)
        for insn_id in self._readers[row.output]:
            self._check_pair(*pair, row.output, own.writes, insn_id, "reads", self._accesses[insn_id].reads)

    def check_reads(self, own_id: str, loops: tuple[str, ...], arrays: Iterable[str]) -> None:
        """Check that arrays which an instruction in `loops` reads are written in the same iteration of shared loops.

        :raises MatchError: naming the instruction, the array and the loop.
        """
        for array in sorted(arrays):
            for insn_id in self._writers[array]:
                reads, writes = self._accesses[own_id].reads, self._accesses[insn_id].writes
                self._check_pair(own_id, loops, array, reads, insn_id, "writes", writes)

    def users(self, array: str) -> frozenset[str]:
        """The instructions that access an array, directly or by substitution rules."""
        return frozenset((*self._readers[array], *self._writers[array]))

    def shared_arrays(self, one: str, other: str, loops: frozenset[str]) -> dict[str, bool]:
        """The arrays that one of two instructions writes and both access: whether in the same iteration of loops only."""
        ours, theirs = self._accesses[one], self._accesses[other]
        found: dict[str, bool] = {}
        for here, there in ((ours.writes, theirs.reads), (ours.writes, theirs.writes), (ours.reads, theirs.writes)):
            for array in sorted(self._source.reads(here) & self._source.reads(there)):
                places = product(self._places(here, array), self._places(there, array))
                apart = bool(loops) and all(_in_same_iteration(a, b, loops) for a, b in places)
                found[array] = found.get(array, True) and apart
        return found

    def _check_pair(
        self, own_id: str, loops: tuple[str, ...], array: str, ours: Uses, insn_id: str, verb: str, theirs: Uses
    ) -> None:
        shared = frozenset(self._source.kernel.id_to_insn[insn_id].within_inames).intersection(loops)
        if insn_id == own_id or not shared:
            return
        for here in self._places(ours, array):
            for there in self._places(theirs, array):
                if not _in_same_iteration(here, there, shared):
                    raise refuse(
                        own_id,
                        Rule.SEPARABLE,
                        f"'{insn_id}' {verb} '{array}' in the same loop '{min(shared)}', but not only the element of"
                        " the same iteration; give one of them other loops with loopy.duplicate_inames",
                    )

    def _places(self, uses: Uses, array: str) -> Iterator[Place]:
        """Where an array is accessed, directly or by substitution rules."""
        for name, index in uses.reads:
            if name == array:
                yield None if index is None else tuple(getattr(entry, "name", None) for entry in index)
        if array in uses.values:
            yield ()
        for name, arguments in uses.calls:
            if self._source.is_rule(name) and array in self._source.rule(name).reads:
                yield from self._places_behind(name, arguments, array)

    def _places_behind(self, name: str, arguments: tuple[Any, ...], array: str) -> Iterator[Place]:
        """Where the invocation of a rule accesses an array; None for what a rule that it calls does."""
        facts = self._source.rule(name)
        actual = dict(zip(facts.arguments, (getattr(argument, "name", None) for argument in arguments), strict=True))
        if any(array in self._source.rule(other).reads for other in self._source.called_rules(facts.uses)):
            yield None
        for place in self._places(replace(facts.uses, calls=()), array):
            yield None if place is None else tuple(actual.get(entry or "", entry) for entry in place)


def _find_accesses(insn: Any) -> _Accesses:
    if not isinstance(insn, MultiAssignmentBase):
        return _Accesses(_somewhere(insn.read_dependency_names()), _somewhere(insn.write_dependency_names()))
    indices = [entry for target in insn.assignees for entry in getattr(target, "index_tuple", ())]
    return _Accesses(find_uses(insn.expression, *indices, *insn.predicates), find_uses(*insn.assignees))


def _somewhere(names: Iterable[str]) -> Uses:
    """Accesses of which the index is not known."""
    return Uses(tuple((name, None) for name in names), frozenset(), (), (), sized=False)


def _in_same_iteration(here: Place, there: Place, shared: frozenset[str]) -> bool:
    """Whether both accesses have each shared iname at the same axis, so that iterations touch different elements."""
    if here is None or there is None:
        return False
    return all(any(a == b == iname for a, b in zip(here, there, strict=False)) for iname in shared)
