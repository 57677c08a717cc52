"""Plans of streams: the index along lanes, the order of the others, and the share of a work-group.

A plan follows from an einsum, the lengths of its indices and a configuration; it says nothing about loopy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from feinsum.errors import TransformError
from feinsum.skeletons.streaming import CrossedTiles, Flight, Stream, TurnedTiles
from feinsum.space import Configuration, Problem

from .stream_operands import can_be_joined, crossing, crossing_sum, joined_last_indices, longest_operand

GROUPS_PER_UNIT = 4
"""So many work-groups for each compute unit balance the load; chosen by hand."""
KEPT_SHARE = 3
"""The sums that a work-group keeps take such a part of the first cache at most; chosen by hand."""
MOST_GROUPS = 65535
"""The most work-groups along the second and third axes on NVIDIA's devices."""
LEAST_TILE = 32
"""Rows of a tile, of which each work-item has several places: what the lanes of a sub-group read side by side."""
LEAST_OF_A_GROUP = 4096
"""Numbers that have to pass through a work-group so that one more is worth it; chosen by hand."""


def copy_plan(p: Problem, c: Configuration, *, by_rows: bool = False) -> Stream:
    """The plan of an einsum without sums; where an operand is read across its rows, work-groups take tiles of whole lines,
    unless `tile` is 0.

    :param by_rows: whether a tile is stored row by row; if not, strip by strip of its columns.
    :raises TransformError: if an axis has no length, or a group more work-items than the device allows.
    """
    _check_grid(p, c)
    output = p.einsum.indexing.output
    lane, crossed = output[-1], crossing(p.einsum)
    across = crossed if c.get("tile", 0) else ""
    before = "".join(x for x in output[:-1] if x not in across)
    vectors = bool(p.device.simd_bytes)
    width = 1 if vectors and crossed and not across else c["width"]
    flight = None if vectors or across else flight_of(p, c)
    if flight:
        counts = dict.fromkeys(output.removesuffix(flight.letters), 1)
    elif not vectors:
        counts = dict.fromkeys(before, 1) | {lane: width}
    elif across:
        rows = max(c["tile"], c["tile"] ** 2 // max(1, p.sizes[across]))
        counts = dict.fromkeys(before, 1) | {across: c["tile"], lane: _multiple(rows, width)}
    else:
        counts = dealt(p, output, groups_wanted(p, c))
        counts |= {lane: _multiple(counts[lane], width)} if lane in counts else {}
    order = before + across + lane if by_rows else before + lane + across
    counts = ordered_counts(p, counts, order)
    return Stream(order, lane, width, counts, vectors=vectors, streaming_stores=c["streaming"], flight=flight)


def flight_of(p: Problem, c: Configuration) -> Flight | None:
    """The loads in flight of a copy whose work-items have more than one number.

    :raises TransformError: if rows are not whole vectors, or the indices that are not shared as one have too many groups.
    """
    if c["strips"] * c["vector"] == 1:
        return None
    output = p.einsum.indexing.output
    flight = Flight(joined_last_indices(p.einsum), c["strips"], c["vector"])
    if p.is_long(output[-1]) or p.sizes[output[-1]] % c["vector"]:
        raise TransformError(f"index '{output[-1]}' does not have whole vectors of {c['vector']}")
    reason = too_many_groups(p, dict.fromkeys(output.removesuffix(flight.letters), 1))
    if reason is not None:
        raise TransformError(reason)
    return flight


def too_many_groups(p: Problem, counts: Mapping[str, int]) -> str | None:
    """Why a device cannot have so many groups of `counts` along axes that are not the first; None if it can."""
    for letter, count in counts.items():
        if -(-p.sizes[letter] // count) > MOST_GROUPS:
            return f"index '{letter}' has more than {MOST_GROUPS} groups of {count}, and the first axis is taken"
    return None


def permutation_plan(p: Problem, c: Configuration) -> Stream:
    """The plan of a copy, in which GPUs turn tiles round in local memory.

    :raises TransformError: as of :func:`copy_plan`, or if tiles take more local memory than there is.
    """
    plan, across = copy_plan(p, c, by_rows=c["by_rows"]), crossing(p.einsum)
    if not c["tile"]:
        _check_in_order(p, c)
        return plan
    if c["square"]:
        return replace(plan, square=across)
    if p.device.simd_bytes or not across:
        return plan
    if c["strips"] > 1:
        if c["width"] != c["tile"] or c["tile"] < LEAST_TILE or c["joined"] or not c["spare"]:
            raise TransformError(f"work-items share square tiles of {LEAST_TILE} and more, with places to spare")
        return in_tiles(p, plan.order, plan.lane, across, c["tile"], c["tile"] ** 2 // c["strips"], 1)
    place_bytes = p.itemsize * p.einsum.b * p.einsum.n
    outermost = next((x for x in plan.order if x not in (plan.lane, across)), "")
    shared = {x: n for x, n in plan.block_tile.items() if c["joined"] or x in (plan.lane, outermost)}
    counts = ordered_counts(p, {**shared, across: c["tile"]}, plan.order)
    plan = replace(plan, block_tile=counts, turned=TurnedTiles(across, c["tile"], place_bytes, c["spare"], c["joined"]))
    if c["joined"]:
        _check_joined(p, plan.lane, c["width"])
        _check_joined(p, across, c["tile"])
    reason = p.exceeds(local_bytes=plan.local_bytes())
    if reason is not None:
        raise TransformError(reason)
    return plan


def _check_in_order(p: Problem, c: Configuration) -> None:
    """:raises TransformError: if results in their own order have a work-item each on a GPU, or a choice is one of tiles."""
    if not p.device.simd_bytes and c["strips"] == 1:
        raise TransformError("work-items have several numbers each where there are no tiles")
    if c["square"] or c["by_rows"] or c["streaming"] or c["joined"] or (not p.device.simd_bytes and not c["spare"]):
        raise TransformError("results in their own order have no squares, nor stores past the caches")


def _check_joined(p: Problem, letter: str, count: int) -> None:
    """:raises TransformError: if groups of `count` along an index are too many for an axis that is not the first."""
    if not can_be_joined(p.einsum):
        raise TransformError(f"'{p.einsum.subscripts}' has no several indices of known length that could be joined")
    reason = too_many_groups(p, {letter: count})
    if reason is not None:
        raise TransformError(reason)


def sum_plan(p: Problem, c: Configuration) -> Stream:
    """The plan of a sum over one operand with all indices, times smaller ones.

    :raises TransformError: as of :func:`copy_plan`.
    """
    _check_grid(p, c)
    if c["tile"]:
        return crossed_plan(p, c)
    if c["square"] and c["across"]:
        raise TransformError("squares that are turned round have whole lines of the cache, wherever the lane is divided")
    indexing = p.einsum.indexing
    letters = longest_operand(p.einsum) or indexing.indices
    lane, width = letters[-1], c["width"]
    output = "".join(x for x in letters if x in indexing.output and x != lane)
    summed = "".join(x for x in letters if x in indexing.summed and x != lane)
    strip, counts, wanted = width * c["accumulators"], {}, groups_wanted(p, c)
    tiled = 0 < c["across"] < p.sizes[lane]
    if lane in indexing.output:
        strip = width
        counts[lane] = _sums_of_a_group(p, lane, width)
    if tiled:
        counts[lane] = _multiple(min(c["across"], counts.get(lane, c["across"])), strip)
    if counts:
        wanted = -(-wanted // -(-p.sizes[lane] // counts[lane]))
    counts |= dealt(p, output, wanted)
    groups = math.prod(-(-p.sizes[x] // count) for x, count in counts.items())
    enough = min(wanted, GROUPS_PER_UNIT * p.device.compute_units)
    if 2 * groups < enough and not set(counts) & set(indexing.summed):  # groups share one sum at most
        split = max(summed or lane, key=lambda x: p.sizes[x])
        part = p.sizes[split] * groups // enough
        counts[split] = _multiple(part, strip if split == lane else width if c["square"] else c["together"])
    order = output + summed + lane
    return Stream(
        order,
        lane,
        width,
        ordered_counts(p, counts, order),
        summed=indexing.summed,
        accumulators=c["accumulators"] if lane in indexing.summed else 1,
        accumulation=c["together"] if summed and lane in indexing.output else 1,
        vectors=bool(p.device.simd_bytes),
        square=crossing_sum(p.einsum) if c["square"] else "",
    )


def crossed_plan(p: Problem, c: Configuration) -> Stream:
    """The plan of a sum in tiles that pass through local memory.

    :raises TransformError: as of :func:`copy_plan`, or if no operand runs across the longest, a sum is of a length that is
        not known, or tiles take more local memory than there is.
    """
    indexing, across = p.einsum.indexing, crossing_sum(p.einsum)
    letters = longest_operand(p.einsum) or indexing.indices
    if not across or any(p.is_long(x) for x in indexing.summed):
        raise TransformError(f"'{p.einsum.subscripts}' has no operands that run across each other in sums of known length")
    lane = letters[-1]
    order = "".join(sorted(letters, key=lambda x: x in indexing.summed))
    return in_tiles(p, order, lane, across, c["tile"], c["width"], max(1, c["portion"] // c["tile"] ** 2))


def in_tiles(p: Problem, order: str, lane: str, across: str, side: int, items: int, turns: int) -> Stream:
    """The plan of groups of so many work-items that read operands across `lane` in square tiles.

    :raises TransformError: if several indices of the output have lengths that are not known, the device does not allow such
        groups, or tiles take more local memory than there is.
    """
    indexing = p.einsum.indexing
    if sum(map(p.is_long, indexing.output)) > 1:
        raise TransformError(f"several lengths of '{indexing.output}' are not known, so groups do not share them as one")
    turned = tuple(dict.fromkeys(x for x in indexing.inputs if x[-1:] == across and lane in x))
    crossed = CrossedTiles(across, lane, side, turns, turned, p.itemsize * p.einsum.b)
    plan = Stream(order, lane, items, {}, summed=indexing.summed, vectors=False, crossed=crossed)
    reason = p.exceeds(work_items=items, local_bytes=plan.local_bytes())
    if reason is not None:
        raise TransformError(reason)
    return plan


def trace_plan(p: Problem, c: Configuration) -> Stream:
    """The plan of a sum or, where nothing is summed over, of a copy.

    :raises TransformError: as of :func:`copy_plan`.
    """
    return sum_plan(p, {**c, "across": 0, "tile": 0, "square": False}) if p.einsum.indexing.summed else copy_plan(p, c)


def _check_grid(p: Problem, c: Configuration) -> None:
    """:raises TransformError: if an axis has no length, or a group more work-items than the device allows."""
    if not all(p.sizes.values()):
        raise TransformError("an axis has no length, so nothing streams by")
    reason = None if p.device.simd_bytes else p.exceeds(work_items=c["width"])
    if reason is not None:
        raise TransformError(reason)


def _sums_of_a_group(p: Problem, lane: str, width: int) -> int:
    """The number of places along the lane whose sums a group keeps: as many as a part of the first cache holds, or one of
    each lane."""
    kept = p.device.first_cache_bytes // KEPT_SHARE // p.itemsize if p.device.simd_bytes else width
    return min(_multiple(p.sizes[lane], width), _multiple(kept, width))


def groups_wanted(p: Problem, c: Configuration) -> int:
    """The number of work-groups: by the portion of each, but enough to occupy the device if there is work for them."""
    total = p.count(p.einsum.indexing.indices)
    enough = min(total // LEAST_OF_A_GROUP, GROUPS_PER_UNIT * p.device.compute_units)
    return max(1, total // int(c["portion"]), enough)


def dealt(p: Problem, letters: str, wanted: int) -> dict[str, int]:
    """Counts for the outermost of `letters` that make about so many groups."""
    counts: dict[str, int] = {}
    for letter in letters:
        if wanted <= 1:
            break
        counts[letter] = max(1, p.sizes[letter] // wanted)
        wanted = -(-wanted // -(-max(1, p.sizes[letter]) // counts[letter]))
    return counts


def ordered_counts(p: Problem, counts: Mapping[str, int], order: str) -> dict[str, int]:
    """The counts in the order of the axes of a device: CPUs take groups in turn, which are to be neighbours in memory.

    GPUs have as many groups as one likes along the first axis alone.
    """
    if p.device.simd_bytes:
        return {x: counts[x] for x in reversed(order) if x in counts}
    return {x: counts[x] for x in sorted(counts, key=lambda x: -p.sizes[x] / counts[x])}


def _multiple(count: int, of: int) -> int:
    return max(1, -(-count // of)) * of
