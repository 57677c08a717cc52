"""What keeps a plan of work-groups from a device: its units, the bound of float32, registers and local memory."""

from __future__ import annotations

import math
from functools import partial

from feinsum.skeletons.fused_chains.plan import GroupPlan, GroupStep
from feinsum.skeletons.nvidia.matrix_units import fragment_dtype, fragment_unit, split_error
from feinsum.space import Configuration, Problem

from .planning import NO_UNIT, block_letters, plan_and_entries

UNITS = ("fp64-mma-m16n8k4", "fp64-mma-m16n8k8", "tf32-mma-m16n8k8")
OVERHEAD = 24
"""32-bit registers of a work-item besides its tile."""


def refusal(p: Problem, c: Configuration) -> str | None:
    """Why a configuration has no plan, or one that the device cannot hold."""
    letters = block_letters(p)
    longest = letters[0]
    if any(p.is_long(x) for x in p.einsum.indexing.indices if x not in letters):
        return "an index that is long is summed over, or there are more than three"
    if c["elements"] > p.sizes[longest]:
        return f"there are no {c['elements']} of '{longest}'"
    if c["unit"] == NO_UNIT and c["elements"] % c["together"]:
        return f"{c['together']} at a time do not divide {c['elements']}"
    if c["stay"] and len(letters) > 1:
        return "groups stay where one index is divided"
    if c["prefetch"] and not c["stay"]:
        return "groups that do not stay have no next block"
    plan, entries = plan_and_entries(p, c)
    if plan is None or isinstance(entries, str):
        return str(entries)
    if c["unit"] != NO_UNIT and not any(step.unit for step in plan.steps):
        return "no step is a product for a matrix unit"
    return _inexact(p, plan) or _beyond_limits(p, plan, entries, max(1, c["stay"]))


def units(p: Problem) -> tuple[str, ...]:
    """The matrix units of the device for the type of a problem; float32 may be multiplied as float64 too."""
    found = [unit for unit in UNITS if unit in p.device.matrix_units]
    return tuple(u for u in found if p.itemsize <= fragment_dtype(fragment_unit(u)).itemsize)


def _inexact(p: Problem, plan: GroupPlan) -> str | None:
    """Why the units may miss the bound of float32, (summands + operands - 1) u Σ |products|, or None."""
    error = 0.0
    for step in plan.steps:
        terms = p.count(step.contraction.indexing.summed)
        error += terms if not step.unit else split_error(fragment_unit(step.unit), terms)
    allowed = p.count(p.einsum.indexing.summed) + p.einsum.n - 1
    if error > allowed and any(step.unit and fragment_unit(step.unit).dtype == "float" for step in plan.steps):
        return f"the units may err by {error:g} roundoffs, where float32 errs by {allowed}"
    return None


def _beyond_limits(p: Problem, plan: GroupPlan, entries: int, groups: int) -> str | None:
    """Why a compute unit has not the registers or the local memory for some groups, or None."""
    used, limit = max(map(partial(registers, p), plan.steps)) + OVERHEAD, p.device.registers_per_compute_unit
    if limit is not None and groups * plan.items * min(used, 255) > limit:
        return f"{used} registers of {groups * plan.items} work-items exceed the {limit} of a compute unit"
    local = p.device.local_bytes_of(groups, p.itemsize * entries)
    return p.exceeds(work_items=plan.items, local_bytes=local, private_bytes=4 * used)


def registers(p: Problem, step: GroupStep) -> int:
    """32-bit registers for the numbers that a work-item holds in a step."""
    if not step.unit:
        return (math.prod(step.tile.values()) + sum(step.tile.values())) * p.itemsize // 4
    unit, (tiles, blocks) = fragment_unit(step.unit), step.fragments
    a, b, d = unit.registers
    return (tiles * blocks * d + tiles * a + blocks * b) * fragment_dtype(unit).itemsize // 4
