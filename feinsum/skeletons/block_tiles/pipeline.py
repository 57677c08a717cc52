"""A product in blocks whose fragments come from local memory a step ahead: ``load(s + 1); D += A(s) B(s)``.

After the barrier of a tile every sub-group would wait for its first fragments, and in every step for the next.  With two
sets of registers, those of a step are loaded while those of the step before are multiplied, across the barrier too::

    wait, lbarrier; load(0 of tile 0)
    for tile:
        for step < last: copy some of tile + buffers - 1; load(step + 1); D += A(step) B(step)
        commit, wait, lbarrier; load(0 of tile + 1); D += A(last) B(last)

The main loop of GEMM in CUTLASS: "register-level double buffering".
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pymbolic.primitives import Remainder, Variable

from feinsum.devices.ptx import MatrixUnit
from feinsum.skeletons.block_tiles.operands import Operand
from feinsum.skeletons.nvidia.async_copies import commit_copies, keep_loads_before, wait_for_copies
from feinsum.skeletons.nvidia.matrix_units import multiply_accumulate

if TYPE_CHECKING:
    from feinsum.skeletons.block_tiles.write import Blocked


@dataclass(frozen=True)
class FragmentsAhead:
    """The instructions of the pipeline; what is loaded beyond the last tile is never multiplied."""

    work: Blocked
    operands: Sequence[Operand]
    unit: MatrixUnit

    def multiply(self, started: Sequence[str], ahead: int) -> str:
        """All tiles, of which the first `ahead` are on their way when the instructions `started` are done; the last id."""
        work, step = self.work, Variable(self.work.step)
        inside = work.inside | {work.step}
        kept = [self._registers(side) for side in (0, 1)]
        waited = work.draft.add(partial(wait_for_copies, ahead - 1), "copies", work.around, started)
        there = work.barrier([waited], work.around)
        first = self._load(kept, 0, (0, 0), work.around, [there])
        copied = [operand.copy(work.tile + ahead, work.inside, first, work.step) for operand in self.operands]
        coming = self._load(kept, Remainder(step + 1, 2), (work.tile, step + 1), inside, first)
        multiplied = self._products(kept, Remainder(step, 2), inside, coming)
        work.draft.priorities.append(f"{work.tile},{work.step}")
        committed = work.draft.add(commit_copies, "copies", work.inside, [*copied, multiplied])
        waited = work.draft.add(partial(wait_for_copies, ahead - 1), "copies", work.inside, [committed])
        there = work.barrier([waited], work.inside)
        again = self._load(kept, 0, (work.tile + 1, 0), work.inside, [there])
        return self._products(kept, work.steps % 2, work.inside, again)

    def _registers(self, side: int) -> Any:
        """Two sets of the fragments of an operand."""
        plan = self.work.plan
        return Variable(self.work.array("ab"[side], (2, plan.tiles[side], plan.fragments.registers[side])))

    def _load(
        self, kept: Sequence[Any], number: Any, of: tuple[Any, Any], inside: frozenset[str], after: Collection[str]
    ) -> list[str]:
        """Load the fragments of a tile and step into one of the sets, before anything that comes after."""
        work, plan, loads = self.work, self.work.plan, []
        for side, operand in enumerate(self.operands):
            (loop,) = work.draft.unrolled(("fragment",), (plan.tiles[side],))
            for k in range(plan.fragments.registers[side]):
                register, place = kept[side][number, Variable(loop), k], operand.fragment(*of, loop, k)
                loads.append(work.draft.assign(register, place, inside | {loop}, after, alone=True))
        return [work.draft.add(keep_loads_before, "copies", inside, loads)]

    def _products(self, kept: Sequence[Any], number: Any, inside: frozenset[str], after: Collection[str]) -> str:
        """Multiply one of the sets."""
        work, plan = self.work, self.work.plan
        loops = work.draft.unrolled(("down", "across"), plan.tiles)
        place = tuple(map(Variable, loops))
        counts = plan.fragments.registers
        a, b = (tuple(kept[side][number, place[side], k] for k in range(counts[side])) for side in (0, 1))
        results = tuple(work.acc[(*place, k)] for k in range(counts[2]))
        work.draft.priorities.append(",".join(loops))
        return work.draft.add(
            partial(multiply_accumulate, self.unit, results, a, b), "multiply", inside | set(loops), after
        )
