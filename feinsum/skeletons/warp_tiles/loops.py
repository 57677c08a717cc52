"""The loops of a product on matrix units: work-groups and sub-groups deal tiles of 16 rows among them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import loopy as lp
from loopy.symbolic import get_dependencies, pw_aff_to_expr
from pymbolic.primitives import Comparison, FloorDiv, If, LogicalAnd, Remainder, Variable

from feinsum.devices.ptx import SUB_GROUP
from feinsum.errors import TransformError
from feinsum.match import Match
from feinsum.rewrites.loops import fixed_length
from feinsum.skeletons.common.draft import Draft, all_of
from feinsum.skeletons.common.products import MatrixProduct, matrix_product
from feinsum.skeletons.nvidia.matrix_units import DEPTH, ROWS, fragment_dtype, fragment_unit, synchronize_sub_group
from feinsum.skeletons.warp_tiles.tiling import Share, Tiling, blocks, shares, slice_length, steps


@dataclass(frozen=True)
class Turn:
    """Products that share a loop over tiles.

    :ivar number: of the first of them.
    """

    number: int
    products: tuple[MatrixProduct, ...]
    share: Share


@dataclass
class TileLoops:
    """A kernel while its sums become products of tiles: what is multiplied, and the loops around it.

    See :func:`feinsum.skeletons.warp_tiles.write.multiply_in_tiles` for the parameters.

    :ivar rows: the instructions of the match; ``products[row]`` is what each multiplies.
    :ivar sums: lengths of the indices summed over.
    :ivar steps: of all slices of the sum; in a slice the last index is the quickest.
    :ivar batch: index letters with a product of their own -> their lengths.
    :ivar dtype: the type of operands and results in memory.
    :ivar number: the type of the unit's registers.
    :ivar tile: the number of the tile at hand, in terms of the loops `around` it and `round`.
    :ivar placed: the ids of what sets temporaries that `tile` is in terms of, if there are any.
    :ivar first_block: of columns of a group, and `blocks`, how many it has at most: in a turn those of its share.
    """

    kernel: lp.LoopKernel
    match: Match
    operand: int | None
    m: str
    n: str
    tiling: Tiling

    def __post_init__(self) -> None:
        kernel, match = self.kernel, self.match
        self.unit = fragment_unit(self.tiling.unit)
        self.number, self.dtype = fragment_dtype(self.unit), match.einsum.dtypes[0]
        if self.dtype.itemsize > self.number.itemsize:
            raise TransformError(
                f"matrix unit '{self.unit.name}' multiplies {self.number}, which is too short for {self.dtype}"
            )
        self.draft = Draft(kernel)
        self.rows = [kernel.id_to_insn[insn_id] for insn_id in match.insn_ids]
        if any(insn.predicates for insn in self.rows):
            raise TransformError(f"instruction '{self.rows[0].id}' has a predicate, which lanes of a product cannot have")
        self.products = [matrix_product(kernel, match, row, self.operand, self.m, self.n) for row in range(len(self.rows))]
        self.sums = [fixed_length(kernel, iname) for iname in self.products[0].sums]
        self.steps = steps(self.sums, self.unit, self.tiling.slices)
        self.rows_m = pw_aff_to_expr(kernel.get_iname_bounds(match.inames[self.m]).size)
        self.columns = fixed_length(kernel, match.inames[self.n])
        self.blocks = blocks(self.columns, self.tiling.parts)
        self.batch = {
            letter: fixed_length(kernel, match.inames[letter])
            for letter, _ in self.products[0].formal
            if letter not in (self.m, self.n)
        }
        self.before = frozenset[str]().union(*(insn.depends_on for insn in self.rows)) - set(match.insn_ids)
        self._deal()

    def _deal(self) -> None:
        """Loops over groups, sub-groups and lanes, and which blocks of columns are whose."""
        tiling, draft = self.tiling, self.draft
        if tiling.in_turn and not tiling.groups:
            raise TransformError("groups that come and go do not compute products in turn")
        group, sub_group, lane = (draft.fresh(name) for name in ("group", "sub_group", "lane"))
        self.group, self.sub_group, self.lane = map(Variable, (group, sub_group, lane))
        self.part = draft.fresh("part") if tiling.parts > 1 and not tiling.weighted else ""
        self.first_block: Any = Variable(self.part) * self.blocks if self.part else 0
        self.shares = shares(tiling, self.columns)
        for share in self.shares[1:]:
            self.first_block = If(Comparison(self.group, "<", share.group), self.first_block, share.block)
        dealt = f"{group} * {tiling.tiles * tiling.sub_groups * ROWS} < {self.rows_m}"
        groups = f"{group} < {sum(share.groups for share in self.shares)}" if tiling.groups else dealt
        places = f"0 <= {group} and {groups} and 0 <= {sub_group} < {tiling.sub_groups} and 0 <= {lane} < {SUB_GROUP}"
        places += f" and 0 <= {self.part} < {tiling.parts}" if self.part else ""
        parts = [self.part] if self.part else []
        draft.domain(", ".join(self._lengths), [group, *parts, sub_group, lane], places)
        draft.tags |= {group: "g.0", sub_group: "l.1", lane: "l.0"} | dict.fromkeys(parts, "g.1")
        self.around = frozenset([group, *parts, sub_group, lane])

    @property
    def _lengths(self) -> list[str]:
        """The parameters that the number of rows depends on."""
        return sorted(get_dependencies(self.rows_m))

    def turns(self, products: Sequence[MatrixProduct]) -> list[Turn]:
        """What has a loop over tiles of its own, in order."""
        if not self.tiling.in_turn:
            return [Turn(0, tuple(products), share) for share in self.shares]
        return [Turn(number, (p,), share) for share in self.shares for number, p in enumerate(products)]

    def deal_tiles(self, turn: Turn, after: tuple[str, ...]) -> None:
        """A new loop over the tiles of a sub-group.

        With products in turn, the tiles of one are dealt from where those of the product before ended.

        :param after: instructions after which temporaries may be set that say where a later loop begins and ends.
        """
        around = self.draft.fresh("round")
        self.round, self.inside, self.share = around, self.around | {around}, turn.share
        if turn.number or self.tiling.weighted:
            self._deal_from_a_place(turn, after)
        else:
            self._deal_evenly()

    def _deal_evenly(self) -> None:
        """Tiles one after the other to sub-groups, and group by group."""
        tiling, around, group, sub_group = self.tiling, self.round, self.group.name, self.sub_group.name
        if tiling.groups:
            number, last = Variable(around) * tiling.groups + self.group, ""
            start = f"{around} * {tiling.groups} + {group}"
        else:
            number, last = self.group * tiling.tiles + Variable(around), f" and {around} < {tiling.tiles}"
            start = f"{group} * {tiling.tiles} + {around}"
        self.placed: tuple[str, ...] = ()
        self.tile = number * tiling.sub_groups + self.sub_group
        begun = f"(({start}) * {tiling.sub_groups} + {sub_group}) * {ROWS} < {self.rows_m}{last}"
        self.draft.domain(", ".join([*self._lengths, group, sub_group]), [around], f"0 <= {around} and {begun}")

    def _deal_from_a_place(self, turn: Turn, after: tuple[str, ...]) -> None:
        """Tiles to the sub-groups of a share, the first to the one at a place; none to those of other shares."""
        share, tiles, index = turn.share, FloorDiv(self.rows_m + ROWS - 1, ROWS), self.kernel.index_dtype.numpy_dtype
        together = share.groups * self.tiling.sub_groups
        own: Any = (self.group - share.group) * self.tiling.sub_groups + self.sub_group
        if turn.number:
            own = Remainder(own + together - Remainder(turn.number * tiles, together), together)
        if len(self.shares) > 1:
            first, last = share.group, share.group + share.groups
            inside = LogicalAnd((Comparison(self.group, ">=", first), Comparison(self.group, "<", last)))
            own = If(inside, own, tiles)
            self.first_block, self.blocks = share.block, share.blocks
        # In temporaries, as bounds of loops in terms of all this would overflow.
        place, rounds = (self.draft.array(name, (), dtype=index) for name in ("place", "rounds"))
        placed = self.draft.assign(Variable(place), own, self.around, {*after, *self.before})
        dealt = FloorDiv(tiles + together - 1 - Variable(place), together)
        self.placed = (placed, self.draft.assign(Variable(rounds), dealt, self.around, (placed,)))
        self.tile = Variable(self.round) * together + Variable(place)
        self.draft.domain(rounds, [self.round], f"0 <= {self.round} < {rounds}")

    def other_loops(self, row: int) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """Loops of an instruction besides those of m and n, and their lengths."""
        loops = self.match.loops[row]
        others = tuple(sorted(self.rows[row].within_inames - {loops[self.m], loops[self.n]}))
        return others, tuple(fixed_length(self.kernel, iname) for iname in others)

    def sums_at(
        self, p: MatrixProduct, step: Any, *, inside: bool = False, slice_: Any = None
    ) -> tuple[dict[str, Any], list[Any]]:
        """The indices summed over that a lane holds in a step, and when there are such; with `inside`, always some.

        :param slice_: the number of the slice that the step belongs to; by default steps are counted through all slices.
        """
        several, slices = len(self.sums) > 1, self.tiling.slices
        inner = -(-self.sums[-1] // DEPTH) if slices == 1 else slice_length(self.sums, self.unit, slices)
        if slices > 1 and slice_ is None:
            slice_, step = FloorDiv(step, self.steps // slices), Remainder(step, self.steps // slices)
        within, rest = (Remainder(step, inner), FloorDiv(step, inner)) if several else (step, 0)
        within, inner = (slice_ * inner + within, slices * inner) if slices > 1 else (within, inner)
        last = DEPTH * within + Remainder(self.lane, DEPTH)
        conditions = []
        if DEPTH * inner > self.sums[-1] or (self.steps > inner and not several):
            conditions.append(Comparison(last, "<", self.sums[-1]))
            last = If(conditions[0], last, self.sums[-1] - 1) if inside else last
        at = {p.sums[-1]: last}
        for iname, length in zip(reversed(p.sums[1:-1]), reversed(self.sums[1:-1]), strict=True):
            at[iname], rest = Remainder(rest, length), FloorDiv(rest, length)
        if several:
            if self.steps > math.prod(self.sums[:-1]) * inner:
                conditions.append(Comparison(rest, "<", self.sums[0]))
                rest = If(conditions[-1], rest, self.sums[0] - 1) if inside else rest
            at[p.sums[0]] = rest
        return at, conditions

    def synchronize(self, after: Sequence[str], around: frozenset[str] | None = None) -> str:
        """Let the lanes of a sub-group wait for each other, by default for each tile; the id of what does."""
        return self.draft.add(synchronize_sub_group, "synchronize", around or self.inside, after)


def guarded(conditions: list[Any], value: Any) -> Any:
    """`value` where the conditions hold, else zero."""
    if not conditions:
        return value
    return If(all_of(conditions), value, 0.0)
