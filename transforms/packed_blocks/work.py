"""The work of a plan of packed blocks: products in whole tiles, and copies, during which nothing is multiplied.

For each term, a tile of r rows by v vectors takes r v products of vectors and r + v loads.  A block of m rows by n columns
copies (m + n) numbers for each term, of which one takes so many cycles::

    t_copy = 1.3

a number for a load, a store, and its place; measured on two cores of a Zen 5, 2026-11-22, by the time of the processor.
Results of a part of the sum are stored, and loaded again for the next one.
"""

from __future__ import annotations

from feinsum.cost import Work
from feinsum.space import Configuration, Problem

from .plans import packed_plan, product_of

COPY_CYCLES = 1.3
"""See above."""
_RESULT_CYCLES = 2.0
"""The cycles for a result that is stored."""
_FLOPS_PER_CYCLE = 4
"""The operations of a lane: two multiply-adds."""
_ALLOCATION = 1.5
"""Traffic of results that are stored through the caches, which read their lines first, for that of others past them."""


def packed_work(p: Problem, c: Configuration) -> Work:
    """The work of a configuration of :mod:`feinsum.transforms.packed_blocks.contractions`.

    :raises TransformError: if it has no plan.
    """
    plan, own = packed_plan(p, c), product_of(p)
    rows, columns, batch, terms = (own.count(x) for x in ("rows", "columns", "batch", "sums"))
    parts = -(-terms // plan.depth)
    blocks = tuple(-(-n // length) for n, length in zip((rows, columns), plan.block, strict=True))
    down, across = (-(-n // tile) * tile for n, tile in zip((rows, columns), plan.tiles, strict=True))
    points = batch * down * across * parts * plan.depth
    copied = batch * parts * plan.depth * (down * blocks[1] + across * blocks[0])
    results = batch * rows * columns * parts
    idle = COPY_CYCLES * copied + _RESULT_CYCLES * results
    e = p.einsum
    stored = e.b * p.count(e.indexing.output) * p.itemsize
    return Work(
        flops=e.b * (2 * points + _FLOPS_PER_CYCLE * plan.width * idle),
        bytes=p.least_bytes + (_ALLOCATION - 1) * stored,
        loads=e.b * points / plan.width * (1 / plan.tile.rows + 1 / plan.tile.vectors) * plan.width * p.itemsize,
        groups=e.b * batch * blocks[0] * blocks[1],
        lanes=plan.width,
        sums=plan.tile.rows * plan.tile.vectors,
    )
