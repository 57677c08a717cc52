"""Moves that give an operand memory of its own: private to a work-item, or local to a work-group."""

from __future__ import annotations

from collections.abc import Sequence

import loopy as lp
from loopy.transform.precompute import precompute_for_single_kernel

from feinsum.errors import TransformError
from feinsum.match import Match

_SPACES = {"private": lp.AddressSpace.PRIVATE, "local": lp.AddressSpace.LOCAL}


def materialize(
    t_unit: lp.TranslationUnit,
    match: Match,
    operand: int,
    sweep: Sequence[str],
    memory: str = "private",
    axes: Sequence[str | None] | None = None,
    outer: frozenset[str] | None = None,
) -> lp.TranslationUnit:
    """Compute the values of an operand over some loops once, keep them, and read them from there.

    Before::

        for j: out[e, i] += D(i, j) * u(e, j)

    After ``operand=1, sweep=["j"]``::

        for j: u_fetch[j] = u(e, j)
        for j: out[e, i] += D(i, j) * u_fetch[j]

    :param operand: which operand of the match; every distinct rule in its column is materialised.
    :param sweep: the inames over which values are kept.
    :param memory: ``"private"`` or ``"local"``.
    :param axes: a tag of loopy for each axis of the copy loop: ``"l.0"`` shares it among the work-items of a group.
    :param outer: the inames around the copy; None lets loopy choose.
    :raises TransformError: if the memory is neither, or loopy refuses.

    ``compute_at`` in Halide, ``cache_read`` in TVM, ``stage_mem`` in Exo, ``precompute`` in loopy.
    """
    if memory not in _SPACES:
        raise TransformError(f"memory is {memory!r}; it is 'private' or 'local'")
    for rule in dict.fromkeys(row[operand] for row in match.rules):
        kernel = t_unit[match.kernel_name]
        try:
            kernel = precompute_for_single_kernel(
                kernel,
                t_unit.callables_table,
                rule,
                sweep_inames=list(sweep),
                temporary_address_space=_SPACES[memory],
                precompute_outer_inames=outer,
                default_tag=None,
            )
        except lp.LoopyError as error:
            raise TransformError(f"operand '{rule}' cannot be kept over {list(sweep)}: {error}") from error
        t_unit = t_unit.with_kernel(kernel)
    return t_unit
