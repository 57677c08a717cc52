"""The grammar of a batched einsum in loopy: one instruction is one row ``R[i, e] = sum([j, ...], f(i, j) * g(e, j))``.

The rules, by which a refusal names its reason:

1. *single assignment*: a row is one plain assignment.
2. *one sum*: its right-hand side is one reduction with ``sum``, or has none; neither its predicates nor the
   substitution rules it invokes contain another.  With ``epilogues=True`` it may be a function of one sum, applied entry by
   entry, ``alpha*y[i, e] + sum(...)``; the other rules then see the sum.
3. *factors*: the summand is a product.
4. *hypercube*: the loops around the instruction and those of the sum run from 0 to lengths that depend on parameters
   only (:mod:`feinsum.match.domain`).
5. *rank*: the output has as many axes as there are loops around the instruction.
6. *output*: it lies in global memory, is indexed by these loops alone, each once, and is not read.
7. *operands*: each factor invokes a substitution rule.
8. *plain indices*: its arguments are inames of the instruction, and it depends on no other.
9. *reading*: lengths, element types and indices make a batched einsum as :class:`feinsum.BatchedEinsum` defines it.
10. *rows*: several instructions are one batched einsum if they agree in everything but their arrays and are independent.
11. *separable*: arrays that it shares with other instructions in the loops around it are accessed in the same iteration
    (:mod:`feinsum.match.neighbours`).

A predicate may guard an instruction if it depends on no iname but those of the loops around it.  It is carried along;
the rows of one batched einsum have equal predicates.  Searches pass over instructions with predicates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import islpy as isl
import loopy as lp
from loopy.library.reduction import SumReductionOperation
from loopy.symbolic import Reduction
from pymbolic.primitives import Call, Subscript, Variable

from feinsum.errors import MatchError
from feinsum.match.domain import Length, find_lengths
from feinsum.match.expression_uses import find_uses, flatten_product, plain_names
from feinsum.match.kernel_source import SourceKernel
from feinsum.subscripts import INDEX_LETTERS


class Rule(IntEnum):
    """The rules of the grammar, by number."""

    SINGLE_ASSIGNMENT = 1
    ONE_SUM = 2
    FACTORS = 3
    HYPERCUBE = 4
    RANK = 5
    OUTPUT = 6
    OPERANDS = 7
    PLAIN_INDICES = 8
    READING = 9
    ROWS = 10
    SEPARABLE = 11

    def __str__(self) -> str:
        return f"rule {self.value}, {self.name.lower().replace('_', ' ')}"


def refuse(insn_id: str, rule: Rule, reason: str) -> MatchError:
    """The error of an instruction that breaks a rule of the grammar."""
    return MatchError(f"instruction '{insn_id}' is no einsum ({rule}): {reason}")


@dataclass(frozen=True)
class Row:
    """One instruction read by the grammar.

    :ivar output: the array written.
    :ivar free: the inames that index it, in order.
    :ivar calls: the substitution rule and the inames of each operand, in order.
    :ivar lengths: the length of every iname.
    :ivar reads: every array behind the operands and the predicates.
    """

    insn_id: str
    output: str
    free: tuple[str, ...]
    calls: tuple[tuple[str, tuple[str, ...]], ...]
    lengths: Mapping[str, Length]
    predicates: frozenset[Any]
    reads: frozenset[str]

    @property
    def inames(self) -> tuple[str, ...]:
        """Every iname once: those of the output, then those summed over, in order of appearance."""
        return tuple(dict.fromkeys((*self.free, *(iname for _, at in self.calls for iname in at))))


def read_row(source: SourceKernel, insn: Any) -> Row:
    """Read one instruction.

    :raises MatchError: naming the instruction, the rule of the grammar it breaks, and why.
    """
    if not isinstance(insn, lp.Assignment):
        raise refuse(insn.id, Rule.SINGLE_ASSIGNMENT, f"it is a {type(insn).__name__}, not an assignment")
    if insn.atomicity:
        raise refuse(insn.id, Rule.SINGLE_ASSIGNMENT, "it is atomic")
    output, free = _read_output(source, insn)
    summed, body = _read_sum(source, insn)
    around = frozenset(insn.within_inames)
    looped = sorted(around.intersection(summed))
    if looped:
        raise refuse(insn.id, Rule.ONE_SUM, f"it sums over '{looped[0]}', which is also a loop around it")
    calls = tuple(_read_operand(source, insn, factor, around.union(summed)) for factor in find_factors(insn, body))
    _check_rows_of_data(source, insn, summed, calls)
    _check_coverage(insn, free, summed, calls)
    try:
        lengths = find_lengths(source, around.union(summed))
    except MatchError as error:
        raise refuse(insn.id, Rule.HYPERCUBE, str(error)) from None
    reads = frozenset[str]().union(*(source.rule(name).reads for name, _ in calls)) | _read_predicates(source, insn)
    stores = {source.storage(name) for name in reads}
    if source.storage(output) in stores:
        raise refuse(insn.id, Rule.OUTPUT, f"it reads '{output}', which it also writes")
    return Row(insn.id, output, free, calls, lengths, insn.predicates, reads)


def _read_output(source: SourceKernel, insn: Any) -> tuple[str, tuple[str, ...]]:
    """The array written and the inames that index it."""
    assignee = insn.assignee
    name = str(insn.assignee_name)
    if not source.is_global(name):
        raise refuse(insn.id, Rule.OUTPUT, f"'{name}' is not in global memory; write to an argument or a global temporary")
    if not isinstance(assignee, (Subscript, Variable)):
        raise refuse(insn.id, Rule.OUTPUT, f"it writes to {assignee}, whose index is no tuple of inames")
    index = assignee.index_tuple if isinstance(assignee, Subscript) else ()
    for entry in index:
        if not isinstance(entry, Variable) or entry.name not in source.inames:
            raise refuse(insn.id, Rule.OUTPUT, f"it writes to {assignee}, where {entry} is no iname")
    free = plain_names(index)
    if len(set(free)) < len(free):
        raise refuse(insn.id, Rule.OUTPUT, f"it writes to {assignee}, which repeats an iname")
    stray = sorted(frozenset(insn.within_inames) - set(free))
    if stray:
        raise refuse(
            insn.id, Rule.RANK, f"the loop '{stray[0]}' is around it but does not index {assignee}; every loop indexes it"
        )
    missing = sorted(set(free) - frozenset(insn.within_inames))
    if missing:
        raise refuse(insn.id, Rule.RANK, f"{assignee} is indexed by '{missing[0]}', which is no loop around it")
    return name, free


def _read_sum(source: SourceKernel, insn: Any) -> tuple[tuple[str, ...], Any]:
    """The inames summed over, and the summand."""
    value = insn.expression
    uses = find_uses(value)
    if len(uses.reductions) > 1:
        kind = "nested in one another" if isinstance(value, Reduction) else "in one expression"
        raise refuse(insn.id, Rule.ONE_SUM, f"it has {len(uses.reductions)} reductions {kind}; give each an instruction")
    if not uses.reductions:
        return (), value
    (reduction,) = uses.reductions
    if type(reduction.operation) is not SumReductionOperation:
        raise refuse(insn.id, Rule.ONE_SUM, f"it reduces with '{reduction.operation}', not with sum")
    if value is not reduction:
        raise refuse(
            insn.id,
            Rule.ONE_SUM,
            f"its sum is part of the expression {_shorten(value)}; assign the sum by itself, or match with epilogues=True",
        )
    return tuple(reduction.inames), reduction.expr


def find_factors(insn: Any, body: Any) -> list[Any]:
    """The factors of what is summed, without the signs that cancel: ``(-f(i))*(-g(i))`` gives f(i), g(i)."""
    factors = list(flatten_product(body))
    signs = [factor for factor in factors if isinstance(factor, int) and factor in (1, -1)]
    others = [factor for factor in factors if not (isinstance(factor, int) and factor in (1, -1))]
    if signs.count(-1) % 2:
        raise refuse(insn.id, Rule.OPERANDS, f"its factors have a minus sign; {_EXTRACT}")
    if not others:
        raise refuse(insn.id, Rule.OPERANDS, f"{_shorten(body)} has no operand")
    return others


_EXTRACT = "feinsum.extract_operands makes rules of factors, or says in reasons= why not"


def _read_operand(source: SourceKernel, insn: Any, factor: Any, inames: frozenset[str]) -> tuple[str, tuple[str, ...]]:
    """The rule and the inames of one factor."""
    name, arguments = _invocation(source, factor)
    if name is None:
        kind = Rule.FACTORS if not isinstance(factor, (Call, Subscript, Variable)) else Rule.OPERANDS
        raise refuse(insn.id, kind, f"the factor {_shorten(factor)} {_invocations(source, factor)}; {_EXTRACT}")
    facts = source.rule(name)
    where = f"substitution rule '{name}'"
    if len(arguments) != len(facts.arguments):
        raise refuse(insn.id, Rule.OPERANDS, f"{where} takes {len(facts.arguments)} arguments but gets {len(arguments)}")
    for argument in arguments:
        if not isinstance(argument, Variable) or argument.name not in inames:
            raise refuse(
                insn.id, Rule.PLAIN_INDICES, f"{where} is invoked as {_shorten(factor)}, where {argument} is no iname of it"
            )
    if facts.reduces:
        raise refuse(insn.id, Rule.ONE_SUM, f"{where} contains another reduction; store its result in an array first")
    if facts.captured:
        raise refuse(
            insn.id,
            Rule.PLAIN_INDICES,
            f"{where} depends on iname '{min(facts.captured)}', which is none of its arguments; make it one",
        )
    return name, plain_names(arguments)


def _invocations(source: SourceKernel, factor: Any) -> str:
    """How many rules a factor that is no invocation itself invokes."""
    rules = [f"'{name}'" for name in source.called_rules(find_uses(factor))]
    if not rules:
        return "invokes no substitution rule"
    if len(rules) == 1:
        return f"is an expression of the substitution rule {rules[0]}, not its invocation"
    number = {2: "two", 3: "three"}.get(len(rules), str(len(rules)))
    return f"invokes {number} substitution rules, {', '.join(rules[:-1])} and {rules[-1]}, and an operand is one"


def _invocation(source: SourceKernel, factor: Any) -> tuple[str | None, tuple[Any, ...]]:
    if isinstance(factor, Call) and source.is_rule(factor.function.name):
        return factor.function.name, factor.parameters
    if isinstance(factor, Variable) and source.is_rule(factor.name):
        return factor.name, ()
    return None, ()


def _check_rows_of_data(
    source: SourceKernel, insn: Any, summed: tuple[str, ...], calls: tuple[tuple[str, tuple[str, ...]], ...]
) -> None:
    """No bound of a sum may differ from row to row, as those of sparse products do; their gathers are named, too."""
    setters = {name: other for other in source.kernel.instructions for name in other.assignee_var_names()}
    for iname in summed:
        domain = source.kernel.domains[source.kernel.get_home_domain_index(iname)]
        for name in sorted(setters.keys() & domain.get_var_dict(isl.dim_type.param)):
            loops = sorted(setters[name].within_inames)
            if loops:
                value = _shorten(getattr(setters[name], "expression", name))
                bound = f"the bound '{name}' = {value} of its sum over '{iname}' differs for each '{loops[0]}'"
                raise refuse(insn.id, Rule.HYPERCUBE, f"{bound}{_describe_gathers(source, calls)}; pad rows to one length")


def _describe_gathers(source: SourceKernel, calls: tuple[tuple[str, tuple[str, ...]], ...]) -> str:
    reads = [read for rule, _ in calls for read in source.rule(rule).uses.reads]
    pairs = [(array, inner) for array, index in reads for inner, _ in find_uses(*(index or ())).reads]
    return "".join(f", and it reads '{array}' through the index array '{inner}'" for array, inner in pairs)


def _check_coverage(
    insn: Any, free: tuple[str, ...], summed: tuple[str, ...], calls: tuple[tuple[str, tuple[str, ...]], ...]
) -> None:
    """Every iname must index an operand: an einsum neither broadcasts its output nor counts."""
    used = {iname for _, at in calls for iname in at}
    for iname in free:
        if iname not in used:
            raise refuse(insn.id, Rule.READING, f"the output is indexed by '{iname}' but no operand is")
    for iname in summed:
        if iname not in used:
            raise refuse(insn.id, Rule.READING, f"it sums over '{iname}' but no operand depends on it")
    if len(used) > len(INDEX_LETTERS):
        raise refuse(insn.id, Rule.READING, f"it has {len(used)} indices, more than the {len(INDEX_LETTERS)} letters")


def refuse_guarded(insn: Any) -> None:
    """:raises MatchError: if an instruction has a predicate; searches offer none, as most transformations refuse them."""
    if insn.predicates:
        guard = " and ".join(sorted(map(str, insn.predicates)))
        reason = f"it has the predicate {_shorten(guard)}; drop the condition, or choose the instruction with insn_match"
        raise refuse(insn.id, Rule.SINGLE_ASSIGNMENT, reason)


def _read_predicates(source: SourceKernel, insn: Any) -> frozenset[str]:
    """The arrays that decide whether the instruction is executed."""
    uses = find_uses(*insn.predicates)
    if source.reduces(uses):
        raise refuse(insn.id, Rule.ONE_SUM, "its predicate contains a reduction")
    strange = sorted((uses.variables | source.captured(uses)) & source.inames - frozenset(insn.within_inames))
    if strange:
        raise refuse(insn.id, Rule.PLAIN_INDICES, f"its predicate depends on '{strange[0]}', which is no loop around it")
    if source.captured(uses):
        name = min(source.captured(uses))
        raise refuse(insn.id, Rule.PLAIN_INDICES, f"a substitution rule in its predicate depends on '{name}' by itself")
    return source.reads(uses)


def _shorten(expression: Any) -> str:
    text = str(expression)
    return text if len(text) <= 80 else f"{text[:77]}..."
