"""The events of a work-group: copies, contractions and stores, and the places of their arrays."""

from __future__ import annotations

from dataclasses import dataclass

from feinsum.skeletons.fused_chains.chain_steps import MatrixSharing, TileSharing

MOVED_TOGETHER = 40
"""Elements that a work-item loads together, so that their latencies overlap."""
NUMBERS_OF_A_PLACE = 6
"""Elements that a work-item moves in the time in which it computes the place of one."""


@dataclass(frozen=True)
class LocalArray:
    """An array in local memory, and the letters of its axes as a step reads it."""

    array: int
    letters: str


@dataclass(frozen=True)
class InRegisters:
    """The result of the step before, which each work-item has of its own in registers."""


Source = LocalArray | InRegisters | None
"""The place where a step reads an operand: None for its own place in global memory."""


@dataclass(frozen=True)
class CopyMatrix:
    """The matrix of a step on a matrix unit to an array."""

    step: int
    row: int
    sharing: MatrixSharing
    target: LocalArray


@dataclass(frozen=True)
class CopyOperand:
    """Operand `operand` of a row to an array."""

    operand: int
    row: int
    sharing: TileSharing
    target: LocalArray


@dataclass(frozen=True)
class ContractStep:
    """A step of a row; sources that are None are operands read where they are; without a target, it goes to the output."""

    step: int
    row: int
    sharing: TileSharing | MatrixSharing
    sources: tuple[Source, ...]
    target: Source


@dataclass(frozen=True)
class StoreResult:
    """The staged results of a row to the output."""

    row: int
    sharing: TileSharing
    source: LocalArray


GroupEvent = CopyOperand | CopyMatrix | ContractStep | StoreResult
