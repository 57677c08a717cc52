"""Plans of vector panels: the index along lanes, the sums in registers, and the copies and the share of a work-group.

out[e, i] = Σ_k S(i, k) V(e, k)        i: lanes, e: the long index, S: resident
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from feinsum.einsum import BatchedEinsum
from feinsum.errors import TransformError
from feinsum.parameters import described
from feinsum.skeletons.vector_panels.orders import MOST_OPERANDS, PanelOrder

_WIDTHS = (2, 4, 8, 16)


def is_vectorizable(e: BatchedEinsum) -> bool:
    """Whether lanes can run along one axis of the output, and a tile along another one."""
    plain = all(len(set(letters)) == len(letters) for letters in e.indexing.inputs)
    real = all(a.dtype in ("float32", "float64") for row in e.args for entry in row for a in entry)
    return plain and real and 2 <= e.n <= MOST_OPERANDS and len(e.indexing.output) >= 2


@dataclass(frozen=True)
class RegisterTile:
    """The sums that one step of a contraction order holds at once: vectors of a row, times numbers that are broadcast."""

    vectors: int = described(
        """How many vectors of a row are summed at once: of one that is longer than eight vectors as many as configurations
        want, or fewer that divide it into as many tiles; of another one all.""",
        word="register tile",
        parameter="vectors",
    )
    held: Mapping[str, int] = described(
        """How many of each other index of the result are summed at once: of the long index as many as configurations want;
        1 of an index that is not named.""",
        word="register tile",
        parameter="together",
    )

    def __post_init__(self) -> None:
        if min((self.vectors, *self.held.values())) < 1:
            raise TransformError(f"a register tile of {self.vectors} vectors and {dict(self.held)} holds no sum")

    @property
    def accumulators(self) -> int:
        """Vectors that are summed at once."""
        return self.vectors * math.prod(self.held.values())


@dataclass(frozen=True)
class GroupTile:
    """The part of one index of the output that a work-group computes."""

    steps: int = described(
        """The steps that a work-group takes along the index, one after the other; along the long index as many as cover
        what configurations want of it.""",
        word="block tile",
        parameter="tile",
    )
    at_once: int = described("How many of the index a step computes at once.", word="block tile")

    def __post_init__(self) -> None:
        if self.steps < 1 or self.at_once < 1:
            raise TransformError(
                f"a work-group takes {self.steps} steps of {self.at_once}; it computes one result at least"
            )

    @property
    def covered(self) -> int:
        """The number of values of the index that a work-group computes."""
        return self.steps * self.at_once


@dataclass(frozen=True)
class VectorPanels:
    """The plan of one kernel of vector panels."""

    order: PanelOrder = described(
        """The operands that are contracted one after the other, by position in what is left: "12 01" contracts operands 1
        and 2, then the first two of what that leaves.  Operands that no step contracts are multiplied in where results are
        stored.""",
        word="contraction order",
        parameter="path",
    )
    lane_axes: tuple[str, ...] = described(
        """The index that runs along the lanes of vectors: `lane` in the step that computes the results, in the steps before
        it the same one if they keep it, else the index of their result that fills vectors best.""",
        word="lane axis",
        parameter="lane",
    )
    width: int = described("The lanes of a vector.", word="vector width", parameter="width")
    register_tiles: tuple[RegisterTile, ...] = described(
        """The sums that each step of the order holds in registers at once: at most as many vectors as configurations want,
        unless those of a row for every one of the long index are more.""",
        word="accumulators",
        parameter="accumulators",
    )
    block_tile: Mapping[str, GroupTile] = described(
        """The indices of the output that work-groups share out, and what a group computes along each.  The first is the
        long index, along which a group goes on with what it has copied.""",
        word="block tile",
        parameter="long",
    )
    resident_factors: Mapping[int, str] = described(
        """The operands without the long index that a work-group copies once for all its iterations, as vectors along an
        index; each takes at most one part in `panel` of the cache that is a core's own.  With 0 nothing is copied, and all
        are read where they are.""",
        word="resident factor",
        parameter="panel",
    )
    staged_operands: Mapping[int, str] = described(
        """The operands with rows along the long index of which a work-group copies what it reads of them, in whole rows, as
        vectors along that index.""",
        word="staged operands",
        parameter="slab",
    )
    product_major: bool = described(
        """Whether a work-group finishes one output before it begins the next ("apart"), so that fewer streams of memory
        flow at a time, or computes all of them in one nest of loops ("together"), so that they share what is read and
        partial results.""",
        word="product-major order",
        parameter="rows",
    )
    streaming_stores: bool = described(
        "Whether results are stored past the caches, where rows are known to be aligned.",
        word="streaming stores",
        parameter="streaming",
    )
    prefetch: str | None = described(
        """The index along which a work-group asks for the operands of a later step while it computes one, where these lie
        in rows apart, or numbers are gathered from them; None: for nothing.""",
        word="prefetch",
        parameter="ahead",
        default=None,
    )
    line_bytes: int = described(
        "The bytes that one prefetch asks for: a line of the cache of the device.", word="prefetch", default=64
    )
    split_axis: tuple[str, int] | None = described(
        """The longest index of the output, but for its last one and the long one, and the length of the parts that it is
        divided into: two indices take its place, so that lanes run along a part, whose sums stay in registers.  0: it
        is one.""",
        word="lane axis",
        parameter="part",
        default=None,
    )
    fused_axes: str = described(
        """The last indices of the output that are one index in this plan, the last of them, as they are one row of every
        array that has them; empty: each is by itself.""",
        word="fused axes",
        default="",
    )

    def __post_init__(self) -> None:
        if not len(self.order.steps) == len(self.lane_axes) == len(self.register_tiles):
            raise TransformError(
                f"'{self.order.text}' has {len(self.order.steps)} steps, beside {len(self.lane_axes)} lanes and "
                f"{len(self.register_tiles)} register tiles; each step has one of both"
            )
        if self.width not in _WIDTHS:
            raise TransformError(f"a vector of {self.width} lanes; OpenCL has vectors of {_WIDTHS}")
        if twice := sorted(self.resident_factors.keys() & self.staged_operands.keys()):
            raise TransformError(f"operands {twice} are copied twice, as resident and as staged ones")
        if self.staged_operands and (len(self.order.steps) > 1 or self.product_major):
            raise TransformError("operands are staged for one contraction, of all outputs together")
        if self.prefetch is not None and (
            self.staged_operands or self.prefetch not in self.block_tile or self.block_tile[self.prefetch].steps == 1
        ):
            raise TransformError("a work-group reads all its rows at once")

    @property
    def copied(self) -> dict[int, str]:
        """The operands that a work-group copies, and the index that their vectors run along."""
        return {**self.resident_factors, **self.staged_operands}

    def lanes_of(self, e: BatchedEinsum) -> dict[int, str]:
        """The index along the lanes of the step that contracts an operand, by operand; those that no step contracts have
        none."""
        steps = zip(self.order.contractions(e), self.lane_axes, strict=True)
        return {k: lane for step, lane in steps for k in step.own if k is not None}

    def gathered(self, e: BatchedEinsum) -> list[int]:
        """The operands from which a step of a group gathers vectors, in part or whole, out of all that has its positions
        along the long index, if there are other axes behind."""
        (long, *others), lanes = self.block_tile, self.lanes_of(e)
        return [
            k
            for k, letters in enumerate(e.indexing.inputs)
            if k not in self.copied
            and {long, lanes.get(k, self.lane_axes[-1])} <= set(letters[:-1])
            and not set(others) & set(letters)
        ]

    def at_once(self, letter: str, length: int) -> int:
        """The number of values of an index of this length that a step of a work-group computes."""
        return self.block_tile[letter].at_once if letter in self.block_tile else length

    def groups(self, sizes: Mapping[str, int]) -> int:
        """The number of work-groups for indices of these lengths."""
        return math.prod(-(-sizes[x] // tile.covered) for x, tile in self.block_tile.items())

    @property
    def fused(self) -> tuple[str, ...]:
        """The groups of indices that are one."""
        return (self.fused_axes,) if self.fused_axes else ()

    @property
    def divided(self) -> dict[str, str]:
        """The indices of which the kernel takes several values at a time, and how."""
        found = dict.fromkeys(self.fused_axes, f"it is one index with its neighbours in '{self.fused_axes}'")
        for number, tile in enumerate(self.register_tiles):
            where = f" of step {number}" if len(self.register_tiles) > 1 else ""
            found |= {x: f"{n} of it are summed at once{where}" for x, n in tile.held.items() if n > 1}
        found |= {x: f"a work-group takes {t.at_once} of it at once" for x, t in self.block_tile.items() if t.at_once > 1}
        found |= dict.fromkeys(self.staged_operands.values(), "what is copied lies along it")
        found |= dict.fromkeys(self.lane_axes, "lanes of vectors run along it")
        if self.split_axis is not None:
            found.setdefault(self.split_axis[0], f"parts of {self.split_axis[1]} are computed together")
        return found

    def local_bytes(self) -> int:
        """None: copies and partial results are private to the one work-item of a group, and stay in its core's caches."""
        return 0

    def registers(self) -> int:
        """Vector registers of the largest step: its accumulators, and a row of vectors to multiply."""
        return max(tile.accumulators + tile.vectors for tile in self.register_tiles)
