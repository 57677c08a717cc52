"""Parting: an instruction that stores a function of sums becomes instructions that store the sums, and one that applies the
function to these.

y[e, i] = exp(sum(j, D_(i, j)*u_(e, j)))

y_sum[e, i] = sum(j, D_(i, j)*u_(e, j))                   in global memory
y[e, i] = exp(y_sum[e, i])                                under the name of the instruction
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import loopy as lp
from pymbolic.primitives import Subscript, Variable

from feinsum.match.kernel_source import SourceKernel
from feinsum.match.match import Match
from feinsum.match.stored_functions import Finishing, Together, bare_value


@dataclass(frozen=True)
class Whole:
    """An instruction that is to be parted.

    :ivar sums: the sums of which it stores a function.
    """

    insn: lp.Assignment
    sums: tuple[Any, ...]
    finishing: Finishing


@dataclass(frozen=True)
class Parted:
    """A kernel with parted instructions.

    :ivar insn_ids: for each sum, in order, the instruction that stores it.
    :ivar arrays: for each the array that it is stored in.
    """

    t_unit: lp.TranslationUnit
    insn_ids: tuple[str, ...]
    arrays: tuple[str, ...]


def part_sums(source: SourceKernel, wholes: Sequence[Whole]) -> Parted:
    """Store the sums of instructions in arrays of their own, from which these make the rest."""
    kernel = source.kernel
    fresh, fresh_id = kernel.get_var_name_generator(), kernel.get_instruction_id_generator()
    parts: dict[str, list[Any]] = {}
    temporaries = dict(kernel.temporary_variables)
    ids, arrays = [], []
    for whole in wholes:
        insn, name = whole.insn, str(whole.insn.assignee_name)
        index = insn.assignee.index_tuple if isinstance(insn.assignee, Subscript) else ()
        shape = kernel.get_var_descriptor(name).shape
        reads, own = [], []
        for value in whole.sums:
            array = fresh(f"{name}_sum")
            temporaries[array] = lp.TemporaryVariable(
                array, source.dtype(name), shape=shape, address_space=lp.AddressSpace.GLOBAL
            )
            reads.append(Subscript(Variable(array), index) if index else Variable(array))
            own.append(insn.copy(id=fresh_id(f"{insn.id}_sum"), assignee=reads[-1], expression=value, tags=frozenset()))
            arrays.append(array)
        ids += [stored.id for stored in own]
        rest = insn.copy(
            expression=whole.finishing.of(tuple(reads) if len(reads) > 1 else reads[0], insn.assignee),
            depends_on=insn.depends_on.union(stored.id for stored in own),
        )
        parts[insn.id] = [*own, rest]
    instructions = [one for insn in kernel.instructions for one in parts.get(insn.id, [insn])]
    changed = kernel.copy(instructions=instructions, temporary_variables=temporaries)
    return Parted(source.t_unit.with_kernel(changed), tuple(ids), tuple(arrays))


def part_match(t_unit: lp.TranslationUnit, match: Match) -> tuple[lp.TranslationUnit, Match]:
    """The kernel in which the rows of a match store their sums, and the match of these alone."""
    source = SourceKernel.of(t_unit, match.kernel_name)
    values = [bare_value(match, row) for row in range(match.einsum.b)]
    wholes, insn_ids, outputs = [], list(match.insn_ids), list(match.outputs)
    rows: dict[str, list[int]] = {}
    for row, insn_id in enumerate(match.insn_ids):
        if match.outputs[row] in match.finishing:
            rows.setdefault(insn_id, []).append(row)
    for insn_id, own in rows.items():
        finishing = match.finishing[match.outputs[own[0]]]
        wholes.append(Whole(source.kernel.id_to_insn[insn_id], tuple(values[row] for row in own), finishing))
    parted = part_sums(source, wholes)
    places = [row for own in rows.values() for row in own]
    for row, insn_id, array in zip(places, parted.insn_ids, parted.arrays, strict=True):
        insn_ids[row], outputs[row] = insn_id, array
    found = replace(match, insn_ids=tuple(insn_ids), outputs=tuple(outputs), finishing={}, epilogues=())
    return parted.t_unit, found


def leave_together(t_unit: lp.TranslationUnit, whole: Match, match: Match) -> tuple[lp.TranslationUnit, Match]:
    """The kernel without the instruction that makes one output of all rows, which the transformation of these has to write.

    :param whole: the match of that instruction.
    :param match: of the rows, as :func:`part_match` returns it; what waited for the instruction waits for them.
    """
    kernel, (insn_id, *_) = t_unit[match.kernel_name], whole.insn_ids
    instructions = [
        insn.copy(depends_on=insn.depends_on - {insn_id} | set(match.insn_ids)) if insn_id in insn.depends_on else insn
        for insn in kernel.instructions
        if insn.id != insn_id
    ]
    together = Together(match.outputs, whole.outputs[0], whole.finishing[whole.outputs[0]])
    return t_unit.with_kernel(kernel.copy(instructions=instructions)), replace(match, together=together)
