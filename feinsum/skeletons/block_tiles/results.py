"""The results of a block: their places in the output, and what stands there before.

A compiler moves no load of an array before a store to the same array.  So where something is made of the output's present
content, that is loaded for many results of a work-item before any of these is stored::

    for across, number: present[across, number] = out[...]
    for across, number: out[...] = F(acc[down, across, number], present[across, number])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

from loopy.symbolic import TypeCast
from pymbolic.primitives import Comparison, If, LogicalNot, Variable

from feinsum.match import Match
from feinsum.skeletons.block_tiles.frame import BlockFrame
from feinsum.skeletons.block_tiles.plan import REGISTER_BYTES, BlockTiles
from feinsum.skeletons.common.draft import all_of
from feinsum.skeletons.common.matrix_product import substituted

LOOPS = ("down", "across", "number")
"""The loops through the results of a work-item: fragments along rows and along columns, and numbers of a fragment."""

ROOM = 128
"""Registers of a work-item that its results and what stands at their places may have in any case; chosen by hand."""


@dataclass(frozen=True)
class ResultPlaces:
    """The places of a work-item's results.

    :ivar numbers: letter of the output -> the array of its values, and the loops of :data:`LOOPS` by which it is indexed.
    :ivar bounded: the letters whose values may lie beyond the last.
    :ivar decoded: the instructions that find the values.
    """

    numbers: Mapping[str, tuple[Any, tuple[str, ...]]]
    bounded: tuple[str, ...]
    decoded: tuple[str, ...]

    @classmethod
    def found(cls, frame: BlockFrame) -> ResultPlaces:
        """Find where the results go, in instructions of their own."""
        plan, draft, workers = frame.plan, frame.draft, frame.workers
        lengths = dict(zip(LOOPS, extents(plan), strict=True))
        down, across, number = map(Variable, LOOPS)
        row, column = plan.fragments.of_d(workers.lane, number)
        row += workers.first["rows"] + (workers.place[1] * plan.block_tile.warp_tile[0] + down) * plan.fragments.rows
        column += (
            workers.first["columns"] + (workers.place[2] * plan.block_tile.warp_tile[1] + across) * plan.fragments.columns
        )
        places = {
            "rows": (row, ("down", "number")),
            "columns": (column, ("across", "number")),
            "batch": (workers.first["batch"] + workers.place[0], ()),
        }
        numbers, bounded, decoded = {}, [], []
        for name, (place, loops) in places.items():
            shape = tuple(lengths[loop] for loop in loops) or (1,)
            for x, value in frame.groups[name].decode(place).items():
                array = Variable(frame.numbers(x, shape))
                own = draft.unrolled(("place",) * len(shape), shape)
                at = substituted(value, dict(zip(loops, map(Variable, own), strict=False)))
                decoded.append(draft.assign(array[tuple(map(Variable, own))], at, frame.around | set(own), frame.before))
                numbers[x] = (array, loops)
                bounded += [x] * frame.may_pass(name, x)
        return cls(numbers, tuple(bounded), tuple(decoded))

    def of(self, x: str, loops: Mapping[str, str]) -> Any:
        """The value of a letter for the result that loops stand for."""
        array, own = self.numbers[x]
        return array[tuple(Variable(loops[loop]) for loop in own) or (0,)]


@dataclass(frozen=True)
class FetchedContent:
    """The present content of the output at the places of results.

    :ivar array: the private array that holds it.
    :ivar together: the loops of :data:`LOOPS` that index the array; the others are around loads and stores.
    :ivar loaded: the instruction that loads it.
    """

    array: Any
    together: tuple[str, ...]
    loaded: str

    def of(self, loops: Mapping[str, str]) -> Any:
        """The content at the place of the result that `loops` select."""
        return self.array[tuple(Variable(loops[loop]) for loop in self.together)]


class BlockResults:
    """The instructions that store the results of a block, and before that load what stands there.

    :ivar insn: the instruction of the match that stores an entry.
    :ivar results: the array of the results of a work-item.
    """

    def __init__(self, frame: BlockFrame, match: Match, insn: Any, results: Any) -> None:
        self.frame, self.match, self.insn, self.results = frame, match, insn, results
        finishing = match.finishing.get(insn.assignee_name)
        self.are_added = finishing is not None and finishing.reads_output
        self.unread = finishing and finishing.unread

    def store(self, after: str) -> Any:
        """Write the results that there are; what holds the present content of the entry then, or None if nothing does."""
        draft, lengths = self.frame.draft, dict(zip(LOOPS, extents(self.frame.plan), strict=True))
        loops = dict(zip(LOOPS, draft.unrolled(LOOPS, tuple(lengths.values())), strict=True))
        ready, present = [after, *self.places.decoded], None
        if self.are_added:
            together = read_together(self.frame.plan)
            around = {loop: loops[loop] for loop in LOOPS if loop not in together}
            fetched = self._load(together, around, ready)
            draft.priorities.append(",".join([*around.values(), *(loops[loop] for loop in together)]))
            ready, present = [fetched.loaded], fetched.of(loops)
        at, predicates = self._entry(loops)
        value = self.results[tuple(Variable(loops[loop]) for loop in LOOPS)]
        if self.frame.multiplied != self.frame.dtype:
            value = TypeCast(self.frame.dtype, value)
        inside = {*self.frame.around, *loops.values()}
        draft.assign(at, value, inside, ready, predicates=predicates, insn_id=self.insn.id)
        return present

    @cached_property
    def places(self) -> ResultPlaces:
        """Where the results go."""
        return ResultPlaces.found(self.frame)

    def _load(self, together: tuple[str, ...], around: Mapping[str, str], after: Sequence[str]) -> FetchedContent:
        """Load the present content of entries.

        :param around: the loops that are those of the stores.
        """
        frame, draft = self.frame, self.frame.draft
        lengths = dict(zip(LOOPS, extents(frame.plan), strict=True))
        shape = tuple(lengths[loop] for loop in together)
        own = draft.unrolled(together, shape)
        loops = {**around, **dict(zip(together, own, strict=True))}
        draft.priorities.append(",".join([*around.values(), *own]))
        array = Variable(frame.array("present", shape))
        value, conditions = self._entry(loops)
        if self.unread is not None:
            conditions.append(LogicalNot(self.unread))
        # Conditions of the value, not of the instruction: compilers would add to what they load in the branch around it.
        if conditions:
            value = If(all_of(conditions), value, 0.0)
        inside = {*frame.around, *loops.values()}
        loaded = draft.assign(array[tuple(map(Variable, own))], value, inside, after, alone=True)
        return FetchedContent(array, together, loaded)

    def _entry(self, loops: Mapping[str, str]) -> tuple[Any, list[Any]]:
        """The entry of the output for a result, and the conditions under which there is one."""
        own, places = self.match.loops[0], self.places
        at = {own[x]: places.of(x, loops) for x in places.numbers}
        bounds = [Comparison(places.of(x, loops), "<", self.frame.lengths[x]) for x in places.bounded]
        return substituted(self.insn.assignee, at), bounds


def extents(plan: BlockTiles) -> tuple[int, int, int]:
    """The lengths of :data:`LOOPS`."""
    return (*plan.block_tile.warp_tile, plan.fragments.registers[2])


def read_together(plan: BlockTiles) -> tuple[str, ...]:
    """The loops through results that are loaded before the first of them is stored: all if registers suffice, else numbers
    and the longer of the others.

    The registers of fragments and tiles are free by then.
    """
    words = (max(plan.itemsize, plan.fragments.itemsize) + plan.itemsize) // REGISTER_BYTES
    if prod(extents(plan)) * words <= max(ROOM, plan.registers()):
        return LOOPS
    down, across = plan.block_tile.warp_tile
    return ("down", "number") if down > across else ("across", "number")
