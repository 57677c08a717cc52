"""The long operand of tiles, A: in registers of lanes before its product, loaded there, or copied, ahead or not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from loopy.symbolic import get_dependencies
from pymbolic.primitives import Comparison, If, Sum, Variable

from feinsum.skeletons.common.matrix_product import MatrixProduct, substituted
from feinsum.skeletons.instructions.matrix_units import DEPTH
from feinsum.skeletons.warp_tiles.copies import CopiedRows
from feinsum.skeletons.warp_tiles.held import HeldCopies, HeldRegisters
from feinsum.skeletons.warp_tiles.lanes import guarded
from feinsum.skeletons.warp_tiles.registers import LaneLoad, RegisterLoads
from feinsum.skeletons.warp_tiles.tile_loops import TileLoops, TurnLoop


class LongOperand:
    """The registers of a lane for A, the same for all products, and the loads into them.

    :ivar held: the held values that instructions, and A, read; with slices of the sum none of them is in registers.
    :ivar held_copies: the held values that A reads in local memory, if they are copied there.
    :ivar copies: the rows of A in local memory, if they are copied there.
    """

    def __init__(
        self,
        loops: TileLoops,
        products: Sequence[MatrixProduct],
        held: HeldRegisters,
        held_copies: HeldCopies | None,
        copies: CopiedRows | None,
    ) -> None:
        self.loops, self.plan = loops, loops.plan
        self.held, self.held_copies, self.copies = held, held_copies, copies
        self.name = loops.draft.array("a", self._shape(products[0]), dtype=self.plan.number)

    def _letters(self, p: MatrixProduct) -> list[str]:
        """The index letters of the batch that A has."""
        return [letter for letter in self.loops.matched.batch if p.names[letter] in get_dependencies(p.a)]

    def _shape(self, p: MatrixProduct) -> tuple[int, ...]:
        batch = self.loops.matched.batch
        return (*(batch[letter] for letter in self._letters(p)), self.plan.steps // self.plan.k_slices, 2)

    def fragments(self, p: MatrixProduct, slice_: Any = None) -> LaneLoad:
        """A lane's loads of A, of a slice of the sum where there are several."""
        lanes, matched, letters = self.loops.lanes, self.loops.matched, self._letters(p)
        everywhere = self.plan.clamped_loads or isinstance(p.a, Sum)

        def value(row: Any, index: tuple[Any, ...]) -> Any:
            *batch, step, half = index
            at, conditions = lanes.sums(p, step, inside=everywhere, slice_=slice_)
            at |= {p.names[letter]: place for letter, place in zip(letters, batch, strict=True)}
            a = self._read(p, step, half)
            row = row + 8 * half
            there = Comparison(row, "<", matched.rows)
            m = p.names[matched.m]
            if everywhere:
                return substituted(a, {**at, m: If(there, row, matched.rows - 1)})
            return guarded([*conditions, there], substituted(a, {**at, m: row}))

        def valid(index: tuple[Any, ...]) -> list[Any]:
            return lanes.sums(p, index[-2], slice_=slice_)[1] if everywhere else []

        return LaneLoad(self.name, self._shape(p), value, valid)

    def _read(self, p: MatrixProduct, step: Any, half: Any) -> Any:
        """A in terms of values in local memory and in registers, in formal names otherwise."""
        a = p.a if self.copies is None else self.copies.read(p, step, half)
        a = a if self.held_copies is None else self.held_copies.read(a, half)
        # Held values belong to the present tile, so loads ahead of it cannot use them.
        return a if self.plan.prefetch.loads else self.held.read(a, half)

    def registers(self, p: MatrixProduct, step: str, batch: Sequence[str]) -> tuple[Any, ...]:
        """The references to a lane's numbers of A for an instruction of the unit."""
        names, width = get_dependencies(p.a), self.plan.unit.k // DEPTH
        letters = self.loops.matched.batch
        own = [Variable(i) for letter, i in zip(letters, batch, strict=True) if p.names[letter] in names]
        return tuple(Variable(self.name)[(*own, Variable(step) * width + i // 2, i % 2)] for i in range(2 * width))


class Loads(Protocol):
    """The order of the loads of A in a turn."""

    def load(self, number: int, after: tuple[str, ...], slice_: str = "") -> tuple[str, ...]:
        """Add the loads ahead of the product of a number, and those for later ones; the ids that the product waits for.

        :param after: the instructions that the loads wait for.
        :param slice_: the loop over slices of the sum in which they are, where there are several.
        """


def loads_of(operand: LongOperand, turn: TurnLoop, after: tuple[str, ...]) -> Loads:
    """The loads of a turn as the plan has them.

    :param after: what the turn begins after, if it is not the first.
    """
    plan = operand.plan
    if plan.k_slices > 1:
        return LoadsOfSlices(operand, turn, after)
    if operand.copies is not None:
        return LoadsFromCopies(operand, operand.copies, turn, after)
    return LoadsAhead(operand, turn, after) if plan.prefetch.loads else LoadsAtOnce(operand, turn)


class LoadsAtOnce:
    """Loads of a product right before it."""

    def __init__(self, operand: LongOperand, turn: TurnLoop) -> None:
        self.turn, self.loads, self.held = turn, RegisterLoads(operand.loops, turn), operand.held.fragments
        self.sources = [operand.fragments(p) for p in turn.products]

    def load(self, number: int, after: tuple[str, ...], slice_: str = "") -> tuple[str, ...]:
        tile, inside = self.turn.tile, self.turn.inside
        held = () if number else self.held
        first = tuple(self.loads.load(f.name, f, tile, inside, after) for f in held)
        source = self.sources[number]
        return (*first, self.loads.load(source.name, source, tile, inside, (*after, *first)))


class LoadsAhead:
    """Loads of the next product right before a product, whose own were loaded before; the first, ahead of the loop."""

    def __init__(self, operand: LongOperand, turn: TurnLoop, after: tuple[str, ...]) -> None:
        self.turn, self.loads, held = turn, RegisterLoads(operand.loops, turn), operand.held.fragments
        self.sources = [operand.fragments(p) for p in turn.products]
        self.early_held, self.late_held = (held, []) if operand.plan.prefetch.held else ([], held)
        first = (self.sources[0], *self.early_held)
        self.coming = {f.name: self.loads.room(f) for f in first}
        around = operand.loops.around
        self.early = tuple(self.loads.load(self.coming[f.name], f, turn.first, around, after) for f in first)

    def load(self, number: int, after: tuple[str, ...], slice_: str = "") -> tuple[str, ...]:
        tile, inside, following, loads = self.turn.tile, self.turn.inside, self.turn.following, self.loads
        taken = (self.sources[number], *(self.early_held if number == 0 else ()))
        copies = tuple(loads.take(f, self.coming[f.name], (*after, *self.early)) for f in taken)
        if number == 0:
            copies += tuple(loads.load(f.name, f, tile, inside, copies) for f in self.late_held)
        last = number == len(self.sources) - 1
        then = [(self.sources[0], following) if last else (self.sources[number + 1], tile)]
        then += [(f, following) for f in self.early_held if number == 0]
        return copies + tuple(loads.load(self.coming[f.name], f, tile, inside, copies) for f, tile in then)


class LoadsFromCopies:
    """Loads of a product from local memory, to which those of the next are copied during the product."""

    def __init__(self, operand: LongOperand, copies: CopiedRows, turn: TurnLoop, after: tuple[str, ...]) -> None:
        self.loops, self.copies, self.turn = operand.loops, copies, turn
        self.loads, held = RegisterLoads(operand.loops, turn), operand.held.fragments
        self.early_held, self.late_held = (held, []) if operand.plan.prefetch.held else ([], held)
        self.sources = [operand.fragments(p) for p in turn.products]
        self.coming = {f.name: self.loads.room(f) for f in self.early_held}
        around = self.loops.around
        early = [self.loads.load(self.coming[f.name], f, turn.first, around, after) for f in self.early_held]
        self.early = (*early, _first_copied(operand, copies, turn, after))

    def load(self, number: int, after: tuple[str, ...], slice_: str = "") -> tuple[str, ...]:
        turn, loads, inside = self.turn, self.loads, self.turn.inside
        begun: tuple[str, ...] = ()
        if number == 0:
            begun = tuple(loads.take(f, self.coming[f.name], (*after, *self.early)) for f in self.early_held)
            begun += tuple(loads.load(f.name, f, turn.tile, inside, after) for f in self.late_held)
        there = self.copies.wait(inside, (*after, *begun, *self.early))
        source = self.sources[number]
        loaded = loads.load(source.name, source, turn.tile, inside, (there,), alone=True)
        taken = self.loops.synchronize((loaded,), inside)
        copied = self.copies.begin(*_next_product(turn, number), 0, inside, (taken,))
        ahead = self.early_held if number == 0 else ()
        return (copied, *(loads.load(self.coming[f.name], f, turn.following, inside, (copied,)) for f in ahead))


class LoadsOfSlices:
    """Loads of a slice of the sum right before it; with copies, those of the next slice begin right after."""

    def __init__(self, operand: LongOperand, turn: TurnLoop, after: tuple[str, ...]) -> None:
        self.operand, self.turn, self.loads = operand, turn, RegisterLoads(operand.loops, turn)
        self.early = () if operand.copies is None else (_first_copied(operand, operand.copies, turn, after),)

    def load(self, number: int, after: tuple[str, ...], slice_: str = "") -> tuple[str, ...]:
        turn, copies = self.turn, self.operand.copies
        self.loads.row(turn.tile, turn.inside)
        p, around = turn.products[number], turn.inside | {slice_}
        source = self.operand.fragments(p, Variable(slice_))
        if copies is None:
            return (self.loads.load(source.name, source, turn.tile, around, after),)
        there = copies.wait(around, (*after, *self.early))
        loaded = self.loads.load(source.name, source, turn.tile, around, (there,), alone=True)
        taken = self.operand.loops.synchronize((loaded,), around)
        return (self._copy_next(copies, number, Variable(slice_), around, taken),)

    def _copy_next(self, copies: CopiedRows, number: int, slice_: Any, around: frozenset[str], taken: str) -> str:
        """Begin to copy the next slice or, after the last, the first of the next product; the id of what ends it."""
        turn, products, held = self.turn, self.turn.products, self.operand.held_copies
        ended = Comparison(slice_, "==", self.operand.plan.k_slices - 1)
        more = Comparison(slice_, "<", self.operand.plan.k_slices - 1)
        begun = [copies.begin(products[number], turn.tile, slice_ + 1, around, (taken,), more)]
        if held is not None and number == len(products) - 1:
            begun += held.begin(turn.following, around, frozenset([taken]), ended)
        return copies.begin(*_next_product(turn, number), 0, around, begun, ended)


def _next_product(turn: TurnLoop, number: int) -> tuple[MatrixProduct, Any]:
    """The product after that of a number, and the tile of which it is."""
    products = turn.products
    return (products[0], turn.following) if number == len(products) - 1 else (products[number + 1], turn.tile)


def _first_copied(operand: LongOperand, copies: CopiedRows, turn: TurnLoop, after: tuple[str, ...]) -> str:
    """Begin the copies for the first tile of a turn, where those of the turn before are done; the id of the last."""
    around = operand.loops.around
    free = turn.ready.union((copies.wait(around, after),) if after else ())
    begun = operand.held_copies.begin(turn.first, around, free) if operand.held_copies else ()
    return copies.begin(turn.products[0], turn.first, 0, around, [*free, *begun])
