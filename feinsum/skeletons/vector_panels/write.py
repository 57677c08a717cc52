"""The kernel of a plan of vector panels: contractions in private vectors, for one tile of a long index after another.

    out[e, i] = Σ_k S(i, k) V(e, k)        S small and shared by all e; i are lanes; a work-group does many e

It is the plan that reached most of the roofline on CPUs for element-local operators and matrix products: lanes along i,
so that V is read as scalars and nothing is transposed; S transposed and padded once for each work-group; accumulators
for several e in registers; partial results of a chain never leave the first cache.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import loopy as lp
from pymbolic.primitives import Variable

from feinsum.einsum import BatchedEinsum
from feinsum.errors import TransformError
from feinsum.match import Match
from feinsum.rewrites.algebra import contract_first, separate_rows, split_index
from feinsum.rewrites.finishing import gather_sums
from feinsum.rewrites.fusion import fuse
from feinsum.rewrites.loops import divide, divide_guarded, fixed_length, nest, place, with_own_names
from feinsum.rewrites.operand_memory import Kept, materialize
from feinsum.rewrites.prefetching import prefetch_ahead, prefetch_rows
from feinsum.rewrites.sum_moves import UNROLL, expand_sum, register_tile
from feinsum.rewrites.vectors import vectorize
from feinsum.skeletons.vector_panels.orders import PanelOrder
from feinsum.skeletons.vector_panels.plan import VectorPanels

_WRITTEN_OUT = 4
"""Terms of a sum that are written out rather than looped over."""
_GROUP_AXES = 3
"""Axes of groups that OpenCL has; what more indices share out are loops of a group."""


@dataclass
class _PanelRow:
    """One output on its way, or all outputs in one nest of loops.

    :ivar matches: before the first step of the contraction order, and after each.
    :ivar steps: output index -> the loop over the steps of a work-group, if it takes several.
    :ivar inner: index -> the loop inside a step.
    :ivar kept: the results that each step of the order leaves in private memory.
    :ivar readers: index -> the loop of what reads that.
    """

    matches: list[Match]
    steps: dict[str, str]
    inner: dict[str, str]
    kept: list[Kept] = field(default_factory=list)
    readers: list[Mapping[str, str]] = field(default_factory=list)


def write(t_unit: lp.TranslationUnit, match: Match, plan: VectorPanels) -> lp.TranslationUnit:
    """Write the kernel of a plan in place of the instructions of a match.

    Before::

        for e, i: out[e, i] = sum(k, S(i, k) * V(e, k))

    After an order of one step, with i as lanes and e = (group * steps + step) * at_once + t::

        for k, i: panel[k, i] = S(i, k)                                    private vectors
        for step:
            for i, t: acc[i, t] = 0
            for k:
                for i, t: acc[i, t] += panel[k, i] * V(e, k)
            for i, t: out[e, i] = acc[i, t]

    Each group has one work-item.  With more steps the result of each is kept in private memory for the one that reads it,
    and with staged operands, a copy of V beside that of S.

    :raises TransformError: if a move's preconditions do not hold, register tiles do not divide what they tile, or the plan
        is one for rows of another length.

    Halide has ``vectorize``, ``tile`` and ``unroll`` for the loops of i, t and k, and ``compute_at`` for the panel; TVM
    calls the panel a ``cache_read`` and the accumulators a ``cache_write``; for BLIS this is its micro-kernel, S packed.
    """
    if plan.fused_axes:
        t_unit, match = fuse(t_unit, match, plan.fused_axes)
    if plan.split_axis is not None:
        t_unit, match, _ = split_index(t_unit, match, *plan.split_axis)
    t_unit, match = with_own_names(t_unit, match)
    separate: tuple[Match, ...] = (match,)
    if plan.product_major:
        t_unit, separate = separate_rows(t_unit, match, common="".join(plan.block_tile))
    rows = []
    for single in separate:
        t_unit, matches = _contract_row(t_unit, single, plan.order)
        rows.append(_PanelRow(matches, {}, dict(single.inames)))
    t_unit, groups = _divide_shared_loops(t_unit, match, plan, rows)
    for row in rows:
        t_unit = _keep_results(t_unit, row, plan, groups)
    lanes: dict[str, list[str]] = {}
    for operand, lane in plan.copied.items():
        t_unit, loop = _copy_operand(t_unit, match, rows, operand, lane, groups)
        lanes.setdefault(lane, []).append(loop)
    for row in rows:
        t_unit = _prefetch(t_unit, row, plan, groups)
        for number, lane in enumerate(plan.lane_axes):
            t_unit = _accumulate(t_unit, row, number, plan)
            lanes.setdefault(lane, []).append(row.kept[number].loops[lane])
        t_unit = _store_results(t_unit, row, plan)
    t_unit = gather_sums(t_unit, match)
    for lane, loops in lanes.items():
        scalars = _read_by_number(t_unit, match, rows, lane, plan)
        t_unit = vectorize(t_unit, match, loops, plan.width, scalars=scalars, streaming=plan.streaming_stores)
    return t_unit


def _read_by_number(
    t_unit: lp.TranslationUnit, match: Match, rows: list[_PanelRow], lane: str, plan: VectorPanels
) -> list[str]:
    """The loops along a lane's index that read one number at a time: sums over it, and steps with other lanes."""
    loops = set()
    for row in rows:
        loops |= {kept.loops.get(lane) for kept, other in zip(row.kept, plan.lane_axes, strict=True) if other != lane}
        if lane in match.einsum.indexing.summed:
            loops.add(row.matches[0].inames[lane])
        elif plan.lane_axes[-1] != lane:
            loops |= {row.inner[lane], row.steps.get(lane)}
    return sorted(loop for loop in loops if loop is not None and loop in t_unit[match.kernel_name].all_inames())


