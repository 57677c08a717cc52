"""Moves that decide in which order kernels are launched."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import loopy as lp

from feinsum.match import Match


def launch_in_turn(t_unit: lp.TranslationUnit, matches: Sequence[Match]) -> lp.TranslationUnit:
    """Launch matches one after the other, so that each has work-groups and local memory to itself.

    Before::

        out_0[e] = sum(j, D(j) * u0(e, j)); out_1[e] = sum(j, D(j) * u1(e, j))

    After::

        out_0[e] = sum(j, D(j) * u0(e, j))
        ... gbarrier
        out_1[e] = sum(j, D(j) * u1(e, j))

    :param matches: of one kernel, without loops in common; see :func:`feinsum.rewrites.separate_rows`.
    """
    kernel = t_unit[matches[0].kernel_name]
    instructions = {insn.id: insn for insn in kernel.instructions}
    fresh = kernel.get_instruction_id_generator()
    for before, after in pairwise(matches):
        barrier = lp.BarrierInstruction(
            fresh("one_after_the_other"),
            depends_on=frozenset(before.insn_ids),
            synchronization_kind="global",
            mem_kind="global",
            within_inames=frozenset(),
            within_inames_is_final=True,
        )
        for insn_id in after.insn_ids:
            insn = instructions[insn_id]
            instructions[insn_id] = insn.copy(depends_on=insn.depends_on | {barrier.id})
        instructions[barrier.id] = barrier
    return t_unit.with_kernel(kernel.copy(instructions=list(instructions.values())))
