"""Extraction: the factors of what is summed become substitution rules, the operands of an einsum.

    y[e, i] = sum(j, 2*a[i, j] * (u[e, j] + 3*v[e, j]) / h[e])

becomes, with the formal arguments i0, i1, ...::

    a_0(i0, i1) := 2*a[i0, i1]
    u_v_1(i0, i1) := u[i0, i1] + 3*v[i0, i1]
    h_2(i0) := 1/h[i0]
    y[e, i] = sum(j, a_0(i, j) * u_v_1(e, j) * h_2(e))

The value is the same but for rounding: a constant is multiplied into one operand, and a quotient is a product with the
reciprocal where the divisor is floating-point.  A sum that is part of an expression becomes an instruction of its own::

    y[e, i] = t[e, i] + 0.5*sum(j, a[i, j]*u[e, j])

    y_sum[e, i] = sum(j, a_0(i, j) * u_1(e, j))
    y[e, i] = t[e, i] + 0.5*y_sum[e, i]
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import loopy as lp
import numpy as np
from loopy.library.reduction import SumReductionOperation
from loopy.symbolic import IdentityMapper, Reduction, SubstitutionMapper
from pymbolic.mapper.substitutor import make_subst_func
from pymbolic.primitives import Call, Product, Quotient, Subscript, Variable

from feinsum.errors import MatchError
from feinsum.match.expressions import Uses, find_uses, plain_names
from feinsum.match.group import Reader
from feinsum.match.match import choose_instructions
from feinsum.match.source import Source

_log = logging.getLogger(__name__)


def extract_operands(
    t_unit: lp.TranslationUnit,
    kernel_name: str | None = None,
    insn_match: Any = None,
    *,
    reasons: MutableMapping[str, str] | None = None,
) -> lp.TranslationUnit:
    """Turn the factors of what instructions sum into substitution rules, so that they match as einsums.

    A factor is a part of the product under the sum: an array read, or any expression.  Reads at one tuple of inames, with
    any arithmetic of them, become a rule of that tuple, which matches as the set of the arrays; any other factor a rule of
    the inames it depends on, which matches as one opaque array.  Numbers and value arguments are multiplied into a factor
    that has a floating-point array.  Invocations of rules stay as they are.

    Where a sum is not all of what is assigned, a factor before it is taken into it.  Any other goes to an array of its own,
    in global memory, from which the instruction computes the rest.

    :param kernel_name: an entry point or a kernel that others call; None for the only entry point.
    :param insn_match: the instructions, as :func:`loopy.match.parse_match` takes them.  None for those with a sum of
        which this makes an einsum; the others are left alone.
    :param reasons: takes, by its id, why an instruction that reduces is left alone; the log has it, too.
    :raises MatchError: saying why an instruction chosen by `insn_match` is no einsum even so.
    """
    source = Source.of(t_unit, kernel_name)
    extraction = _Extraction(source)
    rewritten: dict[str, _Rewritten] = {}
    for insn in choose_instructions(source, insn_match):
        if insn_match is not None or _reductions(getattr(insn, "expression", None)):
            rewritten[insn.id] = extraction.rewrite(insn)
    rules = {**source.kernel.substitutions, **extraction.rules}
    changed = _replace(source.kernel.copy(substitutions=rules), rewritten)
    reader = Reader(Source.of(t_unit.with_kernel(changed), source.kernel.name))
    accepted, used = dict[str, _Rewritten](), set[str]()
    for insn_id, made in rewritten.items():
        try:
            seen = [reader.read(einsum) for einsum in made.einsums]
        except MatchError as error:
            if insn_match is not None:
                raise
            _log.info("%s", error)
            if reasons is not None:
                reasons[insn_id] = str(error)
            continue
        accepted[insn_id] = made
        used.update(rule for one in seen for rule, _ in one.row.calls)
    if all(made.instructions == (source.kernel.id_to_insn[insn_id],) for insn_id, made in accepted.items()):
        return t_unit
    rules = {name: rule for name, rule in rules.items() if name in used or source.is_rule(name)}
    return t_unit.with_kernel(_replace(source.kernel.copy(substitutions=rules), accepted))


@dataclass(frozen=True)
class _Rewritten:
    """What takes the place of an instruction.

    :ivar einsums: its sums.
    :ivar rest: the instruction that uses them, if they are parts of an expression.
    :ivar temporaries: the arrays to which they are assigned then.
    """

    einsums: tuple[Any, ...]
    rest: tuple[Any, ...] = ()
    temporaries: tuple[lp.TemporaryVariable, ...] = ()

    @property
    def instructions(self) -> tuple[Any, ...]:
        return self.einsums + self.rest


def _replace(kernel: lp.LoopKernel, rewritten: Mapping[str, _Rewritten]) -> lp.LoopKernel:
    """The kernel with the instructions, and the arrays, that take the place of its own."""
    instructions: list[Any] = []
    for insn in kernel.instructions:
        instructions.extend(rewritten[insn.id].instructions if insn.id in rewritten else (insn,))
    new = {t.name: t for made in rewritten.values() for t in made.temporaries}
    return kernel.copy(instructions=instructions, temporary_variables={**kernel.temporary_variables, **new})


def _reductions(value: Any) -> tuple[Reduction, ...]:
    return () if value is None else find_uses(value).reductions


def _sums(value: Any) -> tuple[Reduction, ...]:
    return tuple(filter(_is_sum, _reductions(value)))


def _is_sum(value: Any) -> bool:
    return isinstance(value, Reduction) and type(value.operation) is SumReductionOperation


@dataclass
class _Term:
    """What is summed, taken apart: ``Π factors * Π numerators / Π denominators``, the last two constant."""

    factors: list[Any] = field(default_factory=list)
    numerators: list[Any] = field(default_factory=list)
    denominators: list[Any] = field(default_factory=list)


class _Extraction:
    """The rules made for the instructions of one kernel; equal operands at equal places share one."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._fresh = source.kernel.get_var_name_generator()
        self._fresh_id = source.kernel.get_instruction_id_generator()
        self._known: dict[object, str] = {}
        self.rules: dict[str, lp.SubstitutionRule] = {}

    def rewrite(self, insn: Any) -> _Rewritten:
        """The instruction with rules for factors and its sums apart; the same where nothing is to be done."""
        value: Any = getattr(insn, "expression", None)
        if isinstance(insn, lp.Assignment) and _sums(value) and not _is_sum(value):
            scaled = self._scaled_sum(value)
            if scaled is not None:
                return _Rewritten((self._with_rules(insn.copy(expression=scaled)),))
            apart = self._apart(insn)
            if apart is not None:
                return apart
        return _Rewritten((self._with_rules(insn),))

    def _scaled_sum(self, value: Any) -> Any:
        """``2*sum(j, a)`` as ``sum(j, 2*a)``; None for anything else, and where numbers may be whole."""
        if isinstance(value, Product):
            found = [child for child in value.children if not self._is_constant(child)]
            factors = [child for child in value.children if self._is_constant(child)]
            if len(found) != 1:
                return None
            inner = found[0] if _is_sum(found[0]) else self._scaled_sum(found[0])
        elif isinstance(value, Quotient) and self._is_constant(value.denominator):
            inner = value.numerator if _is_sum(value.numerator) else self._scaled_sum(value.numerator)
            factors = [Quotient(1.0, value.denominator)]
        else:
            return None
        if inner is None or not self._is_floating(inner.expr):
            return None
        return Reduction(inner.operation, inner.inames, Product((*factors, inner.expr)), inner.allow_simultaneous)

    def _apart(self, insn: Any) -> _Rewritten | None:
        """An instruction for each sum, and one for the rest; None where the result has other indices than plain inames."""
        source, target = self._source, insn.assignee
        name = target.aggregate.name if isinstance(target, Subscript) else target.name
        at = target.index_tuple if isinstance(target, Subscript) else ()
        sums = _sums(insn.expression)
        nested = len(_reductions(insn.expression)) != len(sums) or any(_sums(one.expr) for one in sums)
        if nested or len(set(at)) != len(at) or not all(isinstance(x, Variable) and x.name in source.inames for x in at):
            return None
        if not source.is_array(name) or any(name in source.reads(find_uses(one)) for one in sums):
            return None
        shape = source.kernel.get_var_descriptor(name).shape
        values, einsums, temporaries = [], [], []
        for one in sums:
            array = self._fresh(f"{name}_sum")
            values.append(Subscript(Variable(array), at) if at else Variable(array))
            made = insn.copy(
                id=self._fresh_id(f"{insn.id}_sum"), assignee=values[-1], expression=one, temp_var_type=lp.Optional()
            )
            einsums.append(self._with_rules(made))
            temporaries.append(
                lp.TemporaryVariable(array, source.dtype(name), shape=shape, address_space=lp.AddressSpace.GLOBAL)
            )
        rest = insn.copy(
            expression=_WithoutSums(values)(insn.expression),
            depends_on=insn.depends_on | {einsum.id for einsum in einsums},
        )
        return _Rewritten(tuple(einsums), (rest,), tuple(temporaries))

    def _with_rules(self, insn: Any) -> Any:
        """The instruction with rules for factors; the same if it is no plain sum or has rules for all already."""
        value: Any = getattr(insn, "expression", None)
        if not isinstance(insn, lp.Assignment) or len(find_uses(value).reductions) != _is_sum(value):
            return insn
        term = _Term()
        self._split(value.expr if _is_sum(value) else value, term)
        constants = [*term.numerators, *term.denominators]
        if not term.factors or (not constants and all(map(self._is_invocation, term.factors))):
            return insn
        scaled = next((k for k, factor in enumerate(term.factors) if self._is_floating(factor)), 0)
        calls = []
        for k, factor in enumerate(term.factors):
            if k == scaled and constants:
                factor = _scale(self._inline(factor), term)
            calls.append(factor if self._is_invocation(factor) else self._make_rule(k, factor))
        product = calls[0] if len(calls) == 1 else Product(tuple(calls))
        if _is_sum(value):
            product = Reduction(value.operation, value.inames, product, value.allow_simultaneous)
        return insn.copy(expression=product)

    def _split(self, expression: Any, term: _Term) -> None:
        """Take a product apart into factors and constants."""
        if isinstance(expression, Product):
            for child in expression.children:
                self._split(child, term)
        elif self._is_constant(expression):
            if not (isinstance(expression, int) and expression == 1):
                term.numerators.append(expression)
        elif isinstance(expression, Quotient) and self._is_constant(expression.denominator):
            self._split(expression.numerator, term)
            term.denominators.append(expression.denominator)
        elif isinstance(expression, Quotient) and self._is_floating(expression.denominator):
            self._split(expression.numerator, term)
            term.factors.append(Quotient(1, expression.denominator))
        else:
            term.factors.append(expression)

    def _is_constant(self, expression: Any) -> bool:
        """Whether an expression is made of numbers and value arguments."""
        uses = find_uses(expression)
        return not (uses.reads or uses.calls or uses.reductions) and all(map(self._source.is_parameter, uses.values))

    def _is_floating(self, expression: Any) -> bool:
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
        return _substitute(facts.expression, dict(zip(facts.arguments, arguments, strict=True)))

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
            name = self._fresh(f"{'_'.join(arrays) or 'operand'}_{k}")
            self.rules[name] = lp.SubstitutionRule(name, formal, expression)
            self._known[key] = name
        return Call(Variable(self._known[key]), tuple(map(Variable, at)))

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


