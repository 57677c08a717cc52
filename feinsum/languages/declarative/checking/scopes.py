"""Scopes: the visible names, the conditions that hold there, and the descriptions of values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from feinsum.languages.declarative.extents import Extent
from feinsum.languages.declarative.syntax import Expression, FunctionType, StatementBlock, SyntaxNode, Type
from feinsum.languages.declarative.types import ANY_FLOAT, ANY_INT, Typed
from feinsum.languages.diagnostics import Findings, Note
from feinsum.languages.source import Span

Known = Typed | FunctionType | None
"""The meaning of a name; None where an error was reported already."""


class CheckedScope:
    """The names that can be seen, those of the block at hand, and what holds there."""

    def __init__(self) -> None:
        self.names: dict[str, Known] = {}
        self.spans: dict[str, Span] = {}
        self.own: set[str] = set()
        self.ranges: tuple[tuple[str, Extent], ...] = ()
        self.conditions: tuple[Extent, ...] = ()
        self.exact = True
        self.thread = False
        self.shared: tuple[str, ...] = ()
        self.varies = False

    def inner(self) -> CheckedScope:
        """The scope of a block in this one."""
        scope = CheckedScope()
        scope.names, scope.spans = dict(self.names), dict(self.spans)
        scope.ranges, scope.conditions, scope.exact = self.ranges, self.conditions, self.exact
        scope.thread, scope.shared, scope.varies = self.thread, self.shared, self.varies
        return scope


class Scopes(ABC):
    """The scope at hand, and what is found.

    :ivar whole: lengths that were divided, which have to be integers.
    """

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self.scope = CheckedScope()
        self.whole: list[Extent] = []
        self._count = 0

    @abstractmethod
    def expression(self, node: SyntaxNode, expected: Typed | None = None) -> Typed | None:
        """The value of an expression; None where an error was reported already.

        :param expected: what it is said to be, which the result of a grid needs.
        """

    @abstractmethod
    def statements(self, block: StatementBlock) -> None:
        """Check the statements of a block, in the scope at hand."""

    @abstractmethod
    def type_of(self, node: Type, *, lengths: bool = False, name: str = "") -> Typed | None:
        """The type that a text names; with `lengths` unknown names become lengths."""

    def value_of(self, block: StatementBlock) -> Typed | None:
        """Check a block and say what its value is."""
        with self.block():
            self.statements(block)
            if block.value is None:
                end = Span(max(block.span.end - 1, block.span.start), block.span.end)
                self.findings.error("block-value", end, "this block has no value: its last line is to be an expression")
                return None
            return self.expression(block.value)

    def fresh(self, name: str) -> Extent:
        """An atom that no other name is."""
        self._count += 1
        return Extent.of(f"{name}'{self._count}")

    def error(self, rule: str, node: SyntaxNode, message: str, *notes: Note) -> None:
        """Note that a rule is broken."""
        self.findings.error(rule, node.span, message, notes)

    @contextmanager
    def block(self) -> Iterator[CheckedScope]:
        """A scope in the one at hand."""
        outside, self.scope = self.scope, self.scope.inner()
        try:
            yield self.scope
        finally:
            self.scope = outside

    def define(self, name: str, known: Known, node: SyntaxNode, *, again: bool = False) -> None:
        """Give a name its meaning from here on."""
        scope = self.scope
        if name in scope.own and not again:
            note = self.findings.note(f"the other {name}", scope.spans[name])
            self.error("name-redefined", node, f"{name} is defined in this block already", note)
        elif name in scope.names and not again:
            note = self.findings.note(f"the outer {name}", scope.spans.get(name, node.span))
            self.findings.warn("name-shadowed", node.span, f"{name} hides another {name}", [note])
        scope.own.add(name)
        scope.names[name], scope.spans[name] = known, node.span

    def index(self, name: str, extent: Extent, node: SyntaxNode, *, varies: bool = False) -> None:
        """Define an index that runs from 0 below an extent."""
        integer = self.fresh(name)
        self.define(name, Typed((), ANY_INT, integer, varies), node)
        ((((atom,), _),),) = (integer.terms,)
        self.scope.ranges = (*self.scope.ranges, (atom, extent))

    def extent(self, node: Expression) -> Extent | None:
        """The integer that an expression is; None if it is none that lengths decide."""
        value = self.expression(node)
        if value is None:
            return None
        if value.shape or not value.is_integer:
            self.error("index", node, f"this is {describe_value(value)}, where an integer is needed")
            return None
        return value.integer if value.integer is not None else Extent.of(f"({node.span.start})")

    def same_shape(self, first: Typed, second: Typed, node: SyntaxNode) -> bool:
        """Whether two shapes are the same, or may be when lengths are known."""
        differ = len(first.shape) != len(second.shape) or any(
            (a - b).constant not in (0, None) for a, b in zip(first.shape, second.shape, strict=True)
        )
        if differ:
            self.error("shape", node, f"shapes differ: {shown_shape(first.shape)} and {shown_shape(second.shape)}")
        return not differ

    def require_bool(self, value: Typed | None, node: SyntaxNode) -> None:
        """Note what is no bool, where one is needed."""
        if value is not None and value.dtype != "bool":
            self.error("type", node, f"a condition is a bool, and this is {describe_value(value)}")


def describe_value(value: Typed) -> str:
    """A value in words."""
    kind = {"bool": "a bool", ANY_INT: "an integer", ANY_FLOAT: "a number with a point"}.get(value.dtype, value.dtype)
    return kind if not value.shape else f"a tensor {shown_shape(value.shape)} of {value.dtype}"


def shown_shape(shape: Sequence[Extent]) -> str:
    """A shape in words."""
    return f"[{', '.join(map(str, shape))}]"