def _contract_row(t_unit: lp.TranslationUnit, row: Match, order: PanelOrder) -> tuple[lp.TranslationUnit, list[Match]]:
    matches = [row]
    for operands in order.steps:
        t_unit, result = contract_first(t_unit, matches[-1], operands)
        matches.append(result)
    return t_unit, matches


def _divide_shared_loops(
    t_unit: lp.TranslationUnit, match: Match, plan: VectorPanels, rows: list[_PanelRow]
) -> tuple[lp.TranslationUnit, tuple[str, ...]]:
    """Divide the loops that groups share out; every row but the first gets copies of the loops inside a group.

    :returns: the kernel and the loops over groups.
    """
    groups: list[str] = []
    # What is updated in place must not be stored twice.
    may_overlap = not match.updates_output
    for letter, tile in plan.block_tile.items():
        lengths = (tile.at_once,) if tile.steps == 1 else (tile.steps, tile.at_once)
        overlapping = may_overlap and letter == plan.lane_axes[-1]
        t_unit, (group, *loops) = divide_guarded(t_unit, match, letter, lengths, overlapping=overlapping)
        if len(groups) < _GROUP_AXES:
            t_unit = place(t_unit, match, {group: f"g.{len(groups)}"})
        groups.append(group)
        for k, row in enumerate(rows):
            t_unit, own = _own_loops(t_unit, row.matches[0], loops) if k else (t_unit, loops)
            if tile.steps > 1:
                row.steps[letter] = own[0]
            row.inner[letter] = own[-1]
    return t_unit, tuple(groups)


def _own_loops(t_unit: lp.TranslationUnit, row: Match, loops: list[str]) -> tuple[lp.TranslationUnit, list[str]]:
    """Copies of loops for the instruction of one row."""
    kernel = t_unit[row.kernel_name]
    fresh = kernel.get_var_name_generator()
    names = [fresh(loop) for loop in loops]
    kernel = lp.duplicate_inames(kernel, loops, within=f"id:{row.insn_ids[0]}", new_inames=names)
    return t_unit.with_kernel(kernel), names


