"""Launches that copy complex numbers as rows of two reals or as matrices of four, and back; loops and C of these copies.

C of a copy to matrices treats a vector of numbers at once: their parts as they are, and turned by a right angle, -b for a
and a for b.  Without it, compilers for CPUs scatter the stores of neighbouring work-items, which takes ten times as long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import loopy as lp

ITEMS = 64
"""Work-items of a group that copies numbers one by one; this and the next two were chosen by hand."""
ROW = 64
"""Vectors that a group copies along a row."""
GROUPS = 64
"""Groups of a copy from which on no more of its loops are spread over groups."""


@dataclass(frozen=True)
class PartsCopy:
    """The loops of one launch that copies.

    :ivar loops: with the lengths expected, from the outside in, as they stand in what is written.
    :ivar vectors: whether an iteration of the last one copies a vector, by a work-item alone.
    :ivar along: whether the last one runs along a row of what is read, too.
    """

    loops: Mapping[str, int]
    vectors: bool
    along: bool


def on_groups(kernel: lp.LoopKernel, copy: PartsCopy) -> lp.LoopKernel:
    """Spread the loops of a copy: the last one first, then the longest over groups until there are enough of them.

    A group goes on along the rows that it reads and writes, or else across those that it writes.
    """
    if not copy.loops:
        return kernel
    *others, lane = copy.loops
    length = copy.loops[lane]
    if copy.vectors:
        together, inner = ROW if copy.along else 1, None
    else:
        together, inner = min(ITEMS, 1 << (max(1, length) - 1).bit_length()), "l.0"
    within = f"{lane}_within"
    kernel = lp.split_iname(kernel, lane, together, inner_iname=within, outer_tag="g.0", inner_tag=inner)
    groups, tags = -(-length // together), {}
    for axis, loop in enumerate(sorted(others, key=lambda loop: -copy.loops[loop])[:2], start=1):
        if groups < GROUPS:
            tags[loop] = f"g.{axis}"
            groups *= copy.loops[loop]
    order = [loop for loop in others if loop not in tags]
    kernel = lp.prioritize_loops(kernel, (*order, within) if copy.vectors else order)
    return lp.tag_inames(kernel, tags)


def matrix_code(scalar: str, width: int, rows: str, matrices: str, *, in_row: bool) -> str:
    """C that writes a vector of `width` numbers, or ``room`` if fewer are left, as matrices.

    Number l is read from `rows` at ``first + l * step``, and its matrix written to `matrices` from ``to + 2 * l`` on, the
    second row ``below`` the first one.

    :param in_row: whether ``step`` is 2.
    """
    size = 2 * width
    vector = f"{scalar}{size}"
    numbers = ", ".join(f"{rows}[first + {n} * step], {rows}[first + {n} * step + 1]" for n in range(width))
    whole = f"vload{size}(0, {rows} + first)" if in_row else f"({vector}) ({numbers})"
    return "\n".join(
        (
            f"if (room >= {width}) {{",
            f"  {vector} const number = {whole};",
            f"  vstore{size}(number, 0, {matrices} + to);",
            f"  vstore{size}(({vector}) ({_parts_times_i(size)}), 0, {matrices} + to + below);",
            "} else for (int l = 0; l < (int) room; ++l) {",
            f"  {scalar} const re = {rows}[first + l * step], im = {rows}[first + l * step + 1];",
            f"  {matrices}[to + 2 * l] = re; {matrices}[to + 2 * l + 1] = im;",
            f"  {matrices}[to + below + 2 * l] = -im; {matrices}[to + below + 2 * l + 1] = re;",
            "}",
        )
    )


def _parts_times_i(size: int) -> str:
    """The parts of numbers times i: ``-number.s1, number.s0, -number.s3, ...``."""
    digits: Sequence[str] = "0123456789abcdef"
    return ", ".join(f"-number.s{digits[k + 1]}, number.s{digits[k]}" for k in range(0, size, 2))
