"""Tiles of an operand of a contraction in blocks: from global memory to local memory, and from there to fragments."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Self

import loopy as lp
from pymbolic.primitives import Call, Comparison, FloorDiv, If, Min, Remainder, Subscript, Variable

from feinsum.errors import TransformError
from feinsum.rewrites.joining import in_rows
from feinsum.rewrites.reads import with_rules
from feinsum.skeletons.block_tiles.frame import BlockFrame
from feinsum.skeletons.common.draft import all_of
from feinsum.skeletons.instructions.async_copies import WIDEST_BYTES, copy_asynchronously


@dataclass(frozen=True)
class Dealing:
    """The dealing of a tile's elements to the work-items of a group.

    :ivar side: 0 for the operand with the rows, 1 for that with the columns.
    :ivar width: elements that are moved at once.
    """

    frame: BlockFrame
    side: int
    width: int

    @property
    def total(self) -> int:
        """The number of moves of a tile, by all work-items."""
        plan = self.frame.plan
        return plan.items * plan.extents[self.side] * plan.depth // self.width

    @property
    def count(self) -> int:
        """The number of moves of a tile by one work-item."""
        return -(-self.total // self.frame.plan.work_items)

    def coordinates(self, number: Any) -> tuple[Any, Any, Any]:
        """The item of the batch, row or column, and depth in the tile that a work-item's move `number` goes to."""
        plan, own = self.frame.plan, self.frame.workers.item
        lengths = (plan.depth, plan.extents[self.side])
        quick, slow = lengths if plan.along_sums[self.side] else lengths[::-1]
        quick //= self.width
        items = plan.work_items
        if items % quick == 0:
            first, rest = Remainder(own, quick), FloorDiv(own, quick) + number * (items // quick)
        else:
            place = own + number * items
            first, rest = Remainder(place, quick), FloorDiv(place, quick)
        first = first * self.width
        second, item = (Remainder(rest, slow), FloorDiv(rest, slow)) if plan.items > 1 else (rest, 0)
        return (item, second, first) if plan.along_sums[self.side] else (item, first, second)

    def numbered(self, name: str, around: frozenset[str], step: str | None) -> tuple[Any, frozenset[str], list[Any]]:
        """The moves of a work-item: a number for each element, the loops, and the conditions under which there is one.

        Loads that all work-items begin at once keep them from multiplying until the last has begun.  In steps they do not.
        """
        frame = self.frame
        steps = frame.tiles.steps if step else 1
        (loop,) = frame.draft.unrolled((name,), (-(-self.count // steps),))
        number = Variable(step) * -(-self.count // steps) + Variable(loop) if step else Variable(loop)
        predicates = [Comparison(number, "<", self.count)] if self.count % steps else []
        if self.count * frame.plan.work_items != self.total:
            predicates.append(Comparison(frame.workers.item + number * frame.plan.work_items, "<", self.total))
        return number, around | {loop} | ({step} if step else set()), predicates


@dataclass(frozen=True)
class StagedOperand:
    """The tiles of one operand, from global memory through registers to local memory.

    :ivar rule: the substitution rule that reads the operand.
    :ivar letters: its indices.
    :ivar kept: the array of its tiles in local memory.
    :ivar coming: the registers of the next tile; None if tiles are copied past them.
    :ivar at: letter -> the array of its values at what a work-item moves, tiles aside.
    :ivar decoded: the instructions that find these values.
    """

    frame: BlockFrame
    dealing: Dealing
    rule: str
    letters: str
    kept: Any
    coming: Any
    at: Mapping[str, str]
    decoded: Sequence[str]

    @classmethod
    def staged(cls, frame: BlockFrame, side: int, rule: str, letters: str) -> Self:
        """Provide memory for the tiles of an operand, and find where its numbers are.

        :raises TransformError: if it is computed, but should be copied asynchronously.
        """
        plan, draft = frame.plan, frame.draft
        if plan.pipeline.asynchronous and not _reads_array(draft.kernel, rule):
            raise TransformError(f"operand '{rule}' is computed, so it cannot be copied asynchronously")
        dealing = Dealing(frame, side, _width(frame, side, rule))
        layout = (plan.pipeline.stages, plan.items, *plan.layout(side))
        tile = draft.array(f"tile_{rule}", layout, lp.AddressSpace.LOCAL, frame.dtype, WIDEST_BYTES)
        coming = None if plan.pipeline.asynchronous else Variable(frame.array(f"next_{rule}", (dealing.count,)))
        at, decoded = _decode_moves(frame, dealing, letters)
        return cls(frame, dealing, rule, letters, Variable(tile), coming, at, decoded)

    @cached_property
    def side(self) -> int:
        """0 for the operand with the rows, 1 for that with the columns."""
        return self.dealing.side

    def load(
        self, tile: Any, around: frozenset[str], after: Sequence[str], there: Any = None, step: str | None = None
    ) -> str:
        """Load a share of a tile into registers, some of it in every step of a product where there is one."""
        number, inside, predicates = self.dealing.numbered("load", around, step)
        value, conditions = self._value(tile, number)
        # A condition of the value, not of the instruction: compilers branch around the latter, and order nothing across.
        conditions += [there] * (there is not None)
        if conditions:
            value = If(all_of(conditions), value, 0.0)
        return self.frame.draft.assign(self.coming[number], value, inside, {*after, *self.decoded}, predicates=predicates)

    def keep(self, after: Sequence[str]) -> str:
        """Store the loaded elements in local memory."""
        frame = self.frame
        number, inside, predicates = self.dealing.numbered("keep", frame.inside, None)
        place = self.kept[self._place(frame.tiles.tile, *self.dealing.coordinates(number))]
        return frame.draft.assign(place, self.coming[number], inside, after, predicates=predicates, alone=True)

    def copy(self, tile: Any, around: frozenset[str], after: Collection[str], step: str | None = None) -> str:
        """Begin to copy a share of a tile to local memory, some of it in every step of a product where there is one."""
        tiles, dtype = self.frame.tiles, self.frame.dtype
        number, inside, present = self.dealing.numbered("copy", around, step)
        value, conditions = self._value(tile, number)
        if tiles.several:
            conditions.append(Comparison(tile, "<", tiles.count))
        there = If(all_of(conditions), 1, 0) if conditions else 1
        place = self.kept[self._place(tile, *self.dealing.coordinates(number))]
        copies, width = self.frame.plan.copies, self.dealing.width
        copy = partial(copy_asynchronously, copies, place, value, there, dtype, width, predicates=frozenset(present))
        return self.frame.draft.add(copy, f"copy_{self.rule}", inside, {*after, *self.decoded}, alone=True)

    def fragment(self, tile: Any, step: Any, loop: str, register: int) -> Any:
        """The place in local memory of a lane's register in a step of a tile."""
        plan, workers, side = self.frame.plan, self.frame.workers, self.side
        held = plan.fragments
        number, depth = held.of_b(workers.lane, register) if side else held.of_a(workers.lane, register)
        first = (workers.place[1 + side] * plan.block_tile.warp_tile[side] + Variable(loop)) * (held.rows, held.columns)[
            side
        ]
        return self.kept[self._place(tile, workers.place[0], first + number, step * held.depth + depth)]

    def _value(self, tile: Any, number: Any) -> tuple[Any, list[Any]]:
        """The value of a work-item's move `number` from a tile, and the conditions under which there is one."""
        frame, sums = self.frame, self.frame.groups["sums"]
        begin = sums.decode(tile, sums.outer) if frame.tiles.several else {}
        index = {x: Variable(self.at[x])[number] + begin.get(x, 0) for x in self.letters}
        conditions = [Comparison(index[x], "<", frame.lengths[x]) for x in sums.letters if sums.pads(x)]
        return Call(Variable(self.rule), tuple(index[x] for x in self.letters)), conditions

    def _place(self, tile: Any, item: Any, own: Any, depth: Any) -> tuple[Any, ...]:
        plan, stages = self.frame.plan, self.frame.plan.pipeline.stages
        stage = Remainder(tile, stages) if self.frame.tiles.several and stages > 1 else 0
        return (stage, item, own, depth) if plan.along_sums[self.side] else (stage, item, depth, own)


def _width(frame: BlockFrame, side: int, rule: str) -> int:
    """The elements to copy at once: as many as planned, if every row of the array begins at a multiple of them."""
    plan, kernel = frame.plan, frame.draft.kernel
    width, run = plan.width[side], plan.depth if plan.along_sums[side] else plan.extents[side]
    definition = kernel.substitutions[rule]
    read = definition.expression
    if width == 1 or run % width or not plan.pipeline.asynchronous or not isinstance(read, Subscript):
        return 1
    array = kernel.get_var_descriptor(read.aggregate.name)
    last = read.index_tuple[-1] == Variable(definition.arguments[-1])
    rows = isinstance(array.shape[-1], int) and array.shape[-1] % width == 0
    return width if last and rows and in_rows(array) else 1


def _decode_moves(frame: BlockFrame, dealing: Dealing, letters: str) -> tuple[dict[str, str], list[str]]:
    """The indices of all moves of a work-item, once for all tiles, and the instructions that compute them."""
    draft, groups, first = frame.draft, frame.groups, frame.workers.first
    sums, side = groups["sums"], ("rows", "columns")[dealing.side]
    (number,) = draft.unrolled(("load",), (dealing.count,))
    item, own, depth = dealing.coordinates(Variable(number))
    values = groups[side].decode(first[side] + own)
    values |= groups["batch"].decode(first["batch"] + item) | sums.decode(depth, sums.inner)
    at: dict[str, str] = {}
    decoded = []
    for x in letters:
        value = values[x]
        name = side if x in groups[side].letters else "batch"
        if x not in sums.letters and frame.may_pass(name, x):
            value = Min((value, frame.lengths[x] - (dealing.width if x == letters[-1] else 1)))
        at[x] = frame.numbers(x, (dealing.count,))
        reference = Variable(at[x])[Variable(number)]
        decoded.append(draft.assign(reference, value, frame.around | {number}, frame.before))
    return at, decoded


def _reads_array(kernel: lp.LoopKernel, rule: str) -> bool:
    """Whether a rule is an element of an array, by itself or through other rules."""
    return isinstance(with_rules(kernel, kernel.substitutions[rule].expression), Subscript)
