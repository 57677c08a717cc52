"""Einsums that are bound by memory bandwidth: every operand streams by once.

    out[i] = Σ_j A(i, j) x(j)        lanes along the rows of A, in whole strips, then the remainder element by element

Lanes are OpenCL vectors within one work-item on CPUs, and the work-items of a group on GPUs.  A work-group takes a part
of the iterations; if the output is too small to occupy the device it takes a part of a sum, and a second launch adds up.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import islpy as isl
import loopy as lp

from feinsum.errors import TransformError
from feinsum.match import Match
from feinsum.rewrites import divide, materialize, place, spread, spread_sum, vectorize
from feinsum.rewrites.loops import iname_of, without_race_warnings
from feinsum.rewrites.operand_memory import Kept
from feinsum.skeletons.common.draft import KernelDraft
from feinsum.skeletons.streaming.body import StreamBody
from feinsum.skeletons.streaming.crossed import CrossedSums
from feinsum.skeletons.streaming.flights import copy_in_flight
from feinsum.skeletons.streaming.item_sums import sum_in_grid
from feinsum.skeletons.streaming.partial_sums import add_up
from feinsum.skeletons.streaming.plan import Stream, TurnedTiles
from feinsum.skeletons.streaming.squares import parts_across, turned_squares
from feinsum.skeletons.streaming.stream_sums import keep_lanes, sum_lanes

_ADDED_UP = 256
"""Sums of a work-group of the launch that adds up partial sums; chosen by hand."""


def write(t_unit: lp.TranslationUnit, match: Match, plan: Stream) -> lp.TranslationUnit:
    """Let the operands of a match, whose instructions share its loops, stream by in strips.

    Before::

        for i: out[i] = sum(j, A(i, j) * x(j))

    After, with lane j, ``width=8, accumulators=4`` and i in groups of 100::

        for i in range(100 * g, 100 * g + 100):                                g = get_group_id(0)
            for k, l: acc[k, l] = 0
            for q, k, l: acc[k, l] += A(i, 32 q + 8 k + l) * x(32 q + 8 k + l)         whole strips of 32
            for j from the last whole strip on: rest += A(i, j) * x(j)
            out[i] = rest + sum([k, l], acc[k, l])

    A plan with turned tiles has local memory in place of strips.

    :raises TransformError: if an instruction has a predicate, or the plan does not fit the einsum.

    Strip-mining in two loops instead of one with a guard; ``split`` with ``TailStrategy::GuardWithIf`` has one, in Halide.
    """
    _check_streams(t_unit[match.kernel_name], match, plan)
    if plan.joined:  # which run beyond their last axis into the next row, as loopy cannot tell
        t_unit = lp.set_options(t_unit, enforce_array_accesses_within_bounds="no_check")
    if plan.turned is not None:
        return _write_turned(t_unit, match, plan, plan.turned)
    insns = [t_unit[match.kernel_name].id_to_insn[insn_id] for insn_id in match.insn_ids]
    after = frozenset[str]().union(*(insn.depends_on for insn in insns)) - set(match.insn_ids)
    if plan.crossed is not None:
        sums = CrossedSums(match, plan, plan.crossed, KernelDraft(t_unit[match.kernel_name]), after)
        kernel, stores = sums.written()
        t_unit = t_unit.with_kernel(_without_store_order(kernel, stores))
        return _spread_last(t_unit, sums.partial.match, plan) if sums.partial else t_unit
    body = StreamBody.opened(t_unit[match.kernel_name], match, plan, after)
    t_unit = t_unit.with_kernel(_write_kernel(body))
    if body.lanes:
        length = plan.flight.vector if plan.flight else plan.width
        t_unit = vectorize(t_unit, match, body.lanes, length, streaming=plan.streaming_stores, aligned=bool(plan.flight))
    return _spread_last(t_unit, body.partial.match, plan) if body.partial else t_unit


def _write_kernel(body: StreamBody) -> lp.LoopKernel:
    """The kernel with the instructions of the plan."""
    plan = body.plan
    if plan.flight:
        stores = copy_in_flight(body, plan.flight)
    else:
        write_row = _row_writer(plan)
        stores = [store for row in range(body.match.einsum.b) for store in write_row(body, row)]
    rules = add_up(body.draft, body.partial, stores) if body.partial else {}
    kernel = body.draft.finished(body.match.insn_ids, ())
    kernel = kernel.copy(preambles=(*kernel.preambles, *body.functions.items()))
    return _without_store_order(kernel.copy(substitutions={**kernel.substitutions, **rules}), stores)


def _row_writer(plan: Stream) -> Callable[[StreamBody, int], list[str]]:
    """The function that writes the instructions of a row of an einsum."""
    if not plan.summed:
        return _copy_strips
    if plan.grid:
        return sum_in_grid
    return sum_lanes if plan.lane in plan.summed else keep_lanes


def _without_store_order(kernel: lp.LoopKernel, stores: Sequence[str]) -> lp.LoopKernel:
    """The kernel whose stores do not wait for each other."""
    # Whole strips and the remainder do not overlap.  Nor do groups, as the bounds of their loops tell, which loopy does not
    # look at; and where every work-item has the sum it lets one of them store it.
    apart = {store: frozenset((other, "any") for other in stores if other != store) for store in stores}
    return without_race_warnings(kernel, stores).copy(
        instructions=[
            insn.copy(no_sync_with=insn.no_sync_with | apart[insn.id]) if insn.id in apart else insn
            for insn in kernel.instructions
        ]
    )


def _copy_strips(body: StreamBody, row: int) -> list[str]:
    """``out[i, v] = A(i, v) * ...`` in strips of v."""
    stores: list[str] = []
    inner = body.plan.order.partition(body.plan.lane)[2]
    for strips in body.strips():
        for across in parts_across(body, strips):
            behind = {x: body.loops.plain(x) for x in inner if across is None or x != body.plan.square}
            at, outer = body.at(strips, behind), [strips.strip, *behind.values()]
            known: dict[int, Any] = {}
            filled: list[str] = []
            if across is not None:
                at |= {body.plan.square: across.position}
                outer += [across.strip, *across.inside]
                if across.whole:
                    known, filled = turned_squares(body, row, strips, across)
            after = (*body.after, *filled, *stores)
            stores.append(body.assign(body.result(row, at), body.term(row, at, known), (*outer, *strips.inside), after))
    return body.named(row, stores)


def _write_turned(t_unit: lp.TranslationUnit, match: Match, plan: Stream, tiles: TurnedTiles) -> lp.TranslationUnit:
    """Copy tiles of operands that are read across their rows to local memory, lanes along the rows of either side.

    Before::

        for a, b: out[a, b] = A(b, a)

    After, with lane b, ``width=32`` and tiles of 16 rows along a::

        for group of b, tile of a:
            tile[b % 32, a % 16] = A(b, a)               lanes along a
            lbarrier
            out[a, b] = tile[b % 32, a % 16]             lanes along b
    """
    t_unit, (number, rows) = divide(t_unit, match, tiles.across, (tiles.rows,))
    t_unit, (groups, lanes) = divide(t_unit, match, plan.lane, (plan.width,), peel=False)
    others = [x for x in match.einsum.indexing.output if x not in (tiles.across, plan.lane)]
    if not tiles.joined:
        axes = {groups: "g.0", number: "g.1", lanes: "l.0", **dict(zip(others, ("g.2",), strict=False))}
        t_unit = place(t_unit, match, axes)
    for operand, letters in enumerate(match.einsum.indexing.inputs):
        if letters[-1] == tiles.across and plan.lane in letters:
            sweep, around = {plan.lane: [lanes], tiles.across: [rows]}, (number, groups, *others)
            t_unit, kept = materialize(t_unit, match, operand, sweep, "local", outer=around, lanes=plan.width)
            t_unit = _with_spare(t_unit, match, kept, tiles.spare)
    if tiles.joined:
        t_unit, all_others = _fuse_loops(t_unit, match, others)
        t_unit = place(t_unit, match, {all_others: "g.0", groups: "g.1", number: "g.2", lanes: "l.0"})
    return t_unit


def _fuse_loops(t_unit: lp.TranslationUnit, match: Match, letters: Sequence[str]) -> tuple[lp.TranslationUnit, str]:
    """One loop in place of several, and its name.

    Before: ``for i in range(n), j in range(10): S(i, j)``  after: ``for ij in range(10 * n): S(ij // 10, ij % 10)``
    """
    kernel = t_unit[match.kernel_name]
    loops = [iname_of(t_unit, match, x) for x in letters]
    homes = sorted({kernel.get_home_domain_index(loop) for loop in loops})
    domain = reduce(lambda a, b: operator.and_(*isl.align_two(a, b)), (kernel.domains[k] for k in homes))
    rest = [d for k, d in enumerate(kernel.domains) if k not in homes]  # loopy joins the loops of one domain only
    name = kernel.get_var_name_generator()("".join(letters))
    return t_unit.with_kernel(lp.join_inames(kernel.copy(domains=[*rest, domain]), loops, name)), name


def _with_spare(t_unit: lp.TranslationUnit, match: Match, kept: Kept, spare: int) -> lp.TranslationUnit:
    """The kernel with free places after each row of the tiles that some instructions fill.

    Before: ``__local float tile[32 * 32];``  after: ``__local float tile[32 * 33];``
    """
    if not spare:
        return t_unit
    kernel = t_unit[match.kernel_name]
    tiles = dict(kernel.temporary_variables)
    for name in {name for insn_id in kept.insn_ids for name in kernel.id_to_insn[insn_id].assignee_var_names()}:
        *outer, row = tiles[name].shape
        tiles[name] = tiles[name].copy(shape=(*outer, row + spare), strides=lp.auto, dim_tags=None)
    return t_unit.with_kernel(kernel.copy(temporary_variables=tiles))


def _spread_last(t_unit: lp.TranslationUnit, match: Match, plan: Stream) -> lp.TranslationUnit:
    """Spread the launch that adds up partial sums over the device."""
    output, sizes = match.einsum.indexing.output, match.einsum.index_sizes
    first = dict.fromkeys(match.einsum.indexing.indices, 1)
    if plan.by_items:
        items = plan.grid.items if plan.grid else plan.width
        few = math.prod(int(axis) if isinstance(axis, int) else items for axis in map(sizes.get, output)) < items
        if few:
            return spread_sum(t_unit, match, items, first)
        return spread(t_unit, match, output[-1], items, first)
    if not output:
        return t_unit
    t_unit, (groups, _) = divide(t_unit, match, output[-1], (_ADDED_UP,), peel=False)
    return place(t_unit, match, {groups: "g.0"} | ({output[0]: "g.1"} if len(output) > 1 else {}))


def _check_streams(kernel: lp.LoopKernel, match: Match, plan: Stream) -> None:
    """:raises TransformError: if a plan does not fit the einsum, or an instruction has a predicate."""
    insns = [kernel.id_to_insn[insn_id] for insn_id in match.insn_ids]
    if plan.turned is None and any(insn.predicates for insn in insns):
        raise TransformError(f"instruction '{insns[0].id}' has a predicate, which the streams of a plan cannot have")
    indexing, lane = match.einsum.indexing, plan.lane
    if sorted(plan.order) != sorted(indexing.indices) or sorted(plan.summed) != sorted(indexing.summed):
        raise TransformError(f"loops '{plan.order}' with sums over '{plan.summed}' are not those of '{indexing}'")
    if plan.flight:
        others = (match.einsum.index_sizes[x] for x in plan.flight.letters[1:])
        row = match.einsum.index_sizes[lane]
        if not all(isinstance(length, int) for length in others):
            raise TransformError(f"'{plan.flight.letters}' are not one, as the lengths of all but the first are not known")
        if plan.flight.vector > 1 and (not isinstance(row, int) or row % plan.flight.vector):
            raise TransformError(f"there are no whole vectors of {plan.flight.vector} along '{lane}'")
    if plan.keeps_sums and lane not in plan.block_tile and not isinstance(match.einsum.index_sizes[lane], int):
        raise TransformError(f"a group keeps all sums along '{lane}', whose length is not known")
