"""Moves that rearrange a sum: its loops around a tile of accumulators, or its terms written out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import loopy as lp
from loopy.symbolic import Reduction, SubstitutionMapper
from pymbolic.mapper.substitutor import make_subst_func
from pymbolic.primitives import Subscript, Sum, Variable

from feinsum.errors import TransformError
from feinsum.match import Match
from feinsum.rewrites.loops import fixed_length, iname_of

UNROLL = "unr_hint"
"""Tiles are unrolled by the OpenCL compiler: as fast as code that loopy unrolls, and a third of the time to generate."""


def register_tile(
    t_unit: lp.TranslationUnit,
    match: Match,
    tile: Sequence[str],
    insn_ids: Sequence[str] | None = None,
    *,
    in_place: bool = True,
) -> lp.TranslationUnit:
    """Turn a sum inside out: its loops go around a tile of results, each with an accumulator of its own.

    Before::

        for ir, jc: out[ir, jc] = sum(k, A(ir, k) * B(k, jc))

    After ``tile=("ir", "jc")``, the loops of the tile unrolled::

        for ir, jc: acc[ir, jc] = 0
        for k:
            for ir, jc: acc[ir, jc] = acc[ir, jc] + A(ir, k) * B(k, jc)
        for ir, jc: out[ir, jc] = acc[ir, jc]

    :param tile: loops of fixed length around the instructions.
    :param insn_ids: the instructions; by default those of the match.
    :param in_place: whether a result in private memory is its own accumulator.
    :raises TransformError: if an instruction has no sum, or a loop of the tile no fixed length.

    ``reorder`` and ``unroll`` with ``compute_at`` in Halide; unroll-and-jam.
    """
    kernel = t_unit[match.kernel_name]
    inames = [iname_of(t_unit, match, loop) for loop in tile]
    lengths = [fixed_length(kernel, iname) for iname in inames]
    dtypes = dict(zip(match.insn_ids, match.einsum.dtypes, strict=True))
    for insn_id in insn_ids if insn_ids is not None else match.insn_ids:
        insn = kernel.id_to_insn[insn_id]
        if not isinstance(insn.expression, Reduction):
            raise TransformError(f"instruction '{insn_id}' has no sum, so there is nothing to accumulate")
        kept = kernel.temporary_variables.get(insn.assignee_name)
        if kept is not None and in_place:
            kernel = _accumulate_in_place(kernel, insn, inames)
        else:
            kernel = _accumulate_apart(kernel, insn, inames, lengths, dtypes[insn_id] if kept is None else kept.dtype)
    return t_unit.with_kernel(kernel)


def expand_sum(
    t_unit: lp.TranslationUnit, match: Match, loops: Sequence[str], insn_ids: Sequence[str] | None = None
) -> lp.TranslationUnit:
    """Write out the terms of a sum over short loops.

    Before::

        out[x] = sum(r, J(x, r) * t[r])

    After ``loops=("r",)``, for r in 0..2::

        out[x] = J(x, 0) * t[0] + J(x, 1) * t[1] + J(x, 2) * t[2]

    :param insn_ids: the instructions; by default those of the match.
    :raises TransformError: if a loop is not summed over or has no fixed length.

    ``unroll`` of a reduction in Halide.
    """
    kernel = t_unit[match.kernel_name]
    inames = [iname_of(t_unit, match, loop) for loop in loops]
    lengths = [fixed_length(kernel, iname) for iname in inames]
    changed = {}
    for insn_id in insn_ids if insn_ids is not None else match.insn_ids:
        insn = kernel.id_to_insn[insn_id]
        if not isinstance(insn.expression, Reduction) or not set(inames) <= set(insn.expression.inames):
            raise TransformError(f"instruction '{insn_id}' does not sum over {inames}")
        terms = tuple(
            SubstitutionMapper(make_subst_func(dict(zip(inames, at, strict=True))))(insn.expression.expr)
            for at in product(*map(range, lengths))
        )
        rest = tuple(iname for iname in insn.expression.inames if iname not in inames)
        value: Any = terms[0] if len(terms) == 1 else Sum(terms)
        changed[insn_id] = insn.copy(expression=Reduction(insn.expression.operation, rest, value) if rest else value)
    kernel = kernel.copy(instructions=[changed.get(insn.id, insn) for insn in kernel.instructions])
    return t_unit.with_kernel(kernel)


def _accumulate_in_place(kernel: lp.LoopKernel, insn: Any, inames: list[str]) -> lp.LoopKernel:
    init = insn.copy(id=kernel.get_instruction_id_generator()(f"{insn.id}_init"), expression=0)
    update = insn.copy(
        expression=Sum((insn.assignee, insn.expression.expr)),
        within_inames=insn.within_inames | set(insn.expression.inames),
        depends_on=insn.depends_on | {init.id},
    )
    return _replace_sum(kernel, insn, (init, update), (init,), inames)


def _accumulate_apart(
    kernel: lp.LoopKernel, insn: Any, inames: list[str], lengths: list[int], dtype: object
) -> lp.LoopKernel:
    accumulator = lp.TemporaryVariable(
        kernel.get_var_name_generator()("acc"),
        dtype=dtype,
        shape=tuple(lengths),
        address_space=lp.AddressSpace.PRIVATE,
    )
    kernel = kernel.copy(temporary_variables={**kernel.temporary_variables, accumulator.name: accumulator})
    name = kernel.get_instruction_id_generator()
    entry = Subscript(Variable(accumulator.name), tuple(map(Variable, inames)))
    init = insn.copy(id=name(f"{insn.id}_init"), assignee=entry, expression=0)
    update = insn.copy(
        id=name(f"{insn.id}_update"),
        assignee=entry,
        expression=Sum((entry, insn.expression.expr)),
        within_inames=insn.within_inames | set(insn.expression.inames),
        depends_on=insn.depends_on | {init.id},
    )
    store = insn.copy(expression=entry, depends_on=insn.depends_on | {update.id})
    return _replace_sum(kernel, insn, (init, update, store), (init, store), inames)


def _replace_sum(
    kernel: lp.LoopKernel, old: Any, new: tuple[Any, ...], apart: tuple[Any, ...], inames: list[str]
) -> lp.LoopKernel:
    """Put `new` in the place of `old`; those `apart` get copies of the tile's loops, and all of them are unrolled."""
    kernel = kernel.copy(instructions=[insn for insn in kernel.instructions if insn.id != old.id] + list(new))
    for insn in apart:
        fresh = kernel.get_var_name_generator()
        copies = [fresh(iname) for iname in inames]
        kernel = lp.duplicate_inames(kernel, inames, within=f"id:{insn.id}", new_inames=copies)
        kernel = lp.tag_inames(kernel, dict.fromkeys(copies, UNROLL))
    return lp.tag_inames(kernel, dict.fromkeys(inames, UNROLL))
