"""Moves that divide loops and lay them on the axes of the device."""

from __future__ import annotations

import loopy as lp

from feinsum.errors import TransformError
from feinsum.match import Match


def divide(
    t_unit: lp.TranslationUnit,
    match: Match,
    index: str,
    length: int,
    outer: str | None = None,
    inner: str | None = None,
) -> lp.TranslationUnit:
    """Divide the loop of an index into tiles; a tile that sticks out is guarded.

    Before::

        for i in range(n): S(i)

    After, with inames ``i_outer`` and ``i_inner``::

        for i_outer in range(ceil(n / length)):
            for i_inner in range(length):
                if i_outer * length + i_inner < n: S(...)

    :param index: a letter of the match.
    :param length: iterations of a tile.
    :param outer: a tag of loopy for the loop over tiles, say ``"g.0"``.
    :param inner: a tag for the loop inside a tile, say ``"l.0"``.
    :raises TransformError: if the match has no such index or `length` is not positive.

    ``split`` in Halide and TVM, ``divide_loop`` in Exo.
    """
    if length < 1:
        raise TransformError(f"a tile of index '{index}' has {length} iterations; it needs at least one")
    iname = iname_of(match, index)
    kernel = t_unit[match.kernel_name]
    kernel = lp.split_iname(
        kernel, iname, length, outer_iname=f"{iname}_outer", inner_iname=f"{iname}_inner", outer_tag=outer, inner_tag=inner
    )
    return t_unit.with_kernel(kernel)


def place(t_unit: lp.TranslationUnit, match: Match, index: str, tag: str) -> lp.TranslationUnit:
    """Run the iterations of an index in parallel along an axis of the device, or unroll them.

    Before::

        for i in range(n): S(i)

    After, with ``"g.1"``: ``S(get_group_id(1))`` in n groups; with ``"unr"``: ``S(0); S(1); ...``.

    :param tag: a tag of loopy.
    :raises TransformError: if the match has no such index.

    ``parallel``, ``gpu_blocks`` and ``unroll`` in Halide, ``bind`` in TVM.
    """
    kernel = lp.tag_inames(t_unit[match.kernel_name], {iname_of(match, index): tag})
    return t_unit.with_kernel(kernel)


def iname_of(match: Match, index: str) -> str:
    """The iname of an index of the match.

    :raises TransformError: if it has no such index.
    """
    if index not in match.inames:
        raise TransformError(f"'{match.einsum.subscripts}' has no index '{index}'")
    return match.inames[index]
