"""The work of a plan of vector panels: operations in padded rows, loads for each of them, traffic, independent sums.

For each term of a sum, v vectors along the lane times n numbers that are broadcast make v·n products of vectors::

    loads = v + n        where the operand of the vectors is copied or has the lane along its rows
          = v·width + n  where its numbers lie apart

The end of a row behind its last whole vector is loaded in pieces, unless a copy fills it up.  An operand of which one step
of a group reads more than a core's cache holds comes from memory again for every step; one that is copied across its rows
comes in whole lines.

Sums beyond the registers of the device are loaded and stored for every product; rows computed together share these.

Operands that no step contracts are multiplied in where results are stored.

Results are stored in vectors where they have the lane along their rows, else number by number; and unless the next steps
go on along these rows, a number is a line of memory.

What a tile of registers reads for its sums comes from a core's second cache for every tile, where it is more than the first
one holds; that takes longer than the instructions, or hides behind them::

    loads = max(loads, Σ_tiles (2 · bytes of copies + 3.5 · bytes of what lies where it is))

The hardware foresees rows that are read from end to end.  Of an operand beyond a core's own caches whose short pieces lie
apart it foresees little, and less where a group does not go on along the rows: a core waits for these lines.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from feinsum.cost import Work
from feinsum.skeletons.vector_panels import PanelContraction, RegisterTile, VectorPanels
from feinsum.space import Configuration, Problem

from .plans import FEW_ROWS, panel_plan, planned_problem

_SHARED = 0.5
"""The cost of a byte from the cache that cores share, in bytes from memory; chosen by hand."""
_ALLOCATION = 1.5
"""Traffic of results that are stored through the caches, which read their lines first, for that of others past them;
chosen by hand."""
SECOND = 3.5
"""The cost of a byte from a core's second cache, in bytes from its first; chosen by hand to fit a Zen 3."""
COPIED = 2.0
"""The cost for copies, which lie one behind the other; chosen by hand among 1, 2 and 3."""
_PARTIAL_LINES = 3
"""Traffic of a line of which a part is stored past the caches, in lines: memory puts it together.  Measured with rows of 64
float32 in tiles of 24, on a Zen 3."""
_SHORT_PIECE = 4
"""Lines of a piece from which the hardware foresees the rest of it; chosen by hand."""
_ALONG, _PREFETCHED, _JUMPED = 1.0, 0.5, 4.0
"""Traffic of an operand that lies in short pieces apart, once more so many times: where a group goes on along its rows, and
asks for them ahead, and where it comes back to a row much later.  ``adb,dc->abc`` of 200, 200, 24 and 200 in float64 took
5.8, 5.6 and 16.5 ms so on a Granite Rapids, and 4.0 and 6.4 on a Zen 4 with and without going on along the rows."""


