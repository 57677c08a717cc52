"""Finishing: the functions of sums that instructions store, ``out[i, j] = exp(sum(k, ...)) + b[j]*out[i, j]``.

The grammar of einsums sees ``out[i, j] = sum(k, ...)``; the function is set aside, in terms of the sum and of the indices
of the output, so that it can be applied to whatever expression becomes the finished sum, wherever that is stored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import loopy as lp
from loopy.symbolic import IdentityMapper, SubstitutionMapper
from pymbolic.mapper.substitutor import make_subst_func
from pymbolic.primitives import Subscript, Variable

from feinsum.lower.substitution_rules import sum_of_calls
from feinsum.match.expression_uses import find_uses

if TYPE_CHECKING:
    from feinsum.match.match import Match

# No kernel has such names, as they are no identifiers.
VALUE, PRESENT = Variable("finished sum"), Variable("present content")


def value_of(row: int) -> Variable:
    """The placeholder of the finished sum of one of several rows."""
    return Variable(f"finished sum {row}")


def output_placeholder(axis: int) -> Variable:
    """The placeholder of the index along an axis of the output."""
    return Variable(f"place {axis}")


@dataclass(frozen=True)
class Finishing:
    """A function of one or several sums that an instruction stores, in the names of a kernel.

    :ivar expression: in terms of :data:`VALUE`, or of :func:`value_of` several rows, of :data:`PRESENT` and
        :func:`output_placeholder`.
    :ivar axes: how many the output has.
    """

    expression: Any
    axes: int

    @cached_property
    def reads_output(self) -> bool:
        """Whether it depends on the present content of the output."""
        return PRESENT.name in self._uses.values

    @cached_property
    def unread(self) -> Any:
        """The condition on numbers of the call under which the present content is not needed, as ``beta == 0``; or None."""
        choices = _WithoutPresent()
        rest = choices(self.expression)
        return (
            choices.conditions.pop()
            if len(choices.conditions) == 1 and PRESENT.name not in find_uses(rest).values
            else None
        )

    @cached_property
    def reads(self) -> tuple[tuple[str, tuple[Any, ...]], ...]:
        """The arrays that it reads, and where."""
        return tuple((name, index or ()) for name, index in self._uses.reads)

    @cached_property
    def _uses(self) -> Any:
        return find_uses(self.expression)

    def axes_of_arrays(self) -> frozenset[int]:
        """The axes of the output by which arrays are indexed."""
        names = frozenset[str]().union(*(find_uses(*index).variables for _, index in self.reads))
        return frozenset(k for k in range(self.axes) if output_placeholder(k).name in names)

    def of(self, value: Any, assignee: Any) -> Any:
        """The function in an expression that is to be stored at an entry of the output.

        :param value: the sum, or a tuple of the sums of several rows.
        """
        return self.at(value, assignee, assignee.index_tuple if isinstance(assignee, Subscript) else ())

    def at(self, value: Any, present: Any, index: tuple[Any, ...]) -> Any:
        """The expression for a sum, the present content of the output and an index tuple."""
        sums = {value_of(k).name: own for k, own in enumerate(value)} if isinstance(value, tuple) else {VALUE.name: value}
        values = {**sums, PRESENT.name: present, **{output_placeholder(k).name: at for k, at in enumerate(index)}}
        return SubstitutionMapper(make_subst_func(values))(self.expression)

    def moved(self, index: tuple[Any, ...]) -> Finishing:
        """The same of an output whose entry at some places is what was at `index`, in terms of these places."""
        return replace(self, expression=self.at(VALUE, PRESENT, index), axes=len(index))


class _WithoutPresent(IdentityMapper):  # type: ignore[misc]  # loopy's mappers are not typed for strict checking
    """Takes away choices of numbers of the call whether the present content is needed, and keeps their conditions."""

    def __init__(self) -> None:
        super().__init__()
        self.conditions: set[Any] = set()

    def map_if(self, expr: Any) -> Any:
        parts = (expr.condition, expr.then, expr.else_)
        condition, without, needing = (find_uses(part).values for part in parts)
        # No number of a call has a name with a space, as placeholders have.
        if PRESENT.name not in needing or PRESENT.name in without or any(" " in name for name in condition):
            return super().map_if(expr)
        self.conditions.add(expr.condition)
        return expr.then


@dataclass(frozen=True)
class Together:
    """One output that is to be made of the sums of all rows of a match, where these are stored.

    :ivar sums: for each row the array that would hold its sum.
    :ivar output: the array that is stored to instead.
    """

    sums: tuple[str, ...]
    output: str
    finishing: Finishing


def set_aside(t_unit: lp.TranslationUnit, match: Match) -> lp.TranslationUnit:
    """The kernel whose matched instructions store their sums alone; the match keeps the functions of them.

    Before: ``out[i, j] = exp(sum(k, A(i, k) * B(k, j)))``; after: ``out[i, j] = sum(k, A(i, k) * B(k, j))``.
    """
    kernel = t_unit[match.kernel_name]
    bare = {}
    for row, (insn_id, output) in enumerate(zip(match.insn_ids, match.outputs, strict=True)):
        if output in match.finishing:
            bare[insn_id] = kernel.id_to_insn[insn_id].copy(expression=bare_value(match, row))
    return with_instructions(t_unit, kernel, bare)


def with_instructions(t_unit: lp.TranslationUnit, kernel: lp.LoopKernel, changed: dict[str, Any]) -> lp.TranslationUnit:
    """The translation unit with other instructions in place of those of the same ids in a kernel of it."""
    if not changed:
        return t_unit
    instructions = [changed.get(insn.id, insn) for insn in kernel.instructions]
    return t_unit.with_kernel(kernel.copy(instructions=instructions))


def bare_value(match: Match, row: int) -> Any:
    """``sum(summed, product of the operands of a row)``, the right-hand side of a row without an epilogue."""
    indexing = match.einsum.indexing
    return sum_of_calls(match.rules[row], indexing.inputs, indexing.summed, match.loops[row])
