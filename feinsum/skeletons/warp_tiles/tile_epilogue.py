"""The epilogue of tiles: the results that instructions make of finished accumulators, and their way to the outputs.

``out[x, m, n] = F(P[.., m, n], held[x, m])``: :class:`FinishedValues` gives a lane's result for each number of P, functions
of sums included, whatever the way out.  The ways out are two: by
:class:`~feinsum.skeletons.warp_tiles.lane_stores.LaneStores` a lane stores its numbers itself, one or two at a time; by
:class:`~feinsum.skeletons.warp_tiles.staged_stores.StagedStores` they pass through local memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from loopy.symbolic import IdentityMapper
from pymbolic.primitives import Comparison, Variable

from feinsum.rewrites import finished
from feinsum.skeletons.common.matrix_product import MatrixProduct, substituted
from feinsum.skeletons.instructions.matrix_units import COLUMNS, ROWS
from feinsum.skeletons.warp_tiles.accumulators import Accumulators
from feinsum.skeletons.warp_tiles.held import HeldRegisters
from feinsum.skeletons.warp_tiles.tile_loops import TileLoops, TurnLoop

PAIR = 2
"""Numbers that a lane has of each row of a block."""


class TileStores(Protocol):
    """A way by which results leave."""

    def store(self, turn: TurnLoop, outputs: Sequence[int], block: str, after: str) -> tuple[str, ...]:
        """Store the results of a block of products, for the outputs that share them; the ids of the last instructions.

        :param block: the loop over blocks of columns.
        :param after: the id of the instruction that finishes the accumulators.
        """


@dataclass(frozen=True)
class FinishedValue:
    """A lane's share of an output in a block of columns, in terms of loops over its halves, its numbers and other indices.

    :ivar value: the result; :ivar row: of the tile, and :ivar column: of the output, to which it belongs.
    :ivar m: the row of the output.
    :ivar others: a new loop for each index of the output besides m and n.
    :ivar inside: the names of all loops around.
    :ivar number: the name of the loop over two numbers in a row.
    :ivar beyond: the conditions under which the column is one.
    """

    value: Any
    row: Any
    column: Any
    m: Any
    others: Mapping[str, Variable]
    inside: frozenset[str]
    number: str
    beyond: tuple[Any, ...]


class FinishedValues:
    """The results that the instructions of the match make of accumulators and held values.

    Before: ``out[x, m, n] = J(x, m) * P(m, n)``; after, for a lane's numbers c in its rows h of a block::

        out[x, 16 tile + 8 h + g, 8 block + column of c] = J_held[x, h] * acc[h, c]
    """

    def __init__(self, loops: TileLoops, accumulators: Accumulators, held: HeldRegisters) -> None:
        self.loops, self.accumulators, self.held = loops, accumulators, held

    def of(self, turn: TurnLoop, output: int, block: str) -> FinishedValue:
        """The value of an output, with new loops for all entries that a lane has of it."""
        loops, matched = self.loops, self.loops.matched
        insn, own = matched.instructions[output], matched.match.loops[output]
        half, number = loops.draft.unrolled(("upper", "number"), (2, PAIR))
        others = loops.unrolled_others(output)
        column = COLUMNS * (Variable(block) + turn.blocks.first) + loops.lanes.column(Variable(number))
        row = loops.lanes.row(Variable(half))
        m = ROWS * turn.tile + row
        value = _Accumulated(self.accumulators, matched.products[output], block, (Variable(half), Variable(number)))
        read = self.held.read(value(insn.expression), Variable(half))
        made = finished(matched.match, insn.assignee, read)
        return FinishedValue(
            substituted(made, {own[matched.m]: m, own[matched.n]: column, **others}),
            row,
            column,
            m,
            others,
            turn.inside | {block, half, number, *(other.name for other in others.values())},
            number,
            (Comparison(column, "<", matched.columns),) if self._passes_columns else (),
        )

    @property
    def _passes_columns(self) -> bool:
        """Whether blocks go beyond the last column: the last one, or, with sums of all of them, whole blocks of a part."""
        plan, columns = self.loops.plan, self.loops.matched.columns
        padded = COLUMNS * plan.blocks * plan.n_split > columns and not plan.weighted
        return bool(columns % COLUMNS) or (plan.k_slices > 1 and padded)


class _Accumulated(IdentityMapper):  # type: ignore[misc]
    """Reads numbers of P from accumulators, in place of sums or of calls of the rule that stands for them."""

    def __init__(self, accumulators: Accumulators, p: MatrixProduct, block: str, register: tuple[Any, Any]) -> None:
        super().__init__()
        self.accumulators, self.product, self.block, self.register = accumulators, p, block, register

    def map_reduction(self, expr: Any) -> Any:
        return self._read(()) if self.product.rule is None else super().map_reduction(expr)

    def map_call(self, expr: Any) -> Any:
        if expr.function.name != self.product.rule:
            return super().map_call(expr)
        at = dict(zip(self.product.names, expr.parameters, strict=True))
        return self._read(tuple(at[letter] for letter in self.accumulators.batch))

    def _read(self, batch: tuple[Any, ...]) -> Any:
        return self.accumulators.finished(self.block, batch, *self.register)
