"""A plan of several moves for CPUs: contractions in private vectors, one after the other, for a tile of a long index.

    out[e, i] = Σ_k S(i, k) V(e, k)        S small and shared by all e; i are lanes; a work-group does many e

It is the plan that reached most of the roofline on CPUs for element-local operators and matrix products: lanes along i,
so that V is read as scalars and nothing is transposed; S transposed and padded once for each work-group; accumulators
for several e in registers; intermediate results of a chain never leave the first cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import loopy as lp

from feinsum.errors import TransformError
from feinsum.match import Match
from feinsum.rewrites.algebra import contract_first, separate_rows
from feinsum.rewrites.loops import divide, divide_guarded, fixed_length, nest, place, with_own_names
from feinsum.rewrites.memory import Kept, materialize
from feinsum.rewrites.prefetching import prefetch_ahead
from feinsum.rewrites.sums import UNROLL, expand_sum, register_tile
from feinsum.rewrites.vectors import vectorize

_WRITTEN_OUT = 4
"""Terms of a sum that are written out rather than looped over."""


_GROUP_AXES = 3


@dataclass(frozen=True)
class Stage:
    """One contraction of a plan.

    :ivar operands: what it contracts, numbered in the match that the stages before it left (their results stand last).
    :ivar lane: the index of its result that runs along vectors.
    :ivar registers: index of its result -> how many of it have accumulators at once; 1 if it is not there.
    """

    operands: tuple[int, ...]
    lane: str
    registers: Mapping[str, int]


@dataclass(frozen=True)
class Panel:
    """The roles and sizes of the plan.

    :ivar stages: the contractions, in order; short sums that they leave are written out in the last instruction.
    :ivar panels: operands to copy once for each work-group, the index that runs along vectors last.
    :ivar groups: output index -> (blocks, together): a work-group takes so many steps along it, and so many of its
        iterations at once; the other loops of the output are inside.
    :ivar width: lanes of a vector.
    :ivar apart: whether a work-group finishes one output before it begins the next.
    :ivar streaming: whether results are stored past the caches.
    :ivar ahead: the index along which a work-group asks for the operands of its next step, where they lie in rows apart.
    :ivar line_bytes: the length of a cache line.
    """

    stages: tuple[Stage, ...]
    panels: Mapping[int, str]
    groups: Mapping[str, tuple[int, int]]
    width: int
    apart: bool
    streaming: bool
    ahead: str | None = None
    line_bytes: int = 64


def readers_of(n: int, steps: Sequence[tuple[int, ...]]) -> list[int | None]:
    """The step that reads the result of each step, which need not be the next one; None for what is left at the end.

    :param n: how many operands there are at the beginning.
    :param steps: what each step contracts, by position among what is left; results stand last.
    """
    readers: list[int | None] = []
    for number, contracted in enumerate(steps):
        n += 1 - len(contracted)
        at = n - 1
        for reader in range(number + 1, len(steps)):
            if at in steps[reader]:
                readers.append(reader)
                break
            at -= sum(k < at for k in steps[reader])
        else:
            readers.append(None)
    return readers


@dataclass
class _Row:
    """One row (or all in one nest) on its way: the matches after each stage, the loops inside a group, the copies."""

    matches: list[Match]
    blocks: dict[str, str]
    inner: dict[str, str]
    kept: list[Kept] = field(default_factory=list)
    readers: list[Mapping[str, str]] = field(default_factory=list)


def vector_panel(t_unit: lp.TranslationUnit, match: Match, plan: Panel) -> lp.TranslationUnit:
    """Apply the plan to every row of a match.

    Before::

        for e, i: out[e, i] = sum(k, S(i, k) * V(e, k))

    After one stage with e in groups, e = (g * blocks + b) * together + t::

        for k, i: panel[k, i] = S(i, k)                                    private vectors
        for b:
            for i, t: acc[i, t] = 0
            for k:
                for i, t: acc[i, t] += panel[k, i] * V(e, k)
            for i, t: out[e, i] = acc[i, t]

    :raises TransformError: if a move's preconditions do not hold.
    """
    t_unit, match = with_own_names(t_unit, match)
    t_unit, separate = separate_rows(t_unit, match, common="".join(plan.groups)) if plan.apart else (t_unit, (match,))
    rows = []
    for single in separate:
        t_unit, matches = _contract(t_unit, single, plan.stages)
        rows.append(_Row(matches, {}, dict(single.inames)))
    t_unit, groups = _divide(t_unit, match, plan, rows)
    for row in rows:
        t_unit = _keep(t_unit, row, plan, groups)
    lanes: dict[str, list[str]] = {}
    for operand, lane in plan.panels.items():
        t_unit, loop = _copy_panel(t_unit, match, rows, operand, lane, groups)
        lanes.setdefault(lane, []).append(loop)
    for row in rows:
        for number, stage in enumerate(plan.stages):
            t_unit = _accumulate(t_unit, row, number, plan)
            lanes.setdefault(stage.lane, []).append(row.kept[number].loops[stage.lane])
        t_unit = _store(t_unit, row, plan)
    for lane, loops in lanes.items():
        scalars = _read_by_number(t_unit, match, rows, lane, plan)
        t_unit = vectorize(t_unit, match, loops, plan.width, scalars=scalars, streaming=plan.streaming)
    return t_unit


def _read_by_number(t_unit: lp.TranslationUnit, match: Match, rows: list[_Row], lane: str, plan: Panel) -> list[str]:
    """The loops along a lane's index that read one number at a time: sums over it, and stages with other lanes."""
    loops = set()
    for row in rows:
        loops |= {kept.loops.get(lane) for kept, stage in zip(row.kept, plan.stages, strict=True) if stage.lane != lane}
        if lane in match.einsum.indexing.summed:
            loops.add(row.matches[0].inames[lane])
        elif plan.stages[-1].lane != lane:
            loops |= {row.inner[lane], row.blocks.get(lane)}
    return sorted(loop for loop in loops if loop is not None and loop in t_unit[match.kernel_name].all_inames())


