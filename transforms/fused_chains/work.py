"""The work of groups that contract step by step in local memory: operations in whole tiles, and loads for them.

For a step of a block, with t tiles of ``v = Π tile`` entries among n work-items, K terms, and r_k entries of operand k for
each term of a tile::

    ⌈t / n⌉ n v · 2 K          operations
    ⌈t / n⌉ n (Σ_k r_k) K      loads, mostly from local memory, in half the time of others

On a matrix unit the tiles are its fragments.

GPUs move sectors of 32 bytes between memory and the registers of a sub-group.  What of a sector its lanes do not take at a
time counts as if it came from memory, since the caches that it comes from are not much faster.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from feinsum.cost import Work
from feinsum.skeletons.fused_chains import (
    ChainStep,
    FusedChain,
    GlobalAccess,
    MatrixSharing,
    global_accesses,
    sharing_of,
)
from feinsum.skeletons.instructions.matrix_units import SUB_GROUP, fragment_unit
from feinsum.space import Configuration, Problem

from .plans import chain_plan_of

SECTOR_BYTES = 32
"""The least number of bytes that a GPU moves from or to memory."""
_LOCAL = 0.5
"""Loads in the time of one from local memory."""
_OTHER_REGISTERS = 40
"""The other registers of a work-item: addresses and loop counters."""


def chain_cost(p: Problem, c: Configuration) -> Work:
    """The work of a configuration of ``work_group_steps``."""
    plan, e = chain_plan_of(p, c), p.einsum
    within = {**p.sizes, **plan.block.block_tile}
    blocks = prod(-(-p.sizes[x] // n) for x, n in plan.block.block_tile.items())
    steps = [_step_costs(p, plan, step, within) for step in plan.block.steps]
    copied = sum(prod(within[x] for x in e.indexing.inputs[k]) for k in plan.block.staged_operands)
    results = prod(within[x] for x in e.indexing.output)
    between = max((prod(within[x] for x in s.contraction.indexing.output) for s in plan.block.steps[:-1]), default=0)
    loads = _LOCAL * sum(step.loads for step in steps) + copied + results * (1 + plan.block.staged_epilogue)
    return Work(
        flops=e.b * blocks * sum(step.flops for step in steps),
        bytes=p.least_bytes + blocks * _bytes_beside(p, plan),
        loads=e.b * blocks * p.itemsize * loads,
        groups=plan.persistent_groups or blocks,
        items=plan.block.items,
        registers_bytes=4 * _OTHER_REGISTERS + max(step.registers_bytes for step in steps),
        local_bytes=p.itemsize * (copied + between + results * plan.block.staged_epilogue),
        matrix=any(step.matrix_unit for step in plan.block.steps),
    )


def _bytes_beside(p: Problem, plan: FusedChain) -> float:
    """The bytes of sectors that a block moves in vain: none on CPUs, whose cores have caches of their own."""
    if p.device.simd_bytes:
        return 0.0
    found = 0.0
    for access in global_accesses(plan):
        sizes = tuple(p.sizes[x] for x in access.letters)
        found += access.entries * p.itemsize * (sectors_moved(access, sizes, p.itemsize) - 1)
    return found


@lru_cache(maxsize=4096)
def sectors_moved(access: GlobalAccess, sizes: tuple[int, ...], itemsize: int) -> float:
    """The sectors that sub-groups move, over those that would hold what they move: at least 1.

    :param sizes: the length of each axis of the array.
    """
    at = access.places()
    places = np.zeros((len(next(iter(at.values()))), 1), dtype=np.int64)
    for x, length in zip(access.letters, sizes, strict=True):
        places = places * length + at.get(x, 0)
    moved = np.reshape(places, (len(places) // SUB_GROUP, -1))
    sectors, numbers = _distinct_numbers(moved * itemsize // SECTOR_BYTES), _distinct_numbers(moved)
    return max(1.0, sectors * SECTOR_BYTES / (numbers * itemsize))


def _distinct_numbers(rows: Any) -> int:
    """How many different numbers each row has, all rows together."""
    ordered = np.sort(rows, axis=1)
    return len(rows) + int((ordered[:, 1:] != ordered[:, :-1]).sum())


def _step_costs(p: Problem, plan: FusedChain, step: ChainStep, within: Mapping[str, int]) -> Work:
    """Operations, loads and registers of a step, for one block.

    :param within: the number of values of each index in a block.
    """
    indexing, sharing = step.contraction.indexing, sharing_of(p.einsum, step, plan.block.block_tile)
    if isinstance(sharing, MatrixSharing):
        unit, (tiles, parts) = fragment_unit(step.matrix_unit), step.warp_tile
        a, b, _ = unit.registers
        times = sharing.digits.total // SUB_GROUP * sharing.steps
        return Work(
            flops=2 * times * tiles * parts * unit.m * unit.n * unit.k,
            bytes=0,
            loads=times * SUB_GROUP * (tiles * a + parts * b),
            registers_bytes=4 * step.registers(p.itemsize),
        )
    times = -(-sharing.digits.total // plan.block.items) * plan.block.items * prod(within[x] for x in indexing.summed)
    reads, entries = (
        sum(prod(step.register_tile.get(x, 1) for x in letters) for letters in indexing.inputs),
        prod(step.register_tile.values()),
    )
    return Work(flops=2 * times * entries, bytes=0, loads=times * reads, registers_bytes=p.itemsize * (entries + reads))
