"""Moves that divide loops and lay them on the axes of the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import loopy as lp

from feinsum.errors import TransformError
from feinsum.match import Match


def divide(
    t_unit: lp.TranslationUnit, match: Match, loop: str, lengths: Sequence[int], *, peel: bool = True
) -> tuple[lp.TranslationUnit, tuple[str, ...]]:
    """Divide a loop into a nest, of which `lengths` are the inner loops.

    Before::

        for i in range(n): S(i)

    After ``lengths=(4, 16)``::

        for i0 in range(ceil(n / 64)):
            for i1 in range(4):
                for i2 in range(16):
                    if (i0 * 4 + i1) * 16 + i2 < n: S((i0 * 4 + i1) * 16 + i2)

    Where the division leaves a remainder, `peel` gives the last iteration of ``i0`` code of its own, so that the others
    need no guard.

    :param loop: an index letter of the match, or an iname.
    :returns: the kernel and the inames of the nest, from the outside in.
    :raises TransformError: if there is no such loop, or a length is not positive.

    ``split`` in Halide and TVM, ``divide_loop`` in Exo.
    """
    iname = iname_of(t_unit, match, loop)
    if any(length < 1 for length in lengths):
        raise TransformError(f"loop '{loop}' divided into {tuple(lengths)}; lengths are positive")
    kernel = t_unit[match.kernel_name]
    fresh = kernel.get_var_name_generator()
    inner: list[str] = []
    for level, length in reversed(list(enumerate(lengths, 1))):
        outer_iname = fresh(f"{iname_of(t_unit, match, loop)}0")
        inner.insert(0, fresh(f"{iname_of(t_unit, match, loop)}{level}"))
        slabs = (0, 1) if peel and _leaves_remainder(kernel, iname, length) else (0, 0)
        kernel = lp.split_iname(kernel, iname, length, outer_iname=outer_iname, inner_iname=inner[0], slabs=slabs)
        iname = outer_iname
    return t_unit.with_kernel(kernel), (iname, *inner)


def _leaves_remainder(kernel: lp.LoopKernel, iname: str, length: int) -> bool:
    size = lp.symbolic.pw_aff_to_expr(kernel.get_iname_bounds(iname).size)
    return not isinstance(size, int) or size % length != 0


def place(t_unit: lp.TranslationUnit, match: Match, tags: Mapping[str, str]) -> lp.TranslationUnit:
    """Run loops in parallel along axes of the device, or unroll them.

    Before::

        for i in range(n): S(i)

    After ``{"i": "g.1"}``: ``S(get_group_id(1))`` in n groups; after ``{"i": "unr"}``: ``S(0); S(1); ...``

    :param tags: iname or index letter -> tag of loopy.
    :raises TransformError: if there is no such loop.

    ``parallel``, ``gpu_blocks``, ``unroll`` in Halide, ``bind`` in TVM.
    """
    inames = {iname_of(t_unit, match, loop): tag for loop, tag in tags.items()}
    return t_unit.with_kernel(lp.tag_inames(t_unit[match.kernel_name], inames))


def iname_of(t_unit: lp.TranslationUnit, match: Match, loop: str) -> str:
    """The iname that `loop` means: an index letter of the match, or an iname of the kernel.

    :raises TransformError: if it is neither.
    """
    if loop in match.inames and match.inames[loop] in t_unit[match.kernel_name].all_inames():
        return match.inames[loop]
    if loop in t_unit[match.kernel_name].all_inames():
        return loop
    raise TransformError(f"'{loop}' is no loop of kernel '{match.kernel_name}'")
