"""The choices of vector panels that are worth trying for a problem, the best guess first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

from feinsum.devices import DeviceProfile
from feinsum.einsum import BatchedEinsum
from feinsum.errors import TransformError
from feinsum.skeletons.vector_panels import (
    PANEL_SHARES,
    PanelOrder,
    accumulator_counts,
    lane_fill,
    most_vectors_in_row,
    vector_counts,
    vector_widths,
)
from feinsum.space import Configuration, Problem

from .orders import panel_orders, points_in_group
from .plans import FEW_ROWS, GROUPS_PER_CORE, divided_row, fused_problem, panel_plan, rows_apart
from .work import panel_work, scattered_traffic, swept

TOGETHER = (1, 2, 4, 3, 6, 5, 8)
TILES = (1000, 500, 250, 2500, 100, 50, 25)
"""These and the thresholds below were chosen by hand."""
WORTH_A_GROUP = 500_000
"""Operations; a work-group of fewer is not worth its start."""
ENOUGH_ACCUMULATORS = 10
"""So many independent sums keep the units busy despite their latency."""
MOST_LOADS = 0.8
"""The loads for each addition; a core loads and adds two vectors in a cycle, but results are stored too."""
LONG_SUM = 64
"""Terms of a sum that takes longer than a core looks ahead."""
ENOUGH_ROWS = 24
"""Iterations from which on they alone make it pay to copy a panel."""
WELL_FILLED = 0.6
"""Vectors less full than that are worse than results that have to be turned round."""
WELL_FILLED_BY_HALVES = 0.8
"""The same share for vectors of half the width."""
MOST_PARTS = 2
"""Lengths of parts of a row that are worth trying."""
TURNED = 1.2
"""Operations of a chain whose lanes run along parts, for those of one whose results have to be turned round: with more of
them it takes longer."""
MEMORY = 15
"""Bytes that instructions load in the time of one from memory."""
FAR_BEHIND = 1.6
"""A plan that loads so many times as much as the best one with the same order and lanes is no good guess: it gathers
vectors of numbers that lie apart."""


@dataclass(frozen=True)
class Promising:
    """Choices of parameters, the best guess first; the first of each make a plan together.

    If there is no plan at all, there is one choice of each and `hopeless` is true.

    :ivar paths: orders of contraction, as configurations write them.
    :ivar panels: shares of a core's cache.
    """

    paths: tuple[str, ...]
    lanes: tuple[str, ...]
    longs: tuple[str, ...]
    panels: tuple[int, ...]
    together: tuple[int, ...] = TOGETHER
    tiles: tuple[int, ...] = TILES
    parts: tuple[int, ...] = (0,)
    hopeless: bool = False


def promising_choices(p: Problem) -> Promising:
    """The choices worth trying for a problem, in its indices after neighbours are fused."""
    p, _ = fused_problem(p)
    return _cached_promising(p.einsum, tuple(p.sizes.items()), p.device)


@lru_cache(maxsize=256)
def _cached_promising(e: BatchedEinsum, sizes: tuple[tuple[str, int], ...], device: DeviceProfile) -> Promising:
    p = Problem(e, dict(sizes), device)
    texts, longs, lanes = [order.text for order in panel_orders(p)], _longs(p), _lane_indices(p)
    counts = accumulator_counts(device)
    small: dict[str, int | str | bool] = {"width": p.lanes, "vectors": 1, "together": 1, "accumulators": counts[-1]}
    small |= {"tile": 100, "slab": False, "rows": "together", "streaming": False, "ahead": False, "part": 0}
    loads: dict[tuple[str, str, str, int], float] = {}
    for choice in product(texts, lanes, longs, PANEL_SHARES):
        with suppress(TransformError):
            loads[choice] = _least_loads(p, {**small, **dict(zip(("path", "lane", "long", "panel"), choice, strict=True))})
    if not loads:
        return Promising((texts[0],), (lanes[0],), (longs[0],), PANEL_SHARES[:1], hopeless=True)
    least: dict[tuple[object, ...], float] = {}
    for (path, lane, *_), count in loads.items():
        least[path, lane] = min(count, least.get((path, lane), count))
    # Of orders with as many operations, one that keeps the better lane.
    work = {path: points_in_group(p, PanelOrder.parse(path)) for path, *_ in loads}

    def rank(choice: tuple[str, str, str, int]) -> tuple[bool, int, int]:
        return loads[choice] > FAR_BEHIND * least[choice[:2]], work[choice[0]], lanes.index(choice[1])

    found = sorted(loads, key=rank)
    first = dict(zip(("path", "lane", "long", "panel"), found[0], strict=True))
    likely = {**small, "accumulators": counts[0], "vectors": vectors_of_a_row(p, found[0][1])[0], **first}
    divided = _divided_chain(p, likely, texts)
    if divided and likely["lane"] != p.einsum.indexing.output[-1] and divided[0][0] < TURNED * panel_work(p, likely).flops:
        likely = divided[0][1]
    columns = [
        tuple(dict.fromkeys([likely[name], *column]))
        for name, column in zip(("path", "lane", "long", "panel"), zip(*found, strict=True), strict=True)
    ]
    parts = tuple(dict.fromkeys([likely["part"], 0, *(c["part"] for _, c in divided)]))
    likely["together"] = (together := _togethers(p, likely))[0]
    return Promising(columns[0], columns[1], columns[2], columns[3], together, _group_iterations(p, likely), parts)


def _divided_chain(p: Problem, likely: Configuration, paths: Sequence[str]) -> list[tuple[float, dict[str, Any]]]:
    """Configurations of a chain whose lanes run along parts of a row, and their operations, those of empty lanes included.

    The fewest come first; there are none of a row that registers hold as it is.  The last step has lanes along the last
    index of the output, or along parts as well.
    """
    last, row, found = p.einsum.indexing.output[-1], divided_row(p, likely["long"]), []
    if p.einsum.n < 3 or not row or p.is_long(last) or last == likely["long"]:
        return []
    width, most = vector_widths(p.lanes, p.sizes[last])[0], likely["vectors"]
    if -(-p.sizes[row] // width) <= most:
        return []
    fitting = [n for n in p.divisors(row)[:-1] if -(-n // width) <= most and lane_fill(n, width) >= WELL_FILLED]
    fullest = sorted(fitting, key=lambda n: (-lane_fill(n, width), -n))[:MOST_PARTS]
    for path, lane, n in product(paths, (last, row), fullest):
        c = {**likely, "path": path, "lane": lane, "width": width, "panel": PANEL_SHARES[0], "part": n}
        with suppress(TransformError):
            found.append((panel_work(p, c).flops, c))
    return sorted(found, key=lambda item: item[0])


def vectors_of_a_row(p: Problem, lane: str) -> tuple[int, ...]:
    """The numbers of vectors of a row along an index that may be summed at once, the best guess first."""
    return vector_counts(p.device, -(-p.sizes[lane] // vector_widths(p.lanes, p.sizes[lane])[0]))


def _longs(p: Problem) -> list[str]:
    """The indices that may be the long one, the longest first: two, and one that is each operand's own."""
    e = p.einsum
    # An index of all operands is no tile: nothing is read once for several values of it.
    common = {x for x in e.indexing.output if all(x in letters for letters in e.indexing.inputs)}
    few = max((p.sizes[x] for x in e.indexing.output[:-1] if x not in common), default=0) < ENOUGH_ROWS
    ordered = sorted(e.indexing.output, key=lambda x: (x in common and not few, not p.is_long(x), -p.sizes[x]))
    # Vectors are shared only along an index of another operand.
    own = [next((x for x in ordered if _owner(e, x) == k), "") for k in range(e.n)]
    return [x for x in ordered if x in ordered[:2] or x in own]


