"""Plans of packed blocks: ``C[b, m, n] = Σ_k A[b, m, k] B[b, k, n]``, a block of m by n to each work-group.

Both operands are copied, `depth` terms of the sum at a time, into panels as wide as a register tile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from feinsum.errors import TransformError
from feinsum.parameters import described
from feinsum.skeletons.common.index_groups import GROUPS, IndexGroup, fused_letters


@dataclass(frozen=True)
class MicroTile:
    """The entries of the result that are summed at once: ``"4 3"`` is four rows of three vectors.

    :ivar rows: numbers of a column of A, each of which is broadcast.
    :ivar vectors: of a row of B.
    """

    rows: int
    vectors: int

    def __post_init__(self) -> None:
        if min(self.rows, self.vectors) < 1:
            raise TransformError(f"a register tile of {self.rows} rows of {self.vectors} vectors holds no sum")

    @classmethod
    def parse(cls, text: str) -> Self:
        """:raises TransformError: if `text` is no register tile."""
        words = text.split()
        if len(words) != 2 or not all(word.isdecimal() for word in words):
            raise TransformError(f"{text!r} is no register tile; one is written like '4 3'")
        return cls(int(words[0]), int(words[1]))

    def __str__(self) -> str:
        return f"{self.rows} {self.vectors}"

    @property
    def registers(self) -> int:
        """Vector registers: the sums, a row of B, and one number of A in all lanes."""
        return self.rows * self.vectors + self.vectors + 1


@dataclass(frozen=True)
class PackedBlocks:
    """The division of a contraction of two operands among work-groups of one work-item each.

    A letter of unknown length is the last of its fused index.
    """

    operands: tuple[int, int] = described(
        "The operand that has the rows of the product, and the one that has its columns: the one with the last index of the"
        " output, along which vectors run.",
        word="block tile",
    )
    rows: str = fused_letters("rows")
    columns: str = fused_letters("columns")
    sums: str = fused_letters("sums")
    batch: str = fused_letters("batch")
    width: int = described("The lanes of a vector.", word="vector width", parameter="width")
    tile: MicroTile = described(
        """What is summed in registers at once: `4 3` is four rows of three vectors.  For each term three vectors are
        loaded, and four numbers that are broadcast.""",
        word="register tile",
        parameter="tile",
    )
    block: tuple[int, int] = described(
        """Rows and columns of a work-group: as many as panels have room for in one part in `share` of the cache that is a
        core's own, one operand like the other, or fewer that divide the product into as many blocks more evenly.""",
        word="block tile",
        parameter="share",
    )
    depth: int = described(
        """Terms of the sum for which operands are packed at a time: at most as many as configurations want, or fewer that
        divide the sum into as many parts more evenly.  Results of one part are loaded again for the next one.""",
        word="tile depth",
        parameter="depth",
    )
    runs: Mapping[str, int] = described(
        """How many neighbours along a letter are neighbours in the fused index, too, where arrays lie in memory along
        different letters of it: so that each copies, or stores, whole lines of its own.""",
        word="coalescing",
        default_factory=dict,
    )
    unrolled: int = described("Terms of the sum between two looks at whether it has ended.", word="tile depth", default=1)
    joined: tuple[str, ...] = described(
        "The groups of letters each of which becomes one index, as they lie side by side in every array.",
        word="fused axes",
        default=(),
    )
    itemsize: int = described("Bytes of a number.", word="vector width", default=8)

    def __post_init__(self) -> None:
        if not (self.rows and self.columns and self.sums):
            raise TransformError(f"a product of '{self.rows}' by '{self.sums}' by '{self.columns}' is none of matrices")
        if self.depth % self.unrolled:
            raise TransformError(f"parts of {self.depth} terms are no whole number of {self.unrolled}")
        for name, length, of in zip(GROUPS, self.block, self.tiles, strict=False):
            if length < 1 or length % of:
                raise TransformError(f"a block of {length} {name} has no whole number of register tiles of {of}")

    @property
    def tiles(self) -> tuple[int, int]:
        """Rows and columns of a register tile."""
        return self.tile.rows, self.tile.vectors * self.width

    def groups(self, lengths: Mapping[str, Any]) -> dict[str, IndexGroup]:
        """The fused indices by their names in :data:`GROUPS`, for letters of such lengths."""
        return {name: IndexGroup(getattr(self, name), lengths, self.runs) for name in GROUPS}

    def panel_bytes(self) -> tuple[int, int]:
        """The bytes of the panels of each operand."""
        return tuple(length * self.depth * self.itemsize for length in self.block)  # type: ignore[return-value]

    def local_bytes(self) -> int:
        """None: panels are private to the one work-item of a group, and stay in its core's caches."""
        return 0

    def registers(self) -> int:
        """Vector registers of the innermost loop."""
        return self.tile.registers
