"""The reads of an expression: subscripts of arrays, also those behind substitution rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import loopy as lp
from loopy.symbolic import CombineMapper, IdentityMapper, SubstitutionMapper
from pymbolic.mapper.substitutor import make_subst_func
from pymbolic.primitives import Call, Subscript


def with_rules(kernel: lp.LoopKernel, expression: Any) -> Any:
    """An expression with the right-hand sides of substitution rules in place of their calls."""
    return _Rules(kernel)(expression)


def with_calls(expression: Any, replacement: Callable[[Call], Any]) -> Any:
    """An expression with replacements of its calls."""
    return _CallCollector(replacement)(expression)


def subscripts_in(expression: Any) -> frozenset[Subscript]:
    """Every subscript of an expression."""
    found: frozenset[Subscript] = _SubscriptCollector()(expression)
    return found


class _Rules(IdentityMapper):  # type: ignore[misc]
    def __init__(self, kernel: lp.LoopKernel) -> None:
        super().__init__()
        self.rules = kernel.substitutions

    def map_call(self, expr: Any) -> Any:
        rule = self.rules.get(getattr(expr.function, "name", None))
        if rule is None:
            return super().map_call(expr)
        arguments = dict(zip(rule.arguments, map(self.rec, expr.parameters), strict=True))
        return self.rec(SubstitutionMapper(make_subst_func(arguments))(rule.expression))


class _CallCollector(IdentityMapper):  # type: ignore[misc]
    def __init__(self, replacement: Callable[[Call], Any]) -> None:
        super().__init__()
        self.replacement = replacement

    def map_call(self, expr: Call) -> Any:
        return self.replacement(expr)


class _SubscriptCollector(CombineMapper):  # type: ignore[misc]
    def combine(self, values: Any) -> frozenset[Any]:
        return frozenset[Any]().union(*values)

    def map_subscript(self, expr: Any) -> frozenset[Any]:
        return frozenset([expr])

    def map_constant(self, expr: Any) -> frozenset[Any]:
        return frozenset()

    map_variable = map_function_symbol = map_resolved_function = map_constant
