"""Plans of what a work-group does with a block of some output indices: copies, contractions and stores.

    u(e, i, j, k) --copy--> local --B(a, i)--> local --B(b, j)--> local --B(c, k)--> out[e, a, b, c]

This is plain data; ``arrangements`` puts it in order, and ``write`` makes instructions of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from feinsum.contraction import Step
from feinsum.devices.ptx import SUB_GROUP
from feinsum.einsum import BatchedEinsum
from feinsum.errors import TransformError
from feinsum.skeletons.common.digits import Digits
from feinsum.skeletons.nvidia.matrix_units import COLUMNS, DEPTH, ROWS, fragment_unit


@dataclass(frozen=True)
class GroupStep:
    """One contraction by a work-group, whose work-items share the entries of the result.

    :ivar contraction: its operands, numbered as in a schedule, and its indices.
    :ivar tile: index of the result -> how many of it a work-item computes together; 1 if it is not there.
    :ivar unit: the matrix unit with which sub-groups compute it, instead of a tile in each work-item.
    :ivar fragments: tiles of 16 rows by blocks of 8 columns that a sub-group computes together on the unit.
    """

    contraction: Step
    tile: Mapping[str, int] = field(default_factory=dict)
    unit: str = ""
    fragments: tuple[int, int] = (1, 1)


@dataclass(frozen=True)
class GroupPlan:
    """The steps of a work-group, and what it treats.

    :ivar blocks: output index -> how many of it a work-group treats at a time; other indices it treats whole.
    :ivar items: work-items of a group.
    :ivar copied: operands that are copied to local memory; of those without an index of `blocks`, once for all blocks.
    :ivar staged: whether results go through local memory, so that they leave in the order of the output.
    :ivar stay: work-groups, which stride over the blocks of the only index of `blocks`; 0 for one to each block.
    :ivar prefetch: whether groups that stay load what they copy for the next block, into registers, during a block.
    :ivar early: whether operands that a step reads where they are, are loaded ahead of all steps, if they are few; with
        `prefetch`, during the block before.
    :ivar chained: whether a result stays in registers where each work-item needs in the next step what it has itself.
    """

    steps: tuple[GroupStep, ...]
    blocks: Mapping[str, int]
    items: int
    copied: frozenset[int] = frozenset()
    staged: bool = False
    stay: int = 0
    prefetch: bool = False
    early: bool = False
    chained: bool = False


@dataclass(frozen=True)
class Held:
    """An array in local memory, and the letters of its axes as somebody reads it."""

    array: int
    letters: str


@dataclass(frozen=True)
class Registers:
    """The result of the step before, which each work-item has of its own in registers."""


@dataclass(frozen=True)
class Sharing:
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
        """Of the places of B in local memory, in the order in which lanes read it."""
        width = fragment_unit(self.unit).k // DEPTH
        counts = (*self.batch.counts, self.blocks, self.steps * width, SUB_GROUP)
        return Digits((*self.batch.letters, "block", "step", "lane"), counts)


@dataclass(frozen=True)
class CopyMatrix:
    """The matrix of a step on a matrix unit to an array."""

    step: int
    row: int
    sharing: MatrixSharing
    target: Held


@dataclass(frozen=True)
class Copy:
    """Operand `operand` of a row to an array."""

    operand: int
    row: int
    sharing: Sharing
    target: Held


@dataclass(frozen=True)
class Compute:
    """A step of a row; sources that are None are operands read where they are; without a target, it goes to the output."""

    step: int
    row: int
    sharing: Sharing | MatrixSharing
    sources: tuple[Held | Registers | None, ...]
    target: Held | Registers | None


@dataclass(frozen=True)
class Store:
    """The staged results of a row to the output."""

    row: int
    sharing: Sharing
    source: Held


MOVED_TOGETHER = 40
"""Numbers of a work-item that are loaded together, however long each takes to come."""
NUMBERS_OF_A_PLACE = 6
"""How many numbers a work-item moves in the time in which it finds out the place of one."""

Event = Copy | CopyMatrix | Compute | Store


def sharing_of(e: BatchedEinsum, step: GroupStep, blocks: Mapping[str, int]) -> Sharing | MatrixSharing:
    """How work-items share a step: numbered by the entries of its result, tile by tile; or as a matrix unit wants it.

    :raises TransformError: if a tile does not divide its index, or a step on a matrix unit is no product with one matrix.
    """
    lengths, contraction = lengths_within(e, blocks), step.contraction
    inputs, output = contraction.indexing.inputs, contraction.indexing.output
    if not step.unit:
        for letter, together in step.tile.items():
            if letter not in output or lengths[letter] % together:
                raise TransformError(f"a tile has {together} of '{letter}', which do not divide it")
        return Sharing(_digits(output, lengths, step.tile), step.tile)
    able = matrices_of(e, contraction, blocks)
    if len(able) != 1 or not contraction.indexing.summed:
        raise TransformError(f"'{contraction.indexing}' is no product with one matrix")
    matrix, rest = inputs[able[0]], "".join(x for k, x in enumerate(inputs) if k != able[0])
    return MatrixSharing(
        _digits((x for x in output if x in matrix and x in rest), lengths),
        _digits((x for x in output if x not in matrix), lengths),
        _digits((x for x in output if x not in rest), lengths),
        _digits(contraction.indexing.summed, lengths),
        able[0],
        step.unit,
        step.fragments,
    )


def matrices_of(e: BatchedEinsum, contraction: Step, blocks: Mapping[str, int]) -> list[int]:
    """Which factors of a step are operands that all blocks share."""
    factors = enumerate(zip(contraction.operands, contraction.indexing.inputs, strict=True))
    return [k for k, (number, letters) in factors if number < e.n and not any(x in blocks for x in letters)]


def _digits(letters: Iterable[str], lengths: Mapping[str, int], tile: Mapping[str, int] | None = None) -> Digits:
    chosen = tuple(letters)
    return Digits(chosen, tuple(lengths[x] // (tile or {}).get(x, 1) for x in chosen))


def lengths_within(e: BatchedEinsum, blocks: Mapping[str, int]) -> dict[str, int]:
    """How many of each index a work-group treats.

    :raises TransformError: if that is not known, or a block is of a summed index.
    """
    lengths = {}
    for letter, axis in e.index_sizes.items():
        length = blocks.get(letter, axis)
        if not isinstance(length, int) or (letter in blocks and letter not in e.indexing.output):
            raise TransformError(f"a work-group cannot treat index '{letter}' of '{e.subscripts}', of length {axis}, whole")
        lengths[letter] = length
    return lengths
