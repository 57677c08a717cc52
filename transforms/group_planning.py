"""Plans of work-groups: which operands they contract in which order, what they copy, and what a work-item computes.

    ((u A) B) C        an order of the contractions, each one a step of a work-group

A plan follows from an einsum, the lengths of its indices and a configuration; it says nothing about loopy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from itertools import islice, takewhile

from feinsum.contraction import Step, pairwise_schedule
from feinsum.devices.ptx import SUB_GROUP
from feinsum.einsum import BatchedEinsum
from feinsum.errors import TransformError
from feinsum.rewrites.group_arrangements import Arrangement, arrange
from feinsum.rewrites.group_plans import Compute, Copy, GroupPlan, GroupStep, Registers, matrices_of, sharing_of
from feinsum.rewrites.matrix_units import COLUMNS, fragment_dtype, fragment_unit, split_error
from feinsum.space import Configuration, Problem
from feinsum.subscripts import Subscripts

WORTHWHILE = 1.2
"""How many times the operations of the cheapest order another one may have."""
MOST_ORDERS = 6
MOST_TRIED = 20000
"""Partial orders looked at, of einsums with many operands."""
GROUPS_PER_UNIT = 4
"""Work-groups that a compute unit should have at least; where one long index is too short, more indices are divided."""
NO_UNIT = "none"
UNITS = ("fp64-mma-m16n8k4", "fp64-mma-m16n8k8", "tf32-mma-m16n8k8")
WELL_FILLED = 0.5
"""Columns of a matrix unit that have to be used."""
OVERHEAD = 24
"""32-bit registers of a work-item besides its tile."""


def is_stepwise(e: BatchedEinsum) -> bool:
    """Whether work-groups can share the output of an einsum, and no operand is a diagonal."""
    plain = all(len(set(letters)) == len(letters) for letters in e.indexing.inputs)
    dtypes = {*e.dtypes, *(a.dtype for a in e.arrays)}
    return plain and e.n >= 2 and bool(e.indexing.output) and dtypes in ({a} for a in e.dtypes) and e.dtype.kind == "f"


def block_letters(p: Problem) -> tuple[str, ...]:
    """The output indices that work-groups divide: all long ones, the longest first; more where that gives few groups."""
    e = p.einsum
    letters = sorted(e.indexing.output, key=lambda x: (not p.is_long(x), -p.sizes[x], e.indexing.output.index(x)))
    chosen = [x for x in letters if p.is_long(x)] or letters[:1]
    for x in letters:
        if x not in chosen and len(chosen) < 3 and p.count("".join(chosen)) < GROUPS_PER_UNIT * p.device.compute_units:
            chosen.append(x)
    return tuple(chosen)


@lru_cache(maxsize=512)
def orders(e: BatchedEinsum, sizes: tuple[tuple[str, int], ...], blocks: tuple[str, ...]) -> tuple[str, ...]:
    """Orders of contraction of about the fewest operations, the best guess first: ``"0+3 1+4"`` takes 0 and 3, then 1 and
    the result of that, which is number 4 of four operands.

    Every step but the first continues with the last result, and the first has a small operand if one can.  Orders whose
    last contraction writes long rows take turns with those whose first one reads along rows.
    """
    lengths = dict(sizes)
    steps = pairwise_schedule(e, e.sizes_from(lengths)).steps
    best = sum(math.prod(lengths[x] for x in step.indexing.indices) for step in steps)
    found = list(_chains(e, lengths, WORTHWHILE * best))
    if not found:
        return (" ".join("+".join(map(str, step.operands)) for step in steps),)

    def writes_rows(item: tuple[float, Chain]) -> tuple[float, ...]:
        return _with_large(e, item[1], blocks), -_row(e, lengths, item[1], blocks), -_along(e, item[1]), item[0]

    def reads_rows(item: tuple[float, Chain]) -> tuple[float, ...]:
        return _with_large(e, item[1], blocks), _along(e, item[1]), _row(e, lengths, item[1], blocks) == 1, item[0]

    ranked = zip(sorted(found, key=writes_rows), sorted(found, key=reads_rows), strict=True)
    chains = dict.fromkeys(chain for pair in ranked for _, chain in pair)
    return tuple(" ".join("+".join(map(str, pair)) for pair in chain) for chain in islice(chains, MOST_ORDERS))


Chain = tuple[tuple[int, ...], ...]


def _chains(e: BatchedEinsum, lengths: Mapping[str, int], most: float) -> Iterator[tuple[float, Chain]]:
    """Orders in which each step continues with the result of the last, and their operations."""
    inputs, tried = e.indexing.inputs, 0

    def go_on(left: tuple[int, ...], letters: str, chain: Chain, cost: float) -> Iterator[tuple[float, Chain]]:
        nonlocal tried
        if not left:
            yield cost, chain
            return
        for k in left:
            tried += 1
            if tried > MOST_TRIED or not set(letters) & set(inputs[k]):
                continue
            more = cost + math.prod(lengths[x] for x in {*letters, *inputs[k]})
            rest = tuple(j for j in left if j != k)
            needed = set(e.indexing.output).union(*(inputs[j] for j in rest))
            kept = "".join(x for x in dict.fromkeys(letters + inputs[k]) if x in needed)
            if more <= most:
                yield from go_on(rest, kept, (*chain, (k, e.n + len(chain) - 1)), more)

    numbers = range(e.n)
    for first in numbers:
        for second in numbers[first + 1 :]:
            rest = tuple(k for k in numbers if k not in (first, second))
            needed = set(e.indexing.output).union(*(inputs[j] for j in rest))
            both = dict.fromkeys(inputs[first] + inputs[second])
            cost = math.prod(lengths[x] for x in both)
            if cost <= most and set(inputs[first]) & set(inputs[second]):
                yield from go_on(rest, "".join(x for x in both if x in needed), ((first, second),), cost)


def _with_large(e: BatchedEinsum, chain: Chain, blocks: tuple[str, ...]) -> bool:
    """Whether both operands of the first contraction have an index in blocks."""
    return all(any(x in blocks for x in e.indexing.inputs[k]) for k in chain[0])


def _row(e: BatchedEinsum, lengths: Mapping[str, int], chain: Chain, blocks: tuple[str, ...]) -> int:
    """How many neighbours in memory the last contraction writes together: those after its own index of the output."""
    new = {x for x in e.indexing.inputs[chain[-1][0]] if x in e.indexing.output and x not in blocks}
    row = takewhile(lambda x: x not in new, reversed(e.indexing.output))
    return math.prod(lengths[x] for x in row if x not in blocks)


def _along(e: BatchedEinsum, chain: Chain) -> bool:
    """Whether the first contraction sums along the rows of its largest operand, so that a work-item reads neighbours."""
    rest = set(e.indexing.output).union(*(e.indexing.inputs[k] for pair in chain[1:] for k in pair if k < e.n))
    return max((e.indexing.inputs[k] for k in chain[0]), key=len)[-1] not in rest


def schedule(e: BatchedEinsum, order: str) -> list[Step]:
    """The steps of an order; one that only multiplies is joined with the one that takes its result."""
    letters = dict(enumerate(e.indexing.inputs))
    steps: list[Step] = []
    pairs = [tuple(map(int, pair.split("+"))) for pair in order.split()]
    joined: dict[int, tuple[int, ...]] = {}
    renumbered = {k: k for k in range(e.n)}
    for number, pair in enumerate(pairs):
        operands = tuple(j for k in pair for j in joined.get(k, (k,)))
        inputs = tuple(letters[renumbered[k]] for k in operands)
        rest = [
            letters[renumbered[j]]
            for later in pairs[number + 1 :]
            for k in later
            if k < e.n + number
            for j in joined.get(k, (k,))
        ]
        last = number == len(pairs) - 1
        output = e.indexing.output if last else _kept(inputs, set(e.indexing.output).union(*rest))
        if not last and set(output) == set("".join(inputs)) and any(set(x) == set(output) for x in inputs):
            joined[e.n + number] = operands
            continue
        steps.append(Step(tuple(renumbered[k] for k in operands), Subscripts(inputs, output)))
        renumbered[e.n + number] = e.n + len(steps) - 1
        letters[e.n + len(steps) - 1] = output
    return steps


def _kept(inputs: tuple[str, ...], needed: set[str]) -> str:
    """The indices of a result: those of the operand with most of them, new ones in the place of the first summed over."""
    main = max(inputs, key=len)
    new = [x for x in dict.fromkeys("".join(inputs)) if x in needed and x not in main]
    result: list[str] = []
    for x in main:
        result += [x] if x in needed else new
        new = new if x in needed else []
    return "".join(result + new)


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
    plan, entries = _plan_and_entries(p, c)
    if plan is None:
        raise TransformError(str(entries))
    return plan


def _plan_and_entries(p: Problem, c: Configuration) -> tuple[GroupPlan | None, int | str]:
    letters = block_letters(p)
    blocks = tuple((x, c["elements"] if x == letters[0] else 1) for x in letters)
    settings = {**c, "stay": c["stay"] * p.device.compute_units}
    return group_plan(p.einsum, tuple(p.sizes.items()), blocks, tuple(settings.items()))


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
    plan, entries = _plan_and_entries(p, c)
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
    registers, limit = max(map(partial(_registers, p), plan.steps)) + OVERHEAD, p.device.registers_per_compute_unit
    if limit is not None and groups * plan.items * min(registers, 255) > limit:
        return f"{registers} registers of {groups * plan.items} work-items exceed the {limit} of a compute unit"
    used = groups * (p.itemsize * entries + 1024) - 1024
    return p.exceeds(work_items=plan.items, local_bytes=used, private_bytes=4 * registers)


def _registers(p: Problem, step: GroupStep) -> int:
    """32-bit registers for the numbers that a work-item holds in a step."""
    if not step.unit:
        return (math.prod(step.tile.values()) + sum(step.tile.values())) * p.itemsize // 4
    unit, (tiles, blocks) = fragment_unit(step.unit), step.fragments
    a, b, d = unit.registers
    return (tiles * blocks * d + tiles * a + blocks * b) * fragment_dtype(unit).itemsize // 4
