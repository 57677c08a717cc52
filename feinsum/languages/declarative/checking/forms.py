"""Forms with values: what they take, what their binders name, what shape comes out."""

from __future__ import annotations

from collections.abc import Sequence

from feinsum.languages.declarative import syntax
from feinsum.languages.declarative.checking.expressions import BOOL, Expressions
from feinsum.languages.declarative.checking.scopes import describe_value, shown_shape
from feinsum.languages.declarative.extents import Extent
from feinsum.languages.declarative.forms import FORMS, REDUCTIONS, SCANS
from feinsum.languages.declarative.syntax import FormCall, SyntaxNode
from feinsum.languages.declarative.types import ANY_INT, Typed
from feinsum.languages.diagnostics import Note, counted


class FormChecker(Expressions):
    """Checks forms."""

    def form(self, node: SyntaxNode, expected: Typed | None) -> Typed | None:
        """The value of a form, an alternative, a member or an allocation."""
        if isinstance(node, syntax.Alternative):
            return self._alternative(node, expected)
        if not isinstance(node, FormCall):
            return self.in_thread(node)
        if not self.arguments_fit(node):
            return None
        if self.scope.thread:
            self.error("nesting", node, f"there is no {node.kind} in a thread scope, whose tensors change")
            return None
        match node.kind:
            case "compute" | "read":
                return self._compute(node)
            case "reduce" | "scan":
                return self._reduce(node)
            case "grid":
                return self._grid(node, expected)
            case "affine_for":
                return self.affine_for(node)
            case "while":
                return self._while(node)
        self.error("block-value", node, "a thread scope has no value; it changes the tensors that it shares")
        return None

    def in_thread(self, node: SyntaxNode) -> Typed | None:
        """The value of an allocation or a member."""
        raise NotImplementedError

    def arguments_fit(self, node: FormCall) -> bool:
        kind = FORMS.get(node.kind)
        if kind is None:
            self.error("form", node, f"there is no form {node.kind}", Note(f"forms are {', '.join(FORMS)}"))
            return False
        given = [argument.name for argument in node.arguments]
        unknown = [
            argument
            for argument in node.arguments
            if argument.name not in (*kind.required, *kind.optional)
            and not (node.kind == "thread" and (not argument.name or argument.type is not None))
        ]
        for argument in unknown:
            called = f"argument {argument.name}" if argument.name else "argument without a name"
            known = ", ".join((*kind.required, *kind.optional))
            self.error("form", argument, f"{node.kind} takes no {called}; it takes {known}")
        if unknown:
            return False
        missing = [name for name in kind.required if name not in given]
        if "op" in missing:
            names = REDUCTIONS if node.kind == "reduce" else SCANS
            self.error("operator", node, f"this {node.kind} does not say its op: {', '.join(names)}")
            missing.remove("op")
        if missing:
            self.error("form", node, f"{node.kind} needs {', '.join(missing)}", Note(kind.text))
        return not missing

    def shape(self, node: syntax.Expression | syntax.Condition | None) -> list[Extent | None]:
        """The extents that an argument gives."""
        if isinstance(node, syntax.ListOf):
            return [self.extent(item) for item in node.items]
        if node is None or isinstance(node, syntax.Condition):
            return []
        self.findings.warn("lenient-shape", node.span, "a shape is a list of extents; this is taken for a list of one")
        return [self.extent(node)]

    def _indices(self, node: FormCall, extents: Sequence[Extent | None]) -> bool:
        """Define the indices of a binder."""
        if len(node.binder) != len(extents):
            self.error("arity", node, f"{counted(len(node.binder), 'index')} for a shape of {counted(len(extents), 'axe')}")
        for parameter, extent in zip(node.binder, extents, strict=False):
            if extent is None:
                self.define(parameter.name, Typed((), ANY_INT), parameter)
            else:
                self.index(parameter.name, extent, parameter)
        return len(node.binder) == len(extents)

    def _over(self, node: FormCall, argument: str = "shape") -> tuple[list[Extent | None], Typed | None]:
        """The extents of a form, and what its body is for every index."""
        extents = self.shape(node.argument(argument))
        with self.block():
            fits = self._indices(node, extents)
            value = self.value_of(node.body)
        return extents, value if fits else None

    def _compute(self, node: FormCall) -> Typed | None:
        extents, value = self._over(node)
        if value is None:
            return None
        self.no_tuned(value, node)
        shape = (*(e if e is not None else self.fresh("length") for e in extents), *value.shape)
        return Typed(shape, value.dtype, None, False, False)

    def no_tuned(self, value: Typed, node: FormCall) -> None:
        """Refuse tuned numbers as elements."""
        if value.tuned and value.is_integer and not value.shape:
            self.error("tune-value", node.body.value or node, "a tuned number becomes an element of the result")

    def _reduce(self, node: FormCall) -> Typed | None:
        operator = node.argument("op")
        names = REDUCTIONS if node.kind == "reduce" else SCANS
        op = operator.name if isinstance(operator, syntax.NameUse) else None
        if operator is not None and op not in names:
            self.error("operator", operator, f"op of {node.kind} is one of {', '.join(names)}")
        extents, value = self._over(node)
        if node.kind == "scan" and len(extents) > 1:
            self.error("arity", node, "a scan runs along one axis", Note("a compute of scans runs along one of several"))
            return None
        if value is None:
            return None
        self.no_tuned(value, node)
        if op in ("any", "all"):
            self.require_bool(value, node.body.value or node)
            return BOOL if not value.shape else Typed(value.shape, "bool")
        if value.dtype == "bool":
            self.error("type", node.body.value or node, f"a {op} is of numbers, and this is {describe_value(value)}")
        if op in ("argmin", "argmax"):
            if value.shape:
                self.error("shape", node, f"{op} is of numbers, and this is {describe_value(value)}")
            return Typed((), "i64")
        axis = (extents[0] or self.fresh("length"),) if node.kind == "scan" and extents else ()
        return Typed((*axis, *value.shape), "i64" if value.dtype == ANY_INT else value.dtype)

    def _grid(self, node: FormCall, expected: Typed | None) -> Typed | None:
        outside = self.scope
        extents, tile = self._over(node, "dim")
        if expected is None:
            name = "y: Tensor<N, M> = grid (...)"
            self.error("grid-result", node, "the shape of what this grid computes is not said", Note(f"as in {name}"))
            return None
        if tile is None:
            return expected
        indices = {f"{atom}" for atom, _ in self.scope.ranges} - {atom for atom, _ in outside.ranges}
        if any(extent.atoms & indices for extent in tile.shape):
            self.error(
                "grid-result", node, f"tiles have the shape {shown_shape(tile.shape)}, which is not the same everywhere"
            )
        if len(tile.shape) != len(expected.shape) or len(extents) > len(tile.shape):
            message = f"tiles {shown_shape(tile.shape)} in {counted(len(extents), 'axe')} of a result " + shown_shape(
                expected.shape
            )
            self.error("grid-result", node, message)
        return expected

    def affine_for(self, node: FormCall) -> Typed | None:
        """A loop that carries a value."""
        begin, end, init = (node.argument(name) for name in ("begin", "end", "init"))
        if init is None or isinstance(init, syntax.Condition) or isinstance(end, syntax.Condition) or end is None:
            self.error("form", node, "affine_for needs init, what it begins with")
            return None
        extent, start = self.extent(end), self.expression(init)
        if len(node.binder) != 2:
            self.error("arity", node, "affine_for binds two names: the index, and what the loop carries")
            return start
        with self.block():
            if extent is not None and begin is None:
                self.index(node.binder[0].name, extent, node.binder[0])
            else:
                self.define(node.binder[0].name, Typed((), ANY_INT), node.binder[0])
            self.define(node.binder[1].name, _state(start), node.binder[1], again=self._same_name(node, init))
            value = self.value_of(node.body)
        return self._carried(start, value, node)

    def _same_name(self, node: FormCall, init: object) -> bool:
        """Whether what a loop carries has the name of what it begins with, which is no accident."""
        return isinstance(init, syntax.NameUse) and init.name == node.binder[-1].name

    def _while(self, node: FormCall) -> Typed | None:
        init, until = node.argument("init"), node.argument("until")
        if init is None or isinstance(init, syntax.Condition) or not isinstance(until, syntax.Condition):
            self.error("form", node, "until of while is a condition with a binder", Note(FORMS["while"].text))
            return None
        start = self.expression(init)
        if len(node.binder) != 1 or len(until.binder) != 1:
            self.error("arity", node, "while and its until bind one name: what the loop carries")
            return start
        with self.block():
            self.define(until.binder[0].name, _state(start), until.binder[0], again=True)
            self.require_bool(self.expression(until.body), until.body)
        with self.block():
            self.define(node.binder[0].name, _state(start), node.binder[0], again=True)
            value = self.value_of(node.body)
        return self._carried(start, value, node)

    def _carried(self, start: Typed | None, value: Typed | None, node: FormCall) -> Typed | None:
        if start is None or value is None:
            return start
        if len(start.shape) != len(value.shape):
            message = f"what the loop carries is {describe_value(start)} at first, and then {describe_value(value)}"
            self.error("loop-state", node, message)
            return None
        return self.together([start, value], _wider(start, value), node)

    def _alternative(self, node: syntax.Alternative, expected: Typed | None) -> Typed | None:
        names = [way.name for way in node.ways]
        if len(names) < 2 or len(set(names)) < len(names):
            self.error("alternative", node, "an alternative has two ways or more: alternative { a = ...  b = ... }")
            return expected
        found: list[Typed] = []
        for way in node.ways:
            said = self.type_of(way.type) if way.type is not None else expected
            value = self.expression(way.value, said)
            if value is not None and found:
                self.same_shape(found[0], value, way)
            if value is not None:
                found.append(value)
        return found[0] if found else expected


def _state(start: Typed | None) -> Typed | None:
    """The value that a loop carries: of its initial type, and no longer a known number."""
    return start and Typed(start.shape, start.dtype, None, start.varies, start.tuned)


def _wider(start: Typed, value: Typed) -> str:
    from feinsum.languages.declarative.types import promote

    return promote(start.dtype, value.dtype) if "bool" not in (start.dtype, value.dtype) else value.dtype
