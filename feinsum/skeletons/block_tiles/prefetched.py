"""A product in blocks whose fragments come from local memory a step ahead: ``load(s + 1); D += A(s) B(s)``.

After the barrier of a tile every sub-group would wait for its first fragments, and in every step for the next.  With two
sets of registers, those of a step are loaded while those of the step before are multiplied, across the barrier too::

    wait, lbarrier; load(0 of tile 0)
    for tile:
        for step < last: copy some of tile + stages - 1; load(step + 1); D += A(step) B(step)
        commit, wait, lbarrier; load(0 of tile + 1); D += A(last) B(last)

The main loop of GEMM in CUTLASS: "register-level double buffering".
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pymbolic.primitives import Remainder, Variable

from feinsum.devices.vendors.units import MatrixUnit
from feinsum.skeletons.block_tiles.frame import BlockFrame
from feinsum.skeletons.block_tiles.operand_tiles import StagedOperand
from feinsum.skeletons.block_tiles.tile_sums import TileSums
from feinsum.skeletons.instructions.async_copies import commit_copies, keep_loads_before, wait_for_copies
from feinsum.skeletons.instructions.matrix_units import multiply_accumulate


@dataclass(frozen=True)
class PrefetchedFragments:
    """The instructions of the pipeline; what is loaded beyond the last tile is never multiplied.

    :ivar sums: what products are added to.
    """

    frame: BlockFrame
    operands: Sequence[StagedOperand]
    sums: TileSums
    unit: MatrixUnit

    def multiply(self, started: Sequence[str], ahead: int) -> str:
        """Multiply all tiles, of which the instructions `started` load the first `ahead`; returns the last id."""
        frame, draft, tiles = self.frame, self.frame.draft, self.frame.tiles
        step, tile, sums = Variable(tiles.step), tiles.tile, self.sums
        inside = frame.inside | {tiles.step}
        kept = [self._registers(side) for side in (0, 1)]
        waited = draft.add(partial(wait_for_copies, frame.plan.copies, ahead - 1), "copies", frame.around, started)
        there = frame.barrier([waited], frame.around)
        first = self._load(kept, 0, (0, 0), frame.around, [there])
        cleared = sums.clear(first)
        copied = [operand.copy(tile + ahead, frame.inside, first, tiles.step) for operand in self.operands]
        coming = self._load(kept, Remainder(step + 1, 2), (tile, step + 1), inside, first)
        multiplied = self._products(kept, Remainder(step, 2), inside, [*coming, *cleared])
        draft.priorities.append(f"{tile},{tiles.step}")
        committed = draft.add(partial(commit_copies, frame.plan.copies), "copies", frame.inside, [*copied, multiplied])
        waited = draft.add(partial(wait_for_copies, frame.plan.copies, ahead - 1), "copies", frame.inside, [committed])
        there = frame.barrier([waited], frame.inside)
        again = self._load(kept, 0, (tile + 1, 0), frame.inside, [there])
        return sums.add(self._products(kept, tiles.steps % 2, frame.inside, again))

    def _registers(self, side: int) -> Any:
        """Two sets of the fragments of an operand."""
        plan = self.frame.plan
        shape = (2, plan.block_tile.warp_tile[side], plan.fragments.registers[side])
        return Variable(self.frame.fragments("ab"[side], shape))

    def _load(
        self, kept: Sequence[Any], number: Any, of: tuple[Any, Any], inside: frozenset[str], after: Collection[str]
    ) -> list[str]:
        """Load the fragments of a tile and step into one of the sets, before anything that comes after."""
        plan, draft, loads = self.frame.plan, self.frame.draft, []
        for side, operand in enumerate(self.operands):
            (loop,) = draft.unrolled(("fragment",), (plan.block_tile.warp_tile[side],))
            for k in range(plan.fragments.registers[side]):
                register, place = kept[side][number, Variable(loop), k], operand.fragment(*of, loop, k)
                loads.append(draft.assign(register, place, inside | {loop}, after, alone=True))
        return [draft.add(partial(keep_loads_before, plan.copies), "copies", inside, loads)]

    def _products(self, kept: Sequence[Any], number: Any, inside: frozenset[str], after: Collection[str]) -> str:
        """Multiply one of the sets."""
        plan, draft = self.frame.plan, self.frame.draft
        loops = draft.unrolled(("down", "across"), plan.block_tile.warp_tile)
        place = tuple(map(Variable, loops))
        counts = plan.fragments.registers
        a, b = (tuple(kept[side][number, place[side], k] for k in range(counts[side])) for side in (0, 1))
        results = tuple(self.sums.array[(*place, k)] for k in range(counts[2]))
        draft.priorities.append(",".join(loops))
        product = partial(multiply_accumulate, self.unit, results, a, b, summed=plan.tilewise)
        return draft.add(product, "multiply", inside | set(loops), after)
