"""The kernel of a plan of packed blocks: the loops around a register tile, and the copies that feed it.

After K. Goto and R. van de Geijn, "Anatomy of high-performance matrix multiplication", ACM TOMS 34 (2008), and on tensors
without transposing them first D. Matthews, "High-performance tensor contraction without transposition", SIAM J. Sci.
Comput. 40 (2018).
"""

from __future__ import annotations

from typing import Any

import loopy as lp
from loopy.kernel.instruction import CInstruction
from loopy.symbolic import Reduction
from pymbolic.primitives import Comparison, If, Subscript, Variable

from feinsum.errors import TransformError
from feinsum.match import Match
from feinsum.rewrites import join
from feinsum.rewrites.loops import without_race_warnings
from feinsum.rewrites.vectors.access import NAMES
from feinsum.skeletons.common.draft import KernelDraft
from feinsum.skeletons.common.matrix_product import substituted
from feinsum.skeletons.packed_blocks.frame import PackedFrame, packed_frame
from feinsum.skeletons.packed_blocks.panels import Panels, pack
from feinsum.skeletons.packed_blocks.plan import PackedBlocks


def write(t_unit: lp.TranslationUnit, match: Match, plan: PackedBlocks) -> lp.TranslationUnit:
    """Compute a contraction of two operands as a product of matrices, block by block.

    Before, for ``plan.rows="ab"``, ``columns="c"``, ``sums="de"``::

        for a, b, c: out[a, b, c] = sum([d, e], A(e, b, d, a) * B(d, c, e))

    After, with a(m), b(m), d(k), e(k) the letters of fused indices, and tiles of r rows of v vectors of w lanes::

        for block of rows, block of columns:
            for part of the sum:
                for panel, k, i: A_panel[panel, k, i] = A(e(k), b(m), d(k), a(m))        m = first + r panel + i
                for panel, k, j: B_panel[panel, k, j] = B(d(k), c(n), e(k))              n = first + v w panel + j
                for panel of columns, panel of rows:
                    for i, v: acc[i, v] = 0
                    for k, i, v: acc[i, v] += A_panel[panel, k, i] * B_panel[panel, k, v]
                    for i, j: out[a(m), b(m), c(n)] = acc[i, j] + (part > 0 ? out[a(m), b(m), c(n)] : 0)

    Rows and columns beyond the last are copies of the last there is, and not stored; terms beyond the last are zeros.  So
    any lengths will do.  Each group has one work-item, and its panels are private.

    :raises TransformError: if the match has several rows or is no plain sum, or letters are not as `plan` says.

    BLIS calls the innermost loop its micro-kernel, and the others its five loops; Halide has ``compute_at`` for the panels.
    """
    for letters in plan.joined:
        t_unit, match = join(t_unit, match, letters)
    kernel = t_unit[match.kernel_name]
    _check_contraction(kernel, match, plan)
    draft, insn = KernelDraft(kernel), kernel.id_to_insn[match.insn_ids[0]]
    frame = packed_frame(draft, match, plan, insn.depends_on - set(match.insn_ids))
    rows, columns = (pack(frame, match, side) for side in (0, 1))
    acc, multiplied, tiles = _multiply_tile(frame, rows, columns)
    _store_tile(frame, match, insn, acc, multiplied, tiles)
    kernel = without_race_warnings(draft.finished(match.insn_ids, ()), (insn.id, f"{insn.id}_whole"))
    t_unit = t_unit.with_kernel(kernel)
    if plan.joined:  # which run beyond their last axis into the next row, as loopy cannot tell
        t_unit = lp.set_options(t_unit, enforce_array_accesses_within_bounds="no_check")
    return t_unit


def _multiply_tile(frame: PackedFrame, rows: Panels, columns: Panels) -> tuple[str, str, tuple[str, str]]:
    """Sum a register tile; the array of the sums, what has them, and the loops over panels of rows and of columns."""
    draft, plan = frame.draft, frame.plan
    tile, width = plan.tile, plan.width
    across, down = frame.panel_loop("across", 1), frame.panel_loop("down", 0)
    around = frame.inside | {across, down}
    acc = frame.vectors("acc", (tile.rows, tile.vectors))
    row = frame.vectors("row", (tile.vectors,))
    i, v = draft.unrolled(("clear", "clear"), (tile.rows, tile.vectors))
    lane = frame.lane()
    packed = [rows.packed, columns.packed]
    cleared = draft.assign(
        Variable(acc)[Variable(i), Variable(v), Variable(lane)], 0, around | {i, v, lane}, [*packed, *frame.before]
    )
    term, step = draft.fresh("term"), draft.unrolled(("step",), (plan.unrolled,))[0]
    draft.domain("", [term], f"0 <= {term} < {plan.depth // plan.unrolled}")
    k = Variable(term) * plan.unrolled + Variable(step)
    (v,) = draft.unrolled(("vector",), (tile.vectors,))
    first = (Variable(across) * plan.depth + k) * (tile.vectors * width) + Variable(v) * width

    def load(**how: Any) -> CInstruction:
        return CInstruction(
            (("first", first),),
            f"{row}[{v}] = vload{width}(0, {columns.name} + first);",
            read_variables=frozenset([columns.name]),
            assignees=(Subscript(Variable(row), (Variable(v), 0)),),
            **how,
        )

    loaded = draft.add(load, f"load_{row}", around | {term, step, v}, [*packed, cleared])
    i, v = draft.unrolled(("i", "v"), (tile.rows, tile.vectors))
    lane = frame.lane()
    entry = Variable(acc)[Variable(i), Variable(v), Variable(lane)]
    number = Variable(rows.name)[Variable(down), k, Variable(i)]
    product = entry + number * Variable(row)[Variable(v), Variable(lane)]
    multiplied = draft.assign(entry, product, around | {term, step, i, v, lane}, [cleared, loaded])
    draft.priorities.append(",".join([*frame.order, across, down, term, step, i, v]))
    return acc, multiplied, (down, across)


