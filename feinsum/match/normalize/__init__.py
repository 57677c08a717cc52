"""Normalization: the sequential kernel of one element, as form compilers write it, becomes statements on whole arrays.

    for e:                                               for e: d[e] = abs(x[e, 1] - x[e, 0])
        d = abs(x[e, 1] - x[e, 0])                       for e, j, k:
        for q:                                               A[e, j, k] = A[e, j, k]
            t = w[q]*d                                           + sum(q, w[q]*d[e]*B[q, j]*B[q, k])
            for j:                                  ──▶
                s = B[q, j]*t
                for k:
                    A[e, 0 + 1*j, 0 + 1*k] = A[e, 0 + 1*j, 0 + 1*k] + s*B[q, k]

In order: affine indices get one form, accumulations become sums (:mod:`~feinsum.match.normalize.accumulations`),
temporaries are put in or get axes (:mod:`~feinsum.match.normalize.temporaries`), sums that one sum alone reads become part
of it (:mod:`~feinsum.match.normalize.array_merging`), unrolled sums become loops
(:mod:`~feinsum.match.normalize.rerolling`), and each statement that is left has loops of its own (loop distribution).  A
kernel is changed as far as its dependencies, its domains and its indices prove that it computes the same but for rounding.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Set
from dataclasses import replace
from typing import Any

import loopy as lp
from pymbolic.primitives import Variable

from feinsum.errors import MatchError
from feinsum.match.affine_indices import simplify_indices
from feinsum.match.kernel_source import SourceKernel
from feinsum.match.normalize.accumulations import is_accumulation, sum_accumulations
from feinsum.match.normalize.array_merging import merge_statements
from feinsum.match.normalize.loop_bounds import fix_bounds
from feinsum.match.normalize.rebuild import rebuild_kernel
from feinsum.match.normalize.rerolling import reroll
from feinsum.match.normalize.statements import KernelStatement, StatementRegion, find_regions, read_region, to_statement
from feinsum.match.normalize.temporaries import TemporarySubstitution, find_temporaries

__all__ = ["normalize_kernel"]


def normalize_kernel(
    source: SourceKernel, chosen: Set[str] | None, notes: MutableMapping[str, str], reasons: MutableMapping[str, str]
) -> lp.TranslationUnit:
    """Make statements on whole arrays of accumulations, and of sums that read temporaries of one element.

    :param chosen: instructions of which one must be among those normalized together; None for all.
    :param notes: takes, by its id, the change of an instruction.
    :param reasons: takes why an accumulation is left alone.
    """
    source = _with_plain_indices(fix_bounds(source, notes), notes)
    for members in find_regions(source):
        wanted = chosen is None or not chosen.isdisjoint(insn.id for insn in members)
        if not wanted or not any(_needs(source, insn) for insn in members):
            continue
        try:
            region = read_region(source, members)
            kernel = _normalize_region(region)
        except MatchError as error:
            reasons.update((insn.id, _refuse_instruction(insn.id, error)) for insn in members if _needs(source, insn))
            continue
        notes.update(region.notes)
        source = SourceKernel.of(source.t_unit.with_kernel(kernel), kernel.name)
    return source.t_unit


def _refuse_instruction(insn_id: str, error: MatchError) -> str:
    return f"instruction '{insn_id}' is not normalized: {error}"


def _with_plain_indices(source: SourceKernel, notes: MutableMapping[str, str]) -> SourceKernel:
    """The kernel with affine indices in one form."""
    kernel, instructions = source.kernel, []
    names = source.inames | {arg.name for arg in kernel.args if source.is_parameter(arg.name)}
    for insn in kernel.instructions:
        made = insn
        if isinstance(insn, lp.Assignment):
            target, value = (simplify_indices(part, names) for part in (insn.assignee, insn.expression))
            if target is not insn.assignee or value is not insn.expression:  # numpy's numbers equal Python's
                made = insn.copy(assignee=target, expression=value)
                notes[insn.id] = "has its indices simplified"
        instructions.append(made)
    if all(new is old for new, old in zip(instructions, kernel.instructions, strict=True)):
        return source
    return SourceKernel.of(source.t_unit.with_kernel(kernel.copy(instructions=instructions)), kernel.name)


def _needs(source: SourceKernel, insn: Any) -> bool:
    """Whether an instruction accumulates, or sums what a temporary of one element has."""
    if not isinstance(insn, lp.Assignment):
        return False
    if insn.reduction_inames():
        written = source.kernel.get_written_variables()
        read = [source.kernel.temporary_variables.get(name) for name in insn.read_dependency_names() & written]
        return any(one is not None and one.address_space != lp.AddressSpace.GLOBAL for one in read)
    return is_accumulation(to_statement(insn))


def _normalize_region(region: StatementRegion) -> lp.LoopKernel:
    """The kernel with the statements of a region normalized."""
    sum_accumulations(region)
    temporaries = find_temporaries(region)
    substitution = TemporarySubstitution(region, temporaries)
    region.around.update({name: temporary.around for name, temporary in temporaries.items()})
    roots = [statement for statement in region.statements if statement.array not in temporaries]
    done: dict[str, KernelStatement] = {}
    todo = [*roots, *(s for s in region.statements if s.array in substitution.kept)]
    todo.sort(key=lambda statement: not statement.uses.reductions)
    while todo:
        for statement in todo:
            done[statement.insn_id] = _put_temporaries(statement, substitution)
        read = frozenset[str]().union(*(statement.reads for statement in done.values()))
        todo = [
            statement
            for name in sorted(read & substitution.kept)
            for statement in temporaries[name].definitions
            if statement.insn_id not in done
        ]
    used = frozenset[str]().union(*(statement.reads for statement in done.values()))
    kept = [s.insn_id for s in region.statements if s.array not in temporaries or s.array in used]
    statements = merge_statements([done[insn_id] for insn_id in kept if insn_id in done], set(temporaries))
    statements = reroll(region, statements, set(temporaries))
    _note(region, substitution, [statement.insn_id for statement in statements])
    return rebuild_kernel(region, statements, substitution)


def _put_temporaries(statement: KernelStatement, substitution: TemporarySubstitution) -> KernelStatement:
    """A statement with temporaries put in, and with the axes that its own array gets."""
    put = substitution.put_into_sum if statement.uses.reductions else substitution.put
    axes = substitution.axes(statement.array) or ()
    at = (*map(Variable, axes), *(put(entry) for entry in statement.at))
    return replace(statement, at=at, value=put(statement.value))


def _note(region: StatementRegion, substitution: TemporarySubstitution, kept: list[str]) -> None:
    """Note the change of each instruction."""
    for statement in region.statements:
        if statement.insn_id not in kept:
            region.notes[statement.insn_id] = f"its value is put in where '{statement.array}' is read"
        elif axes := substitution.axes(statement.array):
            before = f"{region.notes[statement.insn_id]}; " if statement.insn_id in region.notes else ""
            region.notes[statement.insn_id] = f"{before}'{statement.array}' gets an axis for {', '.join(axes)}"
