"""A lane's share of the fragments of a product: its rows, columns and indices of the sum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pymbolic.primitives import Comparison, FloorDiv, If, Remainder

from feinsum.skeletons.common.draft import all_of
from feinsum.skeletons.common.matrix_product import MatrixProduct
from feinsum.skeletons.instructions.matrix_units import DEPTH, column_of, column_of_b, row_of
from feinsum.skeletons.warp_tiles.plan import WarpTiles


@dataclass(frozen=True)
class LaneLayout:
    """The share of a lane in the fragments of a plan.

    :ivar lane: the number of the lane, as an expression.
    """

    plan: WarpTiles
    lane: Any

    def row(self, half: Any) -> Any:
        """The row of a tile, of A and of P, in half 0 or 1 of the lane's registers."""
        return row_of(self.lane, half)

    def column(self, number: Any) -> Any:
        """The column of a block that number 0 or 1 of the lane's registers is of; neighbours, if they leave as a pair."""
        if self.plan.stores_pairs:
            return 2 * Remainder(self.lane, DEPTH) + number
        return column_of(self.lane, number)

    @property
    def column_of_b(self) -> Any:
        """The column of B in a block that the lane has."""
        return FloorDiv(self.lane, DEPTH) if self.plan.stores_pairs else column_of_b(self.lane)

    def sums(
        self, p: MatrixProduct, step: Any, *, inside: bool = False, slice_: Any = None
    ) -> tuple[dict[str, Any], list[Any]]:
        """The indices summed over that the lane has in a step, and when there are such; with `inside`, always some.

        :param slice_: the number of the slice that the step belongs to; by default steps are counted through all slices.
        """
        lengths, slices, steps = self.plan.product.sums, self.plan.k_slices, self.plan.steps
        several = len(lengths) > 1
        inner = -(-lengths[-1] // DEPTH) if slices == 1 else self.plan.product.slice_length(self.plan.unit, slices)
        if slices > 1 and slice_ is None:
            slice_, step = FloorDiv(step, steps // slices), Remainder(step, steps // slices)
        within, rest = (Remainder(step, inner), FloorDiv(step, inner)) if several else (step, 0)
        within, inner = (slice_ * inner + within, slices * inner) if slices > 1 else (within, inner)
        last = DEPTH * within + Remainder(self.lane, DEPTH)
        conditions = []
        if DEPTH * inner > lengths[-1] or (steps > inner and not several):
            conditions.append(Comparison(last, "<", lengths[-1]))
            last = If(conditions[0], last, lengths[-1] - 1) if inside else last
        at = {p.sums[-1]: last}
        for iname, length in zip(reversed(p.sums[1:-1]), reversed(lengths[1:-1]), strict=True):
            at[iname], rest = Remainder(rest, length), FloorDiv(rest, length)
        if several:
            if steps > math.prod(lengths[:-1]) * inner:
                conditions.append(Comparison(rest, "<", lengths[0]))
                rest = If(conditions[-1], rest, lengths[0] - 1) if inside else rest
            at[p.sums[0]] = rest
        return at, conditions


def guarded(conditions: Sequence[Any], value: Any) -> Any:
    """`value` where the conditions hold, else zero."""
    return If(all_of(conditions), value, 0.0) if conditions else value
