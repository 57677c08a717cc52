"""What blocks need of a device: registers, local memory, and how many work-groups a multiprocessor holds for all that."""

from __future__ import annotations

from feinsum.devices.ptx import SUB_GROUP
from feinsum.skeletons.block_tiles.blocks import Blocks
from feinsum.space import Problem

from .products import DEPTHS, Product

MOST_WASTE = 1.2
OTHER_REGISTERS = 72
"""Of a work-item: addresses and numbers of loops."""


def refusal_of_device(p: Problem) -> str | None:
    """Why a device gains nothing from tiles in local memory, or None."""
    if not p.device.local_memory_is_dedicated:
        return "the device has no local memory of its own, so that copies to it gain nothing"
    if SUB_GROUP not in p.device.sub_group_sizes:
        return f"the device has no sub-groups of {SUB_GROUP}"
    return None


def refusal(product: Product, plan: Blocks) -> str | None:
    """Why a device that gains something from tiles in local memory cannot work as a plan says, or None."""
    p = product.problem
    waste = product.waste(plan.depth)
    if waste > MOST_WASTE * min(product.waste(depth) for depth in DEPTHS if depth % plan.fragments.depth == 0):
        return f"tiles of depth {plan.depth} make {waste:.2f} times the work"
    if plan.depth % plan.fragments.depth:
        return f"tiles of depth {plan.depth} are no whole steps of {plan.fragments.depth}"
    if plan.ahead and not _may_be_ahead(product, plan):
        return f"fragments of {plan.steps} steps of '{plan.unit}' are not loaded a step ahead"
    for name in ("rows", "columns", "batch", "sums"):
        if sum(map(p.is_long, getattr(plan, name))) > 1:
            return f"several indices of unknown length among the {name}"
    each = private_bytes(product, plan)
    if residents(product, plan) == 0:
        return f"{plan.work_items} work-items with {each} bytes each exceed the registers, or their tiles local memory"
    return p.exceeds(
        work_items=plan.work_items,
        local_bytes=plan.local_bytes(p.itemsize),
        private_bytes=each,
    )


def _may_be_ahead(product: Product, plan: Blocks) -> bool:
    copied = plan.asynchronous and product.count("sums") > plan.depth
    return copied and plan.fragments.unit is not None and plan.steps % 2 == 0


def private_bytes(product: Product, plan: Blocks) -> int:
    """What a work-item keeps."""
    return plan.private_bytes(product.problem.itemsize, several=product.count("sums") > plan.depth)


def residents(product: Product, plan: Blocks) -> int:
    """How many groups a multiprocessor holds at a time, for all that registers and local memory allow."""
    p = product.problem
    registers = private_bytes(product, plan) // 4 + OTHER_REGISTERS
    local = max(p.device.local_memory_bytes, p.device.static_local_memory_bytes)
    most = p.device.registers_per_compute_unit
    if registers > (p.device.max_registers_per_work_item or registers):
        return 0
    by_registers = 1 if most is None else most // (registers * plan.work_items)
    return min(by_registers, local // max(1, plan.local_bytes(p.itemsize)))
