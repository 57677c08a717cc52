"""A plan of several moves: a small operand in private vectors, a long index in registers tile by tile.

    out[e, i] = Σ_k S(i, k) V(e, k)        S small and shared by all e; i are lanes; a work-group does many e

It is the plan that reached most of the roofline on CPUs for element-local operators: lanes along i, so that V is read
as scalars and nothing is transposed; S transposed and padded once for each work-group; accumulators for several e.
"""

from __future__ import annotations

from dataclasses import dataclass

import loopy as lp

from feinsum.match import Match
from feinsum.rewrites.loops import divide_guarded, nest, place
from feinsum.rewrites.memory import materialize
from feinsum.rewrites.staging import contract_first, separate_rows
from feinsum.rewrites.sums import UNROLL, expand_sum, register_tile
from feinsum.rewrites.vectors import vectorize


@dataclass(frozen=True)
class Panel:
    """The roles and sizes of the plan.

    :ivar shared: the operand without the long index, S.
    :ivar lane: the output index that is S's alone.
    :ivar long: the index that every other operand has.
    :ivar first: operands to contract first: none, S and others (a partial result in registers), or others (in memory).
    :ivar blocks: how many steps a work-group takes along the long index.
    :ivar together: how many iterations of it are in registers at once.
    :ivar width: lanes of a vector.
    :ivar apart: whether a work-group finishes one output before it begins the next.
    :ivar streaming: whether results are stored past the caches.
    """

    shared: int
    lane: str
    long: str
    first: tuple[int, ...]
    blocks: int
    together: int
    width: int
    apart: bool
    streaming: bool


def vector_panel(t_unit: lp.TranslationUnit, match: Match, plan: Panel) -> lp.TranslationUnit:
    """Apply the plan to every row of a match.

    Before::

        for e, i: out[e, i] = sum(k, S(i, k) * V(e, k))

    After, e = (g * blocks + b) * together + t, in work-group g::

        for k, i: panel[k, i] = S(i, k)                                    private vectors
        for b:
            for i, t: acc[i, t] = 0
            for k:
                for i, t: acc[i, t] += panel[k, i] * V(e, k)
            for i, t: out[e, i] = acc[i, t]

    :raises TransformError: if a move's preconditions do not hold.
    """
    t_unit, rows = separate_rows(t_unit, match, common=plan.long) if plan.apart else (t_unit, (match,))
    partials, results = [], []
    for row in rows:
        before = row
        if plan.first and plan.shared not in plan.first:
            t_unit, before = contract_first(t_unit, row, plan.first)
        partials.append(before)
        into_registers = plan.first if plan.shared in plan.first else tuple(range(before.einsum.n))
        t_unit, result = contract_first(t_unit, before, into_registers)
        results.append(result)
    t_unit, (group, block, tile) = divide_guarded(t_unit, match, plan.long, (plan.blocks, plan.together))
    t_unit = place(t_unit, match, {group: "g.0"})
    sweep: dict[str, list[str]] = {}
    for k, (row, before, result) in enumerate(zip(rows, partials, results, strict=True)):
        t_unit, nest_of_row = (t_unit, (block, tile)) if k == 0 else _own(t_unit, result, (block, tile))
        t_unit, around = _tile(t_unit, row, before, result, plan, (group, *nest_of_row))
        for letter in match.einsum.indexing.inputs[plan.shared]:
            sweep.setdefault(letter, []).append(around[letter])
    order = sorted(sweep, key=lambda letter: (letter == plan.lane, letter not in match.einsum.indexing.summed))
    t_unit, panel = materialize(
        t_unit, match, plan.shared, {letter: sweep[letter] for letter in order}, "private", outer=(group,)
    )
    return vectorize(t_unit, match, [panel.loops[plan.lane]], plan.width, streaming=plan.streaming)


def _own(t_unit: lp.TranslationUnit, result: Match, loops: tuple[str, ...]) -> tuple[lp.TranslationUnit, tuple[str, ...]]:
    """Copies of loops for the instruction of one row."""
    kernel = t_unit[result.kernel_name]
    fresh = kernel.get_var_name_generator()
    names = tuple(fresh(loop) for loop in loops)
    kernel = lp.duplicate_inames(kernel, list(loops), within=f"id:{result.insn_ids[0]}", new_inames=list(names))
    return t_unit.with_kernel(kernel), names


def _tile(
    t_unit: lp.TranslationUnit, row: Match, before: Match, result: Match, plan: Panel, loops: tuple[str, str, str]
) -> tuple[lp.TranslationUnit, dict[str, str]]:
    """Put partial results of a row (or of all rows, in one nest) in registers.

    :returns: the kernel, and the loops around S by index letter.
    """
    group, block, tile = loops
    letters = result.einsum.indexing.inputs[-1]
    t_unit, copy = materialize(
        t_unit,
        result,
        result.einsum.n - 1,
        {x: [tile] if x == plan.long else [x] for x in letters},
        "private",
        outer=(group, block),
    )
    summed = [x for x in before.einsum.indexing.summed if x not in letters]
    inner = {**row.inames, **copy.loops}
    if before is not row:
        own = before.einsum.indexing.inputs[-1]
        t_unit, _ = materialize(
            t_unit,
            before,
            before.einsum.n - 1,
            {x: [inner[x]] for x in own},
            "private",
            outer=(group, block),
        )
    t_unit = register_tile(t_unit, result, list(copy.loops.values()), copy.insn_ids)
    if result.einsum.indexing.summed:
        t_unit = expand_sum(t_unit, result, result.einsum.indexing.summed)
    t_unit = place(t_unit, result, {tile: UNROLL})
    return nest(t_unit, row, [block, *(row.inames[x] for x in summed), *copy.loops.values()]), inner
