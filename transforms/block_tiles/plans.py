"""Plans of contractions by block tiles: the plan of a configuration for an einsum, and whether a device can carry it
out."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from feinsum.devices import DeviceProfile
from feinsum.devices.vendors.known_vendors import vendor_of
from feinsum.einsum import BatchedEinsum
from feinsum.errors import TransformError
from feinsum.rewrites import side_by_side
from feinsum.skeletons.block_tiles import BlockShape, BlockTiles, Packing, Preparation, SumSplit, TilePipeline, prepared
from feinsum.skeletons.instructions.matrix_units import SUB_GROUP
from feinsum.space import Configuration, Problem
from feinsum.space.joined_problems import joined_problem

from .products import FusedProduct, fused_product, plain_contraction

MOST_WASTE = 1.2
"""Terms of a sum with what sticks out of its tiles, in terms of the least that any depth has; chosen by hand."""
OTHER_REGISTERS = 72
"""Registers of a work-item for addresses and numbers of loops; chosen by hand."""


def refusal_of_device(p: Problem) -> str | None:
    """The reason why a device gains nothing from tiles in local memory, or None."""
    if not p.device.local_memory_is_dedicated:
        return "the device has no local memory of its own, so that copies to it gain nothing"
    if SUB_GROUP not in p.device.sub_group_sizes:
        return f"the device has no sub-groups of {SUB_GROUP}"
    return None


def block_plan(p: Problem, c: Configuration) -> BlockTiles:
    """The plan of a configuration of ``block_contraction``.

    :raises TransformError: if the device cannot work so, or gains nothing from it.
    """
    reason = refusal_of_device(p)
    if reason is not None:
        raise TransformError(reason)
    own, plan = planned(p, c)
    reason = _refusal(own, plan)
    if reason is not None:
        raise TransformError(reason)
    return plan


def planned(p: Problem, c: Configuration) -> tuple[FusedProduct, BlockTiles]:
    """The product of matrices that a configuration makes of a contraction, and its plan, whatever the device.

    :raises TransformError: if indices are to be joined, and none can be.
    """
    sizes, names = tuple(p.sizes.items()), ("split", "packed", "joined", "rows", "wide")
    own, groups = _cached_product(p.einsum, sizes, p.device, *(c[name] for name in names))
    around = {"split": SumSplit.parse(c["split"]), "packing": Packing.parse(c["packed"]), "joined": groups}
    return own, tile_plan(own, c, **around)


def bare_contraction(p: Problem, split: str, packed: str) -> Problem:
    """The contraction by itself, without the launches before and after it."""
    return _contraction_alone(p, preparation(p, SumSplit.parse(split), Packing.parse(packed)))


def preparation(p: Problem, split: SumSplit, packing: Packing) -> Preparation:
    """A contraction with the launches before and after it."""
    return prepared(p.einsum.indexing, p.sizes, split, packing)


def tile_plan(own: FusedProduct, c: Configuration, **around: Any) -> BlockTiles:
    """The plan of a product, whatever the device.

    :param around: the fields for launches before and after the product, by default none.
    """
    depth, (first, second) = c["depth"], own.quick
    return BlockTiles(
        operands=own.operands,
        rows=own.letters["rows"],
        columns=own.letters["columns"],
        sums=own.letters["sums"],
        batch=own.letters["batch"],
        runs=own.outer_runs(c["run"]),
        depths=own.sum_depths(depth),
        unit=c["unit"],
        block_tile=BlockShape.parse(c["shape"]),
        along_sums=(first in own.letters["sums"], second in own.letters["sums"]),
        pipeline=TilePipeline.parse(c["pipeline"]),
        width=(own.width(0, depth), own.width(1, depth)),
        prefetch=c["ahead"],
        tilewise=c["tilewise"],
        itemsize=own.problem.itemsize,
        vendor=vendor_of(own.problem.device),
        several=own.count("sums") > depth,
        **around,
    )


def residents(p: Problem, plan: BlockTiles) -> Any:
    """The number of work-groups that a multiprocessor holds at a time, as far as registers and local memory allow.

    Of a plan of :class:`BlockShapes`, an array.
    """
    registers = plan.registers() + OTHER_REGISTERS
    local = max(p.device.local_memory_bytes, p.device.static_local_memory_bytes)
    most = p.device.registers_per_compute_unit
    by_registers = 1 if most is None else most // (registers * plan.work_items)
    fits = registers <= (p.device.max_registers_per_work_item or registers)
    return fits * np.minimum(by_registers, local // plan.local_bytes())


@lru_cache(maxsize=256)
def _cached_product(
    e: BatchedEinsum,
    sizes: tuple[tuple[str, int], ...],
    device: DeviceProfile,
    split: str,
    packed: str,
    is_joined: bool,
    rows: str,
    wide: bool,
) -> tuple[FusedProduct, tuple[str, ...]]:
    """The contraction by itself as a product of matrices, and the groups of letters that are joined in it.

    Cached, as thousands of configurations differ only in later decisions.

    :raises TransformError: if indices are to be joined, and none can be, or a sum is split, whose parts are no axis.
    """
    if is_joined and SumSplit.parse(split).letter:
        raise TransformError("indices of a sum that is split cannot be joined")
    own = bare_contraction(Problem(e, dict(sizes), device), split, packed)
    groups = side_by_side(own.einsum) if is_joined else ()
    if is_joined and not groups:
        raise TransformError("no indices are side by side in every array")
    return fused_product(joined_problem(own) if is_joined else own, rows, wide=wide), groups


def _contraction_alone(p: Problem, around: Preparation) -> Problem:
    own = around.contraction
    return plain_contraction(p, own.inputs, own.output, around.sizes)


def _refusal(own: FusedProduct, plan: BlockTiles) -> str | None:
    """The reason why a device that gains from tiles in local memory cannot carry out a plan, or None."""
    p = own.problem
    waste = own.waste(plan.depth)
    if waste > MOST_WASTE * min(x for depth, x in own.wastes.items() if depth % plan.fragments.depth == 0):
        return f"tiles of depth {plan.depth} make {waste:.2f} times the work"
    terms = own.count("sums")
    if own.wide and not plan.pipeline.asynchronous:
        return "what passes through registers is loaded number by number"
    if plan.tilewise and plan.fragments.unit and plan.fragments.unit.tile_error(terms, plan.depth) > terms:
        return f"the unit may err by more over tiles of depth {plan.depth} than float32 over {terms} terms"
    if plan.depth % plan.fragments.depth:
        return f"tiles of depth {plan.depth} are no whole steps of {plan.fragments.depth}"
    for name, letters in own.letters.items():
        if sum(map(p.is_long, letters)) > 1:
            return f"several indices of unknown length among the {name}"
    each = 4 * plan.registers()
    if residents(p, plan) == 0:
        return f"{plan.work_items} work-items with {each} bytes each exceed the registers, or their tiles local memory"
    return p.exceeds(work_items=plan.work_items, local_bytes=plan.local_bytes(), private_bytes=each)
