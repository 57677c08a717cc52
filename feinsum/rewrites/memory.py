"""Moves that give an operand memory of its own: private to a work-item, or local to a work-group."""

from __future__ import annotations

from collections.abc import Sequence

import loopy as lp
from loopy.transform.precompute import precompute_for_single_kernel

from feinsum.errors import TransformError
from feinsum.match import Match
from feinsum.rewrites.loops import iname_of

_SPACES = {"private": lp.AddressSpace.PRIVATE, "local": lp.AddressSpace.LOCAL}


def materialize(
    t_unit: lp.TranslationUnit,
    match: Match,
    operand: int,
    sweep: Sequence[str],
    memory: str,
    *,
    outer: Sequence[str] | None = None,
    lanes: int | None = None,
) -> lp.TranslationUnit:
    """Compute the values of an operand over some loops once, keep them, and read them from there.

    Before::

        for j: out[e, i] += D(i, j) * u(e, j)

    After ``operand=1, sweep=["j"]``::

        for j: kept[j] = u(e, j)
        for j: out[e, i] += D(i, j) * kept[j]

    :param operand: which operand of the match; every distinct rule in its column is kept, all copied in one loop nest.
    :param sweep: the loops (index letters or inames) over which values are kept.
    :param memory: ``"private"`` to a work-item, or ``"local"`` to a work-group.
    :param outer: the loops around the copy; None leaves it to loopy.
    :param lanes: how many work-items along axis 0 share the copy into local memory.
    :raises TransformError: if the memory is neither, or loopy refuses.

    ``compute_at`` in Halide, ``cache_read`` in TVM, ``stage_mem`` in Exo, ``precompute`` in loopy.
    """
    if memory not in _SPACES:
        raise TransformError(f"memory is {memory!r}; it is 'private' or 'local'")
    kernel = t_unit[match.kernel_name]
    fresh = kernel.get_var_name_generator()
    copies = [fresh(f"{letter}_copy") for letter in match.einsum.indexing.inputs[operand]]
    over = [iname_of(t_unit, match, loop) for loop in sweep]
    around = None if outer is None else frozenset(iname_of(t_unit, match, loop) for loop in outer)
    for rule in dict.fromkeys(row[operand] for row in match.rules):
        try:
            kernel = precompute_for_single_kernel(
                kernel,
                t_unit.callables_table,
                rule,
                sweep_inames=over,
                precompute_inames=copies,
                precompute_outer_inames=around,
                temporary_address_space=_SPACES[memory],
                default_tag=None,
            )
        except lp.LoopyError as error:
            raise TransformError(f"operand '{rule}' cannot be kept over {list(sweep)}: {error}") from error
    if lanes is not None:
        kernel = _share(kernel, [name for name in copies if name in kernel.all_inames()], lanes)
    return t_unit.with_kernel(kernel)


def _share(kernel: lp.LoopKernel, copies: list[str], lanes: int) -> lp.LoopKernel:
    """Let `lanes` work-items along axis 0 do the iterations of a copy together, the last loop quickest."""
    joined = kernel.get_var_name_generator()("copy")
    kernel = lp.join_inames(kernel, copies, joined) if len(copies) > 1 else lp.rename_iname(kernel, copies[0], joined)
    return lp.split_iname(kernel, joined, lanes, inner_tag="l.0")
