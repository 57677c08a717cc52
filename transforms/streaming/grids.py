"""Sums of GPUs by grids of work-items: how many lanes, terms on their way at a time, and the share of a group."""

from __future__ import annotations

import math
from dataclasses import replace

from feinsum.errors import TransformError
from feinsum.rewrites import side_by_side
from feinsum.skeletons.streaming import ItemGrid, Stream
from feinsum.space import Configuration, Problem
from feinsum.space.joined_problems import joined_problem

from .plans import LEAST_OF_A_GROUP, ordered_counts, sum_plan
from .stream_operands import longest_operand

LANES = (32, 16, 8, 4, 64, 128, 256)
LEAST_LANES = 4
TERMS = 16
"""Terms that a work-item adds up before lanes are added: rows of 12 and 16 numbers take least time with four lanes, of 500
with 32, and of 500 for each of which there are 500 others with 256, on an H200 (2026-11-26)."""
LOADS = (4, 8, 2, 1)
WAVES = 2
"""So many times the work-items that a compute unit holds balance the load; chosen by hand."""
RESIDENT_ITEMS = 2048
"""Work-items that a compute unit of a GPU holds; all that are current."""


def lane_counts(p: Problem, width: int) -> tuple[int, ...]:
    """Numbers of lanes, the best guess first: those that a row fills, or where it is summed over some of them."""
    lane = (longest_operand(p.einsum) or "")[-1]
    most = min(width, max(LEAST_LANES, 1 << (p.sizes[lane] - 1).bit_length()))
    if not _rows_letter(p):
        return (width,)
    wanted = most if lane in p.einsum.indexing.output else max(LEAST_LANES, p.count(p.einsum.indexing.summed) // TERMS)
    able = [n for n in LANES if n <= most]
    return tuple(sorted(able, key=lambda n: abs(math.log2(n / min(most, wanted)))))


def reduction_plan(p: Problem, c: Configuration) -> Stream:
    """The plan of a sum over one operand with all indices, of which some may become one before.

    :raises TransformError: as of :func:`.plans.sum_plan`, or if there are none side by side in every array
        or no grid of work-items.
    """
    if c["joined"]:
        groups = side_by_side(p.einsum)
        if not groups or not c["lanes"]:
            raise TransformError("no indices are side by side in every array, or there is no grid for them")
        return replace(reduction_plan(joined_problem(p), {**c, "joined": False}), joined=groups)
    return grid_plan(p, c) if c["lanes"] else sum_plan(p, c)


def grid_plan(p: Problem, c: Configuration) -> Stream:
    """The plan of a sum by a grid of work-items.

    :raises TransformError: if an axis has no length, lanes are more than work-items, or the device has no such groups.
    """
    if not all(p.sizes.values()):
        raise TransformError("an axis has no length, so nothing streams by")
    reason = "a CPU has no lanes of work-items" if p.device.simd_bytes else p.exceeds(work_items=c["width"])
    if reason is not None or c["tile"]:
        raise TransformError(reason or "tiles in local memory have work-items of their own")
    indexing, width, lane_count = p.einsum.indexing, int(c["width"]), int(c["lanes"])
    letters = longest_operand(p.einsum) or indexing.indices
    lane, rows = letters[-1], _rows_letter(p)
    if lane_count > width:
        raise TransformError(f"a group of {width} work-items has no {lane_count} lanes")
    grid = {lane: lane_count}
    if rows and lane_count < width:
        grid[rows] = min(width // lane_count, 1 << (p.sizes[rows] - 1).bit_length())
    elif lane_count < width:
        raise TransformError(f"there are no rows for {width} work-items in lanes of {lane_count}")
    output = "".join(x for x in letters if x in indexing.output)
    summed = "".join(x for x in letters if x in indexing.summed)
    items = ItemGrid(grid, *_flight(p, grid, summed, int(c["loads"])))
    strips = items.strips()
    blocks = {x: -(-p.sizes[x] // strips.get(x, 1)) for x in letters}
    wanted = _grid_groups(p, c, items)
    counts = {lane: lane_count} if lane in output else {}
    left = -(-wanted // math.prod(blocks[x] for x in counts))
    shares = dealt_blocks({x: blocks[x] for x in output if x not in counts}, left)
    counts |= {x: share * strips.get(x, 1) for x, share in shares.items()}
    groups = math.prod(-(-p.sizes[x] // count) for x, count in counts.items())
    if 2 * groups <= wanted:
        split = max(summed, key=lambda x: blocks[x])
        part = max(1, blocks[split] * groups // wanted)
        least = -(-LEAST_OF_A_GROUP * blocks[split] // max(1, math.prod(p.sizes[x] for x in summed) * items.items))
        part = max(part, min(least, blocks[split]))
        if part < blocks[split]:
            counts[split] = part * strips.get(split, 1)
    order = output.replace(lane, "") + summed.replace(lane, "") + lane
    return Stream(
        order,
        lane,
        lane_count,
        ordered_counts(p, counts, order),
        summed=indexing.summed,
        vectors=False,
        grid=items,
    )


def dealt_blocks(blocks: dict[str, int], wanted: int) -> dict[str, int]:
    """How many blocks along each index a group does, so that there are about so many groups: the outermost is divided
    first."""
    shares: dict[str, int] = {}
    for x, count in blocks.items():
        if wanted <= 1:
            break
        shares[x] = max(1, count // wanted)
        wanted = -(-wanted // -(-count // shares[x]))
    return shares


def _rows_letter(p: Problem) -> str:
    """The index before the lane in the longest operand; "" if there is none."""
    return (longest_operand(p.einsum) or "")[-2:-1]


def _flight(p: Problem, grid: dict[str, int], summed: str, loads: int) -> tuple[str, int]:
    """The summed index of which several terms are on their way at a time, and how many."""
    able = [x for x in reversed(summed) if p.is_long(x) or p.sizes[x] >= 2 * grid.get(x, 1)]
    if not able or loads == 1:
        return "", 1
    letter = able[0]
    most = p.sizes[letter] // grid.get(letter, 1)
    return letter, loads if p.is_long(letter) else min(loads, 1 << (most.bit_length() - 1))


def _grid_groups(p: Problem, c: Configuration, grid: ItemGrid) -> int:
    """The number of groups: by the portion of each, but enough to occupy the device if there is work for them."""
    total = p.count(p.einsum.indexing.indices)
    enough = min(total // LEAST_OF_A_GROUP, WAVES * RESIDENT_ITEMS // grid.items * p.device.compute_units)
    return max(1, total // int(c["portion"]), enough)
