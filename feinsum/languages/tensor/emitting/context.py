"""The context of emission: statements in order, what values stand for, and who takes part.

Blocks of statements are cgen's.  A *mask* is a C variable that says whether a work-item takes part, where all of them go
on together although only some should: wherever they have to meet at a barrier.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import cgen

from feinsum.languages.source import Span
from feinsum.languages.tensor.emitting.numbers import c_type_of, zero
from feinsum.languages.tensor.ir import TensorFunction, TensorValue
from feinsum.languages.tensor.lowering.coopmatrix_units import values_on_units
from feinsum.languages.tensor.lowering.target import Target
from feinsum.languages.tensor.types import Boolean, TensorScalar

Amount: TypeAlias = "int | str"
"""A number that is known, or a C expression."""


def plus(*terms: Amount) -> Amount:
    """A sum.

    >>> plus(0, "i", 2, 3), plus(1, 2)
    ('i + 5', 3)
    """
    known = sum(term for term in terms if isinstance(term, int))
    unknown = [term for term in terms if isinstance(term, str)]
    if not unknown:
        return known
    return " + ".join([*unknown, *([str(known)] if known else [])])


def product_expression(a: Amount, b: Amount) -> Amount:
    """A product.

    >>> product_expression("i + 1", 4), product_expression(1, "i"), product_expression(0, "i")
    ('(i + 1) * 4', 'i', 0)
    """
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    if 0 in (a, b):
        return 0
    if 1 in (a, b):
        return b if a == 1 else a
    return f"{within(a)} * {within(b)}"


def divisor_of(amount: Amount) -> int:
    """A number that divides an amount; 0 for 0, which all divide."""
    return amount if isinstance(amount, int) else 1


def known_number(text: str) -> int:
    """The number that an expression is; 1, which divides everything, where that is not known."""
    plain = text.rstrip("L")
    return int(plain) if plain.isdigit() else 1


def within(expression: Amount) -> str:
    """An expression that can be a part of another."""
    text = str(expression)
    return text if text.replace("_", "").isalnum() else f"({text})"


_IF: Any = cgen.If
_FOR: Any = cgen.For
"""As their own documentation has them, of texts; their types ask for more."""


def branch(condition: str, then: list[Any], other: list[Any] | None = None) -> Any:
    """The C statement ``if``."""
    return _IF(condition, cgen.Block(then), None if other is None else cgen.Block(other))


def for_statement(start: str, condition: str, update: str, body: list[Any]) -> Any:
    """The C statement ``for``."""
    return _FOR(start, condition, update, cgen.Block(body))


@dataclass(frozen=True)
class EmittedView:
    """A memref: a pointer, sizes and strides in elements; `space` is an address space without underscores.

    :ivar aligned: a number of elements that the distance of the pointer from a multiple of 16 bytes is a multiple of.
    """

    pointer: str
    element: TensorScalar
    space: str
    shape: tuple[Amount, ...]
    strides: tuple[Amount, ...]
    aligned: int = 1

    def place(self, indices: list[Amount]) -> Amount:
        """The element of indices, counted from the pointer."""
        return plus(*(product_expression(index, stride) for index, stride in zip(indices, self.strides, strict=True)))


@dataclass(frozen=True)
class EmittedGroup:
    """A group: the pointer to its elements, and tables of offsets, unknown sizes and unknown strides."""

    pointer: str
    offsets: str
    size: Amount
    shape: tuple[Amount, ...]
    strides: tuple[Amount, ...]
    element: TensorScalar


class Context:
    """The facts that emission knows at a point of a function.

    :ivar values: a C expression, a :class:`EmittedView`, a group or a matrix for each value.
    :ivar levels: how values vary between work-items.
    :ivar divisors: numbers that divide indices.
    :ivar mask: the variable that says who takes part; None for all who get there.
    :ivar span: the operation that is being emitted; `spans` those whose accesses are checked.
    :ivar locals: arrays of the work-group, by name: type and length.
    :ivar on_units: matrices that are held as matrix units have them, and how; `units` are those used.
    :ivar meets_in_branch: whether work-items meet in a branch that all of them take, or none.
    :ivar alloca_space: the address space of allocas; `spilled` are the arrays that lie in global memory.
    """

    def __init__(
        self, function: TensorFunction, target: Target, levels: Mapping[TensorValue, int], check: bool = False
    ) -> None:
        self.function, self.target, self.levels, self.check = function, target, levels, check
        self.values: dict[TensorValue, Any] = {}
        self.divisors: dict[TensorValue, int] = {}
        self.on_units = values_on_units(function, target, levels)
        self.units: dict[str, None] = {}
        self.body: list[Any] = []
        self.mask: str | None = None
        self.collective = True
        self.meets_in_branch = False
        self.span = Span(0, 0)
        self.spans: list[Span] = []
        self.locals: dict[str, tuple[str, int]] = {}
        self.spilled: dict[str, tuple[str, int]] = {}
        self.alloca_space = "private" if target.is_alone else "local"
        self._count = 0

    def fresh(self, hint: str) -> str:
        """A name that nothing else has."""
        self._count += 1
        clean = "".join(c for c in hint if c.isalnum() and c.isascii())
        return f"v{self._count}{f'_{clean}' if clean else ''}"

    def text(self, value: TensorValue) -> str:
        """The C expression of a scalar."""
        found: str = self.values[value]
        return found

    def put(self, statement: str) -> None:
        self.body.append(cgen.Statement(statement))

    def declare(self, type_: str, hint: str, expression: str = "") -> str:
        """A new variable; its name."""
        name = self.fresh(hint)
        if expression:
            self.body.append(cgen.Initializer(cgen.Value(type_, name), expression))
        else:
            self.body.append(cgen.Value(type_, name))
        return name

    def assign(self, value: TensorValue, expression: str) -> None:
        """A value becomes a variable of its own."""
        assert isinstance(value.type, (TensorScalar, Boolean))
        self.values[value] = self.declare(f"{c_type_of(value.type)} const", value.name, expression)

    def assign_if_taking_part(self, value: TensorValue, expression: str) -> None:
        """Assign where only work-items that take part may evaluate the expression; others get 0."""
        assert isinstance(value.type, (TensorScalar, Boolean))
        if self.mask is None:
            self.assign(value, expression)
            return
        name = self.declare(c_type_of(value.type), value.name, zero(value.type))
        with self.guard(self.mask):
            self.put(f"{name} = {expression}")
        self.values[value] = name

    @contextmanager
    def block(self) -> Iterator[list[Any]]:
        """Collect statements apart."""
        before, self.body = self.body, []
        made = self.body
        try:
            yield made
        finally:
            self.body = before

    @contextmanager
    def guard(self, condition: str | None) -> Iterator[None]:
        """Statements for those of whom a condition holds; None holds for all."""
        if condition is None:
            yield
            return
        with self.block() as inside:
            yield
        self.body.append(branch(condition, inside))

    @contextmanager
    def loop(self, start: str, condition: str, update: str) -> Iterator[None]:
        """Statements of a C loop."""
        with self.block() as inside:
            yield
        self.body.append(for_statement(start, condition, update, inside))

    @contextmanager
    def masked(self, mask: str | None) -> Iterator[None]:
        """With other work-items that take part."""
        before, self.mask = self.mask, mask
        try:
            yield
        finally:
            self.mask = before

    def local_array(self, name: str, type_: str, length: int, of_allocas: bool = False) -> str:
        """An array of the work-group; the longest that was asked for by this name."""
        arrays = self.spilled if of_allocas and self.alloca_space == "global" else self.locals
        known = arrays.get(name, (type_, 0))
        arrays[name] = type_, max(known[1], length)
        return name

    def barrier(self, global_: bool = False, local: bool = True) -> None:
        """A barrier, unless there is no other work-item to wait for."""
        if self.target.is_alone:
            return
        global_ = global_ or (local and self.alloca_space == "global")
        fences = [f"CLK_{name}_MEM_FENCE" for name, wanted in (("GLOBAL", global_), ("LOCAL", local)) if wanted]
        self.put(f"barrier({' | '.join(fences) or 'CLK_LOCAL_MEM_FENCE'})")