def _contract(t_unit: lp.TranslationUnit, row: Match, stages: tuple[Stage, ...]) -> tuple[lp.TranslationUnit, list[Match]]:
    matches = [row]
    for stage in stages:
        t_unit, result = contract_first(t_unit, matches[-1], stage.operands)
        matches.append(result)
    return t_unit, matches


def _divide(
    t_unit: lp.TranslationUnit, match: Match, plan: Panel, rows: list[_Row]
) -> tuple[lp.TranslationUnit, tuple[str, ...]]:
    """Divide the loops of the groups; every row but the first gets copies of what is inside a group.

    :returns: the kernel and the loops over groups.
    """
    groups: list[str] = []
    for letter, (blocks, together) in plan.groups.items():
        lengths = (together,) if blocks == 1 else (blocks, together)
        t_unit, (group, *loops) = divide_guarded(t_unit, match, letter, lengths, overlapping=letter == plan.stages[-1].lane)
        if len(groups) < _GROUP_AXES:
            t_unit = place(t_unit, match, {group: f"g.{len(groups)}"})
        groups.append(group)
        for k, row in enumerate(rows):
            t_unit, own = _own(t_unit, row.matches[0], loops) if k else (t_unit, loops)
            if blocks > 1:
                row.blocks[letter] = own[0]
            row.inner[letter] = own[-1]
    return t_unit, tuple(groups)


def _own(t_unit: lp.TranslationUnit, row: Match, loops: list[str]) -> tuple[lp.TranslationUnit, list[str]]:
    """Copies of loops for the instruction of one row."""
    kernel = t_unit[row.kernel_name]
    fresh = kernel.get_var_name_generator()
    names = [fresh(loop) for loop in loops]
    kernel = lp.duplicate_inames(kernel, loops, within=f"id:{row.insn_ids[0]}", new_inames=names)
    return t_unit.with_kernel(kernel), names


def _keep(t_unit: lp.TranslationUnit, row: _Row, plan: Panel, groups: tuple[str, ...]) -> lp.TranslationUnit:
    """Keep the result of every stage in private memory, the last one first, as its loops are those of what it reads."""
    around = (*groups, *row.blocks.values())
    readers = readers_of(row.matches[0].einsum.n, [stage.operands for stage in plan.stages])
    inside: dict[int | None, Mapping[str, str]] = {None: row.inner}
    for number, stage in reversed(list(enumerate(plan.stages))):
        result, inner = row.matches[number + 1], inside[readers[number]]
        letters = sorted(result.einsum.indexing.inputs[-1], key=lambda letter: letter == stage.lane)
        t_unit, kept = materialize(
            t_unit, result, result.einsum.n - 1, {x: [inner[x]] for x in letters}, "private", outer=around
        )
        row.kept.insert(0, kept)
        inside[number] = {**row.inner, **kept.loops}
        row.readers.insert(0, inside[number])
    return t_unit


