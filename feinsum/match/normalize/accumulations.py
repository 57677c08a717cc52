"""Accumulations: loops that add to an element become sums.

    t[j] = 0
    for r: t[j] = t[j] + B[j, r]*u[r]      ──▶   t[j] = sum(r, B[j, r]*u[r])

    for q, j, k: A[j, k] = A[j, k] + w[q]*B[q, j]*B[q, k]
                                           ──▶   A[j, k] = A[j, k] + sum(q, w[q]*B[q, j]*B[q, k])

(reduction recognition: Allen and Kennedy, Optimizing Compilers for Modern Architectures, 2001, section 6.2.1; sums are
added in another order, so results differ by rounding.)
"""

from __future__ import annotations

from typing import Any

from loopy.library.reduction import SumReductionOperation
from loopy.symbolic import Reduction
from pymbolic.primitives import Subscript, Sum, Variable

from feinsum.errors import MatchError
from feinsum.match.affine_indices import rename_expression
from feinsum.match.expression_uses import find_uses, flatten_sum, plain_names
from feinsum.match.normalize.statements import KernelStatement, StatementRegion, is_plain_index


def find_addend(statement: KernelStatement) -> Any:
    """The addend of a statement, ``f`` of ``a[i] = a[i] + f``; None for any other statement."""
    terms = list(flatten_sum(statement.value))
    own = [k for k, term in enumerate(terms) if _is_element(term, statement)]
    if len(own) != 1 or len(terms) < 2:
        return None
    rest = [term for k, term in enumerate(terms) if k != own[0]]
    uses = find_uses(*rest, *statement.at)
    if statement.array in {*uses.values, *(name for name, _ in uses.reads)}:
        return None
    return rest[0] if len(rest) == 1 else Sum(tuple(rest))


def _is_element(term: Any, statement: KernelStatement) -> bool:
    """Whether an expression reads what a statement assigns to; one index is written with or without a tuple."""
    if isinstance(term, Subscript):
        return bool(term.aggregate == Variable(statement.array) and term.index_tuple == statement.at)
    return not statement.at and bool(term == Variable(statement.array))


def find_summed_loops(statement: KernelStatement) -> frozenset[str]:
    """The loops around a statement that do not index what it assigns."""
    indices = find_uses(*statement.at)
    return statement.loops - indices.values - {name for _, at in indices.reads for name in plain_names(at or ())}


def is_accumulation(statement: KernelStatement) -> bool:
    """Whether a statement adds to one element in several iterations."""
    return bool(find_summed_loops(statement)) and find_addend(statement) is not None


def sum_accumulations(region: StatementRegion) -> None:
    """Make sums of the accumulations of a region, with the initialization before them put in.

    :raises MatchError: naming an accumulation, and what else uses its array while it is going on.
    """
    for statement in [s for s in region.statements if s.array in {s.array for s in region.statements}]:
        if find_addend(statement) is not None and (region.is_temporary(statement.array) or is_accumulation(statement)):
            _sum_of_accumulation(region, statement)


def _sum_of_accumulation(region: StatementRegion, statement: KernelStatement) -> None:
    """Make a sum of one accumulation."""
    before = [s for s in region.writers(statement.array) if region.is_before(s.insn_id, statement.insn_id)]
    addend = find_addend(statement)
    start = _find_start(region, statement, before)
    summed = (
        find_summed_loops(statement) if start is None else statement.loops - start.loops - _accumulation_indices(statement)
    )
    _check_array_is_private(region, statement, summed, start)
    total = Reduction(SumReductionOperation(), tuple(sorted(summed)), addend) if summed else addend
    if start is None:
        region.put(statement, statement.then(Sum((statement.target, total)), without=summed))
        region.notes[statement.insn_id] = f"adds a sum over {', '.join(sorted(summed))}"
        return
    renamed = {a.name: b for a, b in zip(start.at, statement.at, strict=True)}
    first = rename_expression(start.value, renamed)
    value = total if _is_zero(first) else Sum((first, total))
    merged = statement.then(value, without=summed, merged=(start.insn_id, *start.merged))
    region.put(statement, merged, dropped=[start])
    region.notes[statement.insn_id] = f"is a sum over {', '.join(sorted(summed))}, begun by '{start.insn_id}'"
    region.notes[start.insn_id] = f"begins the sum of '{statement.insn_id}'"


def _accumulation_indices(statement: KernelStatement) -> frozenset[str]:
    return frozenset(plain_names(statement.at))


def _is_zero(value: Any) -> bool:
    return isinstance(value, (int, float, complex)) and value == 0


def _find_start(
    region: StatementRegion, statement: KernelStatement, before: list[KernelStatement]
) -> KernelStatement | None:
    """The statement that initializes an accumulation; None if it adds to an argument as it is.

    :raises MatchError: if a temporary is initialized by none, by several, or in other loops.
    """
    temporary = region.is_temporary(statement.array)
    if not temporary and not (len(before) == 1 and _initializes(region, before[0], statement)):
        return None
    if len(before) != 1 or statement.array in before[0].reads:
        many = " and ".join(f"'{s.insn_id}'" for s in before) or "no statement"
        raise MatchError(f"'{statement.insn_id}' adds to '{statement.array}', which is set by {many} before")
    if not _initializes(region, before[0], statement):
        raise MatchError(
            f"'{before[0].insn_id}' does not set just the elements of '{statement.array}' to which"
            f" '{statement.insn_id}' adds"
        )
    return before[0]


def _initializes(region: StatementRegion, start: KernelStatement, statement: KernelStatement) -> bool:
    """Whether `start` sets, in each iteration of the loops that both share, every element that is then added to once."""
    shared = start.loops & statement.loops
    if not (is_plain_index(start.at, start.loops) and is_plain_index(statement.at, statement.loops)):
        return False
    if statement.array in start.reads or start.loops != shared | _accumulation_indices(start):
        return False
    if region.source.is_global(statement.array) and not shared <= _accumulation_indices(start):
        return False
    pairs = zip(plain_names(start.at), plain_names(statement.at), strict=True)
    return len(start.at) == len(statement.at) and all(
        a == b if {a, b} & shared else region.lengths[a] == region.lengths[b] for a, b in pairs
    )


def _check_array_is_private(
    region: StatementRegion, statement: KernelStatement, summed: frozenset[str], start: KernelStatement | None
) -> None:
    """Check that nothing but further accumulations uses the array in the loops that become a sum."""
    for other in region.statements:
        if other is statement or other is start or statement.array not in {other.array, *other.reads}:
            continue
        inside = (other.loops | other.summed) & summed
        adds = other.array == statement.array and find_addend(other) is not None
        if inside and not adds:
            raise MatchError(
                f"'{other.insn_id}' uses '{statement.array}' in the loop '{min(inside)}', in which"
                f" '{statement.insn_id}' adds to it"
            )
        if start is not None and statement.array in other.reads and region.is_before(other.insn_id, statement.insn_id):
            raise MatchError(f"'{other.insn_id}' reads '{statement.array}' before '{statement.insn_id}' has added to it")
