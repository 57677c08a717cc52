"""The pipeline of tiles: one is multiplied while the next are on their way to registers or to local memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pymbolic.primitives import Comparison, Variable

from feinsum.rewrites.sum_moves import UNROLL
from feinsum.skeletons.block_tiles.frame import BlockFrame
from feinsum.skeletons.block_tiles.operand_tiles import StagedOperand
from feinsum.skeletons.block_tiles.prefetched import PrefetchedFragments
from feinsum.skeletons.block_tiles.tile_sums import TileSums
from feinsum.skeletons.instructions.async_copies import commit_copies, wait_for_copies
from feinsum.skeletons.instructions.matrix_units import multiply_accumulate


@dataclass(frozen=True)
class TileProducts:
    """The instructions that bring the tiles of both operands to local memory and add up their products.

    :ivar results: the array of the results of a work-item.
    :ivar cleared: the instruction that sets them to zero.
    """

    frame: BlockFrame
    operands: Sequence[StagedOperand]
    results: Any
    cleared: str

    def multiply(self) -> str:
        """Multiply all tiles; returns the id of the last instruction."""
        return self._asynchronously() if self.frame.plan.pipeline.asynchronous else self._through_registers()

    def _through_registers(self) -> str:
        """Multiply a tile while the next is on its way to registers."""
        frame, tiles = self.frame, self.frame.tiles
        early = [operand.load(0, frame.around, [*frame.before]) for operand in self.operands]
        kept = [operand.keep((*early, self.cleared)) for operand in self.operands]
        ready = frame.barrier(kept, frame.inside)
        if tiles.several:
            there = Comparison(tiles.tile + 1, "<", tiles.count)
            for operand in self.operands:
                operand.load(tiles.tile + 1, frame.inside, [ready], there, tiles.step)
        multiplied = self._products([ready])
        if tiles.several and frame.plan.pipeline.stages == 1:
            frame.barrier([multiplied], frame.inside)
        return multiplied

    def _asynchronously(self) -> str:
        """Multiply a tile while the next are on their way to local memory."""
        frame, draft, tiles = self.frame, self.frame.draft, self.frame.tiles
        ahead = frame.plan.pipeline.stages - 1 if tiles.several else 1
        last: list[str] = [self.cleared]
        for number in range(ahead):
            copied = [operand.copy(number, frame.around, {*frame.before, *last}) for operand in self.operands]
            last = [draft.add(partial(commit_copies, frame.plan.copies), "copies", frame.around, copied)]
        unit = frame.plan.fragments.unit
        if frame.plan.prefetch and tiles.several and unit is not None:
            sums = TileSums.of(frame, self.results)
            return PrefetchedFragments(frame, self.operands, sums, unit).multiply(last, ahead)
        waited = draft.add(partial(wait_for_copies, frame.plan.copies, ahead - 1), "copies", frame.inside, last)
        ready = frame.barrier([waited], frame.inside)
        if tiles.several:
            copied = [operand.copy(tiles.tile + ahead, frame.inside, [ready], tiles.step) for operand in self.operands]
            # Committed even where nothing was copied, so that the number of groups tells which tile has come.
            draft.add(partial(commit_copies, frame.plan.copies), "copies", frame.inside, copied)
        return self._products([ready])

    def _products(self, after: Sequence[str]) -> str:
        """Fragments from local memory to registers, and their products, step by step."""
        frame, plan, draft, tiles = self.frame, self.frame.plan, self.frame.draft, self.frame.tiles
        unit, step, warp_tile = plan.fragments.unit, tiles.step, plan.block_tile.warp_tile
        sums = TileSums.of(frame, self.results)
        cleared = sums.clear(after)
        down, across = draft.unrolled(("down", "across"), warp_tile)
        registers, loaded, loops = [], [], []
        for side, operand in enumerate(self.operands):
            count = plan.fragments.registers[side]
            name = Variable(frame.fragments("ab"[side], (warp_tile[side], count)))
            (loop,) = draft.unrolled(("fragment",), (warp_tile[side],))
            draft.priorities.append(f"{step},{loop}")
            for k in range(count):
                held = operand.fragment(tiles.tile, Variable(step), loop, k)
                inside = {*frame.inside, step, loop}
                loaded.append(draft.assign(name[Variable(loop), k], held, inside, after, alone=True))
            registers.append(tuple(name[Variable((down, across)[side]), k] for k in range(count)))
            loops.append(loop)
        a, b = registers
        results = tuple(sums.array[Variable(down), Variable(across), k] for k in range(plan.fragments.registers[2]))
        inside = {*frame.inside, step, down, across}
        draft.priorities.append(",".join([str(tiles.tile)] * tiles.several + [step, down, across]))
        if unit is None:
            draft.tags |= dict.fromkeys((step, down, across, *loops), UNROLL)
            return draft.assign(results[0], results[0] + a[0] * b[0], inside, loaded)
        product = partial(multiply_accumulate, unit, results, a, b, summed=plan.tilewise)
        return sums.add(draft.add(product, "multiply", inside, [*loaded, *cleared]))