def _copy_panel(
    t_unit: lp.TranslationUnit, match: Match, rows: list[_Row], operand: int, lane: str, groups: tuple[str, ...]
) -> tuple[lp.TranslationUnit, str]:
    """Copy an operand once for each work-group; returns the kernel and the loop of the copy along the lanes."""
    letters = match.einsum.indexing.inputs[operand]
    order = sorted(letters, key=lambda letter: (letter == lane, letter not in match.einsum.indexing.summed))
    sweep = {
        letter: sorted(
            {reader[letter] for row in rows for reader in (row.inner, row.blocks, *row.readers) if letter in reader}
        )
        for letter in order
    }
    t_unit, kept = materialize(t_unit, match, operand, sweep, "private", outer=groups)
    # Along the operand, so that its lines are read once.
    along = [kept.loops[letter] for letter in sorted(letters, key=lambda letter: (letter == lane, letters.index(letter)))]
    return nest(t_unit, match, along), kept.loops[lane]


def _accumulate(t_unit: lp.TranslationUnit, row: _Row, number: int, plan: Panel) -> lp.TranslationUnit:
    """Accumulate the result of a stage in registers, tile by tile."""
    before, kept, stage = row.matches[number], row.kept[number], plan.stages[number]
    summed = [x for x in before.einsum.indexing.indices if x in _summed_by(before, stage)]
    loops, tile = list(row.blocks.values()), [kept.loops[stage.lane]]
    whole = True
    for letter, loop in kept.loops.items():
        if letter == stage.lane:
            continue
        length = fixed_length(t_unit[before.kernel_name], loop)
        together = stage.registers.get(letter, 1)
        if length % together:
            raise TransformError(f"{together} accumulators along '{letter}' do not divide its length {length}")
        if together == length:
            tile.append(loop)
            continue
        whole = False
        if together == 1:
            loops.append(loop)
        else:
            t_unit, (outside, inside) = divide(t_unit, before, loop, (together,))
            loops.append(outside)
            tile.append(inside)
            # Its name is free now, and may become that of another loop.
            kept = replace(kept, loops={x: own for x, own in kept.loops.items() if x != letter})
    row.kept[number] = kept
    short = [x for x in summed if isinstance(before.einsum.index_sizes[x], int)]
    terms = 1
    for letter in short:
        terms *= int(before.einsum.index_sizes[letter])
    if len(short) == len(summed) and terms <= _WRITTEN_OUT:
        if summed:
            t_unit = expand_sum(t_unit, before, summed, kept.insn_ids)
        t_unit = place(t_unit, before, dict.fromkeys(tile[1:], UNROLL))
        return nest(t_unit, before, [*loops, *tile[1:], tile[0]])
    sums = [before.inames[x] for x in summed]
    if plan.ahead and plan.ahead in row.blocks:
        step = row.blocks[plan.ahead]
        t_unit, order = prefetch_ahead(t_unit, before, kept.insn_ids, step, sums, tile[1:], tile[0], plan.line_bytes)
        tile[1:] = order
    t_unit = register_tile(t_unit, before, tile, kept.insn_ids, in_place=whole)
    return nest(t_unit, before, [*loops, *sums, *tile[1:], tile[0]])


def _summed_by(before: Match, stage: Stage) -> set[str]:
    """The indices that a stage sums over."""
    indexing = before.einsum.indexing
    inside = set("".join(indexing.inputs[k] for k in stage.operands))
    rest = [letters for k, letters in enumerate(indexing.inputs) if k not in stage.operands]
    return inside - set(indexing.output).union(*rest)


def _store(t_unit: lp.TranslationUnit, row: _Row, plan: Panel) -> lp.TranslationUnit:
    """The last instruction: write out what is left to sum, unroll its tile."""
    result = row.matches[-1]
    if result.einsum.indexing.summed:
        t_unit = expand_sum(t_unit, result, result.einsum.indexing.summed)
    tiles = [row.inner[letter] for letter in plan.groups if letter != plan.stages[-1].lane]
    return place(t_unit, result, dict.fromkeys(tiles, UNROLL))