def _lane_indices(p: Problem) -> list[str]:
    """The indices that lanes may run along, the best guess first: the last one, if it fills vectors."""
    output, width, longest = p.einsum.indexing.output, p.lanes, _longs(p)[0]

    def rank(x: str) -> tuple[bool, bool, bool, int]:
        partly = lane_fill(p.sizes[x], width) < WELL_FILLED and lane_fill(p.sizes[x], width // 2) < WELL_FILLED_BY_HALVES
        return (partly or x != output[-1], x == longest, partly, -output.index(x))

    return sorted(output, key=rank)


def _owner(e: BatchedEinsum, x: str) -> int | None:
    """The operand that alone has an index; None if several have it."""
    owners = [k for k, letters in enumerate(e.indexing.inputs) if x in letters]
    return owners[0] if len(owners) == 1 else None


def _least_loads(p: Problem, small: Configuration) -> float:
    """The bytes that instructions load with the best register tile, and the cost of those that are read again.

    :raises TransformError: if it has no plan.
    """
    width, budget = vector_widths(p.lanes, p.sizes[small["lane"]])[0], accumulator_counts(p.device)[0]
    large = {**small, "width": width, "accumulators": budget}
    vectors = -(-p.sizes[small["lane"]] // width)
    # A row of a few vectors is not divided, so as many rows as there are accumulators for are worth a look, too.
    most = min(budget // vectors, max(TOGETHER)) if 4 < vectors <= most_vectors_in_row(p.device) else 1
    longest = vector_counts(p.device, vectors)[0]
    tiles = dict.fromkeys((*product((longest, 2), (4, 1)), (longest, max(1, most))))
    large_operands = any(2 * p.count(x) * p.itemsize > p.device.cache_bytes > 0 for x in p.einsum.indexing.inputs)
    least = math.inf
    for c in (*({**large, "vectors": v, "together": n} for v, n in tiles), small):
        with suppress(TransformError):
            far = swept(p, plan := panel_plan(p, c)) + scattered_traffic(p, plan) if large_operands else 0.0
            least = min(least, panel_work(p, c).loads + MEMORY * far)
    if math.isinf(least):
        raise TransformError("no tile of registers has a plan")
    return least


def _togethers(p: Problem, c: Configuration) -> tuple[int, ...]:
    """Numbers of iterations of the long index at once: the fewest that keep the units busy, or as many as a cache line
    holds."""
    if c["part"]:
        return TOGETHER  # the sums of one part and all that it is multiplied by are enough
    if rows_apart(p, c["long"], c["lane"]):
        return tuple(sorted(TOGETHER, reverse=True))
    return tuple(sorted(TOGETHER, key=lambda n: _idleness(p, {**c, "together": n})))


def _group_iterations(p: Problem, c: Configuration) -> tuple[int, ...]:
    """Numbers of iterations of the long index in a work-group: as many as leave every core some groups, if they are worth
    it."""
    worth = p.einsum.flops(p.lengths) // WORTH_A_GROUP
    enough = min(GROUPS_PER_CORE * p.device.compute_units, worth)
    groups = {}
    for tile in TILES:
        with suppress(TransformError):
            groups[tile] = panel_work(p, {**c, "tile": tile}).groups
    most = min(enough, max(groups.values(), default=0))
    return tuple(sorted(TILES, key=lambda tile: groups.get(tile, 0) < most))


def _idleness(p: Problem, c: Configuration) -> tuple[bool, bool, int]:
    """The causes that keep the units waiting in the last step of a plan, the worst first.

    Too few independent sums or more loads than additions; more rows apart than the hardware foresees; sums wanted.
    """
    try:
        plan = panel_plan(p, c)
    except TransformError:
        return True, True, ENOUGH_ACCUMULATORS
    step, lane, held = plan.order.contractions(p.einsum)[-1], plan.lane_axes[-1], plan.register_tiles[-1].held
    whole = most_vectors_in_row(p.device) * c["width"]
    row = p.sizes[lane] if not p.is_long(lane) else whole + 1
    vectors = c["vectors"] if row > whole else -(-row // c["width"])
    count = vectors * math.prod(held.values())
    loads = rows = 0
    for letters in step.inputs:
        numbers = math.prod(held.get(x, 1) for x in letters)
        loads += numbers * vectors if lane in letters else numbers
        if letters and letters[-1] not in step.kept:
            rows = max(rows, numbers)
    wanting = max(0, ENOUGH_ACCUMULATORS - count)
    busy = wanting == 0 and loads <= MOST_LOADS * count
    # Short sums of neighbours overlap.
    short = p.count("".join(set("".join(step.inputs)) - set(step.kept))) < LONG_SUM
    return (not busy, False, 0) if short else (not busy, rows > FEW_ROWS, wanting)
