"""Moves that keep a tile of results in registers while the sum runs around it."""

from __future__ import annotations

from collections.abc import Sequence

import loopy as lp
from loopy.symbolic import Reduction, pw_aff_to_expr
from pymbolic.primitives import Subscript, Sum, Variable

from feinsum.errors import TransformError
from feinsum.match import Match
from feinsum.rewrites.loops import iname_of


def register_tile(t_unit: lp.TranslationUnit, match: Match, tile: Sequence[str]) -> lp.TranslationUnit:
    """Turn the sum inside out: its loops go around a tile of results, each with an accumulator of its own.

    Before::

        for ir, jc: out[ir, jc] = sum(k, A(ir, k) * B(k, jc))

    After ``tile=("ir", "jc")``, the loops of the tile unrolled::

        for ir, jc: acc[ir, jc] = 0
        for k:
            for ir, jc: acc[ir, jc] += A(ir, k) * B(k, jc)
        for ir, jc: out[ir, jc] = acc[ir, jc]

    :param tile: loops of fixed length around the instructions of the match.
    :raises TransformError: if an instruction has no sum, or a loop of the tile no fixed length.

    ``unroll_and_jam``; ``reorder`` and ``unroll`` with ``compute_at`` in Halide.
    """
    kernel = t_unit[match.kernel_name]
    inames = [iname_of(t_unit, match, loop) for loop in tile]
    lengths = []
    for iname in inames:
        length = pw_aff_to_expr(kernel.get_iname_bounds(iname, constants_only=True).size)
        if not isinstance(length, int):
            raise TransformError(f"loop '{iname}' has no fixed length, so it cannot be part of a register tile")
        lengths.append(length)
    for row, insn_id in enumerate(match.insn_ids):
        kernel = _tile_row(kernel, insn_id, inames, lengths, match.einsum.dtypes[row])
    return t_unit.with_kernel(kernel)


def _tile_row(kernel: lp.LoopKernel, insn_id: str, inames: list[str], lengths: list[int], dtype: object) -> lp.LoopKernel:
    insn = kernel.id_to_insn[insn_id]
    if not isinstance(insn.expression, Reduction):
        raise TransformError(f"instruction '{insn_id}' has no sum, so there is nothing to accumulate")
    fresh = kernel.get_var_name_generator()
    accumulator = lp.TemporaryVariable(
        fresh("acc"), dtype=dtype, shape=tuple(lengths), address_space=lp.AddressSpace.PRIVATE
    )
    entry = Subscript(Variable(accumulator.name), tuple(map(Variable, inames)))
    init = insn.copy(id=fresh(f"{insn_id}_init"), assignee=entry, expression=0)
    update = insn.copy(
        id=fresh(f"{insn_id}_update"),
        assignee=entry,
        expression=Sum((entry, insn.expression.expr)),
        within_inames=insn.within_inames | set(insn.expression.inames),
        depends_on=insn.depends_on | {init.id},
    )
    store = insn.copy(expression=entry, depends_on=insn.depends_on | {update.id})
    kernel = kernel.copy(
        instructions=[x for x in kernel.instructions if x.id != insn_id] + [init, update, store],
        temporary_variables={**kernel.temporary_variables, accumulator.name: accumulator},
    )
    for phase in (init, store):
        copies = [fresh(iname) for iname in inames]
        kernel = lp.duplicate_inames(kernel, inames, within=f"id:{phase.id}", new_inames=copies)
        kernel = lp.tag_inames(kernel, dict.fromkeys(copies, "unr"))
    return lp.tag_inames(kernel, dict.fromkeys(inames, "unr"))
