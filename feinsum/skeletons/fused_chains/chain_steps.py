"""The steps of a work-group in a block of some output indices: copies, contractions and stores.

u(e, i, j, k) --copy--> local --B(a, i)--> local --B(b, j)--> local --B(c, k)--> out[e, a, b, c]
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from feinsum.contraction import ContractionStep
from feinsum.einsum import BatchedEinsum
from feinsum.errors import TransformError
from feinsum.parameters import described
from feinsum.skeletons.common.digits import Digits
from feinsum.skeletons.instructions.matrix_units import COLUMNS, DEPTH, ROWS, SUB_GROUP, fragment_dtype, fragment_unit

OTHER_REGISTERS = 24
"""32-bit registers of a work-item besides its tile; chosen by hand."""


@dataclass(frozen=True)
class ChainStep:
    """One contraction by a work-group, whose work-items share the entries of the result."""

    contraction: ContractionStep = described(
        "What the step contracts: operands numbered as in a schedule, and their indices.",
        word="contraction order",
        parameter="order",
    )
    register_tile: Mapping[str, int] = described(
        """How many entries of the result a work-item computes at once: `together` of the index in blocks by `across`
        entries along the small operand, as far as they divide the indices.""",
        word="register tile",
        parameter=("together", "across"),
        default_factory=dict,
    )
    matrix_unit: str = described(
        """The matrix unit on which sub-groups compute steps with one small operand; with "none", work-items compute all
        steps by multiply-adds.""",
        word="matrix unit",
        parameter="unit",
        default="",
    )
    warp_tile: tuple[int, int] = described(
        """Tiles of 16 rows by blocks of 8 columns that a sub-group computes at once on the unit; `across`
        counts the columns.""",
        word="warp tile",
        parameter="across",
        default=(1, 1),
    )

    def __hash__(self) -> int:
        return hash((self.contraction, frozenset(self.register_tile.items()), self.matrix_unit, self.warp_tile))

    def registers(self, itemsize: int) -> int:
        """32-bit registers for the numbers that a work-item holds in this step."""
        if not self.matrix_unit:
            return (math.prod(self.register_tile.values()) + sum(self.register_tile.values())) * itemsize // 4
        unit, (tiles, blocks) = fragment_unit(self.matrix_unit), self.warp_tile
        a, b, d = unit.registers
        return (tiles * blocks * d + tiles * a + blocks * b) * fragment_dtype(unit).itemsize // 4


@dataclass(frozen=True)
class BlockSteps:
    """The work of a work-group on a block."""

    steps: tuple[ChainStep, ...] = described(
        "The contractions, in order: each goes on with the result of the last.", word="contraction order", parameter="order"
    )
    block_tile: Mapping[str, int] = described(
        """How many of each divided output index a work-group treats at a time: `elements` of the longest, one of others;
        it treats every other index whole.""",
        word="block tile",
        parameter="elements",
    )
    items: int = described(
        """Work-items of a group, in whole sub-groups: as many as let the longest step take `turns` turns of its tiles.""",
        word="warps",
        parameter="turns",
    )
    staged_operands: frozenset[int] = described(
        """The operands that a group copies to local memory: "all", or only those "needed" because work-items share them.
        A copy without an index in blocks serves all blocks.""",
        word="staged operands",
        parameter="copy",
        default=frozenset(),
    )
    staged_epilogue: bool = described(
        "Whether results pass through local memory, so that they leave in the order of the output.",
        word="staged epilogue",
        parameter="staged",
        default=False,
    )
    register_forwarding: bool = described(
        "Whether a result stays in registers where each work-item needs in the next step what it has itself.",
        word="register forwarding",
        parameter="chained",
        default=False,
    )

    def __hash__(self) -> int:
        return hash(
            (self.steps, frozenset(self.block_tile.items()), self.items, self.staged_operands, self.staged_epilogue)
        )

    def registers(self, itemsize: int) -> int:
        """32-bit registers of a work-item, at least."""
        return max(step.registers(itemsize) for step in self.steps) + OTHER_REGISTERS


@dataclass(frozen=True)
class TileSharing:
    """How work-items share the entries of an array: each has a tile of them, and so many tiles along each index."""

    digits: Digits
    tile: Mapping[str, int]


@dataclass(frozen=True)
class MatrixSharing:
    """How sub-groups share a result on a matrix unit: ``D[rows, columns] = Σ_sums A[rows, sums] B[columns, sums]``.

    :ivar batch: indices that A, B and D have; there is a product for each of their points.
    :ivar matrix: which factor of the step is B.
    :ivar digits: of the number of a work-item: the batch, the tiles of rows, the parts of the columns, the lane.
    """

    batch: Digits
    rows: Digits
    columns: Digits
    sums: Digits
    matrix: int
    unit: str
    fragments: tuple[int, int]

    @property
    def steps(self) -> int:
        """Instructions along the sum."""
        return -(-self.sums.total // fragment_unit(self.unit).k)

    @property
    def blocks(self) -> int:
        """Blocks of columns, in whole parts."""
        return -(-self.columns.total // (COLUMNS * self.fragments[1])) * self.fragments[1]

    @property
    def digits(self) -> Digits:
        tiles, parts = -(-self.rows.total // (ROWS * self.fragments[0])), self.blocks // self.fragments[1]
        return Digits((*self.batch.letters, "tile", "part", "lane"), (*self.batch.counts, tiles, parts, SUB_GROUP))

    @property
    def padded_rows(self) -> int:
        """Rows, in whole tiles."""
        return -(-self.rows.total // (ROWS * self.fragments[0])) * ROWS * self.fragments[0]

    @property
    def copy(self) -> Digits:
        """The digits of the places of B in local memory, in the order in which lanes read it."""
        width = fragment_unit(self.unit).k // DEPTH
        counts = (*self.batch.counts, self.blocks, self.steps * width, SUB_GROUP)
        return Digits((*self.batch.letters, "block", "step", "lane"), counts)


def sharing_of(e: BatchedEinsum, step: ChainStep, blocks: Mapping[str, int]) -> TileSharing | MatrixSharing:
    """How work-items share a step: numbered by the entries of its result, tile by tile; or as a matrix unit wants it.

    :raises TransformError: if a tile does not divide its index, or a step on a matrix unit is no product with one matrix.
    """
    lengths, contraction = lengths_within(e, blocks), step.contraction
    inputs, output = contraction.indexing.inputs, contraction.indexing.output
    if not step.matrix_unit:
        for letter, together in step.register_tile.items():
            if letter not in output or lengths[letter] % together:
                raise TransformError(f"a tile has {together} of '{letter}', which do not divide it")
        return TileSharing(_tile_digits(output, lengths, step.register_tile), step.register_tile)
    able = matrices_of(e, contraction, blocks)
    if len(able) != 1 or not contraction.indexing.summed:
        raise TransformError(f"'{contraction.indexing}' is no product with one matrix")
    matrix, rest = inputs[able[0]], "".join(x for k, x in enumerate(inputs) if k != able[0])
    return MatrixSharing(
        _tile_digits((x for x in output if x in matrix and x in rest), lengths),
        _tile_digits((x for x in output if x not in matrix), lengths),
        _tile_digits((x for x in output if x not in rest), lengths),
        _tile_digits(contraction.indexing.summed, lengths),
        able[0],
        step.matrix_unit,
        step.warp_tile,
    )


def matrices_of(e: BatchedEinsum, contraction: ContractionStep, blocks: Mapping[str, int]) -> list[int]:
    """The factors of a step that are operands which all blocks share."""
    factors = enumerate(zip(contraction.operands, contraction.indexing.inputs, strict=True))
    return [k for k, (number, letters) in factors if number < e.n and not any(x in blocks for x in letters)]


def _tile_digits(letters: Iterable[str], lengths: Mapping[str, int], tile: Mapping[str, int] | None = None) -> Digits:
    chosen = tuple(letters)
    return Digits(chosen, tuple(lengths[x] // (tile or {}).get(x, 1) for x in chosen))


def lengths_within(e: BatchedEinsum, blocks: Mapping[str, int]) -> dict[str, int]:
    """The number of values of each index that a work-group takes.

    :raises TransformError: if that is not known, or a block is of a summed index.
    """
    lengths = {}
    for letter, axis in e.index_sizes.items():
        length = blocks.get(letter, axis)
        if not isinstance(length, int) or (letter in blocks and letter not in e.indexing.output):
            raise TransformError(f"a work-group cannot treat index '{letter}' of '{e.subscripts}', of length {axis}, whole")
        lengths[letter] = length
    return lengths
