"""The work of steps in vectors along the rows of their results: operations, traffic, loads.

A row fills its vectors more or less.  A tile of registers of v vectors and r rows loads v + r of what it multiplies for v·r
products, from a core's second cache where what it sums is more than the first one.  Where an operand that has the lane lies
across its rows, every number of it is a load of its own, if it cannot be copied because the other operand has the lane too;
else a line of memory, if it is large.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from feinsum.contraction import ContractionSchedule, ContractionStep
from feinsum.cost import Work
from feinsum.rewrites import last_together
from feinsum.skeletons.complex_parts import PARTS, matrix_of
from feinsum.skeletons.vector_panels import accumulator_counts, lane_fill, most_vectors_in_row, vector_widths
from feinsum.space import Configuration, Problem

from ..vector_panels.work import COPIED, SECOND
from .plans import OWN, complex_plan, steps_plan

_VECTORS_OF_LONG_ROW = 3
"""The vectors of a tile of a divided row, the first guess of vector panels with 16 registers."""


def steps_work(p: Problem, c: Configuration) -> Work:
    """The work of a configuration of :mod:`feinsum.transforms.steps.contractions`.

    :raises TransformError: if it has no plan.
    """
    plan = steps_plan(p, c)
    return work_of_steps(p, plan.order, plan.split.parts, plan.accumulators)


def work_of_steps(p: Problem, schedule: ContractionSchedule, parts: Mapping[str, int], accumulators: int = OWN) -> Work:
    """The work of a schedule.

    :param parts: index whose sum is divided -> the length of its parts.
    """
    kept = [step.indexing.output for step in schedule.steps[:-1]]
    traffic = sum(map(p.count, kept))
    for step in schedule.steps:
        count = math.prod(p.sizes[x] // parts[x] for x in step.indexing.summed if x in parts)
        traffic += count * p.count(step.indexing.output) if count > 1 else 0
    apart = [_scattered_bytes(p, step) for step in schedule.steps]
    most = accumulators or accumulator_counts(p.device)[0]
    loaded = [_tile_bytes_loaded(p, step, parts, most) for step in schedule.steps if len(step.operands) == 2]
    return Work(
        flops=p.einsum.flops(p.lengths) / _lane_share(p, schedule),
        bytes=p.least_bytes + p.einsum.b * (2 * p.itemsize * traffic + sum(lines for _, lines in apart)),
        loads=p.einsum.b * (sum(loaded) + sum(loads for loads, _ in apart)),
        launches=len(schedule.steps) + len(parts),
        sums=most,
    )


def complex_work(p: Problem, c: Configuration) -> Work:
    """The multiply-adds of the steps of complex numbers in vectors, and the traffic of the copies.

    :raises TransformError: if the configuration has no plan.
    """
    plan, traffic, flops, launches = complex_plan(p, c), p.count(p.einsum.indexing.output), 0.0, 1
    for step in plan.order.steps:
        letters = step.indexing.output[-1:]
        row = PARTS * (p.sizes[letters] if letters else 1)
        flops += 8 * p.count(step.indexing.indices) / lane_fill(row, PARTS * p.lanes)
        traffic += p.count(step.indexing.output)
        if len(step.operands) == 2:
            matrix = matrix_of(step.indexing)
            traffic += sum(p.count(x) * (2 if k == matrix else 1) for k, x in enumerate(step.indexing.inputs))
            launches += 2
        launches += 1
    return Work(
        flops=flops * p.einsum.b,
        bytes=p.least_bytes + 2 * p.itemsize * p.einsum.b * traffic,
        launches=launches + len(plan.split.parts),
        lanes=PARTS * p.lanes,
    )


def _lane_share(p: Problem, schedule: ContractionSchedule) -> float:
    """The share of the device's lanes that steps use, weighted with their operations; copies have none."""
    steps = [step.indexing for step in schedule.steps if len(step.operands) > 1 or step.indexing.summed]
    points = [p.count(indexing.indices) for indexing in steps]
    rows = [p.count(last_together(indexing)) if indexing.output else p.lanes for indexing in steps]
    shortest = [vector_widths(p.lanes, row)[0] for row in rows]
    widened = (n * (p.lanes / own) / lane_fill(row, own) for n, row, own in zip(points, rows, shortest, strict=True))
    return sum(points) / max(1.0, sum(widened))


def _tile_bytes_loaded(p: Problem, step: ContractionStep, parts: Mapping[str, int], most: int) -> float:
    """The bytes that the tiles of registers of a step load, in bytes of the first cache; tiles are the best guess.

    :param most: vectors of results of a tile.
    """
    indexing = step.indexing
    row = p.sizes[indexing.output[-1]] if indexing.output else 1
    vectors = -(-row // p.lanes)
    vectors = _VECTORS_OF_LONG_ROW if vectors > most_vectors_in_row(p.device) else min(vectors, most)
    rows = max(1, most // vectors)
    terms = math.prod(parts.get(x, p.sizes[x]) for x in indexing.summed)
    slab = terms * vectors * p.lanes * p.itemsize
    # Numbers that lie apart along the sum are a line each.
    other = next((x for x in indexing.inputs if not x.endswith(indexing.output[-1:])), "")
    numbers = terms * (p.device.line_bytes if other and other[-1] not in indexing.summed else rows * p.itemsize)
    if slab + numbers <= p.device.first_cache_bytes:
        return p.count(indexing.indices) * p.itemsize * (1 / rows + 1 / vectors)
    return p.count(indexing.indices) / (terms * vectors * p.lanes * rows) * (COPIED * slab + SECOND * numbers)


def _scattered_bytes(p: Problem, step: ContractionStep) -> tuple[int, int]:
    """The bytes that a step loads number by number, and those of the lines that it reads for single numbers."""
    indexing = step.indexing
    lane = indexing.output[-1:]
    owners = [term for term in indexing.inputs if lane and lane in term]
    across = [term for term in owners if not term.endswith(lane)]
    if not across:
        return 0, 0
    if len(step.operands) == 1:
        large = p.count(across[0]) * p.itemsize > p.device.own_cache_bytes
        return 0, p.count(across[0]) * p.device.line_bytes if large and not step.indexing.summed else 0
    if len(owners) > 1:
        return p.count(indexing.indices) * p.lanes * p.itemsize * len(across), 0
    (term,) = across
    large = p.count(term) * p.itemsize > p.device.own_cache_bytes and term[-1] in indexing.output
    return 0, p.count(term) * p.device.line_bytes if large else 0
