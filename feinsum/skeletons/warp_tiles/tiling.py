"""How a matrix product is dealt to sub-groups: tiles of 16 rows, blocks of 8 columns, steps of 4 along the sum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from feinsum.devices.ptx import SUB_GROUP, MatrixUnit
from feinsum.errors import TransformError
from feinsum.skeletons.nvidia.matrix_units import COLUMNS, DEPTH, ROWS, fragment_dtype, fragment_unit


@dataclass(frozen=True)
class Tiling:
    """How tiles of 16 rows are dealt, and what is kept where.

    :ivar unit: the matrix unit, e.g. ``"fp64-mma-m16n8k4"``; float32 may be multiplied by units for float64 too.
    :ivar sub_groups: sub-groups of a work-group.
    :ivar groups: work-groups that stay for the whole kernel and stride over the tiles; 0 for as many as there are
        tiles for.
    :ivar tiles: tiles of a sub-group where `groups` is 0.
    :ivar parts: work-groups that share the columns of a tile, for a B too large for local memory.
    :ivar staged: whether results pass through local memory, so that they leave in whole rows.
    :ivar prefetch: what is loaded for the next product before one, into registers of its own: "none"; "values", which are
        A; or "all", also what is held, although it is not needed before the first results are there; or into local
        memory, by copies that no lane waits for: "copies" of A, if that is rows of an array, or "copies and held", where
        what is held is loaded into registers, or with several slices copied, too.
    :ivar everywhere: whether A is computed beyond the last row and k too, from the last there are, rather than on a
        condition.  Compilers predicate a single load; around more they branch, and then each waits for the one before.
        So sums are computed everywhere in any case; a product of two is as a rule faster so, a single load slower.
    :ivar sums: how the steps of a sum are added: one of :data:`feinsum.skeletons.nvidia.summing_units.SUMS`.
    :ivar burst: fragments of B that a sub-group loads before it stores any of them in local memory; 0 to copy all of them
        asynchronously, where they have the type that the unit multiplies.
    :ivar slices: of the sum, along the last index summed over.  With one, all values of A are in registers, and
        accumulators of a block of columns; with several, the values of a slice, and accumulators of all blocks.
    :ivar wide: whether a lane writes several numbers of an output at once: 16 bytes of what is staged, or else two
        neighbours in a row.
    :ivar stagger: nanoseconds by which every further four sub-groups begin late, one of which each scheduler of a
        multiprocessor has, so that some multiply while others load and store.
    :ivar in_turn: whether all tiles of a product come before those of the next, which are dealt from where they ended,
        rather than all products of a tile one after the other: few tiles are so dealt more evenly, and what is held is
        loaded for each product.
    :ivar weighted: whether parts of fewer columns have fewer groups, and loops of their own; else all have as many, and
        the last part multiplies zeros, or ends early.
    """

    unit: str
    sub_groups: int
    groups: int = 0
    tiles: int = 1
    parts: int = 1
    staged: bool = False
    prefetch: str = "none"
    everywhere: bool = False
    sums: str = "apart"
    burst: int = 1
    slices: int = 1
    wide: bool = False
    stagger: int = 0
    in_turn: bool = False
    weighted: bool = False


@dataclass(frozen=True)
class Share:
    """Groups with the same blocks of columns: the first group and how many there are, and the same of blocks."""

    group: int
    groups: int
    block: int
    blocks: int


def local_bytes(
    tiling: Tiling,
    n: int,
    sums: Sequence[int],
    matrices: int,
    results: int,
    itemsize: int = 8,
    planes: int = 1,
    held: int = 0,
) -> int:
    """Local memory of a work-group of :func:`feinsum.skeletons.warp_tiles.write.multiply_in_tiles`.

    :param sums: lengths of the indices summed over.
    :param matrices: distinct matrices B, each of the points of a batch index counted.
    :param results: numbers for each m and n that are staged at a time.
    :param itemsize: bytes of a number in memory; those of B have the type of the unit.
    :param planes: of rows that are copied: see :class:`feinsum.skeletons.warp_tiles.copies.TileCopies`.
    :param held: numbers for each m that are held.
    """
    unit = fragment_unit(tiling.unit)
    fragments = matrices * blocks(n, tiling.parts) * steps(sums, unit, tiling.slices)
    kept = fragments * SUB_GROUP * (2 if tiling.sums == "split" else 1)
    staged = tiling.sub_groups * results * ROWS * n if tiling.staged else 0
    with_copies = tiling.prefetch.startswith("copies")
    copied = tiling.sub_groups * copied_numbers(copied_depth(tiling, sums), planes) if with_copies else 0
    copied += tiling.sub_groups * ROWS * held if copies_held(tiling) else 0
    return kept * fragment_dtype(unit).itemsize + (staged + copied) * itemsize


def copies_held(tiling: Tiling) -> bool:
    """Whether what is held lies in local memory."""
    return tiling.prefetch == "copies and held" and tiling.slices > 1


def blocks(n: int, parts: int) -> int:
    """Blocks of columns of a part."""
    return -(-n // (COLUMNS * parts))


def shares(tiling: Tiling, n: int) -> list[Share]:
    """Whose columns are whose: with weighted parts those of each, as equal as may be; else one share of all there is.

    :raises TransformError: if a part has no group, or no column.
    """
    if not tiling.weighted:
        return [Share(0, tiling.groups, 0, blocks(n, tiling.parts))]
    most, groups = blocks(n, 1), tiling.groups * tiling.parts
    ends = [-(-most * part // tiling.parts) for part in range(tiling.parts + 1)]
    bounds = [round(groups * end / most) for end in ends]
    found = [Share(bounds[k], bounds[k + 1] - bounds[k], ends[k], ends[k + 1] - ends[k]) for k in range(tiling.parts)]
    if any(not share.groups or not share.blocks for share in found):
        raise TransformError(f"{tiling.parts} parts of {n} columns and {groups} groups leave one without either")
    return found


def steps(sums: Sequence[int], unit: MatrixUnit, slices: int = 1) -> int:
    """Steps of a product, in whole instructions; those of each slice are, where there are several."""
    first, width = math.prod(sums[:-1]), unit.k // DEPTH
    if slices > 1:
        return slices * first * slice_length(sums, unit, slices)
    return -(-first * -(-sums[-1] // DEPTH) // width) * width


def slice_length(sums: Sequence[int], unit: MatrixUnit, slices: int) -> int:
    """Steps along the last index in each of several slices, which are whole instructions."""
    length, width = -(-sums[-1] // (DEPTH * slices)), unit.k // DEPTH
    while math.prod(sums[:-1]) * length % width:
        length += 1
    return length


def copied_depth(tiling: Tiling, sums: Sequence[int]) -> int:
    """Numbers of a row that are copied at a time: all, or those of a slice."""
    return sums[-1] if tiling.slices == 1 else DEPTH * slice_length(sums, fragment_unit(tiling.unit), tiling.slices)


def copied_numbers(depth: int, planes: int) -> int:
    """Numbers of local memory for the rows of a sub-group, and for those that the last step reads beyond the last row."""
    return ROWS * depth * planes + (2 * DEPTH if depth % (2 * DEPTH) else 0)
