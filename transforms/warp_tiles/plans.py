"""The plan of an operator's configuration on a device, or the reason why there is none."""

from __future__ import annotations

import math
from itertools import product as product_of
from typing import Any

from feinsum.errors import TransformError
from feinsum.skeletons.instructions.matrix_units import SUB_GROUP
from feinsum.skeletons.warp_tiles import Prefetch, TallProduct, WarpTiles
from feinsum.space import Choices, Configuration, Problem

from .choices import UNITS
from .tall_operators import ELEMENTS

_FEWEST, _MOST = 8, 32
"""Warps of a compute unit, fewer of which leave it idle, and more are in each other's way: chosen by hand."""
_MOST_THAT_GO = 8
"""Warps of a group that does not stay: chosen by hand."""
_MOST_IN_MEMORY = 2
"""Registers needed, over the most that a work-item can have: with more than twice as many kernels took 1.5 to 5 times as
long as the best of their einsum on an H200 (8 of :mod:`benchmarks.landscapes`), and one took 35 s to compile."""


def warp_plan_of(p: Problem, c: Configuration, product: TallProduct) -> WarpTiles:
    """The plan of a configuration.

    :raises TransformError: if there is none, the device lacks a feature of it, or the unit is not accurate enough.
    """
    _check_problem(p, c)
    _check_deal(c)
    plan = planned(p, c, product)
    _check_unit_accuracy(p, plan)
    _check_limits(p, plan, c["together"])
    return plan


def planned(p: Problem, c: Configuration, product: TallProduct) -> WarpTiles:
    """The plan of a configuration on a device that may be too small for it.

    :raises TransformError: if there is none.
    """
    return WarpTiles(
        product,
        c["unit"],
        c["sub_groups"],
        persistent_groups=0 if c["tiles"] else max(1, p.device.compute_units * c["together"] // c["parts"]),
        tiles=c["tiles"],
        n_split=c["parts"],
        weighted=c["weighted"],
        staged=c["staged"],
        vector_stores=c["wide"],
        prefetch=Prefetch(c["prefetch"]),
        clamped_loads=c.get("everywhere", False),
        accumulation=c["sums"],
        loads_in_flight=c["burst"],
        k_slices=c["slices"],
        stagger=c["stagger"],
        product_major=c["in_turn"],
    )


def _check_problem(p: Problem, c: Configuration) -> None:
    if c["unit"] not in p.device.matrix_units:
        raise TransformError(f"{p.device.name} has no {c['unit']}")
    types = {*p.einsum.dtypes, *(a.dtype for a in p.einsum.arrays)}
    if len(types) > 1 or c["unit"] not in UNITS.get(types.pop(), ()):
        raise TransformError("the units multiply float64, or float32")
    if any(p.is_long(letter) for letter in p.sizes if letter != ELEMENTS):
        raise TransformError(f"only {ELEMENTS} may be long")


def _check_deal(c: Configuration) -> None:
    """Refuse numbers of warps that leave a compute unit idle, or overfill it."""
    if c["tiles"] and (c["together"] > 1 or c["sub_groups"] > _MOST_THAT_GO):
        raise TransformError("groups that do not stay are small, and as many as they are")
    warps = c["sub_groups"] * c["together"]
    if not c["tiles"] and not _FEWEST <= warps <= _MOST:
        raise TransformError(f"{warps} sub-groups leave a compute unit idle, or in each other's way")


def _check_unit_accuracy(p: Problem, plan: WarpTiles) -> None:
    """Refuse a unit that may miss the bound of float32, ``(summands + operands - 1) u Σ |products|``.

    Besides the sums of the unit there are a factor and a sum over the other indices, in plain float32.
    """
    if not plan.unit.splits:
        return
    indexing = p.einsum.indexing
    summands = p.count("".join(set(p.sizes) - set(indexing.output)))
    error, allowed = plan.sum_error() + summands // plan.product.terms, summands + len(indexing.inputs) - 1
    if error > allowed:
        raise TransformError(f"{plan.unit.name} may err by {error:g} roundoffs, where float32 errs by {allowed}")


def _check_limits(p: Problem, plan: WarpTiles, together: int) -> None:
    """Refuse plans that need more registers or more local memory than a compute unit has."""
    # Registers beyond the most that a work-item can have are in memory, which the estimate of its work counts.
    registers = plan.registers()
    most = p.device.max_registers_per_work_item or registers
    if registers > _MOST_IN_MEMORY * most:
        raise TransformError(f"{registers} registers are more than {_MOST_IN_MEMORY} times the {most} of a work-item")
    needed = min(registers, most)
    items, limit = SUB_GROUP * plan.warps * together, p.device.registers_per_compute_unit or 0
    if items * needed > limit:
        raise TransformError(f"{needed} registers of {items} work-items exceed the {limit} of a compute unit")
    local = p.device.local_bytes_of(together, plan.local_bytes())
    reason = p.exceeds(work_items=(SUB_GROUP, plan.warps), local_bytes=local)
    if reason is not None:
        raise TransformError(reason)


def has_registers(p: Problem, product: TallProduct, own: Choices) -> bool:
    """Whether some configuration may need few enough registers.

    Of an einsum that looks like an operator, but has rows of hundreds, all configurations would be tried.
    """
    most = p.device.max_registers_per_work_item
    every = product_of(own["unit"], own["parts"], own["slices"])
    return most is None or any(_fewest_registers(product, *each) <= _MOST_IN_MEMORY * most for each in every)


def _fewest_registers(product: TallProduct, unit: Any, parts: Any, slices: Any) -> float:
    """The registers that all plans with such a unit, parts and slices need; infinite if there is none."""
    try:
        return WarpTiles(product, unit, 1, persistent_groups=1, n_split=parts, k_slices=slices).registers()
    except TransformError:
        return math.inf
