"""The accumulators of tiles, P: the numbers of a block of columns, or of all blocks, that a lane adds products to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from loopy.symbolic import TypeCast
from pymbolic.primitives import Variable

from feinsum.skeletons.common.matrix_product import MatrixProduct
from feinsum.skeletons.instructions.matrix_units import DEPTH, multiply_accumulate
from feinsum.skeletons.instructions.summing_units import multiply_and_sum
from feinsum.skeletons.warp_tiles.long_operand import LongOperand
from feinsum.skeletons.warp_tiles.resident_factor import ResidentFactor
from feinsum.skeletons.warp_tiles.tile_loops import TileLoops, TurnLoop


class Accumulators:
    """Registers of a lane for P: two numbers in each of two rows, for every product of the batch.

    With slices of the sum there are as many for every block of columns.  Where the unit adds the steps of a sum by itself,
    the bits that it would cut off are summed beside them, and added at the end.
    """

    def __init__(self, loops: TileLoops) -> None:
        self.loops, self.plan = loops, loops.plan
        self.batch = loops.matched.batch
        kept = (loops.blocks.count,) if self.plan.k_slices > 1 else ()
        self.shape = (*kept, *self.batch.values(), 2, 2)
        self.name = loops.draft.array("acc", self.shape, dtype=self.plan.number)
        apart = self.plan.accumulation == "apart"
        self.corrections = "" if apart else loops.draft.array("rest", self.shape, dtype=self.plan.number)

    def clear(self, around: frozenset[str], after: tuple[str, ...]) -> tuple[str, ...]:
        """Zeros in all of them; the ids of the instructions."""
        arrays = filter(None, (self.name, self.corrections))
        return tuple(self._each("zero", array, lambda at: 0.0, around, after) for array in arrays)

    def multiply(
        self,
        a: LongOperand,
        b: ResidentFactor,
        p: MatrixProduct,
        turn: TurnLoop,
        block: str,
        after: tuple[str, ...],
        slice_: str = "",
    ) -> str:
        """Add a block of products, or the share of a slice of the sum; the id of the instruction."""
        draft = self.loops.draft
        batch = draft.unrolled(tuple(self.batch), tuple(self.batch.values()))
        count = self.plan.steps // self.plan.k_slices * DEPTH // self.plan.unit.k
        (step,) = draft.unrolled(("step",), (count,))
        outside = (slice_, block) if slice_ else (block,)
        draft.priorities.append(",".join((turn.round, *outside, step, *batch)))
        place = Variable(slice_) * count + Variable(step) if slice_ else Variable(step)
        fragments = a.registers(p, step, batch), b.fragment(block, place, batch)
        sums = self._registers(self.name, block, batch)
        if self.corrections:
            rests = self._registers(self.corrections, block, batch)
            add = partial(multiply_and_sum, self.plan.unit, self.plan.accumulation, sums, rests, *fragments)
        else:
            add = partial(multiply_accumulate, self.plan.unit, sums, *fragments)
        return draft.add(add, "multiply", turn.inside | {*outside, step, *batch}, after)

    def finish(self, multiplied: str, around: frozenset[str]) -> str:
        """Add the bits that the unit could not; the id of the instruction after which the sums are complete."""
        if not self.corrections:
            return multiplied
        sums, rest = Variable(self.name), Variable(self.corrections)
        return self._each("add", self.name, lambda at: sums[at] + rest[at], around, (multiplied,))

    def finished(self, block: str, batch: Iterable[Any], half: Any, number: Any) -> Any:
        """A number of P, in the type of results."""
        value = Variable(self.name)[(*self._kept(block), *batch, half, number)]
        dtype = self.plan.product.dtype
        return value if self.plan.number == dtype else TypeCast(dtype, value)

    def _kept(self, block: str) -> tuple[Any, ...]:
        return (Variable(block),) if self.plan.k_slices > 1 else ()

    def _registers(self, array: str, block: str, batch: Sequence[str]) -> tuple[Any, ...]:
        """The references to a lane's numbers of a block, in the order of registers of the unit."""
        at = (*self._kept(block), *map(Variable, batch))
        return tuple(Variable(array)[(*at, half, number)] for half in range(2) for number in range(2))

    def _each(
        self, base: str, array: str, value: Callable[[Any], Any], around: frozenset[str], after: tuple[str, ...]
    ) -> str:
        """Assign to every number that a lane has of the accumulators; the id of the instruction."""
        loops = self.loops.draft.unrolled((base,) * len(self.shape), self.shape)
        at = tuple(map(Variable, loops))
        return self.loops.draft.assign(Variable(array)[at], value(at), around | set(loops), after)
