"""The loops of a product on matrix units: work-groups and their warps deal tiles of 16 rows among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import loopy as lp
from loopy.symbolic import get_dependencies
from pymbolic.primitives import Comparison, FloorDiv, If, LogicalAnd, Remainder, Variable

from feinsum.skeletons.common.draft import KernelDraft
from feinsum.skeletons.common.matrix_product import MatrixProduct, substituted
from feinsum.skeletons.instructions.matrix_units import ROWS, SUB_GROUP, begin_late, synchronize_sub_group
from feinsum.skeletons.warp_tiles.lanes import LaneLayout
from feinsum.skeletons.warp_tiles.matched import MatchedProducts
from feinsum.skeletons.warp_tiles.plan import WarpTiles
from feinsum.skeletons.warp_tiles.tiling import Share


@dataclass(frozen=True)
class Turn:
    """Products that share a loop over tiles.

    :ivar number: of the first of them.
    """

    number: int
    products: tuple[MatrixProduct, ...]
    share: Share


@dataclass(frozen=True)
class BlockRange:
    """Blocks of columns of a group: the first, as an expression, and how many there are at most."""

    first: Any
    count: int


@dataclass(frozen=True)
class TurnLoop:
    """The loop of a turn over the tiles of a warp.

    :ivar round: the name of the loop; `inside` has also those of the loops around it.
    :ivar tile: the number of the tile at hand, in terms of the loop.
    :ivar placed: the ids of the instructions that set temporaries in `tile`, if there are any.
    :ivar ready: the ids of the instructions before all loads of the turn.
    """

    turn: Turn
    round: str
    inside: frozenset[str]
    tile: Any
    blocks: BlockRange
    ready: frozenset[str]
    placed: tuple[str, ...] = ()

    @property
    def products(self) -> tuple[MatrixProduct, ...]:
        return self.turn.products

    @property
    def first(self) -> Any:
        """The number of the first tile of a warp."""
        return substituted(self.tile, {self.round: 0})

    @property
    def following(self) -> Any:
        """The number of the tile of a warp after that at hand."""
        return substituted(self.tile, {self.round: Variable(self.round) + 1})


class TileLoops:
    """The draft of a kernel with loops over groups, warps and lanes, to which loops over tiles are added turn by turn.

    :ivar lanes: a lane's share of fragments.
    :ivar around: the names of the loops over groups, parts of columns, warps and lanes.
    :ivar part: the name of the loop over parts of columns, if that is one.
    :ivar blocks: the blocks of columns of a group, whatever its share.
    """

    def __init__(self, matched: MatchedProducts, plan: WarpTiles) -> None:
        self.matched, self.plan, self.draft = matched, plan, KernelDraft(matched.kernel)
        group, warp, lane = (self.draft.fresh(name) for name in ("group", "sub_group", "lane"))
        self.group, self.warp, self.lane = map(Variable, (group, warp, lane))
        self.lanes = LaneLayout(plan, self.lane)
        self.part = self.draft.fresh("part") if plan.n_split > 1 and not plan.weighted else ""
        first: Any = Variable(self.part) * plan.blocks if self.part else 0
        for share in plan.shares[1:]:
            first = If(Comparison(self.group, "<", share.group), first, share.block)
        self.blocks = BlockRange(first, plan.blocks)
        parts = [self.part] if self.part else []
        self.around = frozenset([group, *parts, warp, lane])
        self._add_outer_loops(parts)

    def _add_outer_loops(self, parts: list[str]) -> None:
        plan, group, warp, lane = self.plan, self.group.name, self.warp.name, self.lane.name
        dealt = f"{group} * {plan.tiles * plan.warps * ROWS} < {self.matched.rows}"
        groups = f"{group} < {sum(share.groups for share in plan.shares)}" if plan.persistent_groups else dealt
        places = f"0 <= {group} and {groups} and 0 <= {warp} < {plan.warps} and 0 <= {lane} < {SUB_GROUP}"
        places += f" and 0 <= {self.part} < {plan.n_split}" if parts else ""
        self.draft.domain(", ".join(self._lengths), [group, *parts, warp, lane], places)
        self.draft.tags |= {group: "g.0", warp: "l.1", lane: "l.0"} | dict.fromkeys(parts, "g.1")

    @property
    def _lengths(self) -> list[str]:
        """The parameters that the number of rows depends on."""
        return sorted(get_dependencies(self.matched.rows))

    def begin(self) -> str:
        """Let groups wait for all instructions so far, and some warps longer; the id of the instruction that tiles come
        after."""
        draft = self.draft
        barrier = lp.BarrierInstruction(
            draft.fresh_id("matrices_are_there"),
            depends_on=frozenset(insn.id for insn in draft.instructions),
            synchronization_kind="local",
            mem_kind="local",
            within_inames=self.around,
            within_inames_is_final=True,
        )
        draft.instructions.append(barrier)
        if not self.plan.stagger:
            return str(barrier.id)
        return draft.add(
            partial(begin_late, self.plan.vendor, self.plan.stagger, self.warp), "stagger", self.around, (str(barrier.id),)
        )

    def turns(self, products: Sequence[MatrixProduct]) -> list[Turn]:
        """The turns, each with a loop over tiles of its own, in order."""
        shares = self.plan.shares
        if not self.plan.product_major:
            return [Turn(0, tuple(products), share) for share in shares]
        return [Turn(number, (p,), share) for share in shares for number, p in enumerate(products)]

    def deal(self, turn: Turn, after: tuple[str, ...]) -> TurnLoop:
        """Add the loop over the tiles of a warp in a turn.

        With products in turn, the tiles of one are dealt from where those of the product before ended.

        :param after: instructions after which temporaries may be set that say where a later loop begins and ends.
        """
        around = self.draft.fresh("round")
        if turn.number or self.plan.weighted:
            return self._dealt_from_a_place(turn, around, after)
        return self._dealt_evenly(turn, around)

    def _dealt_evenly(self, turn: Turn, around: str) -> TurnLoop:
        """Tiles one after the other to warps, and group by group."""
        plan, group, warp = self.plan, self.group.name, self.warp.name
        if plan.persistent_groups:
            number, last = Variable(around) * plan.persistent_groups + self.group, ""
            start = f"{around} * {plan.persistent_groups} + {group}"
        else:
            number, last = self.group * plan.tiles + Variable(around), f" and {around} < {plan.tiles}"
            start = f"{group} * {plan.tiles} + {around}"
        begun = f"(({start}) * {plan.warps} + {warp}) * {ROWS} < {self.matched.rows}{last}"
        self.draft.domain(", ".join([*self._lengths, group, warp]), [around], f"0 <= {around} and {begun}")
        tile = number * plan.warps + self.warp
        return TurnLoop(turn, around, self.around | {around}, tile, self.blocks, self.matched.before)

    def _dealt_from_a_place(self, turn: Turn, around: str, after: tuple[str, ...]) -> TurnLoop:
        """Tiles to the warps of a share, the first to the one at a place; none to those of other shares."""
        share, tiles, blocks = turn.share, FloorDiv(self.matched.rows + ROWS - 1, ROWS), self.blocks
        together = share.groups * self.plan.warps
        own: Any = (self.group - share.group) * self.plan.warps + self.warp
        if turn.number:
            own = Remainder(own + together - Remainder(turn.number * tiles, together), together)
        if len(self.plan.shares) > 1:
            first, last = share.group, share.group + share.groups
            inside = LogicalAnd((Comparison(self.group, ">=", first), Comparison(self.group, "<", last)))
            own = If(inside, own, tiles)
            blocks = BlockRange(share.block, share.blocks)
        # In temporaries, as bounds of loops in terms of all this would overflow.
        place, rounds = (self.draft.array(name, (), dtype=self.matched.index_dtype) for name in ("place", "rounds"))
        placed = self.draft.assign(Variable(place), own, self.around, {*after, *self.matched.before})
        dealt = FloorDiv(tiles + together - 1 - Variable(place), together)
        set_ = (placed, self.draft.assign(Variable(rounds), dealt, self.around, (placed,)))
        self.draft.domain(rounds, [around], f"0 <= {around} < {rounds}")
        tile = Variable(around) * together + Variable(place)
        ready = self.matched.before.union(set_)
        return TurnLoop(turn, around, self.around | {around}, tile, blocks, ready, set_)

    def synchronize(self, after: Sequence[str], around: frozenset[str]) -> str:
        """Let the lanes of a warp wait for each other; the id of the instruction."""
        return self.draft.add(partial(synchronize_sub_group, self.plan.vendor), "synchronize", around, after)

    def unrolled_others(self, output: int) -> dict[str, Variable]:
        """New loops in place of those of an instruction besides m and n."""
        others, lengths = self.matched.other_loops(output)
        return dict(zip(others, map(Variable, self.draft.unrolled(others, lengths)), strict=True))

    def result_id(self, output: int, turn: TurnLoop) -> str:
        """The id of an instruction of the match for the one that stores its last results, which others may wait for."""
        insn_id = self.matched.instructions[output].id
        return str(insn_id if turn.turn.share == self.plan.shares[-1] else self.draft.fresh_id(insn_id))
