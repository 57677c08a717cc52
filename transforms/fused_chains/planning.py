"""Plans of work-groups: what they copy, in which steps they contract, and what a work-item computes.

    ((u A) B) C        an order of the contractions, each one a step of a work-group

A plan follows from an einsum, the lengths of its indices and a configuration; it says nothing about loopy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache, partial

from feinsum.contraction import Step
from feinsum.devices.ptx import SUB_GROUP
from feinsum.einsum import BatchedEinsum
from feinsum.errors import TransformError
from feinsum.skeletons.fused_chains.arrangements import Arrangement, arrange
from feinsum.skeletons.fused_chains.plan import Compute, Copy, GroupPlan, GroupStep, Registers, matrices_of, sharing_of
from feinsum.skeletons.nvidia.matrix_units import COLUMNS
from feinsum.space import Configuration, Problem

from .orders import schedule

GROUPS_PER_UNIT = 4
"""Work-groups that a compute unit should have at least; where one long index is too short, more indices are divided."""
NO_UNIT = "none"
WELL_FILLED = 0.5
"""Columns of a matrix unit that have to be used."""


def is_stepwise(e: BatchedEinsum) -> bool:
    """Whether work-groups can share the output of an einsum, and no operand is a diagonal."""
    plain = all(len(set(letters)) == len(letters) for letters in e.indexing.inputs)
    dtypes = {*e.dtypes, *(a.dtype for a in e.arrays)}
    return plain and e.n >= 2 and bool(e.indexing.output) and dtypes in ({a} for a in e.dtypes) and e.dtype.kind == "f"


def block_letters(p: Problem) -> tuple[str, ...]:
    """At most three output indices that groups divide: long ones, the longest first; others where groups would be few."""
    e = p.einsum
    letters = sorted(e.indexing.output, key=lambda x: (not p.is_long(x), -p.sizes[x], e.indexing.output.index(x)))
    chosen = [x for x in letters if p.is_long(x)][:3] or letters[:1]
    for x in letters:
        if x not in chosen and len(chosen) < 3 and p.count("".join(chosen)) < GROUPS_PER_UNIT * p.device.compute_units:
            chosen.append(x)
    return tuple(chosen)


Settings = tuple[tuple[str, int | str | bool], ...]


@lru_cache(maxsize=4096)
def group_plan(
    e: BatchedEinsum, sizes: tuple[tuple[str, int], ...], blocks: tuple[tuple[str, int], ...], settings: Settings
) -> tuple[GroupPlan | None, int | str]:
    """The plan of a configuration, and the numbers that it keeps in local memory, or why it has no arrangement."""
    lengths, c = {**dict(sizes), **dict(blocks)}, dict(settings)
    make = partial(_step, e, lengths, dict(blocks), int(c["together"]), int(c["across"]), str(c["unit"]))
    steps = [make(step) for step in schedule(e, str(c["order"]))]
    readers = {k: step for step in steps for k in step.contraction.operands}
    copied = frozenset(
        k
        for k in range(e.n)
        if not _is_matrix(e, readers[k], k, dict(blocks)) and (c["copy"] == "all" or not _read_once(readers[k], k, lengths))
    )
    try:
        items = _items([sharing_of(e, step, dict(blocks)).digits.total for step in steps], int(c["turns"]))
        plan = GroupPlan(
            tuple(steps),
            dict(blocks),
            items,
            copied,
            bool(c["staged"]),
            int(c["stay"]),
            bool(c["prefetch"]),
            bool(c["early"]),
            bool(c["chained"]),
        )
        found = arrange(e, plan, e.dtype.itemsize)
    except TransformError as error:
        return None, str(error)
    return plan, _pointless(plan, found) or found.entries


def _items(totals: list[int], turns: int) -> int:
    """Work-items of a group, in whole sub-groups, so that the longest step takes so many turns and no other one turn more
    for a few tiles that are left.
    """
    most = max(totals) / turns
    return max(SUB_GROUP * -(-total // (SUB_GROUP * max(1, round(total / most)))) for total in totals)


def _pointless(plan: GroupPlan, found: Arrangement) -> str | None:
    """Why a choice of the plan changes nothing, or None."""
    sources = [source for event in found.events if isinstance(event, Compute) for source in event.sources]
    if plan.chained and not any(isinstance(source, Registers) for source in sources):
        return "no work-item has in registers what it needs next"
    if plan.early and None not in sources:
        return "no operand is read where it is"
    if plan.prefetch and not plan.early and not isinstance(found.events[0], Copy):
        return "nothing is copied that could be loaded a block ahead"
    return None


def _step(
    e: BatchedEinsum,
    lengths: Mapping[str, int],
    blocks: Mapping[str, int],
    together: int,
    across: int,
    unit: str,
    step: Step,
) -> GroupStep:
    """A step with tiles of `across` entries along its small operand by `together` along the others, on a unit if it can."""
    inputs, output = step.indexing.inputs, step.indexing.output
    matrices = matrices_of(e, step, blocks)
    if unit != NO_UNIT and len(matrices) == 1 and step.indexing.summed:
        rest = "".join(x for k, x in enumerate(inputs) if k != matrices[0])
        columns = math.prod(lengths[x] for x in output if x not in rest)
        filled = -(-columns // COLUMNS)
        if columns > WELL_FILLED * filled * COLUMNS:
            parts = -(-filled // max(1, across // COLUMNS))
            return GroupStep(step, unit=unit, fragments=(1, -(-filled // parts)))
    small = min(inputs, key=lambda x: (any(y in blocks for y in x), len(x)))
    others = set("".join(x for x in inputs if x is not small))
    tile: dict[str, int] = {}
    rows = [x for x in output if x not in small]
    rows.sort(key=lambda x: x not in blocks)
    for letters, most in (([x for x in output if x in small and x not in others], across), (rows, together)):
        for x in letters:
            tile[x] = max(n for n in range(1, min(most, lengths[x]) + 1) if lengths[x] % n == 0)
            most //= tile[x]
    return GroupStep(step, {x: n for x, n in tile.items() if n > 1})


def _is_matrix(e: BatchedEinsum, step: GroupStep, operand: int, blocks: Mapping[str, int]) -> bool:
    """Whether an operand is what a matrix unit multiplies with, of which it has a copy of its own."""
    if not step.unit:
        return False
    return step.contraction.operands[matrices_of(e, step.contraction, blocks)[0]] == operand


def _read_once(step: GroupStep, operand: int, lengths: Mapping[str, int]) -> bool:
    """Whether every entry of an operand is read by one work-item only."""
    letters = dict(zip(step.contraction.operands, step.contraction.indexing.inputs, strict=True))[operand]
    if step.unit:
        new = [x for x in step.contraction.indexing.output if x not in letters]
        return math.prod(lengths[x] for x in new) <= COLUMNS * step.fragments[1]
    return all(x in letters or step.tile.get(x, 1) == lengths[x] for x in step.contraction.indexing.output)


def plan_of(p: Problem, c: Configuration) -> GroupPlan:
    """The plan of a configuration that is not refused.

    :raises TransformError: if it has none.
    """
    plan, entries = plan_and_entries(p, c)
    if plan is None:
        raise TransformError(str(entries))
    return plan


def plan_and_entries(p: Problem, c: Configuration) -> tuple[GroupPlan | None, int | str]:
    """The plan of a configuration and the numbers that it keeps in local memory, or none and why."""
    letters = block_letters(p)
    blocks = tuple((x, c["elements"] if x == letters[0] else 1) for x in letters)
    settings = {**c, "stay": c["stay"] * p.device.compute_units}
    return group_plan(p.einsum, tuple(p.sizes.items()), blocks, tuple(settings.items()))
