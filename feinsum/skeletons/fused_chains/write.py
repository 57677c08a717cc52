"""Contractions one after the other by one work-group, partial results in local memory: ``out = ((u A) B) C``.

A work-group takes a block of the long index, so that intermediate results never leave the chip; its work-items share the
entries of each result, a tile of them at a time in registers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import loopy as lp
from pymbolic.primitives import Variable

from feinsum.match import Match
from feinsum.rewrites.finishing import mark_finished, others_than
from feinsum.rewrites.loops import without_race_warnings
from feinsum.skeletons.common.matrix_product import substituted
from feinsum.skeletons.fused_chains.chain_kernel import GroupKernel
from feinsum.skeletons.fused_chains.chain_steps import MatrixSharing, TileSharing
from feinsum.skeletons.fused_chains.events import (
    MOVED_TOGETHER,
    ContractStep,
    CopyMatrix,
    CopyOperand,
    GroupEvent,
    StoreResult,
)
from feinsum.skeletons.fused_chains.multiply_adds import RegisterTileStep, WorkItemTile
from feinsum.skeletons.fused_chains.plan import FusedChain
from feinsum.skeletons.fused_chains.unit_products import MatrixUnitStep, copy_matrix
from feinsum.skeletons.instructions.matrix_units import fragment_unit, register_matrix_unit


def write(t_unit: lp.TranslationUnit, match: Match, plan: FusedChain) -> lp.TranslationUnit:
    """Contract along the steps of a plan, a block of the output in each work-group.

    Before::

        for e, i, j: out[e, i, j] = sum([k, l], A(i, k) * B(j, l) * u(e, k, l))

    After steps ``A u`` and ``B (A u)`` with blocks of W elements e and T work-items n, tiles of 2 e and all of i::

        for e, k, l in the block, n sharing them: copy[e, k, l] = u(g W + e, k, l)
        ... lbarrier
        for n in W / 2 by l, sharing them:
            for k: for e, i: acc[e, i] += A(i, k) * copy[n's e, k, n's l]
            for e, i: partial[n's e, i, n's l] = acc[e, i]
        ... lbarrier
        for n ...: out[g W + n's e, n's i, j] = ... B(j, l) * partial[n's e, n's i, l]

    Local arrays are padded against bank conflicts and share memory where they are not needed at a time.  In the last
    block, what sticks out is computed from the last elements again and not stored.

    :raises TransformError: if the plan does not fit the einsum, its numbers have several types, an instruction has a
        predicate, or there are more indices in blocks than axes of groups.

    ``compute_at`` with ``store_in`` shared memory in Halide, ``set_scope("shared")`` in TVM.
    """
    others = others_than(t_unit, match)
    t_unit = t_unit.with_kernel(_ChainWriter(t_unit[match.kernel_name], match, plan).result())
    t_unit = mark_finished(t_unit, match, others)
    for unit in {step.matrix_unit for step in plan.block.steps if step.matrix_unit}:
        t_unit = register_matrix_unit(t_unit, fragment_unit(unit))
    return t_unit


class _ChainWriter:
    """Writes the events of a work-group in their order."""

    def __init__(self, kernel: lp.LoopKernel, match: Match, plan: FusedChain) -> None:
        self.kernel, self.plan = GroupKernel(kernel, match, plan), plan

    def result(self) -> lp.LoopKernel:
        for copy in self.kernel.schedule.first:
            if isinstance(copy, CopyMatrix):
                copy_matrix(self.kernel, copy)
            else:
                self._copy(copy, self.kernel.around)
        copies = self._first_copies() if self.plan.prefetch else {}
        events = list(enumerate(self.kernel.schedule.events))
        contractions = self._contractions(events)
        early = [c for c in contractions.values() if self.plan.loads_in_flight and c.can_load_early()]
        around, origin = (
            (self.kernel.around, self._origin_of_round(0))
            if self.plan.prefetch
            else (self.kernel.inside, self.kernel.origin)
        )
        moved = {number: self._moved(copy) for number, copy in copies.items()}
        for number, copy in copies.items():
            self._load(copy, moved[number], around, origin)
        for contraction in early:
            contraction.load_early(around, origin)
        for number, event in events:
            if number in self.kernel.schedule.barriers:
                self.kernel.wait()
                for k in [k for k in copies if k < number]:
                    self._load(
                        copies.pop(k), moved[k], self.kernel.inside, self._origin_of_round(Variable(self.kernel.round) + 1)
                    )
            if number in moved and isinstance(event, CopyOperand):
                self._keep(event, moved[number], self.kernel.inside)
            elif isinstance(event, CopyOperand):
                self._copy(event, self.kernel.inside)
            elif isinstance(event, StoreResult):
                self._store(event)
            else:
                contractions[number].write()
                if contractions[number] in early and self.plan.prefetch:
                    contractions[number].load_early(
                        self.kernel.inside, self._origin_of_round(Variable(self.kernel.round) + 1)
                    )
        if self.plan.persistent_groups:
            self.kernel.wait()
        finished = self.kernel.draft.finished(self.kernel.match.insn_ids, ())
        # The bounds of its turns tell which work-item writes what; loopy looks for the item in the index alone, where it is
        # not if there is but one number.
        return without_race_warnings(finished, (insn.id for insn in self.kernel.draft.instructions))

    def _first_copies(self) -> dict[int, CopyOperand]:
        """The copies at the beginning of a block."""
        found: dict[int, CopyOperand] = {}
        for number, event in enumerate(self.kernel.schedule.events):
            if not isinstance(event, CopyOperand):
                break
            found[number] = event
        return found

    def _contractions(self, events: Sequence[tuple[int, GroupEvent]]) -> dict[int, RegisterTileStep | MatrixUnitStep]:
        """The writer of each contraction, by the number of its event."""
        found: dict[int, RegisterTileStep | MatrixUnitStep] = {}
        before: RegisterTileStep | None = None
        for number, event in events:
            if not isinstance(event, ContractStep):
                continue
            if isinstance(event.sharing, MatrixSharing):
                found[number] = MatrixUnitStep(self.kernel, event, event.sharing)
            else:
                found[number] = before = RegisterTileStep(self.kernel, event, event.sharing, before)
        return found

    def _origin_of_round(self, number: Any) -> dict[str, Any]:
        return {x: substituted(begin, {self.kernel.round: number}) for x, begin in self.kernel.origin.items()}

    def _copy(self, copy: CopyOperand, around: frozenset[str]) -> None:
        if self._is_short(copy.sharing):
            moved = self._moved(copy)
            self._load(copy, moved, around, self.kernel.origin)
            self._keep(copy, moved, around)
            return
        tile = WorkItemTile(self.kernel, copy.sharing, around)
        loops, at = tile.loops()
        value = self.kernel.operand(copy.operand, copy.row, at, self.kernel.origin)
        self.kernel.last |= {
            self.kernel.assign(self.kernel.entry(copy.target, at), value, tile.around | set(loops.values()))
        }

    def _moved(self, copy: CopyOperand) -> str:
        """Registers for the elements that a work-item copies, so that it loads all of them before it stores any."""
        turns = -(-copy.sharing.digits.total // self.plan.block.items)
        return self.kernel.draft.array("moved", (turns, *copy.sharing.tile.values()), dtype=self.kernel.dtype)

    def _load(self, copy: CopyOperand, moved: str, around: frozenset[str], origin: Mapping[str, Any]) -> None:
        tile = WorkItemTile(self.kernel, copy.sharing, around, written_out=True)
        loops, at = tile.loops(tuple(copy.sharing.tile))
        entry = Variable(moved)[(tile.turn, *map(Variable, loops.values()))]
        value = self.kernel.operand(copy.operand, copy.row, at, origin)
        predicates = [*tile.predicates, *self.kernel.begun(around, origin)]
        self.kernel.last |= {self.kernel.assign(entry, value, tile.around | set(loops.values()), predicates=predicates)}

    def _keep(self, copy: CopyOperand, moved: str, around: frozenset[str]) -> None:
        tile = WorkItemTile(self.kernel, copy.sharing, around, written_out=True)
        loops, at = tile.loops(tuple(copy.sharing.tile))
        entry = Variable(moved)[(tile.turn, *map(Variable, loops.values()))]
        inside = tile.around | set(loops.values())
        self.kernel.last |= {
            self.kernel.assign(self.kernel.entry(copy.target, at), entry, inside, predicates=tile.predicates)
        }

    def _store(self, event: StoreResult) -> None:
        short = self._is_short(event.sharing)
        tile = WorkItemTile(self.kernel, event.sharing, self.kernel.inside, written_out=short)
        loops, at = tile.loops()
        inside = tile.around | set(loops.values())
        turns = -(-event.sharing.digits.total // self.plan.block.items)
        own = {name: tile.tile[x] for x, name in loops.items()} | (dict.fromkeys(tile.turns, turns) if short else {})
        self.kernel.put(event.row, at, self.kernel.entry(event.source, at), inside, own, tile.predicates)

    def _is_short(self, sharing: TileSharing) -> bool:
        """Whether the loop over a work-item's moves may be written out."""
        turns = -(-sharing.digits.total // self.plan.block.items)
        return turns * math.prod(sharing.tile.values()) <= MOVED_TOGETHER
