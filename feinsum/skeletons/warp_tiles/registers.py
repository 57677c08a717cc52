"""Loads of a lane's share of a tile into registers, for its first row and the one 8 further."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pymbolic.primitives import Variable

from feinsum.skeletons.instructions.matrix_units import ROWS
from feinsum.skeletons.warp_tiles.lanes import guarded
from feinsum.skeletons.warp_tiles.tile_loops import TileLoops, TurnLoop


@dataclass(frozen=True)
class LaneLoad:
    """A load of a lane: ``name[index] = value(row, index)``, or zero unless ``valid(index)``.

    :ivar name: the array of registers; :ivar shape: its shape, the last axis for the lane's two rows.
    :ivar value: a number, for the lane's first row of a tile; the second row is 8 further.
    :ivar valid: the conditions under which there is one, where loads are clamped.
    """

    name: str
    shape: tuple[int, ...]
    value: Callable[[Any, tuple[Any, ...]], Any]
    valid: Callable[[tuple[Any, ...]], list[Any]] = lambda index: []


class RegisterLoads:
    """Adds loads of a turn to the draft."""

    def __init__(self, loops: TileLoops, turn: TurnLoop) -> None:
        self.loops, self.turn, self.draft = loops, turn, loops.draft
        self._rows: dict[Any, tuple[Any, str]] = {}

    def room(self, f: LaneLoad) -> str:
        """Registers in which the numbers of a later tile wait."""
        return self.draft.array(f"next_{f.name}", f.shape, dtype=self.loops.plan.product.dtype)

    def load(
        self, name: str, f: LaneLoad, tile: Any, around: frozenset[str], after: Sequence[str], alone: bool = False
    ) -> str:
        """Load the numbers of a tile into an array; the id of the last instruction."""
        loops = self.draft.unrolled(("load",) * len(f.shape), f.shape)
        index = tuple(map(Variable, loops))
        row, known = self.row(tile, around)
        ready = {*after, *self.loops.matched.before, known}
        value = f.value(row, index)
        loaded = self.draft.assign(Variable(name)[index], value, around | set(loops), ready, alone=alone)
        if not f.valid(index):
            return loaded
        loops = self.draft.unrolled(("valid",) * len(f.shape), f.shape)
        index = tuple(map(Variable, loops))
        number = Variable(name)[index]
        return self.draft.assign(number, guarded(f.valid(index), number), around | set(loops), (loaded,))

    def take(self, f: LaneLoad, source: str, after: Sequence[str]) -> str:
        """Move waiting numbers to the registers where they are used; the id of the instruction."""
        loops = self.draft.unrolled(("take",) * len(f.shape), f.shape)
        index = tuple(map(Variable, loops))
        return self.draft.assign(Variable(f.name)[index], Variable(source)[index], self.turn.inside | set(loops), after)

    def row(self, tile: Any, around: frozenset[str]) -> tuple[Any, str]:
        """A lane's first row of a tile, in a hidden temporary, and the id of what sets it.

        Were it known, some compilers would keep a running address for every load, each in a register for the whole loop.
        """
        if tile not in self._rows:
            name = self.draft.array("row", (), dtype=self.loops.matched.index_dtype)
            row = ROWS * tile + self.loops.lanes.row(0)
            known = self.draft.assign(Variable(name), row, around, self.turn.ready)
            self._rows[tile] = Variable(name), self.draft.hide(self.loops.plan.vendor, name, around, (known,))
        return self._rows[tile]
