"""Fences: global barriers between the matched instructions and the rest of their kernel.

    for e: t[e] = a[e] + 1                              for e: t[e] = a[e] + 1
    for e, i: y[e, i] = sum(j, D_(i, j)*t_(e, j))       ... gbarrier
    for e, i: z[e, i] = 2*y[e, i] + t[e]          ──▶   for e, i: y[e, i] = sum(j, D_(i, j)*t_(e, j))
                                                        ... gbarrier
                                                        for e_0, i_0: z[e_0, i_0] = 2*y[e_0, i_0] + t[e_0]

The loops of a transformed einsum run in parallel, on as many work-items as suit it, and loopy has no code for other loops
beside them: instructions that no global barrier keeps apart have to use the same axes of the hardware.  Instructions that
the einsum depends on come before it, all others after.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from functools import reduce
from itertools import product
from operator import or_
from typing import Any, Protocol

import loopy as lp
from loopy.kernel.data import ConcurrentTag
from loopy.match import Id, Or

from feinsum.errors import TransformError
from feinsum.match.kernel_source import SourceKernel
from feinsum.match.neighbours import Neighbours
from feinsum.match.row_groups import InstructionOrder


class Fenced(Protocol):
    """Some instructions of a kernel, as a :class:`~feinsum.match.Match` has them."""

    @property
    def kernel_name(self) -> str: ...

    @property
    def insn_ids(self) -> tuple[str, ...]: ...


def fence(t_unit: lp.TranslationUnit, match: Fenced) -> lp.TranslationUnit:
    """Put global barriers before and after the matched instructions, where other instructions have none in between.

    Instructions that come after and share loops with some that come before get loops of their own.  Sequential ones that
    hand on an element within one iteration, or share no loop, are told to loopy as needing no barrier, which it asks for
    once any loop of the kernel is parallel; temporaries that outlive a barrier go to global memory.  A kernel that is all
    einsum is returned as it is; so is one that others call, since barriers are for entry points.

    :raises TransformError: naming the instructions and the array if loops cannot be parted at the einsum.
    """
    source = SourceKernel(t_unit, t_unit[match.kernel_name])
    others = [insn for insn in source.kernel.instructions if insn.id not in match.insn_ids]
    if not others or match.kernel_name not in t_unit.entrypoints:
        return t_unit
    neighbours, order = Neighbours(source), InstructionOrder(source)
    before, after = _sides(source.kernel, order, match)
    _check_parting(source.kernel, neighbours, match, before, after)
    kernel = _let_pass_on(source.kernel, neighbours, order, others)
    kernel = _keep_temporaries(kernel, neighbours, (match.insn_ids, before, after))
    kernel = _put_barriers(kernel, match, before, after)
    if shared := _find_loops(kernel, before) & _find_loops(kernel, after):
        kernel = lp.duplicate_inames(kernel, sorted(shared), within=Or(tuple(map(Id, after))))
    return t_unit.with_kernel(kernel)


def _sides(kernel: lp.LoopKernel, order: InstructionOrder, match: Fenced) -> tuple[list[str], list[str]]:
    """The instructions that come before the einsum and those that come after, without those behind barriers already."""
    instructions = kernel.instructions
    bit = {insn.id: order.mask([insn.id]) for insn in instructions}
    rows = order.mask(match.insn_ids)
    needed = reduce(or_, map(order.before, match.insn_ids))
    barriers = [insn.id for insn in instructions if _is_global_barrier(insn)]
    first = [barrier for barrier in barriers if all(order.before(row) & bit[barrier] for row in match.insn_ids)]
    last = [barrier for barrier in barriers if order.before(barrier) & rows == rows]
    apart = reduce(or_, (order.before(barrier) | bit[barrier] for barrier in first), rows)
    before: list[str] = []
    after: list[str] = []
    for insn in instructions:
        if bit[insn.id] & apart or insn.id in last or any(order.before(insn.id) & bit[barrier] for barrier in last):
            continue
        (before if bit[insn.id] & needed else after).append(insn.id)
    return before, after


def _is_global_barrier(insn: Any) -> bool:
    return isinstance(insn, lp.BarrierInstruction) and insn.synchronization_kind == "global"


def _find_loops(kernel: lp.LoopKernel, insn_ids: Iterable[str]) -> frozenset[str]:
    """The sequential loops around instructions."""
    around = frozenset[str]().union(*(kernel.id_to_insn[insn_id].within_inames for insn_id in insn_ids))
    return frozenset(iname for iname in around if not kernel.iname_tags_of_type(iname, ConcurrentTag))


def _check_parting(
    kernel: lp.LoopKernel, neighbours: Neighbours, match: Fenced, before: Iterable[str], after: Iterable[str]
) -> None:
    """Check that iterations of shared loops depend on each other in no way that parting them would change."""
    for early, late in product(before, after):
        loops = kernel.id_to_insn[early].within_inames & kernel.id_to_insn[late].within_inames
        for array, apart in neighbours.shared_arrays(early, late, loops).items() if loops else ():
            if not apart:
                loop = min(loops)
                raise TransformError(
                    f"'{early}' and '{late}' share '{array}' from iteration to iteration of the loop '{loop}', which cannot"
                    f" go on across the einsum of '{match.insn_ids[0]}', between them; give '{array}' an axis for '{loop}'"
                    " in global memory"
                )


def _let_pass_on(
    kernel: lp.LoopKernel, neighbours: Neighbours, order: InstructionOrder, others: Iterable[Any]
) -> lp.LoopKernel:
    """The kernel with sequential instructions that need no barrier between them, since they share iterations."""
    alone = [insn for insn in others if _find_loops(kernel, [insn.id]) == insn.within_inames]
    pairs = ((one, other) for one, other in product(alone, alone) if order.mask([one.id]) & order.before(other.id))
    passed: dict[str, frozenset[tuple[str, str]]] = defaultdict(frozenset)
    for one, other in pairs:
        shared = one.within_inames & other.within_inames
        arrays = neighbours.shared_arrays(one.id, other.id, shared)
        # Where they share no loop, all of one runs before the other, on one work-item or in an earlier launch.
        if arrays and (not shared or all(arrays.values())):
            passed[other.id] |= {(one.id, "global")}
    return kernel.copy(
        instructions=[
            insn.copy(no_sync_with=insn.no_sync_with | passed[insn.id]) if insn.id in passed else insn
            for insn in kernel.instructions
        ]
    )


def _keep_temporaries(kernel: lp.LoopKernel, neighbours: Neighbours, sides: Iterable[Collection[str]]) -> lp.LoopKernel:
    """The kernel with temporaries in global memory that one side of a barrier writes and another reads."""
    kept = {
        name: temporary.copy(address_space=lp.AddressSpace.GLOBAL)
        for name, temporary in kernel.temporary_variables.items()
        if temporary.address_space != lp.AddressSpace.GLOBAL
        and sum(not neighbours.users(name).isdisjoint(side) for side in sides) > 1
    }
    return kernel.copy(temporary_variables={**kernel.temporary_variables, **kept}) if kept else kernel


def _put_barriers(kernel: lp.LoopKernel, match: Fenced, before: Collection[str], after: Collection[str]) -> lp.LoopKernel:
    fresh = kernel.get_instruction_id_generator()
    waits: dict[str, str] = {}
    barriers = []
    for name, side, waiting in (("before", before, match.insn_ids), ("after", match.insn_ids, after)):
        if before if name == "before" else after:
            barrier = lp.BarrierInstruction(
                fresh(f"{name}_{match.insn_ids[0]}"),
                depends_on=frozenset(side),
                synchronization_kind="global",
                within_inames_is_final=True,
            )
            barriers.append(barrier)
            waits.update(dict.fromkeys(waiting, barrier.id))
    instructions = [
        insn.copy(depends_on=insn.depends_on | {waits[insn.id]}) if insn.id in waits else insn
        for insn in kernel.instructions
    ]
    return kernel.copy(instructions=[*instructions, *barriers])
