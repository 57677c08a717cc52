"""The tiling of a tall product for matrix units: tiles of 16 rows, blocks of 8 columns, steps of 4 along the sum."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from feinsum.devices.vendors.units import MatrixUnit
from feinsum.errors import TransformError
from feinsum.skeletons.instructions.matrix_units import COLUMNS, DEPTH


@dataclass(frozen=True)
class TallProduct:
    """``P[.., m, n] = Σ_k A[.., m, k] B[.., k, n]`` with a long m and few n and k, for one output of an einsum or several.

    :ivar dtype: the type of operands and results in memory.
    :ivar columns: the length of n.
    :ivar sums: the lengths of the indices k; the last of them is padded to whole steps.
    :ivar batch: products that are accumulated at a time, as A or B have further indices.
    :ivar matrices: distinct matrices B for each product of the batch.
    :ivar results: results for each m and n that are stored at a time.
    :ivar held: numbers for each m, besides A, that a tile needs: a metric, for example.
    :ivar planes: elements of the operand with k that are added to one of A, or in which a further index k differs.
    :ivar products: distinct products of all outputs.
    :ivar fields: distinct A of the batch, which registers hold together.
    :ivar shared: products of the batch that have the same B.
    """

    dtype: np.dtype[Any]
    columns: int
    sums: tuple[int, ...]
    batch: int = 1
    matrices: int = 1
    results: int = 1
    held: int = 0
    planes: int = 1
    products: int = 1
    fields: int = 1
    shared: int = 1

    def __post_init__(self) -> None:
        counts = (self.columns, *self.sums, self.batch, self.matrices, self.results, self.planes, self.products)
        if not self.sums or min(counts) < 1 or self.held < 0:
            raise TransformError(f"a tall product has positive lengths and counts, not those of {self}")

    @property
    def terms(self) -> int:
        """Summands of one number of P."""
        return math.prod(self.sums)

    @property
    def distinct_matrices(self) -> int:
        """Matrices B of all products."""
        return self.matrices * self.batch // self.shared

    def blocks(self, parts: int) -> int:
        """Blocks of columns of a part."""
        return -(-self.columns // (COLUMNS * parts))

    def steps(self, unit: MatrixUnit, slices: int) -> int:
        """Steps of a sum, in whole instructions; those of each slice are, where there are several."""
        first, width = self.terms // self.sums[-1], unit.k // DEPTH
        if slices > 1:
            return slices * first * self.slice_length(unit, slices)
        return -(-first * -(-self.sums[-1] // DEPTH) // width) * width

    def slice_length(self, unit: MatrixUnit, slices: int) -> int:
        """Steps along the last index in each of several slices, which are whole instructions."""
        length, width = -(-self.sums[-1] // (DEPTH * slices)), unit.k // DEPTH
        while self.terms // self.sums[-1] * length % width:
            length += 1
        return length


@dataclass(frozen=True)
class Share:
    """Groups with the same blocks of columns: the first group and how many there are, and the same of blocks."""

    group: int
    groups: int
    block: int
    blocks: int


def weighted_shares(blocks: int, groups: int, parts: int) -> tuple[Share, ...]:
    """Parts of some blocks of columns, as equal as may be, and to each its groups in proportion.

    :raises TransformError: if a part has no group, or no column.
    """
    ends = [-(-blocks * part // parts) for part in range(parts + 1)]
    bounds = [round(groups * end / blocks) for end in ends]
    found = tuple(Share(bounds[k], bounds[k + 1] - bounds[k], ends[k], ends[k + 1] - ends[k]) for k in range(parts))
    if any(not share.groups or not share.blocks for share in found):
        raise TransformError(f"{parts} parts of {blocks} blocks of columns and {groups} groups leave one without either")
    return found
