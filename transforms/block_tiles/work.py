"""What a contraction in blocks does: products in whole blocks, and the traffic of tiles, fragments and results.

With blocks of m rows by n columns, sub-groups of m' by n' within them, and K terms, each block takes::

    2 m n K                       operations
    (m + n) K                     numbers of tiles, from memory or the cache that all share
    m n K (1 / m' + 1 / n') / 2   numbers of fragments, from local memory in half the time
    5 m n                         results, each store in the time of five loads

Tiles and results move in sectors of 32 bytes, so what lies side by side in shorter runs counts for more.  Numbers that are
split for a matrix unit are split as fragments are loaded, which takes six times as long.  These five constants were
fitted to 610 times of ten contractions, measured on an H200: half of the estimates are within a factor of 1.14.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from math import prod

from feinsum.cost import Work, in_turn
from feinsum.devices.ptx import SUB_GROUP
from feinsum.skeletons.block_tiles.blocks import Blocks
from feinsum.skeletons.block_tiles.index_groups import Digit, IndexGroup
from feinsum.space import Configuration, Problem

from .limits import OTHER_REGISTERS, private_bytes
from .products import SECTOR_BYTES, Product, product
from .steps import joined, plain_work, prepared

_STORE = 5.0
"""Loads in the time of a store."""
_FRAGMENT = 0.5
"""Loads in the time of one from local memory."""
_SPLIT = 6.0
"""Times as long where what is loaded is split."""
_NEIGHBOURS = {True: (8, 4), False: (SUB_GROUP, 1)}
"""Rows and columns that the lanes of a sub-group store at a time, from a matrix unit or not."""


def contraction(p: Problem, c: Configuration) -> Product:
    """The contraction of a configuration by itself, without what comes before and after it."""
    own = prepared(p, c["split"], c["packed"]).problem
    return product(joined(own) if c["joined"] else own, c["rows"])


def block_work(p: Problem, c: Configuration) -> Work:
    """The work of a configuration of ``block_contraction``, with its copies and its sums of parts."""
    whole = prepared(p, c["split"], c["packed"])
    works = []
    for number, step in enumerate(whole.schedule.steps):
        if number == whole.step:
            own = contraction(p, c)
            works.append(product_work(own, own.plan(c)))
        else:
            works.append(plain_work(step.indexing, whole.problem.sizes, p.itemsize))
    return in_turn(works * p.einsum.b)


def product_work(own: Product, plan: Blocks) -> Work:
    """The work of the contraction alone."""
    p, (rows, columns), items = own.problem, plan.shape, plan.sub_groups[0]
    groups = {x: IndexGroup(getattr(plan, x), p.sizes, plan.parts) for x in ("rows", "columns", "batch", "sums")}
    counts = {x: prod(digit.count for digit in group.digits) for x, group in groups.items()}
    blocks = -(-counts["rows"] // rows) * -(-counts["columns"] // columns) * -(-counts["batch"] // items)
    points, terms = blocks * items * rows * columns, counts["sums"]
    unit, (a, b, _) = plan.fragments.unit, plan.fragments.registers
    # Of a sub-group, for each step of the unit.
    fragments = SUB_GROUP * (plan.tiles[0] * a + plan.tiles[1] * b)
    steps = points * terms // (prod(plan.tiles) * plan.fragments.rows * plan.fragments.columns * plan.fragments.depth)
    split = _SPLIT if unit is not None and unit.dtype == "float" else 1.0
    tiles = sum(points * terms / (rows, columns)[1 - side] * _sectors(own, plan, groups, side) for side in (0, 1))
    results = prod(counts[x] for x in ("rows", "columns", "batch")) * _sectors_of_results(own, plan, groups)
    return Work(
        flops=2 * points * terms,
        bytes=p.einsum.min_bytes(p.lengths),
        loads=p.itemsize * (tiles + _FRAGMENT * split * steps * fragments + _STORE * results),
        groups=blocks,
        items=plan.work_items,
        registers_bytes=private_bytes(own, plan) + 4 * OTHER_REGISTERS,
        local_bytes=plan.local_bytes(p.itemsize),
        matrix=unit is not None,
    )


def _sectors(own: Product, plan: Blocks, groups: Mapping[str, IndexGroup], side: int) -> float:
    """How much of an operand is loaded for each number of its tiles."""
    letters = own.problem.einsum.indexing.inputs[plan.operands[side]]
    if not plan.along_sums[side]:
        return _waste(own, letters, groups[("rows", "columns")[side]].digits, plan.shape[side])
    single = all(digit.count == 1 for digit in groups["sums"].outer)
    return _waste(own, letters, groups["sums"].digits if single else groups["sums"].inner, plan.depth)


def _sectors_of_results(own: Product, plan: Blocks, groups: Mapping[str, IndexGroup]) -> float:
    """How much is stored for each result."""
    together = zip(("rows", "columns"), _NEIGHBOURS[plan.fragments.unit is not None], strict=True)
    return min(_waste(own, own.problem.einsum.indexing.output, groups[x].digits, most) for x, most in together)


def _waste(own: Product, letters: str, digits: Sequence[Digit], most: int) -> float:
    """Whole sectors for what lies side by side, over that."""
    run = own.problem.itemsize * side_by_side(letters, own.problem.sizes, digits, most)
    return math.ceil(run / SECTOR_BYTES) * SECTOR_BYTES / run


def side_by_side(letters: str, sizes: Mapping[str, int], digits: Sequence[Digit], most: int) -> int:
    """How many of the first numbers of a fused index are neighbours in an array, up to `most`.

    :param letters: the axes of the array, the quickest last.
    :param digits: of the fused index, the quickest first.
    """
    strides = {x: prod(sizes[y] for y in letters[k + 1 :]) for k, x in enumerate(letters)}
    run = 1
    for digit in digits:
        if digit.count > 1:
            if strides.get(digit.letter, 0) * digit.weight != run or run >= most:
                break
            run *= digit.count
    return min(run, most)
