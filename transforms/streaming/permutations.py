"""Copies with the axes in another order, ``out[c,b,a] = A[a,b,c]``, and products with transposed operands."""

from __future__ import annotations

from feinsum.cost import Work
from feinsum.einsum import BatchedEinsum
from feinsum.rewrites import divide, materialize, place
from feinsum.skeletons.streaming.write import stream
from feinsum.space import Choices, Configuration, Problem, space

from .plans import copy_parameters, copy_plan, crossing, is_distinct, refusal, stream_work


def is_permutation(e: BatchedEinsum) -> bool:
    """Whether nothing is summed over, and there is but one operand, or one is read across its rows."""
    return not e.indexing.summed and bool(e.indexing.output) and is_distinct(e) and (e.n == 1 or bool(crossing(e)))


def parameters(p: Problem) -> Choices:
    common = copy_parameters(p)
    if not crossing(p.einsum):
        return {**common, "tile": (1,)}
    if p.device.simd_bytes:
        return {**common, "portion": common["portion"][:1], "tile": (64, 32, 128, 16)}
    return {**common, "width": (32, 16, 64), "tile": (32, 16, 8)}


def constraint(p: Problem, c: Configuration) -> str | None:
    kept = 0 if p.device.simd_bytes else c["width"] * c["tile"] * p.itemsize * p.einsum.b * p.einsum.n
    return refusal(p, c) or p.exceeds(local_bytes=kept)


def estimate(p: Problem, c: Configuration) -> Work:
    return stream_work(p, copy_plan(p, c))


@space(pattern=is_permutation, version=1, rank=4, parameters=parameters, constraint=constraint, estimate=estimate)
def permutation(t_unit, m, p, **configuration):  # type: ignore[no-untyped-def]
    """Lanes along the rows of the output; where those of an operand run across them, groups do tiles.

    On GPUs tiles pass through local memory, so that operand and output are both read and written along rows.
    """
    across, lane = crossing(p.einsum), p.einsum.indexing.output[-1]
    if p.device.simd_bytes or not across:
        return stream(t_unit, m, copy_plan(p, configuration))
    t_unit, (tiles, rows) = divide(t_unit, m, across, (configuration["tile"],))
    t_unit, (groups, lanes) = divide(t_unit, m, lane, (configuration["width"],), peel=False)
    others = [x for x in p.einsum.indexing.output if x not in (across, lane)]
    t_unit = place(t_unit, m, {groups: "g.0", tiles: "g.1", lanes: "l.0", **dict(zip(others, ("g.2",), strict=False))})
    for operand, letters in enumerate(p.einsum.indexing.inputs):
        if letters[-1] == across and lane in letters:
            sweep, around = {lane: [lanes], across: [rows]}, (tiles, groups, *others)
            t_unit, _ = materialize(t_unit, m, operand, sweep, "local", outer=around, lanes=configuration["width"])
    return t_unit
