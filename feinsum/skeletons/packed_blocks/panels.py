"""Panels of packed blocks: copies of an operand in the order in which a register tile reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pymbolic.primitives import Call, Comparison, If, Variable

from feinsum.match import Match
from feinsum.skeletons.packed_blocks.frame import Decoded, PackedFrame


@dataclass(frozen=True)
class Panels:
    """The panels of one operand.

    :ivar name: the array: panel, term of the sum, row or column.
    :ivar packed: the instruction after which it is full.
    """

    name: str
    packed: str


def pack(frame: PackedFrame, match: Match, side: int) -> Panels:
    """Copy the panels of an operand for a block and a part of the sum: whole panels, and one beyond the last row or
    column."""
    plan = frame.plan
    length, tile = plan.block[side], plan.tiles[side]
    name = frame.array(("A_panel", "B_panel")[side], (length // tile, plan.depth, tile))
    start = 0 if frame.part is None else frame.part * plan.depth
    terms = frame.decoded(2, start, frame.inside, [], clamped=False)
    packed: list[str] = []
    for edge in frame.edges(side):
        packed = [_copy_panels(frame, match, side, name, terms, packed, edge=edge)]
    return Panels(name, *packed)


def _copy_panels(
    frame: PackedFrame, match: Match, side: int, name: str, terms: Decoded, after: list[str], *, edge: bool
) -> str:
    """Copy whole panels, or the partial one."""
    draft, plan, tile = frame.draft, frame.plan, frame.plan.tiles[side]
    panel = frame.panel_loop("panel", side, f"left < {tile}" if edge else f"left >= {tile}")
    around = frame.inside | {panel}
    places = frame.decoded(side, frame.place(side, Variable(panel)), around, [], clamped=edge)
    k = frame.counted("k", plan.depth)
    (i,) = draft.unrolled(("i",), (tile,))
    at: dict[str, Any] = {**frame.batch, **terms.values(Variable(k)), **places.values(Variable(i))}
    operand = plan.operands[side]
    value: Any = Call(Variable(match.rules[0][operand]), tuple(at[x] for x in match.einsum.indexing.inputs[operand]))
    total = frame.totals[2]
    if not (isinstance(total, int) and total % plan.depth == 0):
        start = 0 if frame.part is None else frame.part * plan.depth
        value = If(Comparison(start + Variable(k), "<", total), value, 0)
    draft.priorities.append(",".join([*frame.order, panel, k, i]))
    after = [*after, *terms.made, *places.made, *frame.before]
    return draft.assign(Variable(name)[Variable(panel), Variable(k), Variable(i)], value, around | {k, i}, after)
