"""Tiles of an operand of a contraction in blocks: from global memory to local memory, and from there to fragments."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import loopy as lp
from pymbolic.primitives import Call, Comparison, FloorDiv, If, Min, Remainder, Subscript, Variable

from feinsum.errors import TransformError
from feinsum.rewrites.fusion import in_rows
from feinsum.rewrites.reads import with_rules
from feinsum.skeletons.common.draft import all_of
from feinsum.skeletons.nvidia.async_copies import WIDEST_BYTES, copy_asynchronously

if TYPE_CHECKING:
    from feinsum.skeletons.block_tiles.write import Blocked


class Operand:
    """The tiles of one operand, from global memory through registers to local memory.

    :ivar side: 0 for the operand with the rows, 1 for that with the columns.
    """

    def __init__(self, work: Blocked, side: int) -> None:
        self.work, self.side, plan = work, side, work.plan
        k = plan.operands[side]
        self.rule, self.letters = work.match.rules[0][k], work.match.einsum.indexing.inputs[k]
        self.own = ("rows", "columns")[side]
        if plan.asynchronous and not _is_read(work.kernel, self.rule):
            raise TransformError(f"operand '{self.rule}' is computed, so it cannot be copied asynchronously")
        self.wide = self._width()
        self.total = plan.sub_groups[0] * plan.shape[side] * plan.depth // self.wide
        self.count = -(-self.total // plan.work_items)
        layout = (plan.buffers, plan.sub_groups[0], *plan.layout(side, work.dtype.itemsize))
        self.kept = Variable(work.array(f"tile_{self.rule}", layout, memory=lp.AddressSpace.LOCAL, alignment=WIDEST_BYTES))
        if not plan.asynchronous:
            self.coming = Variable(work.array(f"next_{self.rule}", (self.count,)))
        self._decode()

    def _width(self) -> int:
        """How many numbers to copy at once: as many as planned, if every row of the array begins at a multiple of them."""
        plan, kernel = self.work.plan, self.work.kernel
        wide, run = plan.wide[self.side], plan.depth if plan.along_sums[self.side] else plan.shape[self.side]
        definition = kernel.substitutions[self.rule]
        read = definition.expression
        if wide == 1 or run % wide or not plan.asynchronous or not isinstance(read, Subscript):
            return 1
        array = kernel.get_var_descriptor(read.aggregate.name)
        last = read.index_tuple[-1] == Variable(definition.arguments[-1])
        rows = isinstance(array.shape[-1], int) and array.shape[-1] % wide == 0
        return wide if last and rows and in_rows(array) else 1

    def _coordinates(self, number: Any) -> tuple[Any, Any, Any]:
        """Item of the batch, row or column, and depth in the tile of what a work-item loads `number`-th."""
        plan = self.work.plan
        lengths = (plan.depth, plan.shape[self.side])
        quick, slow = lengths if plan.along_sums[self.side] else lengths[::-1]
        quick //= self.wide
        items = plan.work_items
        if items % quick == 0:
            first, rest = Remainder(self.work.item, quick), FloorDiv(self.work.item, quick) + number * (items // quick)
        else:
            place = self.work.item + number * items
            first, rest = Remainder(place, quick), FloorDiv(place, quick)
        first = first * self.wide
        second, item = (Remainder(rest, slow), FloorDiv(rest, slow)) if plan.sub_groups[0] > 1 else (rest, 0)
        return (item, second, first) if plan.along_sums[self.side] else (item, first, second)

    def _decode(self) -> None:
        """Find the letters of everything that a work-item loads, once for all tiles."""
        work, draft = self.work, self.work.draft
        (number,) = draft.unrolled(("load",), (self.count,))
        item, own, depth = self._coordinates(Variable(number))
        sums = work.groups["sums"]
        values = work.groups[self.own].decode(work.first[self.own] + own)
        values |= work.groups["batch"].decode(work.first["batch"] + item) | sums.decode(depth, sums.inner)
        self.at: dict[str, str] = {}
        self.decoded = []
        for x in self.letters:
            value = values[x]
            name = self.own if x in work.groups[self.own].letters else "batch"
            if x not in sums.letters and work.may_pass(name, x):
                value = Min((value, work.lengths[x] - (self.wide if x == self.letters[-1] else 1)))
            self.at[x] = work.numbers(x, (self.count,))
            reference = Variable(self.at[x])[Variable(number)]
            self.decoded.append(draft.assign(reference, value, work.around | {number}, work.before))

    def _value(self, tile: Any, number: Any) -> tuple[Any, list[Any]]:
        """What a work-item takes `number`-th from a tile, and the conditions on which there is such a thing."""
        work, sums = self.work, self.work.groups["sums"]
        begin = sums.decode(tile, sums.outer) if work.several else {}
        index = {x: Variable(self.at[x])[number] + begin.get(x, 0) for x in self.letters}
        conditions = [Comparison(index[x], "<", work.lengths[x]) for x in sums.letters if sums.pads(x)]
        return Call(Variable(self.rule), tuple(index[x] for x in self.letters)), conditions

    def load(
        self, tile: Any, around: frozenset[str], after: Sequence[str], there: Any = None, step: str | None = None
    ) -> str:
        """Load a share of a tile into registers, some of it in every step of a product where there is one."""
        number, inside, predicates = self._numbered("load", around, step)
        value, conditions = self._value(tile, number)
        # A condition of the value, not of the instruction: compilers branch around the latter, and order nothing across.
        conditions += [there] * (there is not None)
        if conditions:
            value = If(all_of(conditions), value, 0.0)
        return self.work.draft.assign(self.coming[number], value, inside, {*after, *self.decoded}, predicates=predicates)

    def keep(self, after: Sequence[str]) -> str:
        """Put what was loaded into local memory."""
        work = self.work
        number, inside, predicates = self._numbered("keep", work.inside, None)
        place = self.kept[self._place(work.tile, *self._coordinates(number))]
        return work.draft.assign(place, self.coming[number], inside, after, predicates=predicates, alone=True)

    def copy(self, tile: Any, around: frozenset[str], after: Collection[str], step: str | None = None) -> str:
        """Begin to copy a share of a tile to local memory, some of it in every step of a product where there is one."""
        work, dtype = self.work, self.work.dtype
        number, inside, present = self._numbered("copy", around, step)
        value, conditions = self._value(tile, number)
        if work.several:
            conditions.append(Comparison(tile, "<", work.tiles))
        there = If(all_of(conditions), 1, 0) if conditions else 1
        place = self.kept[self._place(tile, *self._coordinates(number))]
        copy = partial(copy_asynchronously, place, value, there, dtype, self.wide, predicates=frozenset(present))
        return work.draft.add(copy, f"copy_{self.rule}", inside, {*after, *self.decoded}, alone=True)

    def fragment(self, tile: Any, step: Any, loop: str, register: int) -> Any:
        """Where a lane finds what it holds in a register in a step of a tile."""
        work, plan = self.work, self.work.plan
        held = plan.fragments
        number, depth = held.of_b(work.lane, register) if self.side else held.of_a(work.lane, register)
        first = (work.place[1 + self.side] * plan.tiles[self.side] + Variable(loop)) * (held.rows, held.columns)[self.side]
        return self.kept[self._place(tile, work.place[0], first + number, step * held.depth + depth)]

    def _place(self, tile: Any, item: Any, own: Any, depth: Any) -> tuple[Any, ...]:
        buffer = Remainder(tile, self.work.plan.buffers) if self.work.several and self.work.plan.buffers > 1 else 0
        return (buffer, item, own, depth) if self.work.plan.along_sums[self.side] else (buffer, item, depth, own)

    def _numbered(self, name: str, around: frozenset[str], step: str | None) -> tuple[Any, frozenset[str], list[Any]]:
        """What a work-item moves: a number for each element, the loops, and the conditions on which there is such.

        Loads that all work-items begin at once keep them from multiplying until the last has begun.  In steps they do not.
        """
        work = self.work
        steps = work.steps if step else 1
        (loop,) = work.draft.unrolled((name,), (-(-self.count // steps),))
        number = Variable(step) * -(-self.count // steps) + Variable(loop) if step else Variable(loop)
        predicates = [Comparison(number, "<", self.count)] if self.count % steps else []
        if self.count * work.plan.work_items != self.total:
            predicates.append(Comparison(work.item + number * work.plan.work_items, "<", self.total))
        return number, around | {loop} | ({step} if step else set()), predicates


def _is_read(kernel: lp.LoopKernel, rule: str) -> bool:
    """Whether a rule is an element of an array, by itself or through other rules."""
    return isinstance(with_rules(kernel, kernel.substitutions[rule].expression), Subscript)
