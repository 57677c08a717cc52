"""Sums in expressions: each becomes an instruction of its own, which assigns it to an array.

    y[e, i] = t[e, i] + 0.5*sum(j, a[i, j]*u[e, j])

    y_sum[e, i] = sum(j, a_0(i, j) * u_1(e, j))
    y[e, i] = t[e, i] + 0.5*y_sum[e, i]

A factor before a sum that is all of the expression is taken into the sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import loopy as lp
from loopy.symbolic import IdentityMapper, Reduction, SubstitutionMapper
from pymbolic import parse
from pymbolic.primitives import Product, Quotient, Subscript, Variable

from feinsum.errors import MatchError
from feinsum.match.affine_indices import collect_affine, rename_expression
from feinsum.match.domain import find_lengths
from feinsum.match.expression_uses import find_uses
from feinsum.match.factors import Factors, is_sum
from feinsum.match.flat import FlatStore, unflatten
from feinsum.match.kernel_source import SourceKernel
from feinsum.match.merging import merge_sums


@dataclass(frozen=True)
class Rewritten:
    """The replacement of an instruction.

    :ivar einsums: its sums.
    :ivar rest: the instruction that uses them, if they are parts of an expression.
    :ivar temporaries: the arrays to which they are assigned then.
    :ivar finished: whether the rest is an einsum with an epilogue.
    :ivar lengths: of inames that are new.
    """

    einsums: tuple[Any, ...]
    rest: tuple[Any, ...] = ()
    temporaries: tuple[lp.TemporaryVariable, ...] = ()
    finished: bool = False
    lengths: Mapping[str, int] = field(default_factory=dict)

    @property
    def instructions(self) -> tuple[Any, ...]:
        """All of it, in order."""
        return self.einsums + self.rest


def find_reductions(value: Any) -> tuple[Reduction, ...]:
    """The reductions in an expression, if there is one."""
    return () if value is None else find_uses(value).reductions


def _nested_sums(value: Any) -> tuple[Reduction, ...]:
    return tuple(filter(is_sum, find_reductions(value)))


class Sums:
    """Takes the sums of instructions of one kernel apart."""

    def __init__(self, source: SourceKernel, factors: Factors) -> None:
        self._source = source
        self._factors = factors
        self._fresh_id = source.kernel.get_instruction_id_generator()

    def rewrite_whole(self, insn: Any) -> Rewritten | None:
        """The instruction with several sums where they are and rules for their factors; None if it has not several.

        The rest may be the epilogue of rows, of which one output is made.
        """
        value: Any = getattr(insn, "expression", None)
        if not isinstance(insn, lp.Assignment) or self._is_flat(insn) or len(_nested_sums(value)) < 2:
            return None
        merged = insn.copy(expression=merge_sums(value))
        sums = _nested_sums(merged.expression)
        if (
            len(set(sums)) < 2
            or len(sums) < len(find_reductions(merged.expression))
            or any(_nested_sums(one.expr) for one in sums)
        ):
            return None
        ruled = [self._factors.with_rules(insn.copy(expression=one)).expression for one in sums]
        return Rewritten((), (merged.copy(expression=_WithoutSums(ruled)(merged.expression)),), finished=True)

    def rewrite(self, insn: Any, *, epilogues: bool) -> Rewritten:
        """The instruction with rules for factors and its sums apart; the same where nothing is to be done.

        :param epilogues: whether the last sum stays where it is, so that the rest is its epilogue.
        """
        value: Any = getattr(insn, "expression", None)
        if isinstance(insn, lp.Assignment) and find_reductions(value):
            value = merge_sums(value)
            insn = insn if value is insn.expression else insn.copy(expression=value)
            if not is_sum(value):
                scaled = self._scaled_sum(value)
                if scaled is not None:
                    return Rewritten((self._factors.with_rules(insn.copy(expression=scaled)),))
            if not is_sum(value) or self._is_flat(insn):
                apart = self._apart(insn, epilogues=epilogues)
                if apart is not None:
                    return apart
        return Rewritten((self._factors.with_rules(insn),))

    def _is_flat(self, insn: Any) -> bool:
        """Whether what an instruction assigns to has an index that is no plain iname."""
        at = insn.assignee.index_tuple if isinstance(insn.assignee, Subscript) else ()
        return not all(isinstance(entry, Variable) for entry in at)

    def _scaled_sum(self, value: Any) -> Any:
        """``2*sum(j, a)`` as ``sum(j, 2*a)``; None for anything else, and where numbers may be whole."""
        if isinstance(value, Product):
            found = [child for child in value.children if not self._factors.is_constant(child)]
            factors = [child for child in value.children if self._factors.is_constant(child)]
            if len(found) != 1:
                return None
            inner = found[0] if is_sum(found[0]) else self._scaled_sum(found[0])
        elif isinstance(value, Quotient) and self._factors.is_constant(value.denominator):
            inner = value.numerator if is_sum(value.numerator) else self._scaled_sum(value.numerator)
            factors = [Quotient(1.0, value.denominator)]
        else:
            return None
        if inner is None or not self._factors.is_floating(inner.expr):
            return None
        return Reduction(inner.operation, inner.inames, Product((*factors, inner.expr)), inner.allow_simultaneous)

    def _apart(self, insn: Any, *, epilogues: bool) -> Rewritten | None:
        """An instruction for each sum, and one for the rest; None where the result is not indexed by the loops around."""
        source, name = self._source, str(insn.assignee_name)
        sums = _nested_sums(insn.expression)
        nested = len(find_reductions(insn.expression)) != len(sums) or any(_nested_sums(one.expr) for one in sums)
        if nested or not source.is_array(name) or any(name in source.reads(find_uses(one)) for one in sums):
            return None
        found = self._find_index(insn)
        if found is None:
            return None
        at, shape = found
        plain = not self._is_flat(insn)
        values, einsums, temporaries = [], [], []
        for k, one in enumerate(sums):
            if epilogues and plain and k == len(sums) - 1:
                values.append(self._factors.with_rules(insn.copy(expression=one)).expression)
                break
            array = self._factors.fresh(f"{name}_sum")
            values.append(Subscript(Variable(array), at) if at else Variable(array))
            made = insn.copy(
                id=self._fresh_id(f"{insn.id}_sum"), assignee=values[-1], expression=one, temp_var_type=lp.Optional()
            )
            einsums.append(self._factors.with_rules(made))
            temporaries.append(
                lp.TemporaryVariable(array, source.dtype(name), shape=shape, address_space=lp.AddressSpace.GLOBAL)
            )
        rest = insn.copy(
            expression=_WithoutSums(values)(insn.expression),
            depends_on=insn.depends_on | {einsum.id for einsum in einsums},
        )
        if epilogues and not plain and len(sums) == 1:
            unflattened = self._unflatten(rest, values[0])
            if unflattened is not None:
                rest, lengths = unflattened
                return Rewritten(tuple(einsums), (rest,), tuple(temporaries), finished=True, lengths=lengths)
        return Rewritten(tuple(einsums), (rest,), tuple(temporaries), finished=epilogues and plain)

    def _unflatten(self, rest: Any, read: Any) -> tuple[Any, Mapping[str, int]] | None:
        """The function of a sum that is read back, with one loop for each axis of the result, and the new loops."""
        at = rest.assignee.index_tuple
        lengths = find_lengths(self._source, rest.within_inames)
        flat = unflatten(at, lengths, self._factors.fresh)
        if flat is None or flat.values.keys() != rest.within_inames:
            return None
        inames = tuple(entry.name for entry in flat.entries)
        formal = tuple(f"i{k}" for k in range(len(inames)))
        values = {
            old: rename_expression(value, dict(zip(inames, map(Variable, formal), strict=True)))
            for old, value in flat.values.items()
        }
        call = self._factors.make_named(f"{read.aggregate.name}_flat", formal, rename_expression(read, values), inames)
        target = Subscript(rest.assignee.aggregate, tuple(flat.entries))

        def put(part: Any) -> Any:
            return {rest.assignee: target, read: call}.get(part) if isinstance(part, Subscript) else None

        value = SubstitutionMapper(put)(rest.expression)
        if find_uses(value).variables & (rest.within_inames - set(inames)):
            return None
        kept = rest.within_inames & set(inames)
        stored = rest.copy(assignee=target, expression=value, within_inames=kept.union(flat.lengths))
        return stored.tagged(FlatStore()), flat.lengths

    def _find_index(self, insn: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]] | None:
        """The index and the shape of arrays for sums of an instruction: those of its result, of ``y[9*i + j]`` [i, j]."""
        source, target = self._source, insn.assignee
        at = target.index_tuple if isinstance(target, Subscript) else ()
        if len(set(at)) == len(at) and all(isinstance(x, Variable) and x.name in source.inames for x in at):
            return at, source.kernel.get_var_descriptor(str(insn.assignee_name)).shape
        parameters = {arg.name for arg in source.kernel.args if source.is_parameter(arg.name)}
        terms = [collect_affine(entry, source.inames | parameters) for entry in at]
        inames = tuple(dict.fromkeys(name for term in terms for name in term or {} if name in source.inames))
        if None in terms or set(inames) != insn.within_inames:
            return None
        try:
            lengths = find_lengths(source, inames)
        except MatchError:
            return None
        return tuple(map(Variable, inames)), tuple(parse(str(lengths[iname])) for iname in inames)


class _WithoutSums(IdentityMapper):  # type: ignore[misc]  # loopy's mappers are not typed for strict checking
    """Puts one value after the other in the place of the sums of an expression."""

    def __init__(self, values: Sequence[Any]) -> None:
        super().__init__()
        self._values = iter(values)

    def map_reduction(self, expr: Any) -> Any:
        return next(self._values)
