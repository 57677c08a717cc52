"""Factors: the factors under a sum become substitution rules, the operands of an einsum.

    sum(j, 2*a[i, j] * (u[e, j] + 3*v[e, j]) / h[e])

becomes, with the formal arguments i0, i1, ...::

    a_0(i0, i1) := 2*a[i0, i1]
    u_v_1(i0, i1) := u[i0, i1] + 3*v[i0, i1]
    h_2(i0) := 1/h[i0]
    sum(j, a_0(i, j) * u_v_1(e, j) * h_2(e))
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import loopy as lp
import numpy as np
from loopy.library.reduction import SumReductionOperation
from loopy.symbolic import Reduction, SubstitutionMapper
from pymbolic.mapper.substitutor import make_subst_func
from pymbolic.primitives import Call, Product, Quotient, Subscript, Variable

from feinsum.errors import MatchError
from feinsum.match.expression_uses import Uses, find_uses, plain_names
from feinsum.match.kernel_source import SourceKernel


def is_sum(value: Any) -> bool:
    """Whether an expression is a reduction with ``sum`` and nothing else."""
    return isinstance(value, Reduction) and type(value.operation) is SumReductionOperation


@dataclass
class _FactoredSummand:
    """A summand, taken apart: ``Π factors * Π numerators / Π denominators``, the last two constant."""

    factors: list[Any] = field(default_factory=list)
    numerators: list[Any] = field(default_factory=list)
    denominators: list[Any] = field(default_factory=list)


class Factors:
    """The rules made for factors of one kernel; equal operands at equal places share one."""

    def __init__(self, source: SourceKernel) -> None:
        self._source = source
        self.fresh = source.kernel.get_var_name_generator()
        self._known: dict[object, str] = {}
        self.rules: dict[str, lp.SubstitutionRule] = {}

    def with_rules(self, insn: Any) -> Any:
        """The instruction with rules for factors; the same if it is no plain sum or has rules for all already."""
        value: Any = getattr(insn, "expression", None)
        if not isinstance(insn, lp.Assignment) or len(find_uses(value).reductions) != is_sum(value):
            return insn
        term = _FactoredSummand()
        self._split(value.expr if is_sum(value) else value, term)
        constants = [*term.numerators, *term.denominators]
        if not term.factors or (not constants and all(map(self._is_invocation, term.factors))):
            return insn
        scaled = next((k for k, factor in enumerate(term.factors) if self.is_floating(factor)), 0)
        calls = []
        for k, factor in enumerate(term.factors):
            if k == scaled and constants:
                factor = _scale(self._inline(factor), term)
            calls.append(factor if self._is_invocation(factor) else self._make_rule(k, factor))
        product = calls[0] if len(calls) == 1 else Product(tuple(calls))
        if is_sum(value):
            product = Reduction(value.operation, value.inames, product, value.allow_simultaneous)
        return insn.copy(expression=product)

    def _split(self, expression: Any, term: _FactoredSummand) -> None:
        """Take a product apart into factors and constants."""
        if isinstance(expression, Product):
            for child in expression.children:
                self._split(child, term)
        elif self.is_constant(expression):
            if not (isinstance(expression, int) and expression == 1):
                term.numerators.append(expression)
        elif isinstance(expression, Quotient) and self.is_constant(expression.denominator):
            self._split(expression.numerator, term)
            term.denominators.append(expression.denominator)
        elif isinstance(expression, Quotient) and self.is_floating(expression.denominator):
            self._split(expression.numerator, term)
            term.factors.append(Quotient(1, expression.denominator))
        else:
            term.factors.append(expression)

    def is_constant(self, expression: Any) -> bool:
        """Whether an expression is made of numbers and value arguments."""
        uses = find_uses(expression)
        return not (uses.reads or uses.calls or uses.reductions) and all(map(self._source.is_parameter, uses.values))

    def is_floating(self, expression: Any) -> bool:
        """Whether there are arrays and all of them are known to be floating-point or complex."""
        try:
            types = [self._source.dtype(name) for name in self._source.reads(find_uses(expression))]
        except MatchError:
            return False
        return bool(types) and all(np.issubdtype(dtype, np.inexact) for dtype in types)

    def _is_invocation(self, factor: Any) -> bool:
        """Whether a factor invokes a rule at plain inames already."""
        if isinstance(factor, Call):
            plain = all(isinstance(argument, Variable) for argument in factor.parameters)
            return plain and self._source.is_rule(factor.function.name)
        return isinstance(factor, Variable) and self._source.is_rule(factor.name)

    def _inline(self, factor: Any) -> Any:
        """A factor with a rule it invokes put in, so that a scaled operand still shows its arrays."""
        if not self._is_invocation(factor):
            return factor
        facts = self._source.rule((factor.function if isinstance(factor, Call) else factor).name)
        arguments = factor.parameters if isinstance(factor, Call) else ()
        return _substitute_names(facts.expression, dict(zip(facts.arguments, arguments, strict=True)))

    def _make_rule(self, k: int, factor: Any) -> Call:
        """The invocation of a rule for the factor at place k."""
        uses = find_uses(factor)
        at = self._find_arguments(uses)
        stem = "i"
        # An argument that had the name of an array would be put in for the array too.
        while any(self._source.is_array(f"{stem}{axis}") for axis in range(len(at))):
            stem += "_"
        formal = tuple(f"{stem}{axis}" for axis in range(len(at)))
        expression = _abstract(factor, at, formal)
        # The text tells 2 from numpy.float64(2), which are equal but differ in type.
        key = (k, len(at), expression, str(expression))
        if key not in self._known:
            arrays = sorted(self._source.reads(uses))
            name = self.fresh(f"{'_'.join(arrays) or 'operand'}_{k}")
            self.rules[name] = lp.SubstitutionRule(name, formal, expression)
            self._known[key] = name
        return Call(Variable(self._known[key]), tuple(map(Variable, at)))

    def make_named(self, name: str, formal: tuple[str, ...], value: Any, inames: tuple[str, ...]) -> Call:
        """The invocation at some inames of a new rule for a value in formal arguments."""
        name = self.fresh(name)
        self.rules[name] = lp.SubstitutionRule(name, formal, value)
        return Call(Variable(name), tuple(map(Variable, inames)))

    def _find_arguments(self, uses: Uses) -> tuple[str, ...]:
        """The inames of a factor: the index tuple of its reads if that is one, or all in order of appearance."""
        inames = self._source.inames
        tuples = {index for _, index in uses.reads}
        if len(tuples) == 1:
            (index,) = tuples
            names = plain_names(index or ())
            if index is not None and len(names) == len(index) and set(names) <= inames and not uses.values & inames:
                return names
        ordered = [name for _, index in uses.reads for name in plain_names(index or ())]
        return tuple(dict.fromkeys(name for name in (*ordered, *sorted(uses.values)) if name in inames))


def _abstract(factor: Any, at: tuple[str, ...], formal: tuple[str, ...]) -> Any:
    """A factor in formal arguments; an index tuple that repeats an iname as a whole, ``a[i, i]`` as ``a[i0, i1]``."""
    if len(set(at)) == len(at):
        return _substitute_names(factor, {name: Variable(new) for name, new in zip(at, formal, strict=True)})
    index = tuple(map(Variable, formal))

    def replace(expression: Any) -> Any:
        return Subscript(expression.aggregate, index) if isinstance(expression, Subscript) else None

    return SubstitutionMapper(replace)(factor)


def _substitute_names(expression: Any, values: dict[str, Any]) -> Any:
    return SubstitutionMapper(make_subst_func(values))(expression)


def _scale(factor: Any, term: _FactoredSummand) -> Any:
    """A factor with the constants of its term."""
    scaled = Product((*term.numerators, factor)) if term.numerators else factor
    for denominator in term.denominators:
        scaled = Quotient(scaled, denominator)
    return scaled
