"""The arrays behind an operand: the set that its substitution rule reads, or one opaque array.

A rule ``f(i0, i1) := u[i0, i1] + 2*v[i0, i1]`` is the set {u, v}: every array is read at exactly the formal arguments,
by itself or by another rule that it invokes at them, and nothing else depends on them.  Constants, value arguments and
functions may stand around the reads; the element type must be the :func:`numpy.result_type` of the arrays.  Anything else
(offset or permuted reads, several index tuples, further rules at other indices, constants alone) is one opaque array with
the name of the rule and the type that loopy infers.

An array that is converted to the type of the row where it is read, as lowering does for operands of mixed types, counts
with its own type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from loopy.symbolic import SubstitutionRuleExpander
from pymbolic.primitives import Subscript, Variable

from feinsum.einsum import DTYPES
from feinsum.errors import MatchError
from feinsum.match.einsum_grammar import Row, Rule, refuse
from feinsum.match.expression_uses import find_uses
from feinsum.match.inference import Inference, strip_casts
from feinsum.match.kernel_source import RuleFacts, SourceKernel


@dataclass(frozen=True)
class RowOperand:
    """One operand of one row.

    :ivar arrays: name in the kernel and element type of each array, or of the rule that stands for one.
    :ivar opaque: whether it is a rule that stands for an array.
    """

    arrays: tuple[tuple[str, np.dtype[Any]], ...]
    opaque: bool


@dataclass(frozen=True)
class _RuleReads:
    """The arrays that a rule reads at its formal arguments, and those it converts on the way, with the new type."""

    names: tuple[str, ...]
    casts: frozenset[tuple[str, np.dtype[Any]]]


class OperandReader:
    """Reads the operands of the rows of one kernel; a rule is looked into once."""

    def __init__(self, source: SourceKernel) -> None:
        self.source = source
        self._inference = Inference(source)
        self._reads: dict[str, _RuleReads | None] = {}

    def read(self, row: Row) -> tuple[RowOperand, ...]:
        """The operands of a row.

        :raises MatchError: if their types are not known or do not give the type of the output.
        """
        try:
            return self._read(row)
        except MatchError as error:
            raise refuse(row.insn_id, Rule.READING, str(error)) from None

    def _read(self, row: Row) -> tuple[RowOperand, ...]:
        target = self.source.dtype(row.output)
        given = []
        for see_through in (True, False):
            operands = tuple(self._operand(name, target, see_through) for name, _ in row.calls)
            types = {dtype: name for operand in operands for name, dtype in operand.arrays}
            for dtype in types:
                if dtype not in DTYPES:
                    raise MatchError(f"'{types[dtype]}' is {dtype}; arrays are {', '.join(map(str, DTYPES))}")
            given.append(np.result_type(*types))
            if given[-1] == target:
                return operands
        raise MatchError(
            f"'{row.output}' is {target} but the operands give {given[0]};"
            " give the output that type, or convert operands in their substitution rules"
        )

    def _operand(self, name: str, target: np.dtype[Any], see_through: bool) -> RowOperand:
        """One operand; `see_through` says whether an array that the rule converts counts with its own type."""
        facts = self.source.rule(name)
        reads = self._find_reads(facts)
        if reads is not None:
            types = [self.source.dtype(array) for array in reads.names]
            computed = self._inference.infer(facts, target)
            if reads.casts:
                real = np.empty(0, target).real.dtype
                exact = all(np.can_cast(self.source.dtype(array), cast) for array, cast in reads.casts)
                plain = see_through and exact and {target, real} >= {computed, *(cast for _, cast in reads.casts)}
            else:
                plain = computed == np.result_type(*types)
            if plain:
                return RowOperand(tuple(zip(reads.names, types, strict=True)), opaque=False)
        return RowOperand(((name, self._inference.infer(facts, target)),), opaque=True)

    def _find_reads(self, facts: RuleFacts) -> _RuleReads | None:
        if facts.name not in self._reads:
            self._reads[facts.name] = _read_at_arguments(self.source, facts)
        return self._reads[facts.name]


def _read_at_arguments(source: SourceKernel, facts: RuleFacts) -> _RuleReads | None:
    """The arrays, if the rule is a function of arrays read at exactly its formal arguments and of nothing else."""
    at = tuple(Variable(name) for name in facts.arguments)
    expression, casts = facts.expression, frozenset[tuple[str, np.dtype[Any]]]()
    if any(True for _ in source.called_rules(facts.uses)):
        expression = SubstitutionRuleExpander(source.kernel.substitutions)(expression)
    uses = find_uses(expression)
    if uses.sized:
        stripped, casts = strip_casts(expression, lambda read: _is_read(source, read, at))
        uses = find_uses(stripped)
    if any(index != at for _, index in uses.reads):
        return None
    alone = {name for name in uses.values if not source.is_parameter(name)}
    names = {name for name, _ in uses.reads} | alone
    if (alone and at) or not names or not all(source.is_array(name) for name in names):
        return None
    return _RuleReads(tuple(sorted(names)), casts)


def _is_read(source: SourceKernel, expression: Any, at: tuple[Variable, ...]) -> bool:
    """Whether an expression is the element of an array at some index tuple."""
    if isinstance(expression, Subscript):
        return bool(expression.index_tuple == at)
    return not at and isinstance(expression, Variable) and source.is_array(expression.name)
