"""Functions of sums in loopy kernels, read as einsums with functions of their results.

out[i, j] = exp(sum(k, A(i, k)*B(k, j))) + b[j]                  ik,kj->ij, with the function exp(v) + b[j]
out[i, j] = sum(k, A(i, k)*B(k, j))*sum(k, A(i, k)*C(k, j))      two rows of it, with the function v0*v1
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import loopy as lp
from loopy.library.reduction import SumReductionOperation
from loopy.symbolic import IdentityMapper
from pymbolic.primitives import Call, Product, Subscript, Variable

from feinsum.errors import MatchError
from feinsum.match.einsum_grammar import Rule, refuse
from feinsum.match.expression_uses import find_uses, flatten_product
from feinsum.match.kernel_source import SourceKernel
from feinsum.match.match import Match, choose_instructions, match_bare
from feinsum.match.neighbours import Neighbours
from feinsum.match.parting import Whole, part_sums
from feinsum.match.stored_functions import PRESENT, VALUE, Finishing, output_placeholder, value_of, with_instructions


def match_finished(t_unit: lp.TranslationUnit, kernel_name: str | None = None, insn_match: Any = None) -> Match:
    """The batched einsum of instructions that store functions of sums, which the match tells as its `finishing`.

    Parameters and errors are those of :func:`feinsum.match_einsum`; the errors of what is around a sum are of the rules of
    the output and of plain indices.
    """
    source = SourceKernel.of(t_unit, kernel_name)
    bare, found = {}, {}
    chosen = choose_instructions(source, insn_match)
    whole = split_several(source, chosen[0]) if len(chosen) == 1 else None
    if whole is not None:
        return _match_whole(source, whole)
    for insn in chosen:
        value, finishing = split_finished(source, insn)
        if finishing is not None:
            bare[insn.id] = insn.copy(expression=value)
            found[insn.id] = finishing
    if not found:
        return match_bare(t_unit, kernel_name, insn_match)
    match = match_bare(with_instructions(t_unit, source.kernel, bare), kernel_name, insn_match)
    return with_finishing(source, match, found)


def _match_whole(source: SourceKernel, whole: Whole) -> Match:
    """The match of an instruction that makes one output of several sums."""
    parted, insn_id, output = part_sums(source, [whole]), whole.insn.id, str(whole.insn.assignee_name)
    try:
        match = match_bare(parted.t_unit, source.kernel.name, " or ".join(f"id:{own}" for own in parted.insn_ids))
    except MatchError as error:
        count = len(whole.sums)
        reason = f"it has {count} reductions in one expression, which are no rows of one batched einsum: {error}"
        raise refuse(insn_id, Rule.ONE_SUM, reason) from None
    rows = [parted.insn_ids.index(own) for own in match.insn_ids]
    if rows != sorted(rows):
        raise refuse(insn_id, Rule.ROWS, "its sums are not rows in the order in which they stand there")
    match = replace(match, insn_ids=(insn_id,) * len(rows), outputs=(output,) * len(rows))
    return with_finishing(source, match, {insn_id: whole.finishing})


def with_finishing(source: SourceKernel, match: Match, found: Mapping[str, Finishing]) -> Match:
    """A match of sums alone, with the functions of them that instructions store.

    :param source: the kernel that makes something of them.
    :param found: by instruction.
    :raises MatchError: if that reads an output elsewhere, or what other instructions write in other iterations of a loop.
    """
    rows = list({insn_id: k for k, insn_id in enumerate(match.insn_ids) if insn_id in found}.values())
    stored = {source.storage(name) for name in match.outputs}
    neighbours = Neighbours(source)
    for k in rows:
        insn_id, loops = match.insn_ids[k], match.loops[k]
        reads = dict.fromkeys(name for name, _ in found[insn_id].reads)
        for name in reads:
            if source.storage(name) in stored:
                raise refuse(insn_id, Rule.OUTPUT, f"it reads '{name}', an output, elsewhere than at the index it writes")
        neighbours.check_reads(insn_id, tuple(loops[letter] for letter in match.einsum.indexing.output), reads)
    return replace(match, finishing={match.outputs[k]: found[match.insn_ids[k]] for k in rows})


def split_finished(source: SourceKernel, insn: Any) -> tuple[Any, Finishing | None]:
    """The sum of an instruction, or its product of operands, and the function of it: None if it is stored as it is.

    Where an instruction has no such form at all, its expression is returned, of which the grammar then says what is amiss.

    :raises MatchError: if what is around the sum reads the output elsewhere than at the index that is written, or depends
        on a loop otherwise than as an index that the output has too.
    """
    if not isinstance(insn, lp.Assignment):
        return None, None
    found = _Bare(source)
    around = found(insn.expression)
    bare = list(dict.fromkeys(found.values))
    if len(bare) != 1 or around == VALUE:
        return insn.expression, None
    return bare[0], _finishing(source, insn, around)


def split_several(source: SourceKernel, insn: Any) -> Whole | None:
    """The sums of an instruction and the function of them, if there are several; otherwise None.

    :raises MatchError: as :func:`split_finished` does.
    """
    if not isinstance(insn, lp.Assignment):
        return None
    sums = list(dict.fromkeys(find_uses(insn.expression).reductions))
    if len(sums) < 2 or not all(isinstance(one.operation, SumReductionOperation) for one in sums):
        return None
    around = _Numbered(sums)(insn.expression)
    return Whole(insn, tuple(sums), _finishing(source, insn, around))


def _finishing(source: SourceKernel, insn: Any, around: Any) -> Finishing:
    """The function of its sums that an instruction stores, from its expression in terms of their placeholders."""
    assignee = insn.assignee
    index = assignee.index_tuple if isinstance(assignee, Subscript) else ()
    mapper = _InPlaces(str(insn.assignee_name), index)
    expression = mapper(around)
    uses = find_uses(expression)
    if any(name == mapper.output for name, _ in uses.reads):
        raise refuse(insn.id, Rule.OUTPUT, f"it reads '{mapper.output}' elsewhere than at the index that it writes")
    for name, at in uses.reads:
        if at is None or not all(entry in map(output_placeholder, range(len(index))) for entry in at):
            raise refuse(
                insn.id, Rule.PLAIN_INDICES, f"what it makes of its sum reads '{name}' not at indices of the output"
            )
    loops = sorted(uses.variables & source.inames)
    if loops:
        raise refuse(
            insn.id,
            Rule.PLAIN_INDICES,
            f"what it makes of its sum depends on the loop '{loops[0]}' by itself, not as an index",
        )
    return Finishing(expression, len(index))


class _Numbered(IdentityMapper):  # type: ignore[misc]
    """Puts :func:`value_of` in the place of several sums."""

    def __init__(self, sums: list[Any]) -> None:
        super().__init__()
        self.sums = sums

    def map_reduction(self, expr: Any) -> Any:
        return value_of(self.sums.index(expr))


class _Bare(IdentityMapper):  # type: ignore[misc]
    """Puts :data:`VALUE` in the place of sums, or of products of operands where there is no sum."""

    def __init__(self, source: SourceKernel) -> None:
        super().__init__()
        self.source = source
        self.values: list[Any] = []

    def __call__(self, expr: Any) -> Any:
        self.sums = bool(find_uses(expr).reductions)
        return super().__call__(expr)

    def _value(self, value: Any) -> Any:
        self.values.append(value)
        return VALUE

    def map_reduction(self, expr: Any) -> Any:
        return self._value(expr)

    def map_product(self, expr: Any) -> Any:
        factors = list(flatten_product(expr))
        operands = [factor for factor in factors if self._is_operand(factor)]
        if self.sums or not operands:
            return super().map_product(expr)
        value = self._value(operands[0] if len(operands) == 1 else Product(tuple(operands)))
        others = [self.rec(factor) for factor in factors if not self._is_operand(factor)]
        return Product((value, *others)) if others else value

    def map_call(self, expr: Any) -> Any:
        return self._value(expr) if not self.sums and self._is_operand(expr) else super().map_call(expr)

    def _is_operand(self, expr: Any) -> bool:
        """Whether an expression invokes a substitution rule at inames."""
        return (
            isinstance(expr, Call)
            and self.source.is_rule(expr.function.name)
            and all(isinstance(at, Variable) and at.name in self.source.inames for at in expr.parameters)
        )


class _InPlaces(IdentityMapper):  # type: ignore[misc]
    """Writes the entry of the output as :data:`PRESENT`, and its indices in those of arrays as
    :func:`output_placeholder`."""

    def __init__(self, output: str, index: tuple[Any, ...]) -> None:
        super().__init__()
        self.output, self.index = output, index

    def map_subscript(self, expr: Any) -> Any:
        if expr.aggregate.name == self.output and expr.index_tuple == self.index:
            return PRESENT
        known = {at: output_placeholder(k) for k, at in enumerate(self.index)}
        return Subscript(expr.aggregate, tuple(known.get(at, at) for at in expr.index_tuple))

    def map_variable(self, expr: Any) -> Any:
        return PRESENT if expr.name == self.output and not self.index else expr
