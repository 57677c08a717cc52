"""The uses in an expression of loopy: the arrays it reads and where, its names, calls and reductions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from loopy.symbolic import Reduction, WalkMapper
from pymbolic.primitives import Product, Sum, Variable


@dataclass(frozen=True)
class Uses:
    """The uses in an expression.

    :ivar reads: the name and the index tuple of every subscript; None for an index that is no tuple.
    :ivar values: names that stand alone, which are scalars, inames, parameters or formal arguments.
    :ivar calls: the name and the arguments of every call, substitution rules among them.
    :ivar reductions: every reduction.
    :ivar sized: whether a part has a type of its own that is not the one of an array: a cast or a numpy scalar.
    """

    reads: tuple[tuple[str, tuple[Any, ...] | None], ...]
    values: frozenset[str]
    calls: tuple[tuple[str, tuple[Any, ...]], ...]
    reductions: tuple[Reduction, ...]
    sized: bool

    @property
    def variables(self) -> frozenset[str]:
        """Every name in the expression but those of arrays with subscripts, functions and rules."""
        return self.values | {name for _, at in self.reads for name in plain_names(at or ())}


class _Collector(WalkMapper[[]]):  # type: ignore[misc]  # loopy's mappers are not typed for strict checking
    def __init__(self) -> None:
        super().__init__()
        self.reads: list[tuple[str, tuple[Any, ...] | None]] = []
        self.values: set[str] = set()
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.reductions: list[Reduction] = []
        self.sized = False

    def map_variable(self, expr: Any) -> None:
        self.values.add(expr.name)

    map_tagged_variable = map_variable

    def map_constant(self, expr: Any) -> None:
        self.sized = self.sized or isinstance(expr, np.generic)

    def map_subscript(self, expr: Any) -> None:
        self.reads.append((expr.aggregate.name, expr.index_tuple))
        for index in expr.index_tuple:
            if not isinstance(index, Variable):
                self.rec(index)

    def map_linear_subscript(self, expr: Any) -> None:
        self.reads.append((expr.aggregate.name, None))
        self.rec(expr.index)

    def map_sub_array_ref(self, expr: Any) -> None:
        self.reads.append((expr.subscript.aggregate.name, None))
        self.rec(expr.subscript.index_tuple)

    def map_call(self, expr: Any) -> None:
        self.calls.append((expr.function.name, expr.parameters))
        self.rec(expr.parameters)

    def map_call_with_kwargs(self, expr: Any) -> None:
        parameters = (*expr.parameters, *expr.kw_parameters.values())
        self.calls.append((expr.function.name, parameters))
        self.rec(parameters)

    def map_reduction(self, expr: Any) -> None:
        self.reductions.append(expr)
        self.rec(expr.expr)

    def map_type_cast(self, expr: Any) -> None:
        self.sized = True
        self.rec(expr.child)


def find_uses(*expressions: Any) -> Uses:
    """The uses in all of the expressions."""
    found = _Collector()
    for expression in expressions:
        found(expression)
    return Uses(tuple(found.reads), frozenset(found.values), tuple(found.calls), tuple(found.reductions), found.sized)


def plain_names(expressions: tuple[Any, ...]) -> tuple[str, ...]:
    """The names of those expressions that are a name and nothing else."""
    return tuple(expression.name for expression in expressions if isinstance(expression, Variable))


def flatten_product(expression: Any) -> Iterator[Any]:
    """The factors of nested products, in order: ``(a*(b*c))*d`` gives a, b, c, d."""
    if isinstance(expression, Product):
        for child in expression.children:
            yield from flatten_product(child)
    else:
        yield expression


def flatten_sum(expression: Any) -> Iterator[Any]:
    """The terms of nested sums, in order."""
    if isinstance(expression, Sum):
        for child in expression.children:
            yield from flatten_sum(child)
    else:
        yield expression