class _WithoutSums(IdentityMapper):  # type: ignore[misc]  # loopy's mappers are not typed for strict checking
    """Puts one value after the other in the place of the sums of an expression."""

    def __init__(self, values: Sequence[Any]) -> None:
        super().__init__()
        self._values = iter(values)

    def map_reduction(self, expr: Any) -> Any:
        return next(self._values)


def _abstract(factor: Any, at: tuple[str, ...], formal: tuple[str, ...]) -> Any:
    """A factor in formal arguments; an index tuple that repeats an iname as a whole, ``a[i, i]`` as ``a[i0, i1]``."""
    if len(set(at)) == len(at):
        return _substitute(factor, {name: Variable(new) for name, new in zip(at, formal, strict=True)})
    index = tuple(map(Variable, formal))

    def replace(expression: Any) -> Any:
        return Subscript(expression.aggregate, index) if isinstance(expression, Subscript) else None

    return SubstitutionMapper(replace)(factor)


def _substitute(expression: Any, values: dict[str, Any]) -> Any:
    return SubstitutionMapper(make_subst_func(values))(expression)


def _scale(factor: Any, term: _Term) -> Any:
    """A factor with the constants of its term."""
    scaled = Product((*term.numerators, factor)) if term.numerators else factor
    for denominator in term.denominators:
        scaled = Quotient(scaled, denominator)
    return scaled
