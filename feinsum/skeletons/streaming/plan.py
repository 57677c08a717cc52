"""Plans of streams: every operand passes once, in the order in which it lies in memory.

out[i, v] = A(i, v) x(v)            lanes along v, the rows of the output
out[i] = Σ_v A(i, v) x(v)           lanes along v, the rows of the longest operand, whether summed over or not
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from feinsum.errors import TransformError
from feinsum.parameters import described


@dataclass(frozen=True)
class TurnedTiles:
    """Tiles that a work-group copies to local memory, where operands are read across the rows of the output.

    :ivar across: the index along the rows of these operands.
    :ivar rows: how many iterations of it a tile has.
    :ivar place_bytes: what the tiles of all operands keep for one place, at most.
    :ivar spare: how many places are left free after every row of a tile, so that what lanes read of different rows lies in
        different banks of local memory.
    :ivar joined: whether work-groups share all indices but those of the tile, as one; else only the outermost of them.
    """

    across: str
    rows: int
    place_bytes: int
    spare: int = 0
    joined: bool = False


@dataclass(frozen=True)
class Flight:
    """The loads of a copy that a work-item has on their way at a time.

    :ivar letters: indices that lie side by side in the output, which work-groups share as one; they end with the lane.
    :ivar strips: how many vectors, or single numbers, a work-item loads of every operand before it stores the first.
    :ivar vector: numbers of a vector; 1 for single numbers.
    """

    letters: str
    strips: int
    vector: int = 1

    def share(self, width: int) -> int:
        """How many positions of the output a group of so many work-items does."""
        return width * self.strips * self.vector


@dataclass(frozen=True)
class CrossedTiles:
    """Tiles of operands whose rows run across the lanes, which pass through local memory.

    :ivar across: the index along the rows of these operands.
    :ivar lane: that along the rows of the output, or of the longest operand of a sum.
    :ivar length: how many iterations of either a tile has.
    :ivar turns: how many tiles a work-group goes through, if there are so many that are summed over.
    :ivar operands: the indices of each of these operands.
    :ivar place_bytes: what one place of a tile takes, of the widest numbers.
    :ivar spare: how many places are left free after every row of a tile.
    """

    across: str
    lane: str
    length: int
    turns: int
    operands: tuple[str, ...]
    place_bytes: int
    spare: int = 1

    def count(self, letter: str) -> int:
        """How many iterations of an index a tile has."""
        return self.length if letter in (self.across, self.lane) else 1

    def parts(self, lengths: Mapping[str, int], summed: str) -> int:
        """The shares of a sum over these indices: how many groups go through its tiles."""
        return -(-math.prod(-(-lengths[x] // self.count(x)) for x in summed) // self.turns)


@dataclass(frozen=True)
class ItemGrid:
    """The work-items of a group where sums of GPUs go through several rows of memory at a time.

    :ivar counts: index -> the work-items along it: the lane's first, then those of the index of the rows, if there is one.
    :ivar flight: the summed index of which a work-item has several terms on their way at a time; "" where one term is all.
    :ivar loads: how many.
    """

    counts: Mapping[str, int]
    flight: str = ""
    loads: int = 1

    @property
    def items(self) -> int:
        """Work-items of a group."""
        return math.prod(self.counts.values())

    def strips(self) -> dict[str, int]:
        """Index -> how many of its iterations the work-items of a group do at a time."""
        return {**self.counts, **({self.flight: self.counts.get(self.flight, 1) * self.loads} if self.flight else {})}


@dataclass(frozen=True)
class Stream:
    """The plan of a stream: an einsum without sums, or a sum over one operand with all indices times smaller ones.

    Lanes are OpenCL vectors within one work-item, or the work-items of a group.

    :raises TransformError: if the parts of the plan do not fit each other.
    """

    order: str = described(
        """Every index, as loops from the outside in; the loop of the lane is the one over strips.  With `by_rows` it is the
        innermost where another operand is read across its rows, so that a tile is stored row by row; without, that of the
        index along the rows of this operand is, so that a tile is stored in columns as wide as a strip.""",
        word="contraction order",
        parameter="by_rows",
    )
    lane: str = described("The index that runs along lanes.", word="lane axis")
    width: int = described(
        "Lanes of a vector, or work-items of a group; 1 for single numbers.", word="vector width", parameter="width"
    )
    block_tile: Mapping[str, int] = described(
        """How many iterations of an index a work-group does; all of those that are not named.  The first index lies along
        the first axis of the device.  `portion` is how many numbers pass through a group, about; `tile` is how many
        iterations it does of the index that runs along the rows of an operand, but not along those of the output; 0 where
        results are done in their own order, as what neighbours read lies close by.  `across`
        is how many it does of the lane where another operand is read across its rows, so that the lines of that stay in a
        first cache; 0 for those that follow from `portion`.  If one of the indices is summed over, a second launch adds up
        the partial sums of the groups.""",
        word="block tile",
        parameter=("portion", "tile", "across"),
    )
    summed: str = described("The indices that are summed over.", word="accumulation", default="")
    accumulators: int = described(
        "Strips of lanes that are summed side by side, where the lane is summed over.",
        word="accumulators",
        parameter="accumulators",
        default=1,
    )
    accumulation: int = described(
        """Iterations of the innermost sum whose terms are added up before they reach an accumulator, where the lane is not
        summed over.""",
        word="accumulation",
        parameter="together",
        default=1,
    )
    vectors: bool = described(
        "Whether lanes are those of vectors rather than the work-items of a group.", word="lane axis", default=True
    )
    streaming_stores: bool = described(
        "Whether results are stored past the caches.", word="streaming stores", parameter="streaming", default=False
    )
    turned: TurnedTiles | None = described(
        """The tiles that work-items pass through local memory, so that they read operands and write the output along rows;
        nothing where operands are read along the rows of the output, where results are done in their own order, or where
        lanes are those of vectors.  `spare` is how
        many places are left free after each row of a tile: with one of them, lanes that read across rows find their numbers
        in different banks.  `joined` tells whether a work-group has one tile alone, or goes through all but the outermost
        of the indices that its tile does not have.""",
        word="staged operands",
        parameter=("tile", "spare", "joined"),
        default=None,
    )

    flight: Flight | None = described(
        """The loads that each work-item of a copy has on their way at a time; nothing where it loads one number, or where
        lanes are those of vectors.  `strips` is how many it loads of every operand before it stores the first; `vector` is
        how many numbers each of these loads brings.  With either, the work-items of a group have neighbours among all
        indices of the output whose lengths are known, rather than of its last one alone.""",
        word="loads in flight",
        parameter=("strips", "vector"),
        default=None,
    )

    square: str = described(
        """The index along the rows of operands that are read across them, of which as many values as a vector has lanes are
        turned round in registers, as many rows at a time; nothing where they are read number by number.""",
        word="staged operands",
        parameter="square",
        default="",
    )

    crossed: CrossedTiles | None = described(
        """The square tiles in local memory of GPUs where an operand has its lanes across the rows of another, or of the
        output.  `tile` is how many iterations of both indices they have; for sums, 0 is none: work-items read the other
        operand as it lies.  For each sum, a work-group goes through as many as `portion` has numbers; in a copy each of its
        work-items has `strips` places of one, all of them on their way at a time.""",
        word="staged operands",
        parameter=("tile", "portion", "strips"),
        default=None,
    )

    grid: ItemGrid | None = described(
        """The work-items of a group of a GPU's sum: `lanes` along the lane, as many as it is long at most, the others along
        the index before it in memory, so that short rows fill groups, too; 0 is one row for all of them.  `loads` is how
        many terms each has on their way at a time.""",
        word="loads in flight",
        parameter=("lanes", "loads"),
        default=None,
    )

    joined: tuple[str, ...] = described(
        "The groups of letters each of which becomes one index first, as they lie side by side in every array.",
        word="fused axes",
        parameter="joined",
        default=(),
    )

    def __post_init__(self) -> None:
        if self.grid and (self.vectors or self.crossed or next(iter(self.grid.counts)) != self.lane):
            raise TransformError(f"a grid of {self.grid.items} work-items has no lanes along '{self.lane}'")
        if self.crossed and (self.vectors or self.turned or self.width % self.crossed.length):
            raise TransformError(f"{self.width} work-items do not share the rows of tiles of {self.crossed.length}")
        if self.crossed and self.width > self.crossed.length**2:
            raise TransformError(f"{self.width} work-items are more than the places of a tile of {self.crossed.length}")
        if self.flight and (self.vectors or self.summed or self.turned or not self.order.endswith(self.flight.letters)):
            raise TransformError(f"work-items have no strips of '{self.flight.letters}' at a time in loops '{self.order}'")
        if self.square and not self._has_squares:
            raise TransformError(f"vectors of {self.width} make no squares of '{self.square}' in loops '{self.order}'")
        if self.lane not in self.order or not set(self.summed) <= set(self.order):
            raise TransformError(f"loops '{self.order}' lack the lane '{self.lane}', or some of the sums '{self.summed}'")
        if len(self.split) > 1:
            raise TransformError(f"the groups take parts of the sums over '{self.split}'; parts of one sum are enough")
        for letter, length in self.strips.items() if not self.crossed else ():
            if self.block_tile.get(letter, 0) % length:
                count = self.block_tile[letter]
                raise TransformError(f"a group does {count} of '{letter}', which is no multiple of {length}")

    @property
    def _has_squares(self) -> bool:
        """Whether vectors may make squares: of the innermost index, or of the only two that are summed over."""
        if not self.vectors or self.width == 1:
            return False
        if not self.summed:
            return self.order.endswith(self.square)
        return self.lane in self.summed and self.sums == [self.square] and self.accumulators == 1

    @property
    def by_items(self) -> bool:
        """Whether lanes are work-items."""
        return self.width > 1 and not self.vectors

    @property
    def split(self) -> str:
        """The index whose sum work-groups share; "" if there is none."""
        return "".join(x for x in self.block_tile if x in self.summed)

    @property
    def sums(self) -> list[str]:
        """The indices that are summed over, but for the lane, from the outside in."""
        return [x for x in self.order if x in self.summed and x != self.lane]

    @property
    def keeps_sums(self) -> bool:
        """Whether there is a sum for each place along the lane."""
        return bool(self.sums) and self.lane not in self.summed

    @property
    def strips(self) -> dict[str, int]:
        """Index -> how many of its iterations are done together."""
        if self.grid:
            return self.grid.strips()
        found = {self.lane: self.width * (self.accumulators if self.lane in self.summed else 1)}
        if self.keeps_sums:
            found[self.sums[-1]] = self.accumulation
        return found | ({self.square: self.width} if self.square else {})

    def local_bytes(self) -> int:
        """Local memory of a work-group for its tiles."""
        if self.crossed:
            row = self.crossed.length + self.crossed.spare
            return self.crossed.length * row * self.crossed.place_bytes * (1 + len(self.crossed.operands))
        return self.width * (self.turned.rows + self.turned.spare) * self.turned.place_bytes if self.turned else 0

    def registers(self) -> int:
        """Sums, in vectors or single numbers, that a work-item keeps; those along lanes of vectors are in a first cache."""
        if self.grid:
            return self.grid.loads
        if self.lane in self.summed:
            return self.accumulators
        return self.block_tile.get(self.lane, self.width) // self.width if self.summed else 0