def _store_tile(frame: PackedFrame, match: Match, insn: Any, acc: str, multiplied: str, panels: tuple[str, str]) -> None:
    """Write the results that there are, or add them to those of the parts of the sum before."""
    draft, plan = frame.draft, frame.plan
    around = frame.inside | set(panels)
    numbers, found = _tile_sums_as_numbers(frame, acc, multiplied, around)
    at = [frame.place(side, Variable(panel)) for side, panel in enumerate(panels)]
    tables = [frame.decoded(side, first, around, [multiplied], clamped=False) for side, first in enumerate(at)]
    for edge in frame.edges(1):
        i, j = draft.unrolled(("i", "j"), plan.tiles)
        draft.priorities.append(",".join([*panels[::-1], i, j]))
        own = dict(zip((0, 1), (i, j), strict=True))
        letters = dict(frame.batch)
        for side, table in enumerate(tables):
            letters |= table.values(Variable(own[side]))
        assignee = substituted(insn.assignee, {match.loops[0][x]: value for x, value in letters.items()})
        value = Variable(numbers)[Variable(i), Variable(j)]
        if frame.part is not None:
            value = value + If(Comparison(frame.part, ">", 0), assignee, 0)
        predicates = [Comparison(at[0] + Variable(i), "<", frame.totals[0])] if frame.may_pass(0) else []
        if frame.may_pass(1):
            whole = Comparison(at[1] + plan.tiles[1], "<=" if not edge else ">", frame.totals[1])
            predicates += [whole, Comparison(at[1] + Variable(j), "<", frame.totals[1])] if edge else [whole]
        decoded = [x for table in tables for x in table.made]
        # What reads results waits for the last instruction that stores any, and so for all.
        name = insn.id if edge is frame.edges(1)[-1] else f"{insn.id}_whole"
        after = [found, *decoded]
        found = draft.assign(assignee, value, around | {i, j}, after, predicates=predicates, alone=True, insn_id=name)


def _tile_sums_as_numbers(frame: PackedFrame, acc: str, after: str, around: frozenset[str]) -> tuple[str, str]:
    """The sums of a tile as numbers, row by row; the array, and what fills it."""
    draft, plan = frame.draft, frame.plan
    numbers = frame.array("sums", plan.tiles)
    i, v = draft.unrolled(("from", "from"), (plan.tile.rows, plan.tile.vectors))
    at = Variable(i) * plan.tile.vectors + Variable(v)

    def spill(**how: Any) -> CInstruction:
        return CInstruction(
            (("at", at),),
            f"vstore{plan.width}({acc}[at], 0, {numbers} + at * {plan.width});",
            read_variables=frozenset([acc]),
            assignees=(Subscript(Variable(numbers), (Variable(i), Variable(v) * plan.width)),),
            **how,
        )

    return numbers, draft.add(spill, f"spill_{acc}", around | {i, v}, [after])


def _check_contraction(kernel: lp.LoopKernel, match: Match, plan: PackedBlocks) -> None:
    """:raises TransformError: if a match is no contraction with the letters of a plan."""
    indexing = match.einsum.indexing
    if len(match.insn_ids) != 1 or match.einsum.n != 2:
        raise TransformError(f"'{indexing}' in {len(match.insn_ids)} rows is not one product of two operands")
    a, b = (indexing.inputs[k] for k in plan.operands)
    wanted = (plan.batch + plan.rows + plan.sums, plan.batch + plan.columns + plan.sums)
    if [*map(sorted, (*wanted, plan.batch + plan.rows + plan.columns))] != [*map(sorted, (a, b, indexing.output))]:
        raise TransformError(f"'{indexing}' is no product of {plan.rows} by {plan.sums} and {plan.sums} by {plan.columns}")
    insn = kernel.id_to_insn[match.insn_ids[0]]
    if insn.predicates:
        raise TransformError(f"instruction '{insn.id}' has a predicate, which parts of a sum cannot have")
    if not isinstance(insn.expression, Reduction):
        raise TransformError(f"instruction '{insn.id}' is no sum")
    if match.einsum.dtypes[0].name not in NAMES:
        raise TransformError(f"vectors have numbers of {' and '.join(NAMES)}, not of {match.einsum.dtypes[0].name}")
