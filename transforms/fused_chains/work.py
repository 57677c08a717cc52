"""The work of groups that contract step by step in local memory: operations in whole tiles, and loads for them.

For a step of a block, with t tiles of ``v = Π tile`` entries among n work-items, K terms, and r_k entries of operand k for
each term of a tile::

    ⌈t / n⌉ n v · 2 K          operations
    ⌈t / n⌉ n (Σ_k r_k) K      loads, mostly from local memory, in half the time of others

On a matrix unit the tiles are its fragments.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from feinsum.cost import Work
from feinsum.devices.ptx import SUB_GROUP
from feinsum.skeletons.fused_chains import ChainStep, FusedChain, MatrixSharing, sharing_of
from feinsum.skeletons.nvidia.matrix_units import fragment_unit
from feinsum.space import Configuration, Problem

from .plans import plan_of

_LOCAL = 0.5
"""Loads in the time of one from local memory."""
_OTHER_REGISTERS = 40
"""Of a work-item: addresses and numbers of loops."""


def chain_cost(p: Problem, c: Configuration) -> Work:
    """The work of a configuration of ``work_group_steps``."""
    plan, e = plan_of(p, c), p.einsum
    within = {**p.sizes, **plan.block.block_tile}
    blocks = prod(-(-p.sizes[x] // n) for x, n in plan.block.block_tile.items())
    steps = [_step(p, plan, step, within) for step in plan.block.steps]
    copied = sum(prod(within[x] for x in e.indexing.inputs[k]) for k in plan.block.staged_operands)
    results = prod(within[x] for x in e.indexing.output)
    between = max((prod(within[x] for x in s.contraction.indexing.output) for s in plan.block.steps[:-1]), default=0)
    loads = _LOCAL * sum(step.loads for step in steps) + copied + results * (1 + plan.block.staged_epilogue)
    return Work(
        flops=e.b * blocks * sum(step.flops for step in steps),
        bytes=e.min_bytes(p.lengths),
        loads=e.b * blocks * p.itemsize * loads,
        groups=plan.persistent_groups or blocks,
        items=plan.block.items,
        registers_bytes=4 * _OTHER_REGISTERS + max(step.registers_bytes for step in steps),
        local_bytes=p.itemsize * (copied + between + results * plan.block.staged_epilogue),
        matrix=any(step.matrix_unit for step in plan.block.steps),
    )


def _step(p: Problem, plan: FusedChain, step: ChainStep, within: Mapping[str, int]) -> Work:
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
