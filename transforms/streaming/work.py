"""The work of a stream: every operand is read once, and lanes that run beyond the end of a row take their time, too."""

from __future__ import annotations

import math

from feinsum.cost import Work
from feinsum.skeletons.streaming import Stream, TurnedTiles
from feinsum.space import Problem

from .stream_operands import crossing_sum

BANKS = 32
"""The banks of local memory on NVIDIA's devices."""
SECOND_CACHE = 0.5
"""The time of a line from the second cache, as a share of that from memory; chosen by hand."""

PASSES = 4
"""How often an operand comes from memory whose rows run across the lanes of a GPU; chosen by hand."""
HALF_BYTES = 3
"""So many bytes on their way for each work-item of a GPU make half of its bandwidth: copies and products of 5400x5100
numbers on an H200 reach 0.6 of it with 4 bytes, 0.7 with 12 and 0.9 with 16."""


def stream_work(p: Problem, plan: Stream) -> Work:
    """The work of a plan; partial sums are few, so they are not counted.

    In a sum, vectors of an operand with the lane across its rows are loaded number by number, unless squares of it are
    turned round, and if its lines do not stay in a first cache until the next number of each is wanted, each brings a
    line, from the second one as a rule.  Lanes that read columns of tiles wait where banks conflict.  Where GPUs read an
    operand of a sum across its rows, it comes from memory several times.
    """
    indexing, row = p.einsum.indexing, p.sizes[plan.lane]
    groups = math.prod(-(-p.sizes[x] // count) for x, count in plan.block_tile.items())
    idle = 1.0 if plan.vectors else -(-row // plan.width) * plan.width / row
    if plan.crossed:
        tiles = {x: -(-p.sizes[x] // plan.crossed.count(x)) for x in indexing.indices}
        idle = math.prod(count * plan.crossed.count(x) for x, count in tiles.items()) / p.count(indexing.indices)
        groups = math.prod(tiles[x] for x in indexing.output) * plan.crossed.parts(p.sizes, plan.summed)
    if plan.grid:
        idle = math.prod(-(-p.sizes[x] // count) * count / p.sizes[x] for x, count in plan.grid.counts.items())
    if plan.flight:
        shares = -(-p.count(plan.flight.letters) // plan.flight.share(plan.width))
        idle = shares * plan.flight.share(plan.width) / p.count(plan.flight.letters)
        groups *= shares
    loaded = idle * p.count(indexing.indices) * p.einsum.n * p.einsum.b
    numbered = plan.vectors and indexing.summed
    apart = [x for x in indexing.inputs if numbered and plan.lane in x[:-1] and not (plan.square and x[-1] == plan.square)]
    lines = sum(p.count(x) * p.device.line_bytes for x in apart if _lines_at_once(p, plan, x) > p.device.first_cache_bytes)
    waits = len(apart) * (plan.width - 1) + (_bank_conflicts(p, plan.turned) if plan.turned else 0)
    strided = [x for x in indexing.inputs if x and indexing.summed and x[-1] == crossing_sum(p.einsum)]
    again = 0 if plan.vectors or plan.crossed else (PASSES - 1) * p.itemsize * p.einsum.b * sum(map(p.count, strided))
    return Work(
        flops=loaded,
        bytes=p.least_bytes + SECOND_CACHE * p.einsum.b * lines + again,
        loads=p.itemsize * (loaded + p.einsum.b * p.count(indexing.indices) * waits),
        launches=2 if plan.split or (plan.crossed and plan.crossed.parts(p.sizes, plan.summed) > 1) else 1,
        groups=groups,
        items=1 if plan.vectors else plan.grid.items if plan.grid else plan.width,
        lanes=plan.width if plan.vectors else 0,
        sums=plan.registers(),
        local_bytes=plan.local_bytes() if plan.crossed else 0,
        bandwidth=_plan_bandwidth(p, plan),
    )


def _plan_bandwidth(p: Problem, plan: Stream) -> float:
    """The bandwidth of a plan with several loads in flight, in that of one with a number of each operand.

    A work-item that has b bytes on their way reaches ``b / (b + b0)`` of it all, whatever the operation.
    """
    if not plan.flight and not plan.grid:
        return 1.0
    loaded = p.itemsize * sum(set(x) == set(plan.order) for x in p.einsum.indexing.inputs)
    more = plan.flight.strips * plan.flight.vector if plan.flight else plan.grid.loads if plan.grid else 1
    return more * (loaded + HALF_BYTES) / (more * loaded + HALF_BYTES) if loaded else 1.0


def _bank_conflicts(p: Problem, tiles: TurnedTiles) -> int:
    """The number of times that lanes reading a column of a tile wait for each other, in banks of four bytes.

    With rows of 32 numbers of four bytes all 32 lanes read the same bank; with a place to spare, each its own.
    """
    words = max(1, p.itemsize // 4)
    return math.gcd((tiles.rows + tiles.spare) * words, BANKS) // words


def _lines_at_once(p: Problem, plan: Stream, letters: str) -> int:
    """The bytes of the lines of an operand that are read from one number along its rows to the next."""
    inner = plan.order.partition(letters[-1])[2]
    return p.device.line_bytes * math.prod(
        min(p.sizes[x], plan.block_tile.get(x, p.sizes[x])) for x in inner if x in letters
    )
