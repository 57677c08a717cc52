"""Finding every batched einsum of a kernel, with as many rows as belong together."""

from __future__ import annotations

from functools import reduce
from operator import or_

import loopy as lp

from feinsum.errors import MatchError
from feinsum.match.einsum_grammar import refuse_guarded
from feinsum.match.epilogues import find_whole, match_with_epilogues, set_all_aside
from feinsum.match.finished_sums import with_finishing
from feinsum.match.flat import FlatStore
from feinsum.match.group import RowArrays, RowGroup, RowReader
from feinsum.match.kernel_source import SourceKernel
from feinsum.match.match import Match, choose_instructions, to_match


def find_einsums(
    t_unit: lp.TranslationUnit, kernel_name: str | None = None, *, epilogues: bool = False
) -> tuple[Match, ...]:
    """The batched einsums of a kernel, each maximal: no row of one could join another.

    Rows go together if they compute the same einsum on other arrays and are independent, so a global barrier between
    two instructions keeps them apart.  Rows are also kept apart where one batched einsum could then come neither before
    nor after another.  Instructions that are no einsum are passed over; :func:`match_einsum` says why.
    So are those by which :func:`extract_operands` adds a sum to a flat array, ``A[9*i + 3*j + k]``.

    :param kernel_name: an entry point or a kernel that others call; None for the only entry point.
    :param epilogues: as for :func:`match_einsum`; an instruction that makes one output of several sums is an einsum by
        itself.
    :raises MatchError: if there is no such kernel.
    """
    source = SourceKernel.of(t_unit, kernel_name)
    if not epilogues:
        return _find(source)
    bare, finishing = set_all_aside(source)
    rows = _find(SourceKernel.of(bare, source.kernel.name))
    found = [match_with_epilogues(t_unit, with_finishing(source, match, finishing)) for match in rows]
    place = {insn.id: k for k, insn in enumerate(source.kernel.instructions)}
    whole = [match for match in find_whole(source) if not source.kernel.id_to_insn[match.insn_ids[0]].predicates]
    return tuple(sorted([*found, *whole], key=lambda match: place[match.insn_ids[0]]))


def _find(source: SourceKernel) -> tuple[Match, ...]:
    """The einsums of sums that are stored as they are."""
    reader = RowReader(source)
    groups: list[RowGroup] = []
    for insn in choose_instructions(source, None):
        if insn.tags_of_type(FlatStore):
            continue
        try:
            refuse_guarded(insn)
            seen = reader.read(insn)
            alone = RowGroup(reader, seen)
        except MatchError:
            continue
        if not any(_joins(seen, alone, group, groups) for group in groups):
            groups.append(alone)
    return tuple(to_match(source, group) for group in groups)


def _joins(seen: RowArrays, alone: RowGroup, group: RowGroup, groups: list[RowGroup]) -> bool:
    """Add a row to a group if it belongs there."""
    if _is_circular(group, alone, groups):
        return False
    try:
        group.add(seen)
    except MatchError:
        return False
    return True


def _is_circular(group: RowGroup, alone: RowGroup, groups: list[RowGroup]) -> bool:
    """Whether with this row the group would have to come both before and after other groups."""
    mask, before = group.mask | alone.mask, group.before | alone.before
    others = [other for other in groups if other is not group]
    after = mask
    while after:
        reached = [other for other in others if other.before & after]
        if any(other.mask & before for other in reached):
            return True
        others = [other for other in others if other not in reached]
        after = reduce(or_, (other.mask for other in reached), 0)
    return False
