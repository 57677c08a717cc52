"""Contractions of two operands in blocks: ``D[b, m, n] = Σ_k A[b, m, k] B[b, k, n]``, every index fused from letters.

A work-group takes a block of m by n.  Tiles of A and B, as deep as fits, pass through local memory; while one is
multiplied the next is on its way into registers.  After V. Volkov and J. Demmel, "Benchmarking GPUs to tune dense linear
algebra", SC 2008; on tensors without transposing them first, as J. Kim et al., "A code generator for high-performance
tensor contractions on GPUs", CGO 2019.
"""

from __future__ import annotations

from collections.abc import Mapping

import loopy as lp
from loopy.symbolic import Reduction
from pymbolic.primitives import Variable

from feinsum.errors import TransformError
from feinsum.match import Match
from feinsum.rewrites import contract_in_steps, finish, join, split_index
from feinsum.rewrites.finishing import others_than
from feinsum.rewrites.loops import without_race_warnings
from feinsum.skeletons.block_tiles.frame import block_frame
from feinsum.skeletons.block_tiles.operand_tiles import StagedOperand
from feinsum.skeletons.block_tiles.pipeline import TileProducts
from feinsum.skeletons.block_tiles.plan import BlockTiles
from feinsum.skeletons.block_tiles.preparation import prepared, write_entry_by_entry
from feinsum.skeletons.block_tiles.results import BlockResults
from feinsum.skeletons.common.draft import KernelDraft
from feinsum.skeletons.instructions.async_copies import register_async_copies
from feinsum.skeletons.instructions.matrix_units import register_matrix_unit


def write(t_unit: lp.TranslationUnit, match: Match, plan: BlockTiles, sizes: Mapping[str, int]) -> lp.TranslationUnit:
    """Compute a contraction of two operands as a product of matrices, block by block.

    Before, for ``plan.rows="ab"``, ``columns="c"``, ``sums="de"``::

        for a, b, c: out[a, b, c] = sum([d, e], A(e, b, d, a) * B(d, c, e))

    After, with a(m), b(m), d(k), e(k) the letters of fused indices, x = lane + 32 sub-group, r unrolled, and m, k of an
    element that a work-item loads going through the tile with x, the faster first along A's own memory::

        for group of rows, group of columns:
            next_A[r] = A(e(k), b(m), d(k), a(m)); next_B[r] = ...                  of tile 0
            for tile:
                tile_A[tile % 2, k % depth, m] = next_A[r]; tile_B[...] = next_B[r]
                lbarrier
                next_A[r] = A(...); next_B[r] = ...                                 of tile + 1, if there is one
                for step: D[fragments] += tile_A[tile % 2, ...] * tile_B[tile % 2, ...]
            out[a(m), b(m), c(n)] = D[...]                                           if there is such

    Rows, columns and items of the batch beyond the last are loaded from the last there is, and not stored; beyond the
    last summed index there are zeros.  So any lengths will do.  Operands that are packed are copied by launches before,
    and parts of a sum are added up by one behind.

    :param sizes: the length of every index, long ones at the lengths expected, for these other launches.
    :raises TransformError: if the match has several rows, or letters are not as `plan` says; if the tiles of a sum are not
        a whole number of steps of the unit.

    ``blockize`` and ``tensorize`` in TVM; a threadblock tile with a two-stage pipeline, and split-k, in CUTLASS.
    """
    around = prepared(match.einsum.indexing, sizes, plan.split, plan.packing)
    if plan.split.letter:
        t_unit, match, _ = split_index(t_unit, match, plan.split.letter, plan.split.length)
    t_unit, steps = contract_in_steps(t_unit, match, around.schedule)
    for number, step in enumerate(steps):
        if number == around.number:
            for letters in plan.joined:
                t_unit, step = join(t_unit, step, letters)
            t_unit = _write_product(t_unit, step, plan)
        else:
            t_unit = write_entry_by_entry(t_unit, step, around.sizes)
    return t_unit


def _write_product(t_unit: lp.TranslationUnit, match: Match, plan: BlockTiles) -> lp.TranslationUnit:
    """The contraction by itself, in one launch."""
    kernel = t_unit[match.kernel_name]
    _check_plan(kernel, match, plan)
    draft, insn, others = KernelDraft(kernel), kernel.id_to_insn[match.insn_ids[0]], others_than(t_unit, match)
    frame = block_frame(draft, match, plan, insn.depends_on - set(match.insn_ids))
    operands = [
        StagedOperand.staged(frame, side, match.rules[0][k], match.einsum.indexing.inputs[k])
        for side, k in enumerate(plan.operands)
    ]
    shape = (*plan.block_tile.warp_tile, plan.fragments.registers[2])
    results = Variable(frame.fragments("acc", shape))
    zero = draft.unrolled(("zero",) * 3, shape)
    cleared = draft.assign(results[tuple(map(Variable, zero))], 0.0, {*frame.around, *zero}, frame.before)
    multiplied = TileProducts(frame, operands, results, cleared).multiply()
    present = BlockResults(frame, match, insn, results).store(multiplied)
    # Where results go is decoded into private numbers, by which loopy cannot tell that no two places are the same.
    t_unit = t_unit.with_kernel(without_race_warnings(draft.finished(match.insn_ids, ()), (insn.id,)))
    # The match knows where functions of sums read arrays, once indices of the output are joined.
    t_unit = finish(t_unit, match, others, {} if present is None else {insn.assignee_name: present})
    if plan.pipeline.asynchronous:
        t_unit = register_async_copies(t_unit, plan.copies, frame.dtype)
    return register_matrix_unit(t_unit, plan.fragments.unit) if plan.fragments.unit else t_unit


def _check_plan(kernel: lp.LoopKernel, match: Match, plan: BlockTiles) -> None:
    """:raises TransformError: if a match is no contraction with the letters of a plan."""
    indexing = match.einsum.indexing
    if len(match.insn_ids) != 1 or match.einsum.n != 2:
        raise TransformError(f"'{indexing}' in {len(match.insn_ids)} rows is not one product of two operands")
    a, b = (indexing.inputs[k] for k in plan.operands)
    wanted = (plan.batch + plan.rows + plan.sums, plan.batch + plan.columns + plan.sums)
    results = plan.batch + plan.rows + plan.columns
    if [*map(sorted, (*wanted, results))] != [*map(sorted, (a, b, indexing.output))]:
        raise TransformError(f"'{indexing}' is no product of {plan.rows} by {plan.sums} and {plan.sums} by {plan.columns}")
    insn = kernel.id_to_insn[match.insn_ids[0]]
    if insn.predicates:
        raise TransformError(f"instruction '{insn.id}' has a predicate, which the barriers of a group cannot have")
    if not isinstance(insn.expression, Reduction):
        raise TransformError(f"instruction '{insn.id}' is no sum")
    if plan.depth % plan.fragments.depth:
        raise TransformError(f"tiles of depth {plan.depth} are no whole steps of {plan.fragments.depth} of '{plan.unit}'")
