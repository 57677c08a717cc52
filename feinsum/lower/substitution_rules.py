"""Substitution rules: sums of products of their calls, and how rules stay apart.

loopy merges rules with equal right-hand sides whenever it transforms a kernel.  After the first ``split_iname``, only
``A_0`` is left of ``A_0(i0, i1) := A[i0, i1]`` and ``A_1(a, b) := A[a, b]``, and a transformation of one operand would be
one of both.  A tag on the read, which changes nothing else, keeps them apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import loopy as lp
from loopy.library.reduction import SumReductionOperation
from loopy.symbolic import IdentityMapper, Reduction, RuleArgument, SubstitutionMapper, TaggedVariable
from pymbolic.mapper.substitutor import make_subst_func
from pymbolic.primitives import Call, Product, Subscript, Variable
from pytools.tag import Tag, tag_dataclass


@tag_dataclass
class RuleCopy(Tag):  # type: ignore[misc]  # pytools is not typed for strict checking
    """The number of a rule among those that read an array with the same right-hand side."""

    number: int


def rule_value(rule: lp.SubstitutionRule) -> Any:
    """The right-hand side without the names of the arguments, by which loopy takes two rules for one."""
    numbered = {name: RuleArgument(k) for k, name in enumerate(rule.arguments)}
    return SubstitutionMapper(make_subst_func(numbered))(rule.expression)


def keep_apart(rule: lp.SubstitutionRule, values: set[Any]) -> lp.SubstitutionRule:
    """A rule of the same meaning that loopy does not merge with rules of these values; its own value joins them."""
    apart, number = rule, 0
    while (value := rule_value(apart)) in values:
        number += 1
        apart = rule.copy(expression=_mark_reads(rule.expression, number))
    values.add(value)
    return apart


def _mark_reads(expression: Any, number: int) -> Any:
    """The expression with tags on its array reads; a scalar, whose tags code generation refuses, is multiplied by one."""
    marker = _Marker(number)
    marked = marker(expression)
    if not marker.found:
        for _ in range(number):
            marked = Product((1, marked))
    return marked


class _Marker(IdentityMapper[[]]):  # type: ignore[misc]  # loopy's mappers are not typed for strict checking
    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.found = False

    def map_subscript(self, expr: Any) -> Any:
        self.found = True
        tags: frozenset[Any] = getattr(expr.aggregate, "tags", frozenset())
        kept = frozenset(tag for tag in tags if not isinstance(tag, RuleCopy))
        return Subscript(TaggedVariable(expr.aggregate.name, kept | {RuleCopy(self.number)}), self.rec(expr.index))


def sum_of_calls(rules: Sequence[str], inputs: Sequence[str], summed: str, inames: Mapping[str, str]) -> Any:
    """``sum(summed, product of rules at their indices)``; without a sum where nothing is summed over."""
    calls = tuple(
        Call(Variable(rule), tuple(Variable(inames[letter]) for letter in letters))
        for rule, letters in zip(rules, inputs, strict=True)
    )
    value = calls[0] if len(calls) == 1 else Product(calls)
    if not summed:
        return value
    return Reduction(SumReductionOperation(), tuple(inames[letter] for letter in summed), value)
