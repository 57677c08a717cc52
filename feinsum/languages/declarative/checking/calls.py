"""Calls: functions of numbers, makers of tensors, casts, tuned numbers, and functions that are arguments."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final

from feinsum.elementwise import EXPANDED
from feinsum.languages.declarative import syntax
from feinsum.languages.declarative.checking.expressions import Expressions
from feinsum.languages.declarative.checking.scopes import describe_value
from feinsum.languages.declarative.extents import Extent
from feinsum.languages.declarative.forms import FORMS, FUNCTIONS, MAKERS, SCALARS
from feinsum.languages.declarative.syntax import DeclarativeCall, FunctionType
from feinsum.languages.declarative.types import ANY_FLOAT, ANY_INT, Typed, promote
from feinsum.languages.diagnostics import Note, counted

WRITTEN_OUT: Final = {
    **{name: text for name, (_, text) in EXPANDED.items() if name not in FUNCTIONS},
    "relu": "max(x, 0)",
    "softplus": "log1p(exp(x))",
    "square": "x * x",
}
"""Functions of x that other languages have."""


class CallChecker(Expressions):
    """Checks calls."""

    def call(self, node: DeclarativeCall) -> Typed | None:
        """The value of a call."""
        name = node.function
        known = self.scope.names.get(name)
        if isinstance(known, FunctionType):
            return self._argument_call(node, known)
        if name in FUNCTIONS:
            return self._function(node)
        if name == "tune":
            return self._tune(node)
        if name in MAKERS or name == "full":
            return self._maker(node)
        if name in SCALARS:
            return self._cast(node)
        if name == "sync":
            self.error("nesting", node, "sync() is a statement of a thread scope, and no value")
            return None
        close = get_close_matches(name, [*FUNCTIONS, *FORMS, *MAKERS, *SCALARS, "tune", "full"], 1)
        notes = [Note(f"did you mean {close[0]}?")] if close and close[0] != name else []
        if name in WRITTEN_OUT:
            notes = [Note(f"it is {WRITTEN_OUT[name]}")]
        binder = "; a form has a binder, such as |i|, behind its arguments" if name in FORMS else ""
        self.error("name-undefined", node, f"there is no function {name}{binder}", *notes)
        return None

    def _values(self, node: DeclarativeCall, arity: int) -> list[Typed] | None:
        """The arguments of a call, if there are as many as it takes."""
        if len(node.arguments) != arity or any(a.name for a in node.arguments):
            self.error("arity", node, f"{node.function} takes {counted(arity, 'argument')}, without names")
            return None
        values = [None if isinstance(a.value, syntax.Condition) else self.expression(a.value) for a in node.arguments]
        return None if any(v is None for v in values) else [v for v in values if v is not None]

    def _function(self, node: DeclarativeCall) -> Typed | None:
        kind = FUNCTIONS[node.function]
        values = self._values(node, kind.arity)
        if values is None:
            return None
        for value, argument in zip(values, node.arguments, strict=True):
            if value.dtype == "bool":
                self.error("type", argument, f"{node.function} is of numbers, and this is {describe_value(value)}")
        dtype = values[0].dtype if len(values) == 1 else promote(values[0].dtype, values[1].dtype)
        if "f" not in kind.kinds:
            return self._rounded(node, values)
        if kind.ulps:
            if any(v.tuned for v in values):
                self.error("tune-value", node, "a tuned number becomes data here, so that the result depends on it")
            dtype = promote(dtype, ANY_FLOAT)
        return self.together(values, "bool" if kind.condition else dtype, node)

    def _rounded(self, node: DeclarativeCall, values: list[Typed]) -> Typed | None:
        """The quotient of integers, rounded."""
        if not all(value.is_integer for value in values):
            self.error("index", node, f"{node.function} is of integers")
            return None
        together = self.together(values, promote(values[0].dtype, values[1].dtype), node)
        a, b = (value.integer for value in values)
        integer = None
        if together is not None and a is not None and b is not None:
            integer = Extent.of(f"{node.function}({a}, {b})")
            if a.constant is not None and b.constant:
                integer = Extent.of(int(FUNCTIONS[node.function].evaluate(a.constant, b.constant)))
        return together and Typed(together.shape, together.dtype, integer, together.varies, any(v.tuned for v in values))

    def _tune(self, node: DeclarativeCall) -> Typed | None:
        """A number of the configuration: of a length, or of a list of choices beside it."""
        if not 1 <= len(node.arguments) <= 2:
            self.error("arity", node, "tune takes a length, and maybe a list of numbers to choose from")
            return None
        first, *choices = (a.value for a in node.arguments)
        if isinstance(first, syntax.Condition) or self.extent(first) is None:
            return None
        for choice in choices:
            if not isinstance(choice, syntax.ListOf) or not all(
                isinstance(item, syntax.Literal) and type(item.value) is int and item.value > 0 for item in choice.items
            ):
                self.error("index", choice, "the choices of tune are a list of positive integers, such as [16, 32]")
        return Typed((), ANY_INT, self.fresh("tune"), tuned=True)

    def _maker(self, node: DeclarativeCall) -> Typed | None:
        """A tensor of one number."""
        named = node.named
        shape = named.get("shape", named.get("0"))
        if not isinstance(shape, syntax.ListOf):
            self.error("form", node, f"{node.function} takes a shape, such as {node.function}([N, 2])")
            return None
        extents = [self.extent(item) for item in shape.items]
        dtype = named.get("dtype")
        word = dtype.name if isinstance(dtype, syntax.NameUse) else ANY_FLOAT
        if node.function == "full":
            value = named.get("value", named.get("1"))
            typed = self.expression(value) if value is not None and not isinstance(value, syntax.Condition) else None
            if typed is None:
                self.error("form", node, "full takes a shape and a value")
            word = word if dtype is not None or typed is None else typed.dtype
        return Typed(tuple(e if e is not None else self.fresh("length") for e in extents), word)

    def _cast(self, node: DeclarativeCall) -> Typed | None:
        values = self._values(node, 1)
        if values is None:
            return None
        (value,) = values
        if value.tuned:
            self.error("tune-value", node, "a tuned number becomes data here, so that the result depends on it")
        return Typed(value.shape, node.function, value.integer if node.function == "int" else None, value.varies)

    def _argument_call(self, node: DeclarativeCall, function: FunctionType) -> Typed | None:
        """A call of a function that is an argument of the program."""
        if len(node.arguments) != len(function.parameters):
            self.error("function", node, f"{node.function} takes {counted(len(function.parameters), 'argument')}")
            return self.type_of(function.result)
        values = self._values(node, len(function.parameters))
        if values is None:
            return None
        for value, parameter, argument in zip(values, function.parameters, node.arguments, strict=True):
            wanted = self.type_of(parameter)
            if wanted is not None:
                self.same_shape(wanted, value, argument)
        return self.type_of(function.result)
