"""The notation of parts of a plan in configurations: ``"1 2 4 of 3 5"``, ``"async 3"``, ``"k 64"``, ``"01"``, ``"0 2"``.

Each part is read by its `parse` and written by `str`, and ``parse(str(x)) == x``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Self, cast

import numpy as np

from feinsum.errors import TransformError

NONE, STEPS = "none", "steps"


@dataclass(frozen=True)
class BlockShape:
    """The warps of a work-group and the fragments of each: ``"1 2 4 of 3 5"``.

    :ivar warps: sub-groups for items of the batch, along rows, along columns.
    :ivar warp_tile: fragments of a sub-group: along rows, along columns.
    """

    warps: tuple[int, int, int]
    warp_tile: tuple[int, int]

    def __post_init__(self) -> None:
        if min(*self.warps, *self.warp_tile) < 1:
            raise TransformError(f"block tile '{self}' has no warps or no fragments along one of its axes")

    @classmethod
    def parse(cls, text: str) -> Self:
        """:raises TransformError: if `text` is no block tile."""
        items, down, across, rows, columns = map(
            int, _match_groups("block tile", r"(\d+) (\d+) (\d+) of (\d+) (\d+)", text)
        )
        return cls((items, down, across), (rows, columns))

    def __str__(self) -> str:
        return f"{' '.join(map(str, self.warps))} of {' '.join(map(str, self.warp_tile))}"

    @property
    def fragments(self) -> int:
        """Fragments of a sub-group."""
        return prod(self.warp_tile)


class BlockShapes(BlockShape):
    """Many block tiles in place of one: every number is an array of theirs, and so is what a plan counts with it.

    A plan counts thousands of tiles so in the time of a few.
    """

    def __post_init__(self) -> None:
        """Nothing: each of the tiles was looked at."""

    @classmethod
    def of(cls, shapes: Sequence[BlockShape]) -> Self:
        """Some tiles, in their order."""
        numbers: list[Any] = list(np.array([(*shape.warps, *shape.warp_tile) for shape in shapes]).T)
        return cls(cast("tuple[int, int, int]", tuple(numbers[:3])), cast("tuple[int, int]", tuple(numbers[3:])))


@dataclass(frozen=True)
class TilePipeline:
    """The way of tiles to local memory: ``"async 3"`` or ``"registers 2"``.

    :ivar asynchronous: whether tiles are copied without passing through registers, `stages` - 1 of them ahead.
    :ivar stages: tiles of each operand in local memory.
    """

    asynchronous: bool
    stages: int

    def __post_init__(self) -> None:
        if self.stages < 1 + self.asynchronous:
            raise TransformError(
                "tiles that are copied asynchronously need two stages at least, and others need one; "
                f"pipeline '{self}' has {self.stages}"
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """:raises TransformError: if `text` is no pipeline."""
        kind, stages = _match_groups("pipeline", r"(async|registers) (\d+)", text)
        return cls(kind == "async", int(stages))

    def __str__(self) -> str:
        return f"{'async' if self.asynchronous else 'registers'} {self.stages}"


@dataclass(frozen=True)
class SumSplit:
    """The parts of a sum that work-groups take: ``"k 64"``, or ``"none"`` of a sum that stays whole.

    :ivar letter: the index that is divided; "" for none.
    :ivar length: how much of it a part has.
    """

    letter: str = ""
    length: int = 0

    def __post_init__(self) -> None:
        if bool(self.letter) != (self.length > 0):
            raise TransformError(f"parts of {self.length} along '{self.letter}' are no parts of a sum")

    @classmethod
    def parse(cls, text: str) -> Self:
        """:raises TransformError: if `text` is neither a letter and a length nor ``"none"``."""
        if text == NONE:
            return cls()
        letter, length = _match_groups("split of a sum", r"([A-Za-z]) ([1-9]\d*)", text)
        return cls(letter, int(length))

    def __str__(self) -> str:
        return f"{self.letter} {self.length}" if self.letter else NONE


@dataclass(frozen=True)
class Packing:
    """The operands that are copied into another order of axes first: ``"01"``, or ``"none"``."""

    operands: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """:raises TransformError: if `text` is neither ``"none"`` nor made of the operands 0 and 1, in order."""
        return cls() if text == NONE else cls(tuple(map(int, _match_groups("packing", r"(0)(1)|(0)|(1)", text))))

    def __str__(self) -> str:
        return "".join(map(str, self.operands)) or NONE


@dataclass(frozen=True)
class ChainPath:
    """The operands that are multiplied as they are loaded, ``"0 2"``; or ``"steps"`` of two operands at a time.

    :ivar pair: two operands of three, in ascending order; empty for steps.
    """

    pair: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """:raises TransformError: if `text` is neither ``"steps"`` nor two of the operands 0, 1, 2, in order."""
        return (
            cls() if text == STEPS else cls(tuple(map(int, _match_groups("path of a chain", r"(0) ([12])|(1) (2)", text))))
        )

    def __str__(self) -> str:
        return " ".join(map(str, self.pair)) or STEPS


def _match_groups(name: str, pattern: str, text: str) -> tuple[str, ...]:
    """The groups of a pattern that a text has.

    :raises TransformError: if the text does not match.
    """
    found = re.fullmatch(pattern, text)
    if found is None:
        raise TransformError(f"'{text}' is no {name}")
    return tuple(group for group in found.groups() if group)
