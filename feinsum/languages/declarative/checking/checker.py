"""Statements and programs."""

from __future__ import annotations

from dataclasses import replace

from feinsum.languages.declarative import syntax
from feinsum.languages.declarative.checking.calls import CallChecker
from feinsum.languages.declarative.checking.threads import ThreadChecker
from feinsum.languages.declarative.extents import Extent
from feinsum.languages.declarative.forms import SCALARS
from feinsum.languages.declarative.syntax import DeclarativeFunction, Let, StatementBlock, SyntaxNode
from feinsum.languages.declarative.types import ANY_INT, Typed
from feinsum.languages.diagnostics import Note


class Checker(ThreadChecker, CallChecker):
    """Checks one program."""

    def program(self, function: DeclarativeFunction) -> None:
        """Check a program."""
        declared = [s.name for s in function.body.statements if isinstance(s, syntax.Declaration)]
        for parameter in function.parameters:
            if parameter.name not in declared:
                self._declare(parameter)
        self.statements(function.body)
        if function.body.value is not None:
            self._refuse_tuned(self.expression(function.body.value), function.body.value)

    # statements

    def statements(self, block: StatementBlock) -> None:
        """Check the statements of a block, in the scope at hand."""
        for statement in block.statements:
            self._statement(statement)

    def _statement(self, node: syntax.Statement) -> None:
        if isinstance(node, syntax.Declaration):
            self._declare(node)
        elif isinstance(node, Let):
            self._let(node)
        elif isinstance(node, (syntax.Assignment, syntax.GuardedBlock)):
            self.thread_statement(node)
        elif isinstance(node, syntax.FormCall) and (node.kind == "thread" or self.scope.thread):
            self.statement(node)
        elif isinstance(node, syntax.DeclarativeCall) and node.function == "sync":
            self.sync(node)
        else:
            self.expression(node)
            self.error("block-value", node, "nothing is done with this value; give it a name, or make it the last line")

    def _declare(self, node: syntax.Declaration) -> None:
        if isinstance(node.type, syntax.FunctionType):
            for part in (*node.type.parameters, node.type.result):
                self.type_of(part, lengths=True)
            self.define(node.name, node.type, node)
        else:
            self.define(node.name, self.type_of(node.type, lengths=True, name=node.name), node)

    def type_of(self, node: syntax.Type, *, lengths: bool = False, name: str = "") -> Typed | None:
        """The type that a text names; with `lengths` unknown names become lengths."""
        if isinstance(node, syntax.FunctionType):
            self.error("type", node, "a function is an argument of a program, and no value in it")
            return None
        if isinstance(node, syntax.ScalarType):
            integer = Extent.of(name) if node.name == "int" and name else None
            return Typed((), node.name, integer)
        wrong = [
            extent for extent in node.extents if isinstance(extent, syntax.NameUse) and extent.name in (*SCALARS, "f16")
        ]
        if wrong:
            for misplaced in wrong:
                shape = [self.findings.source.quoted(e.span) for e in node.extents if e not in wrong]
                note = Note(f"a type is behind ';': {node.memory}<{', '.join(shape)}; {misplaced.name}>")
                self.error("type", misplaced, f"{misplaced.name} is a type, and a length stands here", note)
            lengths_alone = tuple(extent for extent in node.extents if extent not in wrong)
            node = replace(node, extents=lengths_alone, dtype=wrong[0].name)  # as it is meant
        if lengths:
            for extent in node.extents:
                for part in syntax.walk_nodes(extent):
                    if isinstance(part, syntax.NameUse) and part.name not in self.scope.names:
                        self.scope.names[part.name] = Typed((), ANY_INT, Extent.of(part.name))
                        self.scope.spans[part.name] = part.span
        extents = [self.extent(extent) for extent in node.extents]
        if any(e is None for e in extents):
            return None
        dtype = node.dtype or "dtype"
        if dtype == "f16":
            self.error("type", node, "there is no f16: loopy 2025.2 has none; use f32 or f64")
        return Typed(tuple(e for e in extents if e is not None), dtype)

    def _let(self, node: Let) -> None:
        said = self.type_of(node.type) if node.type is not None else None
        value = self.expression(node.value, said)
        if isinstance(node.value, syntax.DeclarativeCall) and node.value.function == "tune" and value is not None:
            self._count += 1
            value = Typed((), ANY_INT, Extent.of(f"{node.name}'tune{self._count}"), tuned=True)
        if said is not None and value is not None:
            self.same_shape(said, value, node)
            value = Typed(
                said.shape, said.dtype if node.type and _has_dtype(node.type) else value.dtype, writable=value.writable
            )
        self.define(node.name, value if value is not None else said, node)

    def _refuse_tuned(self, value: Typed | None, node: SyntaxNode) -> None:
        if value is not None and value.tuned and not value.shape:
            self.error("tune-value", node, "a tuned number becomes part of the result")


def _has_dtype(node: syntax.Type) -> bool:
    return not isinstance(node, syntax.TensorType) or node.dtype is not None
