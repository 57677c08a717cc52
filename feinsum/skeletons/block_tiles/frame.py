"""The frame of a kernel of block tiles: loops over work-groups, warps, lanes and tiles, and their places in the fused
indices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import loopy as lp
import numpy as np
from loopy.symbolic import get_dependencies
from pymbolic.primitives import FloorDiv, Remainder, Variable

from feinsum.match import Match
from feinsum.rewrites.loops import axis_length
from feinsum.skeletons.block_tiles.plan import BlockTiles
from feinsum.skeletons.common.draft import KernelDraft
from feinsum.skeletons.common.index_groups import IndexGroup, digit_extent
from feinsum.skeletons.instructions.matrix_units import SUB_GROUP, fragment_dtype


@dataclass(frozen=True)
class WorkerLoops:
    """The loops over blocks and over the warps and lanes that work on a block.

    :ivar first: fused index -> where a block begins along it.
    :ivar lane: of a sub-group.
    :ivar item: the number of a work-item in its group.
    :ivar place: of a sub-group in the block: along items of the batch, rows, and columns.
    :ivar inames: the loops.
    """

    first: Mapping[str, Any]
    lane: Any
    item: Any
    place: tuple[Any, Any, Any]
    inames: frozenset[str]


@dataclass(frozen=True)
class SumLoops:
    """The loop over tiles of a sum and that over steps of a tile.

    :ivar several: whether there is a loop over tiles; else there is but one, and `tile` is 0.
    :ivar count: how many tiles there are, an int or an expression of parameters.
    :ivar steps: of the loop `step`; if fragments are loaded a step ahead, the last one stands behind it.
    """

    several: bool
    tile: Any
    count: Any
    step: str
    steps: int


@dataclass(frozen=True)
class BlockFrame:
    """The loops, lengths and draft that all parts of a kernel of block tiles share.

    :ivar dtype: the type of operands and results.
    :ivar lengths: of every letter, an int or an expression of parameters.
    :ivar groups: the fused indices by name.
    :ivar before: the instructions that come before all others.
    """

    draft: KernelDraft
    plan: BlockTiles
    dtype: np.dtype[Any]
    lengths: Mapping[str, Any]
    groups: Mapping[str, IndexGroup]
    workers: WorkerLoops
    tiles: SumLoops
    before: frozenset[str]

    @property
    def around(self) -> frozenset[str]:
        """The loops around everything."""
        return self.workers.inames

    @property
    def inside(self) -> frozenset[str]:
        """The loops around the instructions for each tile."""
        return self.around | {str(self.tiles.tile)} if self.tiles.several else self.around

    @property
    def multiplied(self) -> np.dtype[Any]:
        """The type of fragments: that of memory, unless the unit takes longer numbers."""
        unit = self.plan.fragments.unit
        return self.dtype if unit is None else fragment_dtype(unit)

    def array(self, base: str, shape: tuple[int, ...]) -> str:
        """A new private array of numbers as they are in memory."""
        return self.draft.array(base, shape, dtype=self.dtype)

    def fragments(self, base: str, shape: tuple[int, ...]) -> str:
        """A new private array of numbers as they are multiplied and added up."""
        return self.draft.array(base, shape, dtype=self.multiplied)

    def numbers(self, letter: str, shape: tuple[int, ...]) -> str:
        """A new private array of values of an index."""
        return self.draft.array(f"{letter}_at", shape, dtype=self.draft.kernel.index_dtype)

    def may_pass(self, name: str, letter: str) -> bool:
        """Whether a block may stick out beyond the last value of a letter of a fused index."""
        group = self.groups[name]
        factor, text = digit_extent(group.digits)
        last = group.outer[-1].letter == letter
        return group.pads(letter) or (last and (text != "1" or factor % self.plan.spans[name] != 0))

    def barrier(self, after: Iterable[str], inside: frozenset[str]) -> str:
        """Add a barrier of the work-group; its id."""
        barrier = lp.BarrierInstruction(
            self.draft.fresh_id("tiles_are_there"),
            depends_on=frozenset(after),
            synchronization_kind="local",
            mem_kind="local",
            within_inames=inside,
            within_inames_is_final=True,
        )
        self.draft.instructions.append(barrier)
        return str(barrier.id)


def block_frame(draft: KernelDraft, match: Match, plan: BlockTiles, before: frozenset[str]) -> BlockFrame:
    """Add the loops of a plan to a draft."""
    lengths = {x: axis_length(match, x) for x in match.einsum.indexing.indices}
    groups = plan.groups(lengths)
    workers = _open_blocks(draft, plan, groups)
    tiles = _open_tiles(draft, plan, groups["sums"])
    return BlockFrame(draft, plan, match.einsum.dtypes[0], lengths, groups, workers, tiles, before)


def _open_blocks(draft: KernelDraft, plan: BlockTiles, groups: Mapping[str, IndexGroup]) -> WorkerLoops:
    """Loops over groups, sub-groups and lanes."""
    first, counts, inames = {}, {}, []
    for name, span in plan.spans.items():
        factor, text = digit_extent(groups[name].digits)
        iname = draft.fresh(f"group_of_{name}")
        bounds = f"0 <= {iname} and {span} * {iname} < {factor} * {text}"
        draft.domain(_length_parameters(groups[name]), [iname], bounds)
        first[name] = span * Variable(iname)
        counts[iname] = (text != "1", factor // span)
        inames.append(iname)
    # The first axis alone may have more than 65535 groups on some devices, so the longest goes there.
    for axis, iname in enumerate(sorted(inames, key=lambda x: counts[x], reverse=True)):
        draft.tags[iname] = f"g.{axis}"
    lane, sub_group = draft.fresh("lane"), draft.fresh("sub_group")
    draft.domain("", [lane], f"0 <= {lane} < {SUB_GROUP}")
    draft.domain("", [sub_group], f"0 <= {sub_group} < {prod(plan.block_tile.warps)}")
    draft.tags |= {lane: "l.0", sub_group: "l.1"}
    number, (_, down, across) = Variable(sub_group), plan.block_tile.warps
    place = FloorDiv(number, down * across), Remainder(number, down), Remainder(FloorDiv(number, down), across)
    item = Variable(lane) + SUB_GROUP * number
    return WorkerLoops(first, Variable(lane), item, place, frozenset([*inames, lane, sub_group]))


def _open_tiles(draft: KernelDraft, plan: BlockTiles, sums: IndexGroup) -> SumLoops:
    """The loops over steps and over tiles, unless there is but one tile."""
    factor, text = digit_extent(sums.outer)
    several = factor > 1 or text != "1"
    steps = plan.steps - (plan.prefetch and several)
    (step,) = draft.unrolled(("step",), (steps,))
    if not several:
        return SumLoops(several, 0, 1, step, steps)
    tile = draft.fresh("tile")
    draft.domain(_length_parameters(sums), [tile], f"0 <= {tile} < {factor} * {text}")
    return SumLoops(several, Variable(tile), prod((digit.count for digit in sums.outer), start=1), step, steps)


def _length_parameters(group: IndexGroup) -> str:
    """The parameters of the lengths of a fused index, as an isl set lists them."""
    return ", ".join(sorted({str(name) for x in group.letters for name in get_dependencies(group.lengths[x])}))
