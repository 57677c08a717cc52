"""Plans of block tiles: ``D[b, m, n] = Σ_k A[b, m, k] B[b, k, n]`` by work-groups, a block of m by n to each.

A block is ``rows`` by ``columns`` of fragments for each of its warps; tiles of A and B, ``depth`` deep, pass through local
memory in the stages of a pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

from feinsum.devices.vendors.vendor import AsyncCopies, Vendor
from feinsum.errors import TransformError
from feinsum.parameters import described
from feinsum.skeletons.block_tiles.fragment_layouts import LaneFragments, unit_fragments
from feinsum.skeletons.block_tiles.plan_notation import BlockShape, ChainPath, Packing, SumSplit, TilePipeline
from feinsum.skeletons.common.index_groups import GROUPS, IndexGroup, fused_letters
from feinsum.skeletons.instructions.async_copies import copies_for
from feinsum.skeletons.instructions.matrix_units import SUB_GROUP

REGISTER_BYTES = 4


@dataclass(frozen=True)
class BlockTiles:
    """The division of a contraction of two operands among work-groups.

    A letter of unknown length is the last of its fused index.  Whether tiles are whole steps of the unit is checked where
    the kernel is written, as shapes are ranked with the best depth and the best unit, which need not fit each other.

    :ivar vendor: that of the device, whose asynchronous copies a pipeline may need; None where there are none.
    :raises TransformError: if other parts of the plan do not fit each other.
    """

    operands: tuple[int, int] = described(
        """The operand that has the rows of the product, and the one that has its columns.  `quick` gives the rows to the
        operand with the last index of the output, `slow` to the other one.""",
        word="block tile",
        parameter="rows",
    )
    rows: str = fused_letters("rows")
    columns: str = fused_letters("columns")
    sums: str = fused_letters("sums")
    batch: str = fused_letters("batch")
    runs: Mapping[str, int] = described(
        """How many neighbours along a letter of the rows or columns are neighbours in the fused index, too, so that lanes
        load runs of them; letters that are not named are not divided.""",
        word="coalescing",
        parameter="run",
    )
    depths: Mapping[str, int] = described(
        "How many neighbours along each summed letter a tile holds; the product of these is the depth of the tile.",
        word="tile depth",
        parameter="depth",
    )
    unit: str = described(
        """The matrix unit that multiplies fragments, or `multiply-add` for ordinary arithmetic.  float32 may be multiplied
        by a unit for float64, exactly but for the last rounding, or by that for tf32, with every number split in two.""",
        word="matrix unit",
        parameter="unit",
    )
    block_tile: BlockShape = described(
        """What a work-group computes at a time: `1 2 4 of 3 5` are one item of the batch, two warps along the rows and four
        along the columns, each of which holds 3 by 5 fragments.""",
        word="block tile",
        parameter="shape",
    )
    along_sums: tuple[bool, bool] = described(
        "For each operand, whether neighbouring lanes load neighbours along the sums.", word="coalescing"
    )
    pipeline: TilePipeline = described(
        """How tiles come to local memory, and how many of each operand it holds: `async 3` copies them past the registers,
        two tiles ahead; `registers 2` loads the next tile into registers while one is multiplied, and `registers 1` needs
        a second barrier a tile, as one tile then takes the place of the other.""",
        word="pipeline stages",
        parameter="pipeline",
        default=TilePipeline(asynchronous=False, stages=2),
    )
    width: tuple[int, int] = described(
        """How many numbers of each operand may be copied at once, if they lie in memory so that they can be; 1 for single
        ones.  Several are copied along the sums, and if `wide` is true along rows and columns, too, which then begin with
        the letter along which the operand lies in memory.""",
        word="vector width",
        parameter="wide",
        default=(1, 1),
    )
    prefetch: bool = described(
        """Whether the fragments of a step are loaded from local memory while those of the step before are multiplied; that
        takes a matrix unit, asynchronous copies, and an even number of steps.""",
        word="prefetch",
        parameter="ahead",
        default=False,
    )
    tilewise: bool = described(
        """Whether the unit for tf32 adds up the products of a whole tile before the ordinary adder, which rounds correctly,
        adds their sum to the result; else it is told those of each step.""",
        word="matrix unit",
        parameter="tilewise",
        default=False,
    )
    split: SumSplit = described(
        """Which parts of a sum work-groups take, where the output is too small to occupy the device: `k 64` is parts of 64
        along k, which a second launch adds up; `none` leaves the sum whole.""",
        word="split-k",
        parameter="split",
        default=SumSplit(),
    )
    packing: Packing = described(
        """The operands that are copied first, so that what is summed lies side by side: `01` packs both, `none` packs
        neither.""",
        word="packing",
        parameter="packed",
        default=Packing(),
    )
    joined: tuple[str, ...] = described(
        """The groups of letters each of which becomes one index, as they lie side by side in every array, packed ones
        included; if `joined` is false, no letters do.""",
        word="fused axes",
        parameter="joined",
        default=(),
    )
    itemsize: int = described("Bytes of a number.", word="vector width", default=8)
    vendor: Vendor | None = None
    several: bool = described(
        "Whether the sum is expected to have more than one tile; an only one is in local memory before products begin.",
        word="tile depth",
        default=True,
    )

    def __post_init__(self) -> None:
        if not self.rows or not self.columns:
            raise TransformError(f"a product of '{self.rows}' by '{self.columns}' has no rows or no columns")
        if self.pipeline.asynchronous:
            _ = self.copies  # whether the vendor has such shows as they are looked up
        if self.prefetch and not self._may_prefetch:
            raise TransformError(f"fragments of {self.steps} steps of '{self.unit}' are not loaded a step ahead")
        if self.tilewise and not (self._splits and self.several and self.steps > 1):
            raise TransformError(
                f"'{self.unit}' does not add up the products of {self.steps} steps and those of other tiles"
            )

    @property
    def _splits(self) -> bool:
        """Whether the unit multiplies numbers that are split."""
        return self.fragments.unit is not None and self.fragments.unit.splits

    @property
    def _may_prefetch(self) -> bool:
        copied = self.pipeline.asynchronous and self.several
        return copied and self.fragments.unit is not None and self.steps % 2 == 0

    @cached_property
    def fragments(self) -> LaneFragments:
        """The fragments that the lanes of a sub-group hold."""
        return unit_fragments(self.unit)

    @cached_property
    def copies(self) -> AsyncCopies:
        """The instructions that copy asynchronously."""
        return copies_for(self.vendor)

    @cached_property
    def parts(self) -> Mapping[str, int]:
        """Letter -> how many of its neighbours are neighbours in its fused index."""
        return {**self.runs, **self.depths}

    @cached_property
    def depth(self) -> int:
        """Length of a tile along the sums."""
        return prod(self.depths.get(x, 1) for x in self.sums)

    @property
    def steps(self) -> int:
        """Steps of the unit along a tile."""
        return self.depth // self.fragments.depth

    @property
    def items(self) -> int:
        """The items of the batch in a block."""
        return self.block_tile.warps[0]

    @cached_property
    def extents(self) -> tuple[int, int]:
        """Rows and columns of a block."""
        (_, down, across), (rows, columns) = self.block_tile.warps, self.block_tile.warp_tile
        return down * rows * self.fragments.rows, across * columns * self.fragments.columns

    @property
    def spans(self) -> dict[str, int]:
        """The extent of a block along each fused index but the sums."""
        return {"rows": self.extents[0], "columns": self.extents[1], "batch": self.items}

    @property
    def work_items(self) -> int:
        """Work-items of a work-group."""
        return SUB_GROUP * prod(self.block_tile.warps)

    def groups(self, lengths: Mapping[str, Any]) -> dict[str, IndexGroup]:
        """The fused indices by their names in :data:`GROUPS`, for letters of such lengths."""
        return {name: IndexGroup(getattr(self, name), lengths, self.parts) for name in GROUPS}

    def layout(self, side: int) -> tuple[int, int]:
        """The axes of a tile of an operand in local memory, the second padded."""
        long, short = (self.depth, self.extents[side]) if self.along_sums[side] else (self.extents[side], self.depth)
        return short, self.fragments.stride(long, self.itemsize, along_sums=self.along_sums[side])

    @property
    def fused(self) -> tuple[str, ...]:
        """The groups of indices that are one."""
        return self.joined

    @property
    def divided(self) -> dict[str, str]:
        """The indices of which the kernel takes several values at a time, and how."""
        found = {x: f"it is one index with its neighbours in '{group}'" for group in self.joined for x in group}
        found |= {x: f"a tile holds {n} of it" for x in self.sums if (n := self.depths.get(x, 1)) > 1}
        found |= dict.fromkeys(self.rows, "it is in the rows of a tile") | dict.fromkeys(
            self.columns, "it is in the columns of a tile"
        )
        return found | (dict.fromkeys(self.batch, f"a block has {self.items} of it") if self.items > 1 else {})

    def local_bytes(self) -> int:
        """Local memory of a work-group."""
        return self.pipeline.stages * self.items * self.itemsize * sum(prod(self.layout(side)) for side in (0, 1))

    def registers(self) -> int:
        """Registers of 4 bytes of a work-item for results, fragments of a step, and its share of the next tiles."""
        na, nb, nd = self.fragments.registers
        down, across = self.block_tile.warp_tile
        loaded = 0 if self.pipeline.asynchronous else sum(self._loads(side) for side in (0, 1))
        split = 2 if self._splits else 1
        words = max(self.itemsize, self.fragments.itemsize) // REGISTER_BYTES
        multiplied = words * (down * across * nd * (2 if self.tilewise else 1) + split * (down * na + across * nb))
        loaded *= self.itemsize // REGISTER_BYTES
        # The larger of two that are not needed at a time, of arrays as of numbers.
        return multiplied + (loaded if self.several else (loaded - multiplied) * (loaded > multiplied))

    def _loads(self, side: int) -> int:
        """Elements that a work-item loads of a tile of an operand."""
        return -(-self.items * self.extents[side] * self.depth // self.work_items)


@dataclass(frozen=True)
class BlockChain:
    """A contraction of three and more operands as contractions by block tiles; each of these has a plan of its own.

    :raises TransformError: if operands that are multiplied as they are loaded should be copied past the registers.
    """

    path: ChainPath = described(
        """Which contractions come one after the other: `steps` takes two operands at a time, in the cheapest order; `0 2`
        multiplies these two operands as they are loaded and contracts their product with the third.""",
        word="contraction order",
        parameter="path",
    )
    guess: int = described(
        "Which guess of a block tile every step takes: 0 is the best for its lengths, 1 the second best.",
        word="block tile",
        parameter="shape",
    )
    pipeline: TilePipeline = described(
        "How tiles come to local memory in every step that can have it so; the others take their best guess.",
        word="pipeline stages",
        parameter="pipeline",
    )
    wide: bool = described(
        "Whether steps copy several numbers at a time along rows and columns, too, where they can.",
        word="vector width",
        parameter="wide",
        default=False,
    )

    def __post_init__(self) -> None:
        if self.path.pair and self.pipeline.asynchronous:
            raise TransformError("what is computed while it is loaded passes through registers")