def panel_work(p: Problem, c: Configuration) -> Work:
    """The work of a configuration of :mod:`feinsum.transforms.vector_panels.contractions`.

    :raises TransformError: if it has no plan.
    """
    plan, (p, *_) = panel_plan(p, c), planned_problem(p, c)
    flops, loads, sums = _order_products(p, plan)
    e, steps = p.einsum, plan.order.contractions(p.einsum)
    left = [letters for k, letters in enumerate(e.indexing.inputs) if not any(k in step.own for step in steps)]
    if left:
        terms = e.b * p.count("".join({*steps[-1].kept, *"".join(left)}))
        flops += 2 * terms * len(left)
        loads += terms * (1 + len(left)) * p.itemsize
    stored = e.b * p.count(e.indexing.output) * p.itemsize
    turned = plan.lane_axes[-1] != e.indexing.output[-1]
    scattered = turned and e.indexing.output[-1] != c["long"] and stored > p.device.own_cache_bytes
    loads += stored * (plan.width if turned else 1)
    groups = plan.groups(p.sizes)
    inside = {x: min(n, plan.block_tile[x].covered) if x in plan.block_tile else n for x, n in p.sizes.items()}
    copied = sum(
        math.prod(inside[x] for x in e.indexing.inputs[k])
        * p.itemsize
        * (1 if e.indexing.inputs[k][-1] == lane else plan.width)
        for k, lane in plan.copied.items()
    )
    return Work(
        flops=flops,
        bytes=p.least_bytes
        + _again(p, plan)
        + swept(p, plan)
        + _across(p, plan)
        + scattered_traffic(p, plan)
        + groups * sum(_line_bytes(p, e.indexing.inputs[k], lane, inside) for k, lane in plan.copied.items())
        + (_broken_lines(p, plan) if plan.streaming_stores else (_ALLOCATION - 1) * stored)
        + (stored * p.device.line_bytes // p.itemsize if scattered else 0),
        loads=loads + groups * copied,
        groups=groups,
        lanes=plan.width,
        sums=sums,
    )


def _order_products(p: Problem, plan: VectorPanels) -> tuple[float, float, float]:
    """Operations of the steps of an order, bytes that they load, and independent sums of the step with most operations."""
    flops = loads = most = sums = 0.0
    for step, lane, tile in zip(plan.order.contractions(p.einsum), plan.lane_axes, plan.register_tiles, strict=True):
        row, letters = p.sizes[lane], set("".join(step.inputs))
        again = math.prod(-(-p.sizes[x] // of.at_once) for x, of in plan.block_tile.items() if x not in letters)
        at_once = plan.at_once(lane, row)
        vectors = -(-row // at_once) * -(-at_once // plan.width)
        products = again * p.count("".join(letters)) * _step_count(p, step) * (vectors / row)
        own = 2 * _multiplications(step, lane) * products * plan.width
        together = 1 if plan.product_major else _step_count(p, step)
        each = _loads_per_vector_product(step, lane, tile, plan, row) + _spill_count(p, tile.accumulators * together)
        near, far = products * each * plan.width * p.itemsize, _from_second_cache(p, step, lane, tile, plan)
        loads += max(near, again * far)
        if own > most:
            most, sums = own, tile.accumulators
        flops += own
    return flops, loads, sums


def _from_second_cache(p: Problem, step: PanelContraction, lane: str, tile: RegisterTile, plan: VectorPanels) -> float:
    """The data that register tiles of a step read again, as the first cache does not hold the operands of one of them.

    :returns: bytes, in those of the first cache that take as long.
    """
    inside = {
        x: min(tile.vectors * plan.width, n) if x == lane else tile.held.get(x, 1) if x in step.kept else n
        for x, n in p.sizes.items()
    }
    copied = [k is None or k in plan.copied for k in step.own]
    read = [
        math.prod(inside[x] for x in letters) * p.itemsize if together else _touched(p, letters, inside)
        for letters, together in zip(step.inputs, copied, strict=True)
    ]
    if sum(read) <= p.device.first_cache_bytes:
        return 0.0
    each = sum(n * (COPIED if together else SECOND) for n, together in zip(read, copied, strict=True))
    return each * _step_count(p, step) * math.prod(-(-p.sizes[x] // inside[x]) for x in step.kept)


def _across(p: Problem, plan: VectorPanels) -> float:
    """The traffic of operands beyond the caches whose vectors are gathered across their rows, once more.

    The processor waits for them, unless it is asked to fetch them: by itself it fetches ahead along rows.
    """
    inputs = p.einsum.indexing.inputs
    asked = plan.gathered(p.einsum) if plan.prefetch is not None else ()
    lanes = {k: lane for k, lane in plan.lanes_of(p.einsum).items() if k not in plan.copied and k not in asked}
    gathered = [inputs[k] for k, lane in lanes.items() if lane in inputs[k][:-1]]
    return sum(p.count(x) * p.itemsize for x in gathered if 2 * p.count(x) * p.itemsize > p.device.cache_bytes > 0)


def scattered_traffic(p: Problem, plan: VectorPanels) -> float:
    """The traffic of operands beyond a core's own caches of which a group reads short pieces that lie apart, once more."""
    total, long = 0.0, next(iter(plan.block_tile))
    for k, letters in enumerate(p.einsum.indexing.inputs):
        nbytes = p.count(letters) * p.itemsize
        gathered = any(x in letters[:-1] for x in plan.lane_axes)
        if k in plan.copied or gathered or nbytes <= p.device.own_cache_bytes:
            continue
        pieces, each = _read_in_pieces(p, plan, letters)
        if pieces > FEW_ROWS and each < _SHORT_PIECE * p.device.line_bytes:
            goes_on = letters[-1] == long and plan.block_tile[long].steps > 1
            total += nbytes * (_PREFETCHED if plan.prefetch == letters[-1] else _ALONG if goes_on else _JUMPED)
    return total


def _read_in_pieces(p: Problem, plan: VectorPanels, letters: str) -> tuple[int, int]:
    """The number of pieces of an operand that a step of a group reads, each of neighbours, and the bytes of one."""
    pieces, each = 1, p.itemsize
    whole = True
    for x in reversed(letters):
        n = plan.at_once(x, p.sizes[x])
        if whole:
            each *= n
        else:
            pieces *= n
        whole = whole and n == p.sizes[x]
    return pieces, each


def _broken_lines(p: Problem, plan: VectorPanels) -> float:
    """The traffic of lines that stores past the caches fill in parts, at ends of tiles that share out a row of results.

    The rest of such a line is stored by a group that comes later, when the processor has passed on the first part.
    """
    lane, row = plan.lane_axes[-1], p.sizes[plan.lane_axes[-1]]
    tile, line = plan.at_once(lane, row), p.device.line_bytes
    if lane != p.einsum.indexing.output[-1] or tile >= row:
        return 0.0
    # Tiles that would end behind the row begin before, so that they are whole.
    begins = [min(at, row - tile) * p.itemsize for at in range(0, row, tile)]
    broken = sum((at % line > 0) + ((at + tile * p.itemsize) % line > 0) for at in begins)
    return _PARTIAL_LINES * line * broken * p.einsum.b * p.count(p.einsum.indexing.output) / row


def _line_bytes(p: Problem, letters: str, lane: str, inside: Mapping[str, int]) -> float:
    """The bytes of lines that a group reads for a copy of less of them; the caches have none of a large operand left."""
    row = inside[letters[-1]] * p.itemsize
    if letters[-1] == lane or row >= p.device.line_bytes or p.count(letters) * p.itemsize <= p.device.own_cache_bytes:
        return 0.0
    return math.prod(inside[x] for x in letters[:-1]) * (p.device.line_bytes - row)


def _multiplications(step: PanelContraction, lane: str) -> int:
    """The multiplications of vectors in one product, left to right; numbers before the first vector multiply apart."""
    first = next((k for k, letters in enumerate(step.inputs) if lane in letters), 0)
    return max(1, len(step.inputs) - max(1, first))


def _again(p: Problem, plan: VectorPanels) -> int:
    """The bytes of operands that have left the caches of a core before its next step needs them."""
    total = 0
    for k, letters in enumerate(p.einsum.indexing.inputs):
        read = _touched(p, letters, {x: plan.at_once(x, p.sizes[x]) for x in letters})
        steps = math.prod(-(-p.sizes[x] // tile.at_once) for x, tile in plan.block_tile.items() if x not in letters)
        if k not in plan.copied and read > p.device.own_cache_bytes:
            total += (steps - 1) * p.count(letters) * p.itemsize
    return total


def _touched(p: Problem, letters: str, inside: Mapping[str, int]) -> float:
    """The bytes of the lines of an operand on which a part of it lies; pieces of rows begin anywhere in a line."""
    if not letters:
        return p.itemsize
    row, line = inside[letters[-1]] * p.itemsize, p.device.line_bytes
    whole = inside[letters[-1]] == p.sizes[letters[-1]]
    return math.prod(inside[x] for x in letters[:-1]) * (row if whole else row + line - p.itemsize)


def swept(p: Problem, plan: VectorPanels) -> float:
    """The traffic of operands that groups read again, groups being taken first axis first.

    What all caches have lost comes from memory, what a core's own has lost from the cache that cores share: in whole lines,
    for :data:`_SHARED` of that.
    """
    total, itemsize = 0.0, p.itemsize
    covered = {x: tile.covered for x, tile in plan.block_tile.items()}
    for letters in p.einsum.indexing.inputs:
        far = _passes(p, letters, covered, p.device.cache_bytes)
        near = max(far, _passes(p, letters, covered, p.device.own_cache_bytes))
        if near > 1:
            inside = {x: min(covered.get(x, n), n) for x, n in p.sizes.items()}
            lines = _touched(p, letters, inside) / (math.prod(inside[x] for x in letters) * itemsize)
            total += p.count(letters) * itemsize * (far - 1 + _SHARED * lines * (near - far))
    return total


def _passes(p: Problem, letters: str, covered: Mapping[str, int], cache_bytes: int) -> int:
    """How often groups load an operand into a cache of so many bytes, half of which is left to other data.

    :param covered: of each index of the groups, first axis first, how much of it a group goes through.
    """
    times, axes = 1, list(covered)
    for number, x in enumerate(axes):
        slower = axes[number + 1 :]
        touched = math.prod(covered[y] if y in slower else p.sizes[y] for y in letters) * p.itemsize
        if x not in letters and 2 * touched > cache_bytes > 0:
            times *= -(-p.sizes[x] // covered[x])
    return times


def _step_count(p: Problem, step: PanelContraction) -> int:
    """The number of times that a step is done: for each row, or for each combination of factors that rows share."""
    if None in step.own or len(step.own) == p.einsum.n:
        return p.einsum.b
    return len({tuple(row[k] for k in step.own if k is not None) for row in p.einsum.args})


def _spill_count(p: Problem, accumulators: int) -> float:
    """Loads and stores for one product, of sums that find no register.

    :param accumulators: vectors that are summed at once, of all rows that are computed together.
    """
    return 2 * max(0.0, 1 - p.device.vectors / accumulators)


def _loads_per_vector_product(step: PanelContraction, lane: str, tile: RegisterTile, plan: VectorPanels, row: int) -> float:
    """Loads of vectors, or as many of single numbers, for one product of vectors."""
    total = 0.0
    for k, letters in zip(step.own, step.inputs, strict=True):
        count = float(math.prod(tile.held.get(x, 1) for x in letters))
        if lane in letters:
            near = letters[-1] == lane
            kept = k is None or k in plan.copied
            count *= tile.vectors * (1.0 if kept else _loads_per_vector(row, plan.width) if near else plan.width)
        total += count
    return total / tile.accumulators


def _loads_per_vector(row: int, width: int) -> float:
    """Loads for a vector of a row on average: one of each that is whole, and one of each power of two of what is left."""
    return (row // width + (row % width).bit_count()) / -(-row // width)
