"""The program as data: functions of instructions, frozen, with places that do not count when programs are compared.

`log`, `product`, `sum` and `axpby` are one class, :class:`ImmediateUpdate`, for all of them are ``C := alpha
einsum(operands) + beta C``; they differ in which index maps are legal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from feinsum.languages.immediate.maps import IndexMap
from feinsum.languages.immediate.types import ImmediateMemref, ImmediateScalar, MemrefGroup, Type
from feinsum.languages.source import Span

NOWHERE: Final = Span(0, 0)

Opcode: TypeAlias = Literal["axpby", "log", "product", "sum"]
INPUTS: Final[dict[Opcode, int]] = {"axpby": 1, "log": 2, "product": 2, "sum": 1}
"""The number of tensors that an update reads beside the one that it changes."""


@dataclass(frozen=True, slots=True)
class ImmediateName:
    """A use or a definition of ``%text``."""

    text: str
    span: Span = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        return f"%{self.text}"


@dataclass(frozen=True, slots=True)
class ImmediateParameter:
    """An argument of a function."""

    name: ImmediateName
    type: Type


@dataclass(frozen=True, slots=True)
class Alloca:
    """``%x = alloca : memref``: memory of one work-item, with no content yet."""

    result: ImmediateName
    type: ImmediateMemref
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class GetWorkItem:
    """``%x = get_work_item %A, i64 %o : group``: the memref of a group that has this work-item's number, plus an offset."""

    result: ImmediateName
    operand: ImmediateName
    offset: tuple[ImmediateScalar, ImmediateName] | None
    type: MemrefGroup
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class ImmediateSlice:
    """``start:stop`` of an index; None for the first or the last of it."""

    start: int | None = None
    stop: int | None = None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Fixed:
    """One value of an index, which the view does not have any more: a number, or an integer of a type."""

    at: int | ImmediateName
    type: ImmediateScalar | None = None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Subview:
    """``%x = subview %A[entries] : source to type``."""

    result: ImmediateName
    operand: ImmediateName
    entries: tuple[ImmediateSlice | Fixed, ...]
    source: ImmediateMemref
    type: ImmediateMemref
    span: Span = field(default=NOWHERE, compare=False)
    type_span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class ImmediateUpdate:
    """``C := alpha einsum(operands) + beta C``.

    :ivar types: of the operands, and last of the result.
    """

    opcode: Opcode
    map: IndexMap
    alpha: float
    operands: tuple[ImmediateName, ...]
    beta: float
    result: ImmediateName
    types: tuple[ImmediateMemref, ...]
    span: Span = field(default=NOWHERE, compare=False)
    constants: tuple[Span, Span] = field(default=(NOWHERE, NOWHERE), compare=False)
    """The places of alpha and beta."""
    type_spans: tuple[Span, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class For:
    """``for type %variable = start to stop {body}``, the last value excluded."""

    type: ImmediateScalar
    variable: ImmediateName
    start: int
    stop: int
    body: tuple[Instruction, ...]
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class OrderBarrier:
    """Everything before is done before anything after; instructions on either side are not raised to one einsum."""

    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class LifetimeStop:
    """The memory of an alloca is not needed any more."""

    operand: ImmediateName
    span: Span = field(default=NOWHERE, compare=False)


Instruction: TypeAlias = Alloca | GetWorkItem | Subview | ImmediateUpdate | For | OrderBarrier | LifetimeStop


@dataclass(frozen=True, slots=True)
class ImmediateFunction:
    """``define @name(parameters) {body}``, executed for each work-item."""

    name: str
    parameters: tuple[ImmediateParameter, ...]
    body: tuple[Instruction, ...]
    span: Span = field(default=NOWHERE, compare=False)

    def walk(self) -> Iterator[Instruction]:
        """Every instruction, those in loops once, in order of the text."""
        yield from walk_instructions(self.body)


def walk_instructions(body: tuple[Instruction, ...]) -> Iterator[Instruction]:
    """Every instruction of a region and of the regions in it."""
    for instruction in body:
        yield instruction
        if isinstance(instruction, For):
            yield from walk_instructions(instruction.body)
