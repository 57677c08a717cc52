"""From a configuration to the plan of a fused chain, on a device that has the memory, registers and units for it.

((u A) B) C        an order of the contractions, each one a step of a work-group
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache, partial

from feinsum.contraction import ContractionStep
from feinsum.devices import DeviceProfile
from feinsum.einsum import BatchedEinsum
from feinsum.errors import TransformError
from feinsum.skeletons.fused_chains import BlockSteps, ChainStep, ContractionOrder, FusedChain, matrices_of, sharing_of
from feinsum.skeletons.instructions.matrix_units import COLUMNS, SUB_GROUP, fragment_dtype, fragment_unit
from feinsum.space import Configuration, Problem

UNITS = ("fp64-mma-m16n8k4", "fp64-mma-m16n8k8", "tf32-mma-m16n8k8")
NO_UNIT = "none"
GROUPS_PER_UNIT = 4
"""Work-groups that a compute unit should have at least; where one long index is too short, more indices are divided."""
WELL_FILLED = 0.5
"""Columns of a matrix unit that have to be used."""

_OF_BLOCKS = ("order", "unit", "together", "across", "turns", "copy", "staged", "chained")
"""The parameters that a block depends on, beside its extent; others say how groups go from one to the next."""

Settings = tuple[tuple[str, int | str | bool], ...]


def chain_plan_of(p: Problem, c: Configuration) -> FusedChain:
    """The plan of a configuration.

    :raises TransformError: if it has none, or one that the device cannot hold; the message says why.
    """
    found = _cached_plan(p.einsum, tuple(p.sizes.items()), p.device, tuple(c.items()))
    if isinstance(found, str):
        raise TransformError(found)
    return found


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


def chain_units(p: Problem) -> tuple[str, ...]:
    """The matrix units of the device for the type of a problem; float32 may be multiplied as float64 too."""
    found = [unit for unit in UNITS if unit in p.device.matrix_units]
    return tuple(u for u in found if p.itemsize <= fragment_dtype(fragment_unit(u)).itemsize)


@lru_cache(maxsize=4096)
def _cached_plan(
    e: BatchedEinsum, sizes: tuple[tuple[str, int], ...], device: DeviceProfile, settings: Settings
) -> FusedChain | str:
    """The plan of a configuration, or why there is none: both are asked for many times.

    What refuses a block comes before its work is put in order, which takes the most time.
    """
    p, c = Problem(e, dict(sizes), device), dict(settings)
    groups = int(c["stay"])
    try:
        _check_choices(p, c)
        block = _work_on_block(e, sizes, _blocks(p, c), tuple((name, c[name]) for name in _OF_BLOCKS))
        if isinstance(block, str):
            raise TransformError(block)
        if c["unit"] != NO_UNIT and not any(step.matrix_unit for step in block.steps):
            raise TransformError("no step is a product for a matrix unit")
        _check_block_accuracy(p, block)
        _check_items(p, block, max(1, groups))
        plan = FusedChain(e, block, groups * device.compute_units, bool(c["prefetch"]), bool(c["early"]))
        reason = plan.pointless() or p.exceeds(local_bytes=device.local_bytes_of(max(1, groups), plan.local_bytes()))
        if reason is not None:
            raise TransformError(reason)
    except TransformError as refused:
        return str(refused)
    return plan


def _blocks(p: Problem, c: Configuration) -> tuple[tuple[str, int], ...]:
    letters = block_letters(p)
    return tuple((x, c["elements"] if x == letters[0] else 1) for x in letters)


def _check_choices(p: Problem, c: Configuration) -> None:
    """Refuse choices that the einsum has no room for, before anything is planned; the plan refuses contradictions."""
    letters = block_letters(p)
    longest = letters[0]
    if any(p.is_long(x) for x in p.einsum.indexing.indices if x not in letters):
        raise TransformError("an index that is long is summed over, or there are more than three")
    if c["elements"] > p.sizes[longest]:
        raise TransformError(f"there are no {c['elements']} of '{longest}'")
    if c["unit"] == NO_UNIT and c["elements"] % c["together"]:
        raise TransformError(f"{c['together']} at a time do not divide {c['elements']}")


@lru_cache(maxsize=1024)
def _work_on_block(
    e: BatchedEinsum, sizes: tuple[tuple[str, int], ...], blocks: tuple[tuple[str, int], ...], settings: Settings
) -> BlockSteps | str:
    """The work of a group on a block, for a device without limits, or why there is none.

    :param settings: those of :data:`_OF_BLOCKS`; configurations that differ in others have it in common.
    """
    lengths, c, tile = {**dict(sizes), **dict(blocks)}, dict(settings), dict(blocks)
    make = partial(_tiled_step, e, lengths, tile, int(c["together"]), int(c["across"]), str(c["unit"]))
    steps = [make(step) for step in _cached_contractions(e, str(c["order"]))]
    readers = {k: step for step in steps for k in step.contraction.operands}
    staged = frozenset(
        k
        for k in range(e.n)
        if not _is_matrix(e, readers[k], k, tile) and (c["copy"] == "all" or not _is_read_once(readers[k], k, lengths))
    )
    try:
        items = _group_items([sharing_of(e, step, tile).digits.total for step in steps], int(c["turns"]))
    except TransformError as error:
        return str(error)
    return BlockSteps(tuple(steps), tile, items, staged, bool(c["staged"]), bool(c["chained"]))


@lru_cache(maxsize=256)
def _cached_contractions(e: BatchedEinsum, order: str) -> tuple[ContractionStep, ...]:
    """The contractions of an order, which thousands of configurations have in common."""
    return tuple(ContractionOrder.parse(order).steps(e))


def _group_items(totals: list[int], turns: int) -> int:
    """Work-items of a group, in whole sub-groups.

    The longest step takes so many turns, and no other step takes one turn more for a few tiles that are left.
    """
    most = max(totals) / turns
    return max(SUB_GROUP * -(-total // (SUB_GROUP * max(1, round(total / most)))) for total in totals)


def _tiled_step(
    e: BatchedEinsum,
    lengths: Mapping[str, int],
    blocks: Mapping[str, int],
    together: int,
    across: int,
    unit: str,
    step: ContractionStep,
) -> ChainStep:
    """A step with tiles of `across` entries along its small operand by `together` along the others, on a unit if it can."""
    inputs, output = step.indexing.inputs, step.indexing.output
    matrices = matrices_of(e, step, blocks)
    if unit != NO_UNIT and len(matrices) == 1 and step.indexing.summed:
        rest = "".join(x for k, x in enumerate(inputs) if k != matrices[0])
        columns = math.prod(lengths[x] for x in output if x not in rest)
        filled = -(-columns // COLUMNS)
        if columns > WELL_FILLED * filled * COLUMNS:
            parts = -(-filled // max(1, across // COLUMNS))
            return ChainStep(step, matrix_unit=unit, warp_tile=(1, -(-filled // parts)))
    small = min(inputs, key=lambda x: (any(y in blocks for y in x), len(x)))
    others = set("".join(x for x in inputs if x is not small))
    tile: dict[str, int] = {}
    rows = [x for x in output if x not in small]
    rows.sort(key=lambda x: x not in blocks)
    for letters, most in (([x for x in output if x in small and x not in others], across), (rows, together)):
        for x in letters:
            tile[x] = max(n for n in range(1, min(most, lengths[x]) + 1) if lengths[x] % n == 0)
            most //= tile[x]
    return ChainStep(step, {x: n for x, n in tile.items() if n > 1})


def _is_matrix(e: BatchedEinsum, step: ChainStep, operand: int, blocks: Mapping[str, int]) -> bool:
    """Whether an operand is the small matrix of a matrix unit, which has a copy of its own."""
    if not step.matrix_unit:
        return False
    return step.contraction.operands[matrices_of(e, step.contraction, blocks)[0]] == operand


def _is_read_once(step: ChainStep, operand: int, lengths: Mapping[str, int]) -> bool:
    """Whether every entry of an operand is read by one work-item only."""
    letters = dict(zip(step.contraction.operands, step.contraction.indexing.inputs, strict=True))[operand]
    if step.matrix_unit:
        new = [x for x in step.contraction.indexing.output if x not in letters]
        return math.prod(lengths[x] for x in new) <= COLUMNS * step.warp_tile[1]
    return all(x in letters or step.register_tile.get(x, 1) == lengths[x] for x in step.contraction.indexing.output)


def _check_block_accuracy(p: Problem, block: BlockSteps) -> None:
    """Refuse units that may miss the bound of float32, (summands + operands - 1) u Σ |products|."""
    error = 0.0
    for step in block.steps:
        terms = p.count(step.contraction.indexing.summed)
        error += terms if not step.matrix_unit else fragment_unit(step.matrix_unit).error(terms)
    allowed = p.count(p.einsum.indexing.summed) + p.einsum.n - 1
    split = (step.matrix_unit and fragment_unit(step.matrix_unit).splits for step in block.steps)
    if error > allowed and any(split):
        raise TransformError(f"the units may err by {error:g} roundoffs, where float32 errs by {allowed}")


def _check_items(p: Problem, block: BlockSteps, groups: int) -> None:
    """Refuse a block if a compute unit lacks the registers for its work-groups, or the device has no such groups."""
    used, limit, items = block.registers(p.einsum.dtype.itemsize), p.device.registers_per_compute_unit, block.items
    if limit is not None and groups * items * used > limit:
        raise TransformError(f"{used} registers of {groups * items} work-items exceed the {limit} of a compute unit")
    reason = p.exceeds(work_items=items, private_bytes=4 * used)
    if reason is not None:
        raise TransformError(reason)
