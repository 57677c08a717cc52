"""Unfolding: a program at given lengths, executed with terms in place of numbers.

A tensor is a function from indices to a term, so that what is computed in blocks is put where it is used; names at the top
of a program, and scans, become arrays with equations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from feinsum.languages.declarative import syntax
from feinsum.languages.declarative.forms import FUNCTIONS, MAKERS, SCALARS
from feinsum.languages.declarative.lowering.folding import apply_function, constant_index
from feinsum.languages.declarative.lowering.terms import ArrayEquation, Constant, Load
from feinsum.languages.declarative.lowering.tiles import UnfoldingTiles
from feinsum.languages.declarative.lowering.unfolding_base import CONCRETE, TensorExpression, casting, number_tensor
from feinsum.languages.declarative.open_choices import default_number
from feinsum.languages.declarative.syntax import (
    DeclarativeCall,
    DeclarativeFunction,
    FormCall,
    Let,
    StatementBlock,
    SyntaxNode,
)
from feinsum.languages.declarative.types import ANY_FLOAT
from feinsum.languages.source import SourceText


@dataclass(frozen=True)
class Inlined:
    """A program in place of a function, and its text."""

    function: DeclarativeFunction
    source: SourceText


class Unfolder(UnfoldingTiles):
    """Unfolds one program at given lengths.

    :ivar tiles: whether grids become tiles of work-groups where that is possible.
    :ivar signatures: the declared types of functions.
    """

    tiles = True

    def __init__(self, source: SourceText, tunes: Mapping[str, int]) -> None:
        super().__init__(source, tunes)
        self.signatures: dict[str, syntax.FunctionType] = {}

    def program(self, function: DeclarativeFunction) -> tuple[str, ...]:
        """Unfold the statements of a program; the arrays that it computes, in order."""
        for statement in function.body.statements:
            if isinstance(statement, Let):
                self.names[statement.name] = self.let(statement, top=True)
            elif isinstance(statement, FormCall) and statement.kind == "thread":
                self.equations.append(self.thread_scope(statement))
        results = []
        for name in function.results:
            own = name != function.value_name
            value = self.names[name] if own else self.evaluate(function.body.value or syntax.Hole())
            results.append(self._stored(value, name))
        return tuple(results)

    def _stored(self, value: TensorExpression, name: str) -> str:
        """The array with a value, which may be there already."""
        variables = self.variables([f"{name}_i"] * len(value.shape), value.shape)
        body = value.at(*variables)
        for equation in self.equations:
            if not isinstance(equation, ArrayEquation):
                if isinstance(body, Load) and body.array in equation.arrays and body.indices == variables:
                    return body.array
                continue
            if body == Load(body.dtype, equation.array, variables) and equation.shape == value.shape:
                found: str = equation.array
                return found
        return self.array(name, variables, body)

    def let(self, node: Let, *, top: bool = False) -> TensorExpression:
        """The value of a name; of a tensor at the top an array."""
        if isinstance(node.value, DeclarativeCall) and node.value.function == "tune":
            return number_tensor(constant_index(self._tuned(node.name, node.value)))
        shape = None
        if isinstance(node.type, syntax.TensorType):
            shape = tuple(self.length(extent) for extent in node.type.extents)
        if (
            top
            and self.tiles
            and shape is not None
            and 0 not in shape
            and isinstance(node.value, FormCall)
            and node.value.kind == "grid"
        ):
            scope = self.tile_scope(node.name, node.value, shape)
            if scope is not None:
                self.equations.append(scope)
                return self._converted(
                    node,
                    self.loaded(scope.array, TensorExpression(shape, scope.dtype, number_tensor(constant_index(0)).at)),
                )
        value = self.staged(node, self.evaluate(node.value, shape))
        if shape is not None and value.shape != shape:
            raise self.fail("run-shape", node, f"the shape is {list(value.shape)}, and said to be {list(shape)}")
        value = self._converted(node, value)
        if isinstance(node.value, DeclarativeCall) and node.value.function == "empty":
            self.empty.add(node.name)
            return value
        if top and value.shape:
            variables = self.variables([f"{node.name}_i"] * len(value.shape), value.shape)
            body = value.at(*variables)
            if not (isinstance(body, Load) and body.indices == variables):
                return self.loaded(self.array(node.name, variables, body), value)
        return value

    def _converted(self, node: Let, value: TensorExpression) -> TensorExpression:
        """A value in the type that it is said to have."""
        word = node.type.name if isinstance(node.type, syntax.ScalarType) else getattr(node.type, "dtype", None)
        dtype = word if word in SCALARS else self.types.get(word or "")
        if dtype and dtype != "int":
            return TensorExpression(value.shape, dtype, casting(value, dtype))
        return value

    def _tuned(self, name: str, node: DeclarativeCall) -> int:
        length = self.length(node.arguments[0].value)
        choices = [self.length(c) for c in getattr(node.arguments[-1].value, "items", ())]
        return self.tunes.get(name, choices[0] if choices else default_number(length))

    def length(self, node: SyntaxNode) -> int:
        """An integer that lengths decide."""
        term = self.evaluate(node).at()
        if not isinstance(term, Constant):
            raise self.refuse(node, "a length that depends on indices or data is not lowered")
        return int(term.value)

    def block(self, block: StatementBlock) -> TensorExpression:
        """The value of a block."""
        with self.inside():
            for statement in block.statements:
                if not isinstance(statement, Let):
                    raise self.refuse(statement, "this statement is not lowered")
                self.names[statement.name] = self.let(statement)
            assert block.value is not None
            return self.evaluate(block.value)

    def call(self, node: DeclarativeCall) -> TensorExpression:
        """The value of a call."""
        name = node.function
        if name in FUNCTIONS:
            values = [self.evaluate(a.value) for a in node.arguments]
            if "f" not in FUNCTIONS[name].kinds:
                self.require_divisor(node, values[1].at(*(constant_index(0) for _ in values[1].shape)))
            return self.together(values, node, lambda terms: apply_function(name, terms))
        if name in SCALARS:
            value = self.evaluate(node.arguments[0].value)
            return TensorExpression(value.shape, name, casting(value, name))
        if name in MAKERS or name == "full":
            return self._made(node)
        function = self.names.get(name)
        if isinstance(function, Inlined):
            value = self._inlined(node, function)
            wanted = tuple(self.length(extent) for extent in getattr(self.signatures[name].result, "extents", ()))
            if value.shape != wanted:
                message = f"the result of {name} has the shape {list(value.shape)}, and is declared with {list(wanted)}"
                raise self.fail("run-shape", node, message)
            return value
        raise self.refuse(node, f"{name} is not lowered: give a program for it, not a function of Python")

    def _made(self, node: DeclarativeCall) -> TensorExpression:
        named = node.named
        items = named.get("shape", named.get("0"))
        assert isinstance(items, syntax.ListOf)
        shape = tuple(self.length(item) for item in items.items)
        dtype = named.get("dtype")
        word = self.types.get(dtype.name, dtype.name) if isinstance(dtype, syntax.NameUse) else ANY_FLOAT
        if node.function == "full":
            value = named.get("value", named.get("1"))
            term = self.evaluate(value or node).at()
            return TensorExpression(shape, term.dtype, lambda *_: term)
        made = 0.0 if np.isnan(MAKERS[node.function]) else MAKERS[node.function]
        return TensorExpression(shape, word, lambda *_: Constant(word, made))

    def _inlined(self, node: DeclarativeCall, inlined: Inlined) -> TensorExpression:
        """Another program in place of a call."""
        values = [self.evaluate(a.value) for a in node.arguments]
        function = inlined.function
        outside = self.names, self.types, self.source
        self.names, self.types, self.source = {}, {}, inlined.source
        try:
            for parameter, value in zip(function.parameters, values, strict=True):
                self._take(parameter, value)
            for statement in function.body.statements:
                if isinstance(statement, Let):
                    self.names[statement.name] = self.let(statement)
            (result,) = function.results
            if result == function.value_name:
                return self.evaluate(function.body.value or node)
            found: TensorExpression = self.names[result]
            return found
        finally:
            self.names, self.types, self.source = outside

    def _take(self, parameter: syntax.Declaration, value: TensorExpression) -> None:
        """Bind a parameter of another program, and its lengths and type."""
        type_, name = parameter.type, parameter.name
        word = getattr(type_, "dtype", getattr(type_, "name", None)) or "dtype"
        dtype = word if word in SCALARS else self.types.setdefault(word, CONCRETE.get(value.dtype, value.dtype))
        if isinstance(type_, syntax.ScalarType):
            value = value if dtype == "int" else TensorExpression((), dtype, casting(value, dtype))
        elif (given := CONCRETE.get(value.dtype, value.dtype)) != dtype:
            message = f"{name} is of {given} here; it is {dtype} by its declaration, or by an array before"
            raise self.fail("function", parameter, message)
        self.names[name] = value
        for axis, (extent, length) in enumerate(zip(getattr(type_, "extents", ()), value.shape, strict=True)):
            if isinstance(extent, syntax.NameUse):
                known = self.names.setdefault(extent.name, number_tensor(constant_index(length))).at()
            else:
                known = constant_index(self.length(extent))
            if known != constant_index(length):
                message = f"axis {axis} of {name} is {length} long, and {self.length(extent)} by other arguments"
                raise self.fail("run-sizes", extent, message)
