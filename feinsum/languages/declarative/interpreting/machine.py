"""The machine: names, open indices and the condition that holds; it evaluates expressions for all indices at once.

Both ways of a choice are evaluated where its condition differs between indices, each under a mask; what is masked may read
out of range, divide by nothing and race with nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from feinsum.elementwise import COMPARISONS, OPERATORS
from feinsum.errors import LanguageError
from feinsum.languages.declarative import syntax
from feinsum.languages.declarative.forms import FUNCTIONS, SCALARS
from feinsum.languages.declarative.interpreting.values import (
    IndexedValue,
    aligned_values,
    common_type,
    gather_elements,
    literal_value,
)
from feinsum.languages.declarative.syntax import OperatorCall, StatementBlock, SyntaxNode
from feinsum.languages.diagnostics import Note, broken_rule
from feinsum.languages.source import SourceText, Span

_OPERATORS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    name: row.evaluate for name, row in {**OPERATORS, **COMPARISONS}.items()
} | {"%": np.mod}


class ExpressionInterpreter:
    """Evaluates expressions; forms and thread scopes are added by classes that follow.

    :ivar names: what names stand for: values, storage of thread scopes, and functions.
    :ivar signatures: the declared types of functions.
    :ivar lengths: of the indices that are open.
    :ivar mask: where the expression at hand is wanted; None is everywhere.
    """

    def __init__(self, source: SourceText, tunes: Mapping[str, int]) -> None:
        self.source = source
        self.tunes = tunes
        self.names: dict[str, Any] = {}
        self.signatures: dict[str, syntax.FunctionType] = {}
        self.lengths: list[int] = []
        self.mask: IndexedValue | None = None

    @property
    def depth(self) -> int:
        """The number of open indices."""
        return len(self.lengths)

    def fail(self, rule: str, span: Span, message: str, *notes: Note) -> LanguageError:
        """The error that a rule is broken."""
        return broken_rule(self.source, rule, span, message, notes)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Names that are defined here are forgotten behind."""
        names = dict(self.names)
        try:
            yield
        finally:
            self.names = names

    @contextmanager
    def where(self, condition: Any) -> Iterator[None]:
        """Only where a condition holds, besides what holds already; it has an axis for each index."""
        outside = self.mask
        if outside is not None:
            condition = np.logical_and(condition, outside.at_depth(self.depth))
        self.mask = IndexedValue(condition, self.depth)
        try:
            yield
        finally:
            self.mask = outside

    def wanted(self, condition: Any) -> Any:
        """A condition, and that its place is wanted; nothing is where an index has no values."""
        if 0 in self.lengths:
            return np.logical_and(condition, False)
        return condition if self.mask is None else np.logical_and(condition, self.mask.at_depth(self.depth))

    # expressions

    def block(self, block: StatementBlock) -> IndexedValue:
        """The value of a block."""
        with self.inside():
            self.run(block)
            assert block.value is not None
            return self.evaluate(block.value)

    def run(self, block: StatementBlock) -> None:
        """Execute the statements of a block."""
        raise NotImplementedError

    def form(self, node: SyntaxNode, shape: tuple[int, ...] | None) -> IndexedValue:
        """The value of a form, a call of an argument, an allocation."""
        raise NotImplementedError

    def evaluate(self, node: SyntaxNode, shape: tuple[int, ...] | None = None) -> IndexedValue:
        """The value of an expression; `shape` is what it is said to have."""
        match node:
            case syntax.Literal(value=value):
                return literal_value(value)
            case syntax.NameUse(name=name):
                return self.load(name, node)
            case OperatorCall():
                return self._operation(node)
            case syntax.Element():
                return self.element(node)
            case syntax.ListOf(items=items):
                return self._list([self.evaluate(item) for item in items])
            case syntax.Conditional():
                return self._choice(node)
            case syntax.DeclarativeCall() if node.function in FUNCTIONS:
                return self._function(node)
            case syntax.DeclarativeCall() if node.function in SCALARS:
                (cast,) = self._arguments(node)
                return IndexedValue(cast.data.astype(SCALARS[node.function]), cast.depth)
        return self.form(node, shape)

    def load(self, name: str, node: SyntaxNode) -> IndexedValue:
        """The value of a name."""
        found: IndexedValue = self.names[name]
        return found

    def integer(self, node: SyntaxNode) -> int:
        """An integer that is the same for all indices, such as a length."""
        data = self.evaluate(node).data
        if data.size == 0:
            return 0
        if data.min() != data.max():
            raise self.fail("index", node.span, f"this differs between indices: {data.min()} to {data.max()}")
        return int(data.flat[0])

    def _list(self, values: list[IndexedValue]) -> IndexedValue:
        dtype, weak = common_type(values)
        data = [d.astype(dtype) for d in aligned_values(values, self.depth)]
        return IndexedValue(np.stack(np.broadcast_arrays(*data), axis=-1), self.depth, weak)

    def _operation(self, node: OperatorCall) -> IndexedValue:
        if node.operator in ("and", "or"):
            return self._logical(node)
        values = [self.evaluate(operand) for operand in node.operands]
        if len(values) == 1:
            (value,) = values
            data = np.logical_not(value.data) if node.operator == "not" else -value.data
            return IndexedValue(data, value.depth, value.weak)
        self.require_same(values, node)
        dtype, weak = common_type(values)
        first, second = (data.astype(dtype) for data in aligned_values(values, self.depth))
        if dtype.kind in "iu" and node.operator in ("/", "%"):
            return self._divided(node, first, second, weak == "int")
        with np.errstate(all="ignore"):
            data = _OPERATORS[node.operator](first, second)
        return IndexedValue(data, self.depth, "" if node.operator in COMPARISONS else weak)

    def _divided(self, node: OperatorCall, first: Any, second: Any, weak: bool) -> IndexedValue:
        """A quotient of integers, which is exact, or a remainder."""
        zero = np.broadcast_to(second == 0, np.broadcast_shapes(first.shape, second.shape))
        wanted = self._over_tensor(np.ones((), np.bool_), zero.ndim)
        safe = np.where(second == 0, 1, second)
        rest = first % safe
        bad = zero if node.operator == "%" else np.logical_or(zero, rest != 0)
        bad = np.logical_and(bad, wanted)
        if bad.any():
            place = tuple(np.argwhere(bad)[0])
            a, b = (np.broadcast_to(x, bad.shape)[place] for x in (first, second))
            raise self.fail("run-division", node.span, f"{a} {node.operator} {b} is no integer")
        return IndexedValue(rest if node.operator == "%" else first // safe, self.depth, "int" if weak else "")

    def _over_tensor(self, condition: Any, rank: int) -> Any:
        """The condition under which values are wanted, with axes for those of a tensor."""
        found = np.asarray(self.wanted(condition))
        return found.reshape((*found.shape, *(1,) * (rank - found.ndim))) if found.ndim else found

    def require_same(self, values: list[IndexedValue], node: SyntaxNode) -> None:
        """Refuse tensors of different shapes."""
        shapes = {v.shape for v in values if v.shape}
        if len(shapes) > 1:
            raise self.fail("run-shape", node.span, f"shapes differ: {' and '.join(str(list(s)) for s in sorted(shapes))}")

    def _logical(self, node: OperatorCall) -> IndexedValue:
        """``and`` and ``or``, whose second operand is looked at only where the first leaves it open."""
        first = self.evaluate(node.operands[0]).at_depth(self.depth)
        still = first if node.operator == "and" else np.logical_not(first)
        if not self.wanted(still).any():
            return IndexedValue(first, self.depth)
        with self.where(still):
            second = self.evaluate(node.operands[1]).at_depth(self.depth)
        return IndexedValue((np.logical_and if node.operator == "and" else np.logical_or)(first, second), self.depth)

    def _choice(self, node: syntax.Conditional) -> IndexedValue:
        condition = self.evaluate(node.condition).at_depth(self.depth)
        opposite = np.logical_not(condition)
        then, otherwise = self._way(node.then, condition), self._way(node.otherwise, opposite)
        if then is None or otherwise is None or len({v.shape for v in (then, otherwise)}) > 1:
            if otherwise is None or (then is not None and not self.wanted(opposite).any()):
                return then or self.block(node.then)
            if then is None or not self.wanted(condition).any():
                return otherwise
            self.require_same([then, otherwise], node)
        return self.select(condition, then, otherwise)

    def _way(self, block: StatementBlock, condition: Any) -> IndexedValue | None:
        """The value of a way of a choice; None if there is none, and none is wanted."""
        try:
            with self.where(condition):
                return self.block(block)
        except LanguageError:
            if self.wanted(condition).any():
                raise
            return None

    def select(self, condition: Any, then: IndexedValue, otherwise: IndexedValue) -> IndexedValue:
        """One value where a condition holds, another elsewhere."""
        dtype, weak = common_type([then, otherwise])
        if then.data.dtype.kind == "b":
            dtype, weak = then.data.dtype, ""
        a, b = aligned_values([then, otherwise], self.depth)
        condition = condition.reshape((*condition.shape, *(1,) * (a.ndim - condition.ndim)))
        return IndexedValue(np.where(condition, a.astype(dtype), b.astype(dtype)), self.depth, weak)

    def _arguments(self, node: syntax.DeclarativeCall) -> list[IndexedValue]:
        return [self.evaluate(a.value) for a in node.arguments]

    def _function(self, node: syntax.DeclarativeCall) -> IndexedValue:
        kind, values = FUNCTIONS[node.function], self._arguments(node)
        self.require_same(values, node)
        dtype, weak = common_type(values)
        if kind.ulps and dtype.kind != "f":
            dtype, weak = np.dtype(np.float64), "float" if weak else ""
        data = [d.astype(dtype) for d in aligned_values(values, self.depth)]
        if "f" not in kind.kinds:
            zero = np.logical_and(data[1] == 0, self._over_tensor(np.ones((), np.bool_), data[1].ndim))
            if zero.any():
                raise self.fail("run-division", node.span, f"{node.function} by 0")
            data[1] = np.where(data[1] == 0, 1, data[1])
        with np.errstate(all="ignore"):
            found = kind.evaluate(*data)
        return IndexedValue(found, self.depth) if kind.condition else IndexedValue(found.astype(dtype), self.depth, weak)

    def element(self, node: syntax.Element) -> IndexedValue:
        """Elements, for all indices."""
        base = self.evaluate(node.base)
        data, picks, sliced = self.picked(node, base.at_depth(self.depth), base.shape)
        return IndexedValue(gather_elements(data, self.depth, picks), self.depth, base.weak if not sliced else "")

    def picked(self, node: syntax.Element, data: Any, shape: tuple[int, ...]) -> tuple[Any, list[Any], int]:
        """The base of an element, arrays of indices for its axes, and how many axes are left."""
        slices = sum(isinstance(index, syntax.DeclarativeSlice) for index in node.indices)
        behind = slices
        picks: list[Any] = []
        for axis, index in enumerate(node.indices):
            if isinstance(index, syntax.DeclarativeSlice):
                start, length = self._slice(index, shape[axis])
                behind -= 1
                picks.append(_slice_indices(start, length, behind, slices, self.depth))
                self._inside(picks[-1], shape[axis], node, axis, slices)
            else:
                found = self.evaluate(index).at_depth(self.depth).astype(np.int64)
                self._inside(found, shape[axis], node, axis)
                picks.append(found.reshape((*found.shape, *(1,) * slices)))
        return data, [np.clip(p, 0, max(n - 1, 0)) for p, n in zip(picks, shape, strict=True)], slices

    def _slice(self, node: syntax.DeclarativeSlice, length: int) -> tuple[Any, int]:
        """The begin of a slice, for all indices, and its length."""
        if node.start is None or node.stop is None:
            return np.zeros((1,) * self.depth, np.int64), length
        start, stop = (self.evaluate(part).at_depth(self.depth) for part in (node.start, node.stop))
        lengths = np.unique(stop - start)
        if len(lengths) > 1 or lengths[0] < 0:
            raise self.fail("run-shape", node.span, f"slices have the lengths {lengths[0]} to {lengths[-1]}")
        return start, int(lengths[0])

    def _inside(self, index: Any, length: int, node: syntax.Element, axis: int, behind_axes: int = 0) -> None:
        bad = np.logical_or(index < 0, index >= length)
        if not bad.any():
            return
        wanted = np.asarray(self.wanted(np.ones((1,) * self.depth, np.bool_)))
        bad = np.logical_and(bad, wanted.reshape((*wanted.shape, *(1,) * behind_axes)))
        if bad.any():
            first = np.broadcast_to(index, bad.shape)[tuple(np.argwhere(bad)[0])]
            raise self.fail("run-bounds", node.span, f"index {first} of axis {axis}, whose length is {length}")


def _slice_indices(start: Any, length: int, behind: int, slices: int, depth: int) -> Any:
    """Indices of a slice, along the one of the axes of all slices that is its own."""
    steps = np.arange(length).reshape((*(1,) * (slices - 1 - behind), length, *(1,) * behind))
    return start.reshape((*start.shape, *(1,) * slices)) + steps.reshape((*(1,) * depth, *steps.shape))