def _keep_results(
    t_unit: lp.TranslationUnit, row: _PanelRow, plan: VectorPanels, groups: tuple[str, ...]
) -> lp.TranslationUnit:
    """Keep the result of every step in private memory, the last step first, as its loops are those of the results that it
    reads."""
    around = (*groups, *row.steps.values())
    readers = plan.order.readers(row.matches[0].einsum.n)
    inside: dict[int | None, Mapping[str, str]] = {None: row.inner}
    for number, lane in reversed(list(enumerate(plan.lane_axes))):
        result, inner = row.matches[number + 1], inside[readers[number]]
        letters = sorted(result.einsum.indexing.inputs[-1], key=lambda letter: letter == lane)
        t_unit, kept = materialize(
            t_unit, result, result.einsum.n - 1, {x: [inner[x]] for x in letters}, "private", outer=around
        )
        row.kept.insert(0, kept)
        inside[number] = {**row.inner, **kept.loops}
        row.readers.insert(0, inside[number])
    return t_unit


def _copy_operand(
    t_unit: lp.TranslationUnit, match: Match, rows: list[_PanelRow], operand: int, lane: str, groups: tuple[str, ...]
) -> tuple[lp.TranslationUnit, str]:
    """Copy an operand once for each work-group; returns the kernel and the loop of the copy along the lanes."""
    letters = match.einsum.indexing.inputs[operand]
    order = sorted(letters, key=lambda letter: (letter == lane, letter not in match.einsum.indexing.summed))
    sweep = {
        letter: sorted(
            {reader[letter] for row in rows for reader in (row.inner, row.steps, *row.readers) if letter in reader}
        )
        for letter in order
    }
    t_unit, kept = materialize(t_unit, match, operand, sweep, "private", outer=groups)
    # Along the operand, so that its lines are read once.
    along = [kept.loops[letter] for letter in sorted(letters, key=lambda letter: (letter == lane, letters.index(letter)))]
    return nest(t_unit, match, along), kept.loops[lane]


def _prefetch(
    t_unit: lp.TranslationUnit, row: _PanelRow, plan: VectorPanels, groups: tuple[str, ...]
) -> lp.TranslationUnit:
    """Prefetch operands of which each step of a work-group reads rows that lie apart, or gathers vectors.

    A sum that goes from row to row asks for them as it passes: see :func:`_accumulate`.
    """
    long, match = plan.prefetch, row.matches[0]
    if long is None or long not in row.steps:
        return t_unit
    tile, group = plan.block_tile[long], groups[list(plan.block_tile).index(long)]
    at = (Variable(group) * tile.steps + Variable(row.steps[long])) * tile.at_once
    read_whole = [
        k
        for k, letters in enumerate(match.einsum.indexing.inputs)
        if letters.endswith(long) and not plan.block_tile.keys() & set(letters[:-1]) and k not in plan.copied
    ]
    for number, step in enumerate(plan.order.contractions(match.einsum)):
        summed = _summed_by(row.matches[number], plan.order.steps[number])
        if not _is_written_out(row.matches[number].einsum, summed):
            own = {k for k, letters in zip(step.own, step.inputs, strict=True) if plan.lane_axes[number] not in letters}
            read_whole = [k for k in read_whole if k not in own or not summed & set(match.einsum.indexing.inputs[k])]
    read_whole += plan.gathered(match.einsum)
    axes = {rules[k]: match.einsum.indexing.inputs[k].index(long) for rules in match.rules for k in read_whole}
    return prefetch_rows(t_unit, match, axes, at, tile.at_once, frozenset([*groups, row.steps[long]]), plan.line_bytes)


def _is_written_out(e: BatchedEinsum, summed: Collection[str]) -> bool:
    """Whether a sum is so short that its terms are written out rather than looped over."""
    lengths = [e.index_sizes[x] for x in summed]
    return all(isinstance(n, int) for n in lengths) and math.prod(map(int, lengths)) <= _WRITTEN_OUT


