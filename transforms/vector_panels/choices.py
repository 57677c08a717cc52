"""The choices of vector panels that are worth trying for a problem, the best guess first."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from feinsum.devices import DeviceProfile
from feinsum.einsum import BatchedEinsum
from feinsum.space import Configuration, Problem

from .limits import PANEL_SHARES, accumulators, fill, widths
from .paths import contractions, paths, points
from .plans import FEW_ROWS, GROUPS_PER_CORE, MOST_VECTORS_IN_ROW, RefusedError, panel_plan, rows_apart
from .work import plan_work, swept

TOGETHER = (1, 2, 4, 3, 6, 5, 8)
TILES = (1000, 500, 250, 2500, 100, 50, 25)
WORTH_A_GROUP = 500_000
"""Operations; a work-group of fewer is not worth its start."""
ENOUGH_ACCUMULATORS = 10
"""So many independent sums keep the units busy despite their latency."""
MOST_LOADS = 0.8
"""For each addition; a core loads and adds two vectors in a cycle, but results are stored too."""
LONG_SUM = 64
"""Terms of a sum that takes longer than a core looks ahead."""
ENOUGH_ROWS = 24
"""That make it worth while to copy a panel for them alone."""
WELL_FILLED = 0.6
"""Vectors less full than that are worse than results that have to be turned round."""
WELL_FILLED_BY_HALVES = 0.8
"""The same for vectors of half the width."""
MEMORY = 15
"""Bytes that instructions load in the time of one from memory."""
FAR_BEHIND = 1.6
"""What loads so many times as much as the best with its lanes, as vectors of numbers apart do, is no good guess."""


@dataclass(frozen=True)
class Promising:
    """Paths, lanes, long indices and shares of panels, the best guess first; the first of each make a plan together.

    If there is no plan at all, there is one of each and `hopeless` is true.
    """

    paths: tuple[str, ...]
    lanes: tuple[str, ...]
    longs: tuple[str, ...]
    panels: tuple[int, ...]
    together: tuple[int, ...] = TOGETHER
    tiles: tuple[int, ...] = TILES
    hopeless: bool = False


def promising(p: Problem) -> Promising:
    """What may be worth trying for a problem."""
    return _promising(p.einsum, tuple(p.sizes.items()), p.device)


@lru_cache(maxsize=256)
def _promising(e: BatchedEinsum, sizes: tuple[tuple[str, int], ...], device: DeviceProfile) -> Promising:
    p = Problem(e, dict(sizes), device)
    output, width = e.indexing.output, p.lanes
    # What all operands have in common is no tile: nothing is read once for several of it.
    common = {x for x in output if all(x in letters for letters in e.indexing.inputs)}
    few = max((p.sizes[x] for x in output[:-1] if x not in common), default=0) < ENOUGH_ROWS
    ordered = sorted(output, key=lambda x: (x in common and not few, not p.is_long(x), -p.sizes[x]))
    # One of each operand's own at least: what is read in vectors is shared only along an index of another operand.
    own = [next((x for x in ordered if _owner(e, x) == k), "") for k in range(e.n)]
    longest = [x for x in ordered if x in ordered[:2] or x in own]

    def rank(x: str) -> tuple[bool, bool, bool, int]:
        partly = fill(p.sizes[x], width) < WELL_FILLED and fill(p.sizes[x], width // 2) < WELL_FILLED_BY_HALVES
        return (partly or x != output[-1], x == longest[0], partly, -output.index(x))

    lanes = sorted(output, key=rank)
    small: dict[str, int | str | bool] = {
        "width": width,
        "vectors": 1,
        "together": 1,
        "accumulators": accumulators(p)[-1],
        "tile": 100,
        "slab": False,
    }
    small |= {"rows": "together", "streaming": False, "ahead": False}
    loads: dict[tuple[str, str, str, int], float] = {}
    for choice in product(paths(p), lanes, longest, PANEL_SHARES):
        with suppress(RefusedError):
            loads[choice] = _loads(p, {**small, **dict(zip(("path", "lane", "long", "panel"), choice, strict=True))})
    if not loads:
        return Promising((paths(p)[0],), (lanes[0],), (longest[0],), PANEL_SHARES[:1], hopeless=True)
    least: dict[tuple[object, ...], float] = {}
    for (path, lane, *_), count in loads.items():
        least[path, lane] = min(count, least.get((path, lane), count))
    # Of paths with as many operations, one that keeps the better lane.
    work = {path: points(p, path) for path, *_ in loads}

    def order(choice: tuple[str, str, str, int]) -> tuple[bool, int, int]:
        return loads[choice] > FAR_BEHIND * least[choice[:2]], work[choice[0]], lanes.index(choice[1])

    found = sorted(loads, key=order)
    columns = [tuple(dict.fromkeys(column)) for column in zip(*found, strict=True)]
    first = {
        **small,
        "accumulators": accumulators(p)[0],
        "vectors": 4,
        **dict(zip(("path", "lane", "long", "panel"), found[0], strict=True)),
    }
    together = _togethers(p, first)
    return Promising(
        columns[0], columns[1], columns[2], columns[3], together, _tiles(p, {**first, "together": together[0]})
    )


def _owner(e: BatchedEinsum, x: str) -> int | None:
    """The operand that alone has an index; None if several have it."""
    owners = [k for k, letters in enumerate(e.indexing.inputs) if x in letters]
    return owners[0] if len(owners) == 1 else None


def _loads(p: Problem, small: Configuration) -> float:
    """The bytes that instructions load with the best tile of registers, and what those are worth that are read again.

    :raises RefusedError: if it has no plan.
    """
    large = {**small, "width": widths(p, p.sizes[small["lane"]])[0], "accumulators": accumulators(p)[0]}
    vectors = -(-p.sizes[small["lane"]] // large["width"])
    # A row of a few vectors is not divided, so as many rows as there are accumulators for are worth a look, too.
    most = min(large["accumulators"] // vectors, max(TOGETHER)) if 4 < vectors <= MOST_VECTORS_IN_ROW else 1
    tiles = dict.fromkeys((*product((4, 2), (4, 1)), (4, max(1, most))))
    large_operands = any(2 * p.count(x) * p.itemsize > p.device.cache_bytes > 0 for x in p.einsum.indexing.inputs)
    least = math.inf
    for c in (*({**large, "vectors": v, "together": n} for v, n in tiles), small):
        with suppress(RefusedError):
            least = min(least, plan_work(p, c).loads + (MEMORY * swept(p, panel_plan(p, c)) if large_operands else 0))
    if math.isinf(least):
        raise RefusedError("no tile of registers has a plan")
    return least


def _togethers(p: Problem, c: Configuration) -> tuple[int, ...]:
    """How many of the long index to treat at once: the fewest that keep the units busy, or as much as a cache line."""
    if rows_apart(p, c["long"], c["lane"]):
        return tuple(sorted(TOGETHER, reverse=True))
    return tuple(sorted(TOGETHER, key=lambda n: _idleness(p, {**c, "together": n})))


def _tiles(p: Problem, c: Configuration) -> tuple[int, ...]:
    """How many of the long index a work-group treats: as many as leave every core some groups, if they are worth it."""
    worth = p.einsum.flops(p.lengths) // WORTH_A_GROUP
    enough = min(GROUPS_PER_CORE * p.device.compute_units, worth)
    groups = {}
    for tile in TILES:
        with suppress(RefusedError):
            groups[tile] = plan_work(p, {**c, "tile": tile}).groups
    most = min(enough, max(groups.values(), default=0))
    return tuple(sorted(TILES, key=lambda tile: groups.get(tile, 0) < most))


def _idleness(p: Problem, c: Configuration) -> tuple[bool, bool, int]:
    """What keeps the units waiting in the last stage of a plan, the worst first.

    Too few independent sums or more loads than additions; more rows apart than the hardware foresees; sums wanted.
    """
    try:
        stage = panel_plan(p, c).stages[-1]
    except RefusedError:
        return True, True, ENOUGH_ACCUMULATORS
    step = contractions(p.einsum, c["path"])[-1]
    row = p.sizes[stage.lane] if not p.is_long(stage.lane) else MOST_VECTORS_IN_ROW * c["width"] + 1
    vectors = c["vectors"] if row > MOST_VECTORS_IN_ROW * c["width"] else -(-row // c["width"])
    count = int(vectors * math.prod(stage.registers.values()))
    loads = rows = 0
    for letters in step.inputs:
        numbers = int(math.prod(stage.registers.get(x, 1) for x in letters))
        loads += numbers * vectors if stage.lane in letters else numbers
        if letters and letters[-1] not in step.kept:
            rows = max(rows, numbers)
    wanting = max(0, ENOUGH_ACCUMULATORS - count)
    busy = wanting == 0 and loads <= MOST_LOADS * count
    # Short sums of neighbours overlap.
    short = p.count("".join(set("".join(step.inputs)) - set(step.kept))) < LONG_SUM
    return (not busy, False, 0) if short else (not busy, rows > FEW_ROWS, wanting)
