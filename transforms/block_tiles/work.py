"""The work of a contraction by block tiles: products in whole blocks, and the traffic of tiles, fragments and results.

With blocks of m rows by n columns, sub-groups of m' by n' within them, and K terms, each block takes::

    2 m n K                       operations
    (m + n) K                     numbers of tiles, from the cache that all compute units share
    m n K (1 / m' + 1 / n')       numbers of fragments, from local memory
    m n                           results

Tiles and results move in sectors of 32 bytes, so elements in shorter runs count for more; operands that the shared cache
does not hold come in pieces of 64 bytes.  Products of float32 that are split for a matrix unit, or made as float64, take
1.5 and 2 times as long as those of float32 by such a unit would.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from feinsum.cost import Work, in_turn, nest_work, rounds_s
from feinsum.skeletons.block_tiles import GROUPS, ITEMS, BlockTiles, IndexDigit, IndexGroup, axis_lanes
from feinsum.skeletons.instructions.matrix_units import SUB_GROUP
from feinsum.space import Configuration, Problem
from feinsum.subscripts import Subscripts

from .plans import OTHER_REGISTERS, planned, preparation
from .products import PIECE_BYTES, SECTOR_BYTES, FusedProduct

_SPLIT, _CONVERTED = 1.5, 2.0
"""The factors of the time of products whose numbers are split, and of those that are made in a longer type."""
_NEIGHBOURS = {True: (8, 4), False: (SUB_GROUP, 1)}
"""Rows and columns that the lanes of a sub-group store at a time, from a matrix unit or not."""


def block_work(p: Problem, c: Configuration) -> Work:
    """The work of a configuration of ``block_contraction``, with its copies and its sums of parts."""
    own, plan = planned(p, c)
    around = preparation(p, plan.split, plan.packing)
    works = [
        product_work(own, plan) if number == around.number else entry_by_entry_work(step.indexing, around.sizes, p.itemsize)
        for number, step in enumerate(around.schedule.steps)
    ]
    return in_turn(works * p.einsum.b)


def entry_by_entry_work(indexing: Subscripts, sizes: Mapping[str, int], itemsize: int) -> Work:
    """The work of a copy or a sum with a work-item for each entry of its output, lanes along the rows of that."""
    lane = indexing.output[-1:] or None
    return nest_work(indexing, sizes, itemsize, lane, axis_lanes(sizes[lane]) if lane else ITEMS)


def product_work(own: FusedProduct, plan: BlockTiles) -> Work:
    """The work of the contraction alone."""
    p = own.problem
    counts, beside = block_counts(own, plan)
    return Work(
        bytes=p.least_bytes + beside,
        loads=counts["shared"] + counts.pop("local"),
        **counts,
        items=plan.work_items,
        registers_bytes=4 * (plan.registers() + OTHER_REGISTERS),
        local_bytes=plan.local_bytes(),
        matrix=plan.fragments.unit is not None,
    )


def block_seconds(own: FusedProduct, plan: BlockTiles, held: Any) -> Any:
    """The time of the contraction alone, without what memory takes, in seconds; of :class:`BlockShapes`, an array.

    :param held: groups that a multiprocessor holds at a time, at least one.
    """
    counts, _ = block_counts(own, plan)
    return rounds_s(
        own.problem.device,
        own.problem.itemsize,
        **counts,
        held=held,
        items=plan.work_items,
        matrix=plan.fragments.unit is not None,
    )


def block_counts(own: FusedProduct, plan: BlockTiles) -> tuple[dict[str, Any], Any]:
    """The work of groups for :func:`feinsum.cost.work_model.rounds_s`, and the bytes that come along in a sector or a piece
    of memory but are for other groups, such as those of other items of the batch."""
    (rows, columns), held = plan.extents, plan.fragments
    runs = _runs_of(own, plan)
    counts, itemsize = runs.counts, own.problem.itemsize
    blocks = -(-counts["rows"] // rows) * -(-counts["columns"] // columns) * -(-counts["batch"] // plan.items)
    points, terms = blocks * plan.items * rows * columns, counts["sums"]
    (down, across), (a, b, _) = plan.block_tile.warp_tile, held.registers
    # Of a sub-group, for each step of the unit.
    fragments = SUB_GROUP * (down * a + across * b)
    steps = points * terms / (down * across * held.rows * held.columns * held.depth)
    widest = tuple(plan.depth if along else n for along, n in zip(plan.along_sums, (rows, columns), strict=True))
    sectors = [_waste(itemsize, run, most) for run, most in zip(runs.operands, widest, strict=True)]
    loaded = [(points * terms / (rows, columns)[1 - side], sectors[side]) for side in (0, 1)]
    stored = zip(runs.results, _NEIGHBOURS[held.unit is not None], strict=True)
    results = prod(counts[x] for x in ("rows", "columns", "batch")) * min(_waste(itemsize, *each) for each in stored)
    longer = _CONVERTED if held.itemsize > plan.itemsize else 1.0
    split = _SPLIT if held.unit is not None and held.unit.dtype == "float" else 1.0
    beside = itemsize * sum(n * (each - 1) for side, (n, each) in enumerate(loaded) if own.quick[side] in plan.batch)
    inputs = own.problem.einsum.indexing.inputs
    for side, (run, most) in enumerate(zip(runs.operands, widest, strict=True)):
        if own.is_large(side) and not plan.along_sums[side] and own.quick[side] not in plan.batch:
            nbytes = itemsize * own.problem.count(inputs[own.operands[side]])
            beside += nbytes * (_waste(itemsize, run, most, PIECE_BYTES) - sectors[side])
    counted = {
        "flops": 2 * points * terms * longer * split,
        "shared": itemsize * sum(count * each for count, each in loaded),
        "local": itemsize * steps * fragments,
        "stored": itemsize * results,
        "waits": -(-terms // plan.depth),
        "groups": blocks,
    }
    return counted, beside


@dataclass(frozen=True)
class _TrafficRuns:
    """The facts about traffic that follow from the division of letters, for any block tile.

    :ivar counts: the length of each fused index, rounded up to whole parts.
    :ivar operands: for each operand, how many neighbours in the fused index along which it is loaded are neighbours in it.
    :ivar results: the same for the output, along rows and columns.
    """

    counts: Mapping[str, int]
    operands: tuple[int, int]
    results: tuple[int, int]


def _runs_of(own: FusedProduct, plan: BlockTiles) -> _TrafficRuns:
    letters = tuple(getattr(plan, name) for name in GROUPS)
    p = own.problem
    return _traffic_runs(
        p.einsum.indexing, tuple(p.sizes.items()), plan.operands, letters, tuple(plan.parts.items()), plan.along_sums
    )


@lru_cache(maxsize=1024)
def _traffic_runs(
    indexing: Subscripts,
    sizes: tuple[tuple[str, int], ...],
    operands: tuple[int, int],
    letters: tuple[str, ...],
    parts: tuple[tuple[str, int], ...],
    along_sums: tuple[bool, bool],
) -> _TrafficRuns:
    """The runs from hashable values: dozens of block tiles that are estimated have these in common."""
    lengths = dict(sizes)
    groups = {name: IndexGroup(own, lengths, dict(parts)) for name, own in zip(GROUPS, letters, strict=True)}
    counts = {name: prod(digit.count for digit in group.digits) for name, group in groups.items()}
    sums, single = groups["sums"], all(digit.count == 1 for digit in groups["sums"].outer)
    of_sums = sums.digits if single else sums.inner
    rows, columns = groups["rows"].digits, groups["columns"].digits
    loaded = (of_sums if along else own for along, own in zip(along_sums, (rows, columns), strict=True))
    a, b = (_coalesced_neighbours(indexing.inputs[k], lengths, own) for k, own in zip(operands, loaded, strict=True))
    stored = neighbouring_values(indexing.output, lengths, rows), neighbouring_values(indexing.output, lengths, columns)
    return _TrafficRuns(counts, (a, b), stored)


def _coalesced_neighbours(letters: str, sizes: Mapping[str, int], digits: Sequence[IndexDigit]) -> int:
    """The number of neighbours in an array that lanes load at about the same time: in a row, or along a part of the array's
    own letter, after the part of another one."""
    own = [digit.count for digit in digits[:2] if digit.letter == letters[-1] and digit.weight == 1]
    return int(max([neighbouring_values(letters, sizes, digits), *own]))


def _waste(itemsize: int, run: int, most: Any, whole: int = SECTOR_BYTES) -> Any:
    """The size of whole sectors, or of other pieces, over that of a run of at most so many neighbours which they hold."""
    nbytes = itemsize * np.minimum(run, most)
    return -(-nbytes // whole) * whole / nbytes


def neighbouring_values(
    letters: str, sizes: Mapping[str, int], digits: Sequence[IndexDigit], most: int = sys.maxsize
) -> int:
    """The number of first values of a fused index that are neighbours in an array, up to `most`.

    :param letters: the axes of the array, the fastest last.
    :param digits: of the fused index, the fastest first.
    """
    strides = {x: prod(sizes[y] for y in letters[k + 1 :]) for k, x in enumerate(letters)}
    run = 1
    for digit in digits:
        if digit.count > 1:
            if strides.get(digit.letter, 0) * digit.weight != run:
                break
            run *= digit.count
    return min(run, most)
