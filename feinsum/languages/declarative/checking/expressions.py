"""Expressions: operators, choices and calls; forms and functions are checked in modules of their own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

from feinsum.languages.declarative import syntax
from feinsum.languages.declarative.checking.elements import COMPARISONS, Elements
from feinsum.languages.declarative.checking.scopes import describe_value
from feinsum.languages.declarative.extents import Extent
from feinsum.languages.declarative.reading import TOO_LARGE
from feinsum.languages.declarative.syntax import Conditional, OperatorCall, SyntaxNode
from feinsum.languages.declarative.types import ANY_FLOAT, ANY_INT, Typed, promote
from feinsum.languages.diagnostics import Note

BOOL: Final = Typed(dtype="bool")


class Expressions(Elements):
    """Checks expressions."""

    @abstractmethod
    def form(self, node: SyntaxNode, expected: Typed | None) -> Typed | None:
        """The value of a form, an alternative, a member or an allocation."""

    @abstractmethod
    def call(self, node: syntax.DeclarativeCall) -> Typed | None:
        """The value of a call."""

    def expression(self, node: SyntaxNode, expected: Typed | None = None) -> Typed | None:
        """The value of an expression; None where an error was reported already.

        :param expected: what it is said to be, which the result of a grid needs.
        """
        match node:
            case syntax.Literal(value=bool()):
                return BOOL
            case syntax.Literal(value=int() as value):
                if abs(value) >= TOO_LARGE:
                    self.error("type", node, f"the largest integer is {TOO_LARGE - 1}", Note("write it with a point"))
                    return Typed((), ANY_INT)
                return Typed((), ANY_INT, Extent.of(value))
            case syntax.Literal():
                return Typed((), ANY_FLOAT)
            case syntax.NameUse():
                return self._name(node)
            case syntax.Hole():
                self.error("hole", node, "this is still to be written")
                return expected
            case OperatorCall():
                return self._operation(node)
            case syntax.Element():
                return self.element(node)
            case syntax.ListOf(items=items):
                found = [self.expression(item) for item in items]
                dtype = ANY_INT
                for item in found:
                    dtype = promote(dtype, item.dtype) if item else dtype
                return Typed((Extent.of(len(items)),), dtype)
            case Conditional():
                return self._choice(node)
            case syntax.DeclarativeCall():
                return self.call(node)
        return self.form(node, expected)

    def _name(self, node: syntax.NameUse) -> Typed | None:
        if node.name not in self.scope.names:
            close = get_close_matches(node.name, self.scope.names, 1)
            notes = [self.findings.note(f"there is {close[0]}", self.scope.spans[close[0]])] if close else []
            self.error("name-undefined", node, f"{node.name} is not defined, or not where it can be seen here", *notes)
            self.scope.names[node.name], self.scope.spans[node.name] = None, node.span
            return None
        known = self.scope.names[node.name]
        if isinstance(known, syntax.FunctionType):
            self.error("function", node, f"{node.name} is a function; it is called as {node.name}(...)")
            return None
        return known

    def _operation(self, node: OperatorCall) -> Typed | None:
        if node.operator in ("and", "or"):
            return self._logical(node)
        values = [self.expression(operand) for operand in node.operands]
        if any(value is None for value in values):
            return None
        found = [value for value in values if value is not None]
        operator = node.operator
        if operator == "not":
            self.require_bool(found[0], node.operands[0])
            return self.together(found, "bool", node)
        for value, operand in zip(found, node.operands, strict=True):
            if value.dtype == "bool":
                self.error("type", operand, f"arithmetic is of numbers, and this is {describe_value(value)}")
        if len(found) == 1:
            (value,) = found
            return Typed(value.shape, value.dtype, -value.integer if value.integer else None, value.varies, value.tuned)
        dtype = found[0].dtype if operator in COMPARISONS else promote(found[0].dtype, found[1].dtype)
        integers = [value.is_integer for value in found]
        if any(integers) and not all(integers) and any(v.tuned and i for v, i in zip(found, integers, strict=True)):
            self.error("tune-value", node, "a tuned number becomes data here, so that the result depends on it")
        together = self.together(found, "bool" if operator in COMPARISONS else dtype, node)
        if together is None or operator in COMPARISONS or not all(integers) or together.shape:
            return together
        a, b = (value.integer for value in found)
        integer = None if a is None or b is None else self._arithmetic(node, a, b)
        return Typed((), dtype, integer, together.varies, together.tuned)

    def _logical(self, node: OperatorCall) -> Typed | None:
        """``and`` and ``or``: the second operand is looked at where the first leaves it open."""
        first = self.expression(node.operands[0])
        with self.assuming(node.operands[0], node.operator == "and"):
            second = self.expression(node.operands[1])
        for value, operand in zip((first, second), node.operands, strict=True):
            self.require_bool(value, operand)
        return first and second and self.together([first, second], "bool", node)

    def _arithmetic(self, node: OperatorCall, a: Extent, b: Extent) -> Extent | None:
        """The integer that an operation of two gives."""
        match node.operator:
            case "+":
                return a + b
            case "-":
                return a - b
            case "*":
                return a * b
            case "/":
                return self._quotient(node, a, b)
        return Extent.of(f"({a} % {b})")

    def _quotient(self, node: OperatorCall, a: Extent, b: Extent) -> Extent | None:
        if b.constant is None:
            return Extent.of(f"({a})/({b})")
        if b.constant == 0 or (a.constant is not None and a.constant % b.constant):
            self.error("division", node, f"{a} / {b} is no integer", Note("floordiv(a, b) and cdiv(a, b) round"))
            return None
        if not any("'" in atom or "(" in atom for atom in a.atoms):
            self.whole.append(a.over(b.constant))
        return a.over(b.constant)

    def together(self, values: Sequence[Typed], dtype: str, node: SyntaxNode) -> Typed | None:
        """Elementwise: tensors of one shape, and numbers."""
        tensors = [value for value in values if value.shape]
        if len(tensors) == 2 and not self.same_shape(tensors[0], tensors[1], node):
            return None
        shape = tensors[0].shape if tensors else ()
        varies, tuned = (any(getattr(v, what) for v in values) for what in ("varies", "tuned"))
        return Typed(shape, dtype, None, varies, tuned and dtype != "bool")

    def _choice(self, node: Conditional) -> Typed | None:
        condition = self.expression(node.condition)
        self.require_bool(condition, node.condition)
        with self.assuming(node.condition, True):
            then = self.value_of(node.then)
        with self.assuming(node.condition, False):
            otherwise = self.value_of(node.otherwise)
        if then is None or otherwise is None:
            return then or otherwise
        if "bool" in (then.dtype, otherwise.dtype) and then.dtype != otherwise.dtype:
            self.error("type", node, f"one way is {describe_value(then)}, the other {describe_value(otherwise)}")
        varies = bool(condition and condition.varies)
        found = self.together([then, otherwise], promote(then.dtype, otherwise.dtype), node)
        return found and Typed(found.shape, found.dtype, None, found.varies or varies, found.tuned)