def _accumulate(t_unit: lp.TranslationUnit, row: _PanelRow, number: int, plan: VectorPanels) -> lp.TranslationUnit:
    """Accumulate the result of a step of the order in registers, tile by tile."""
    before = row.matches[number]
    t_unit, loops, tile = _divide_tile(t_unit, row, number, plan)
    kept, whole = row.kept[number], len(loops) == len(row.steps)
    summed = [x for x in before.einsum.indexing.indices if x in _summed_by(before, plan.order.steps[number])]
    if _is_written_out(before.einsum, summed):
        if summed:
            t_unit = expand_sum(t_unit, before, summed, kept.insn_ids)
        t_unit = place(t_unit, before, dict.fromkeys(tile[1:], UNROLL))
        return nest(t_unit, before, [*loops, *tile[1:], tile[0]])
    sums = [before.inames[x] for x in summed]
    if plan.prefetch is not None and plan.prefetch in row.steps:
        step = row.steps[plan.prefetch]
        t_unit, order = prefetch_ahead(t_unit, before, kept.insn_ids, step, sums, tile[1:], tile[0], plan.line_bytes)
        tile[1:] = order
    t_unit = register_tile(t_unit, before, tile, kept.insn_ids, in_place=whole)
    return nest(t_unit, before, [*loops, *sums, *tile[1:], tile[0]])


def _divide_tile(
    t_unit: lp.TranslationUnit, row: _PanelRow, number: int, plan: VectorPanels
) -> tuple[lp.TranslationUnit, list[str], list[str]]:
    """Divide the loops of a step's result into those of its register tile and those around it.

    :returns: the kernel, the loops around the tile, and those of the tile, of which the first runs along the lanes.
    """
    before, kept, lane, held = row.matches[number], row.kept[number], plan.lane_axes[number], plan.register_tiles[number]
    letters = list(kept.loops)
    if plan.split_axis is not None:
        # Vectors of one part stay in the first cache while all that they are multiplied by passes.
        own = set().union(*(x for x in _operands_of(before, plan, number) if lane in x))
        letters.sort(key=lambda x: x not in own)
    vectors = -(-fixed_length(t_unit[before.kernel_name], kept.loops[lane]) // plan.width)
    if vectors != held.vectors:
        raise TransformError(f"a register tile of {held.vectors} vectors along '{lane}', where a row has {vectors}")
    loops, tile = list(row.steps.values()), [kept.loops[lane]]
    for letter in letters:
        if letter == lane:
            continue
        loop = kept.loops[letter]
        length = fixed_length(t_unit[before.kernel_name], loop)
        together = held.held.get(letter, 1)
        if length % together:
            raise TransformError(f"{together} accumulators along '{letter}' do not divide its length {length}")
        if together == length:
            tile.append(loop)
        elif together == 1:
            loops.append(loop)
        else:
            t_unit, (outside, inside) = divide(t_unit, before, loop, (together,))
            loops.append(outside)
            tile.append(inside)
            # Its name is free now, and may become that of another loop.
            kept = replace(kept, loops={x: own for x, own in kept.loops.items() if x != letter})
    row.kept[number] = kept
    return t_unit, loops, tile


def _operands_of(before: Match, plan: VectorPanels, number: int) -> list[str]:
    """The indices of what a step of the order contracts."""
    return [before.einsum.indexing.inputs[k] for k in plan.order.steps[number]]


def _summed_by(before: Match, operands: tuple[int, ...]) -> set[str]:
    """The indices that a contraction of some operands sums over."""
    indexing = before.einsum.indexing
    inside = set("".join(indexing.inputs[k] for k in operands))
    rest = [letters for k, letters in enumerate(indexing.inputs) if k not in operands]
    return inside - set(indexing.output).union(*rest)


def _store_results(t_unit: lp.TranslationUnit, row: _PanelRow, plan: VectorPanels) -> lp.TranslationUnit:
    """The last instruction: write out its remaining sums, unroll its tile."""
    result = row.matches[-1]
    if result.einsum.indexing.summed:
        t_unit = expand_sum(t_unit, result, result.einsum.indexing.summed)
    tiles = [row.inner[letter] for letter in plan.block_tile if letter != plan.lane_axes[-1]]
    return place(t_unit, result, dict.fromkeys(tiles, UNROLL))
