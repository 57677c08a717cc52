"""Unfolding: a program at given lengths, executed with terms in place of numbers.

A tensor is a function from indices to a term, so that what is computed in blocks is put where it is used; names at the top
of a program, and scans, become arrays with equations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from feinsum.errors import LanguageError
from feinsum.languages.declarative import syntax
from feinsum.languages.declarative.forms import FUNCTIONS, MAKERS, REDUCTIONS, SCALARS
from feinsum.languages.declarative.lowering.ranges import Held, is_inside
from feinsum.languages.declarative.lowering.terms import (
    Apply,
    Constant,
    Equation,
    Iterate,
    Load,
    Part,
    Reduce,
    Select,
    Term,
    Variable,
    substitute,
)
from feinsum.languages.declarative.syntax import Block, Call, Form, Function, Let, Node, Operation
from feinsum.languages.declarative.types import ANY_FLOAT, ANY_INT, promote
from feinsum.languages.diagnostics import Findings, Note
from feinsum.languages.source import Source

_MOST_STATES: Final = 64
"""Numbers that a loop carries at most; each of them is a variable of its own."""
_COMPARISONS: Final = ("<", ">", "<=", ">=", "==", "!=")
INDEX: Final = ANY_INT


@dataclass(frozen=True)
class Tensor:
    """A value: its lengths, its type, and what it is at given indices."""

    shape: tuple[int, ...]
    dtype: str
    at: Callable[..., Term]


def number(term: Term) -> Tensor:
    """A tensor without axes."""
    return Tensor((), term.dtype, lambda: term)


def integer(value: int) -> Constant:
    """A constant index."""
    return Constant(INDEX, int(value))


class Unfolder:
    """Unfolds one program at given lengths.

    :ivar equations: of arrays that the program makes, in order; `shapes` has the lengths of all arrays.
    """

    def __init__(self, source: Source, tunes: Mapping[str, int]) -> None:
        self.source, self.tunes = source, tunes
        self.names: dict[str, Any] = {}
        self.types: dict[str, str] = {}
        self.equations: list[Equation] = []
        self._count = 0
        self._held: list[Held] = []

    def refuse(self, node: Node, message: str) -> LanguageError:
        """What cannot be lowered, though the interpreter executes it."""
        findings = Findings(self.source)
        findings.error("lowering", node.span, message, [Note("`program.interpret` executes it")])
        try:
            findings.raise_errors()
        except LanguageError as error:
            return error
        raise AssertionError

    def fresh(self, name: str) -> str:
        """A name that no other variable or array has."""
        self._count += 1
        return f"{name}_{self._count}"

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Names that are defined here are forgotten behind."""
        names = dict(self.names)
        try:
            yield
        finally:
            self.names = names

    @contextmanager
    def _where(self, condition: Term, wanted: bool) -> Iterator[None]:
        """What is evaluated where a condition holds, or does not."""
        self._held.append((condition, wanted))
        try:
            yield
        finally:
            self._held.pop()

    # programs

    def program(self, function: Function) -> tuple[str, ...]:
        """Unfold the statements of a program; the arrays that it computes, in order."""
        for statement in function.body.statements:
            if isinstance(statement, Let):
                self.names[statement.name] = self.let(statement, top=True)
            elif isinstance(statement, Form) and statement.kind == "thread":
                raise self.refuse(statement, "thread scopes are not lowered yet")
        results = []
        for name in function.results:
            value = self.names[name] if name != "result" else self.evaluate(function.body.value or syntax.Hole())
            results.append(self._stored(value, name))
        return tuple(results)

    def _stored(self, value: Tensor, name: str) -> str:
        """The array with a value, which may be there already."""
        variables = self.variables([f"{name}_i"] * len(value.shape), value.shape)
        body = value.at(*variables)
        for equation in self.equations:
            if body == Load(body.dtype, equation.array, variables) and equation.shape == value.shape:
                return equation.array
        return self.array(name, variables, body)

    def array(self, name: str, variables: Sequence[Variable], body: Term, scan: str = "") -> str:
        """A new array with an equation."""
        fresh = self.fresh(name)
        body = body if body.dtype not in (ANY_INT, ANY_FLOAT) else cast(body, "i64" if body.dtype == ANY_INT else "f64")
        self.equations.append(Equation(fresh, tuple(variables), body, scan))
        return fresh

    def variables(self, names: Sequence[str], lengths: Sequence[int]) -> tuple[Variable, ...]:
        """New indices."""
        return tuple(Variable(INDEX, self.fresh(name), length) for name, length in zip(names, lengths, strict=True))

    def let(self, node: Let, *, top: bool = False) -> Tensor:
        """The value of a name; of a tensor at the top an array."""
        if isinstance(node.value, Call) and node.value.function == "tune":
            return number(integer(self._tuned(node.name, node.value)))
        shape = None
        if isinstance(node.type, syntax.TensorType):
            shape = tuple(self.length(extent) for extent in node.type.extents)
        value = self.evaluate(node.value, shape)
        if shape is not None and value.shape != shape:
            raise self.fail("run-shape", node, f"the shape is {list(value.shape)}, and said to be {list(shape)}")
        word = node.type.name if isinstance(node.type, syntax.ScalarType) else getattr(node.type, "dtype", None)
        dtype = word if word in SCALARS else self.types.get(word or "")
        if dtype and dtype != "int":
            value = Tensor(value.shape, dtype, _casting(value, dtype))
        if top and value.shape:
            variables = self.variables([f"{node.name}_i"] * len(value.shape), value.shape)
            body = value.at(*variables)
            if not (isinstance(body, Load) and body.indices == variables):
                return self.loaded(self.array(node.name, variables, body), value)
        return value

    def loaded(self, name: str, value: Tensor, lead: Sequence[Term] = ()) -> Tensor:
        """A tensor that lies in an array, whose first indices are given."""
        dtype = {ANY_INT: "i64", ANY_FLOAT: "f64"}.get(value.dtype, value.dtype)
        return Tensor(value.shape, dtype, lambda *indices: Load(dtype, name, (*lead, *indices)))

    def fail(self, rule: str, node: Node, message: str) -> LanguageError:
        """What a rule refuses as lengths are known."""
        findings = Findings(self.source)
        findings.error(rule, node.span, message)
        try:
            findings.raise_errors()
        except LanguageError as error:
            return error
        raise AssertionError

    def _tuned(self, name: str, node: Call) -> int:
        length = self.length(node.arguments[0].value)
        choices = [self.length(c) for c in getattr(node.arguments[-1].value, "items", ())]
        return self.tunes.get(name, choices[0] if choices else 1 << (max(1, min(length, 16)).bit_length() - 1))

    def length(self, node: Node) -> int:
        """An integer that lengths decide."""
        term = self.evaluate(node).at()
        if not isinstance(term, Constant):
            raise self.refuse(node, "a length that depends on indices or data is not lowered")
        return int(term.value)

    def block(self, block: Block) -> Tensor:
        """The value of a block."""
        with self.inside():
            for statement in block.statements:
                if not isinstance(statement, Let):
                    raise self.refuse(statement, "this statement is not lowered")
                self.names[statement.name] = self.let(statement)
            assert block.value is not None
            return self.evaluate(block.value)

    # expressions

    def evaluate(self, node: Node, shape: tuple[int, ...] | None = None) -> Tensor:
        """The value of an expression; `shape` is what it is said to have."""
        match node:
            case syntax.Number(value=value):
                kind = "bool" if isinstance(value, bool) else ANY_INT if isinstance(value, int) else ANY_FLOAT
                return number(Constant(kind, value))
            case syntax.Name(name=name):
                found: Tensor = self.names[name]
                return found
            case Operation():
                return self._operation(node)
            case syntax.Element():
                return self._element(node)
            case syntax.ListOf(items=items):
                return self._list([self.evaluate(item).at() for item in items])
            case syntax.Choice():
                return self._choice(node)
            case Call():
                return self._call(node)
            case Form():
                return self._form(node)
            case syntax.Alternative():
                chosen = node.ways[self.tunes.get(f"alternative {node.span.start}", 0)]
                return self.evaluate(chosen.value, shape)
        raise self.refuse(node, "this is not lowered")

    def _list(self, items: list[Term]) -> Tensor:
        dtype = ANY_INT
        for item in items:
            dtype = promote(dtype, item.dtype)

        def at(index: Term) -> Term:
            if isinstance(index, Constant):
                return cast(items[int(index.value)], dtype)
            found = cast(items[-1], dtype)
            for position in reversed(range(len(items) - 1)):
                is_it = Apply("bool", "==", (index, integer(position)))
                found = Select(dtype, is_it, cast(items[position], dtype), found)
            return found

        return Tensor((len(items),), dtype, at)

    def together(self, values: Sequence[Tensor], node: Node, make: Callable[[list[Term]], Term]) -> Tensor:
        """Elementwise: tensors of one shape, and numbers."""
        shapes = {v.shape for v in values if v.shape}
        if len(shapes) > 1:
            shown = " and ".join(str(list(s)) for s in sorted(shapes))
            raise self.fail("run-shape", node, f"shapes differ: {shown}")
        shape = next(iter(shapes), ())

        def at(*indices: Term) -> Term:
            return make([v.at(*indices) if v.shape else v.at() for v in values])

        zero = integer(0)
        return Tensor(shape, at(*(zero for _ in shape)).dtype, at)

    def _operation(self, node: Operation) -> Tensor:
        if node.operator in ("and", "or"):
            first = self.evaluate(node.operands[0])
            with self._where(first.at(), node.operator == "and"):
                second = self.evaluate(node.operands[1])
            truth = Constant("bool", node.operator == "or")
            if node.operator == "and":
                return self.together([first, second], node, lambda t: select(t[0], t[1], truth))
            return self.together([first, second], node, lambda t: select(t[0], truth, t[1]))
        values = [self.evaluate(operand) for operand in node.operands]
        return self.together(values, node, lambda terms: self._apply(node, terms))

    def _apply(self, node: Operation, terms: list[Term]) -> Term:
        operator = node.operator
        if operator == "not":
            return fold(Apply("bool", "not", tuple(terms)))
        if len(terms) == 1:
            return fold(Apply(terms[0].dtype, "neg", tuple(terms)))
        dtype = promote(terms[0].dtype, terms[1].dtype)
        pair = tuple(cast(term, dtype) for term in terms)
        if is_integer(dtype) and operator in ("/", "%"):
            if all(isinstance(t, Constant) for t in pair):
                a, b = (int(t.value) for t in pair if isinstance(t, Constant))
                if b == 0 or (operator == "/" and a % b):
                    raise self.fail("run-division", node, f"{a} {operator} {b} is no integer")
                return Constant(dtype, a // b if operator == "/" else a % b)
            return exact_quotient(*pair) if operator == "/" else Apply(dtype, "mod", pair)
        return fold(Apply("bool" if operator in _COMPARISONS else dtype, operator, pair))

    def _choice(self, node: syntax.Choice) -> Tensor:
        condition = self.evaluate(node.condition).at()
        if isinstance(condition, Constant):
            return self.block(node.then if condition.value else node.otherwise)
        with self._where(condition, True):
            then = self.block(node.then)
        with self._where(condition, False):
            otherwise = self.block(node.otherwise)
        ways = [then, otherwise]
        return self.together(ways, node, lambda t: select(condition, *alike(t)))

    def _element(self, node: syntax.Element) -> Tensor:
        base = self.evaluate(node.base)
        picks: list[Term | tuple[Term, int]] = []
        for index, length in zip(node.indices, base.shape, strict=True):
            if not isinstance(index, syntax.Slice):
                picks.append(self.evaluate(index).at())
            elif index.start is None or index.stop is None:
                picks.append((integer(0), length))
            else:
                start, stop = self.evaluate(index.start).at(), self.evaluate(index.stop).at()
                width = fold(Apply(INDEX, "-", (stop, start)))
                if not isinstance(width, Constant):
                    raise self.refuse(index, "a slice whose length depends on indices is not lowered")
                picks.append((start, int(width.value)))
        shape = tuple(pick[1] for pick in picks if isinstance(pick, tuple))
        for pick, length in zip(picks, base.shape, strict=True):
            first, width = pick if isinstance(pick, tuple) else (pick, 1)
            if width and not is_inside(first, length - width + 1, self._held):
                what = f"index {first.value}" if isinstance(first, Constant) else "an index that is not proved to be inside"
                raise self.fail("run-bounds", node, f"{what} of an axis whose length is {length}")

        def at(*indices: Term) -> Term:
            rest = iter(indices)
            found = [fold(Apply(INDEX, "+", (p[0], next(rest)))) if isinstance(p, tuple) else p for p in picks]
            return base.at(*found)

        return Tensor(shape, base.dtype, at)

    def _call(self, node: Call) -> Tensor:
        name = node.function
        if name in FUNCTIONS:
            kind, values = FUNCTIONS[name], [self.evaluate(a.value) for a in node.arguments]
            return self.together(values, node, lambda terms: apply_function(name, kind.result, terms))
        if name in SCALARS:
            value = self.evaluate(node.arguments[0].value)
            return Tensor(value.shape, name, _casting(value, name))
        if name in MAKERS or name == "full":
            return self._made(node)
        function = self.names.get(name)
        if isinstance(function, Function):
            return self._inlined(node, function)
        raise self.refuse(node, f"{name} is not lowered: give a program for it, not a function of Python")

    def _made(self, node: Call) -> Tensor:
        named = node.named
        items = named.get("shape", named.get("0"))
        assert isinstance(items, syntax.ListOf)
        shape = tuple(self.length(item) for item in items.items)
        dtype = named.get("dtype")
        word = self.types.get(dtype.name, dtype.name) if isinstance(dtype, syntax.Name) else ANY_FLOAT
        if node.function == "full":
            value = named.get("value", named.get("1"))
            term = self.evaluate(value or node).at()
            return Tensor(shape, term.dtype, lambda *_: term)
        made = 0.0 if np.isnan(MAKERS[node.function]) else MAKERS[node.function]
        return Tensor(shape, word, lambda *_: Constant(word, made))

    def _inlined(self, node: Call, function: Function) -> Tensor:
        """Another program in place of a call."""
        values = [self.evaluate(a.value) for a in node.arguments]
        tensors = [p for p in function.parameters if isinstance(p.type, syntax.TensorType)]
        outside, self.names = self.names, {}
        try:
            for parameter, value in zip(tensors, values, strict=True):
                self.names[parameter.name] = value
                for extent, length in zip(getattr(parameter.type, "extents", ()), value.shape, strict=True):
                    if isinstance(extent, syntax.Name):
                        self.names.setdefault(extent.name, number(integer(length)))
            for statement in function.body.statements:
                if isinstance(statement, Let):
                    self.names[statement.name] = self.let(statement)
            (result,) = function.results
            if result == "result":
                return self.evaluate(function.body.value or node)
            found: Tensor = self.names[result]
            return found
        finally:
            self.names = outside

    # forms

    def _over(self, node: Form) -> tuple[tuple[Variable, ...], Tensor]:
        """The indices of a form, and its body for them."""
        shape = node.argument("shape")
        items = shape.items if isinstance(shape, syntax.ListOf) else (shape,)
        lengths = [self.length(item) for item in items if item is not None]
        variables = self.variables([p.name for p in node.binder], lengths)
        with self.inside():
            for parameter, variable in zip(node.binder, variables, strict=True):
                self.names[parameter.name] = number(variable)
            return variables, self.block(node.body)

    def _form(self, node: Form) -> Tensor:
        match node.kind:
            case "compute" | "read":
                variables, value = self._over(node)
                count = len(variables)

                def at(*indices: Term) -> Term:
                    body = value.at(*indices[count:])
                    return substitute(body, dict(zip(variables, indices[:count], strict=True)))

                return Tensor((*(v.extent for v in variables), *value.shape), value.dtype, at)
            case "reduce":
                return self._reduce(node)
            case "scan":
                return self._scan(node)
            case "affine_for":
                return self._affine_for(node)
            case "while":
                return self._while(node)
        raise self.refuse(node, f"{node.kind} is not lowered yet")

    def _reduce(self, node: Form) -> Tensor:
        operator = node.argument("op")
        assert isinstance(operator, syntax.Name)
        variables, value = self._over(node)
        op = operator.name
        empty = any(v.extent == 0 for v in variables)
        if empty and (REDUCTIONS[op].neutral is None or (is_integer(value.dtype) and op in ("min", "max"))):
            raise self.fail("run-empty", node, f"{op} of nothing")
        dtype = "i64" if op in ("argmin", "argmax") else "bool" if op in ("any", "all") else value.dtype
        return Tensor(value.shape, dtype, lambda *indices: Reduce(dtype, op, variables, value.at(*indices)))

    def _scan(self, node: Form) -> Tensor:
        """An array of its own, for all indices that the scan depends on."""
        operator = node.argument("op")
        assert isinstance(operator, syntax.Name)
        variables, value = self._over(node)
        if self._held:
            raise self.refuse(node, "a scan under a condition is not lowered")
        rest = self.variables(["s"] * len(value.shape), value.shape)
        body = value.at(*rest)
        lead = sorted(body.free - set(variables) - set(rest), key=lambda v: v.name)
        name = self.array("scan", (*lead, *rest, *variables), body, operator.name)
        dtype = body.dtype if body.dtype not in (ANY_INT, ANY_FLOAT) else "i64" if body.dtype == ANY_INT else "f64"
        shape = (variables[0].extent, *value.shape)
        return Tensor(shape, dtype, lambda first, *others: Load(dtype, name, (*lead, *others, first)))

    def _state(self, node: Form, init: Tensor) -> tuple[tuple[Variable, ...], Tensor]:
        """Variables for what a loop carries, and the tensor that they are."""
        count = int(np.prod(init.shape, dtype=np.int64))
        if count > _MOST_STATES:
            raise self.refuse(node, f"a loop that carries {count} numbers, more than {_MOST_STATES}, is not lowered here")
        dtype = {ANY_INT: "i64", ANY_FLOAT: "f64"}.get(init.dtype, init.dtype)
        states = tuple(Variable(dtype, self.fresh("state")) for _ in range(count))
        return states, self._parts(init.shape, dtype, states)

    def _parts(self, shape: tuple[int, ...], dtype: str, terms: Sequence[Term]) -> Tensor:
        """A tensor of a few numbers."""
        if not shape:
            return number(terms[0])
        flat = self._list(list(terms))

        def at(*indices: Term) -> Term:
            place: Term = integer(0)
            for index, length in zip(indices, shape, strict=True):
                place = fold(Apply(INDEX, "+", (fold(Apply(INDEX, "*", (place, integer(length)))), index)))
            return flat.at(place)

        return Tensor(shape, dtype, at)

    def _elements(self, value: Tensor, dtype: str) -> tuple[Term, ...]:
        return tuple(cast(value.at(*map(integer, place)), dtype) for place in np.ndindex(*value.shape))

    def _affine_for(self, node: Form) -> Tensor:
        begin, end, init = (node.argument(name) for name in ("begin", "end", "init"))
        assert end is not None
        assert init is not None
        start = self.evaluate(init)
        states, carried = self._state(node, start)
        first = 0 if begin is None else self.length(begin)
        last = self.length(end)
        index = Variable(INDEX, self.fresh(node.binder[0].name), max(last - first, 0))
        with self.inside():
            self.names[node.binder[0].name] = number(fold(Apply(INDEX, "+", (index, integer(first)))))
            self.names[node.binder[1].name] = carried
            value = self.block(node.body)
        return self._loop(start, value, states, node, index=index, count=integer(max(last - first, 0)))

    def _while(self, node: Form) -> Tensor:
        init, until = node.argument("init"), node.argument("until")
        assert init is not None
        assert isinstance(until, syntax.Condition)
        start = self.evaluate(init)
        states, carried = self._state(node, start)
        with self.inside():
            self.names[until.binder[0].name] = carried
            going = fold(Apply("bool", "not", (self.evaluate(until.body).at(),)))
            self.names[node.binder[0].name] = carried
            value = self.block(node.body)
        return self._loop(start, value, states, node, going=going)

    def _loop(self, start: Tensor, value: Tensor, states: tuple[Variable, ...], node: Form, **how: Any) -> Tensor:
        if start.shape != value.shape:
            message = f"what the loop carries has the shape {list(start.shape)}, and then {list(value.shape)}"
            raise self.fail("run-shape", node, message)
        dtype = states[0].dtype
        wider = promote(dtype, value.dtype)
        if wider != dtype:
            renamed = {v: Variable(wider, v.name) for v in states}
            states = tuple(renamed.values())
            following = tuple(substitute(t, renamed) for t in self._elements(value, wider))
            how = {k: substitute(t, renamed) if k == "going" else t for k, t in how.items()}
        else:
            following = self._elements(value, wider)
        loop = Iterate(wider, states, self._elements(start, wider), following, **how)
        return self._parts(start.shape, wider, [Part(wider, loop, k) for k in range(len(states))])


def is_integer(dtype: str) -> bool:
    """Whether a type is one of integers."""
    return dtype == ANY_INT or dtype[:1] in ("i", "u")


def cast(term: Term, dtype: str) -> Term:
    """A term in a type."""
    if term.dtype == dtype:
        return term
    if isinstance(term, Constant):
        return Constant(dtype, term.value)
    return Apply(dtype, "cast", (term,))


def _casting(value: Tensor, dtype: str) -> Callable[..., Term]:
    return lambda *indices: cast(value.at(*indices), dtype)


def alike(terms: list[Term]) -> tuple[Term, Term]:
    """Two terms in the type of both."""
    a, b = terms
    dtype = a.dtype if a.dtype == b.dtype else promote(a.dtype, b.dtype)
    return cast(a, dtype), cast(b, dtype)


def select(condition: Term, then: Term, otherwise: Term) -> Term:
    """A choice, which is one way where its condition is known."""
    if isinstance(condition, Constant):
        return then if condition.value else otherwise
    return Select(then.dtype, condition, then, otherwise)


def apply_function(name: str, result: str, terms: list[Term]) -> Term:
    """A function of numbers."""
    dtype = terms[0].dtype if len(terms) == 1 else promote(terms[0].dtype, terms[1].dtype)
    if result == "float":
        dtype = promote(dtype, ANY_FLOAT)
    return fold(Apply("bool" if result == "bool" else dtype, name, tuple(cast(t, dtype) for t in terms)))


_FOLDED: Final[Mapping[str, Callable[..., Any]]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "neg": lambda a: -a,
    "<": lambda a, b: a < b, ">": lambda a, b: a > b, "<=": lambda a, b: a <= b, ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "not": lambda a: not a,
    "min": min, "max": max, "cdiv": lambda a, b: -(-a // b), "floordiv": lambda a, b: a // b,
}  # fmt: skip


def fold(term: Apply) -> Term:
    """A term of constants as a constant, and without what changes nothing."""
    values = [t.value for t in term.arguments if isinstance(t, Constant)]
    if len(values) == len(term.arguments) and term.function in _FOLDED and all(map(_is_exact, term.arguments)):
        return Constant(term.dtype, _FOLDED[term.function](*values))
    if is_integer(term.dtype) and len(term.arguments) == 2:
        a, b = term.arguments
        if term.function == "+" and a == Constant(a.dtype, 0):
            return b
        if term.function in ("+", "-") and b == Constant(b.dtype, 0):
            return a
        if term.function == "*" and Constant(a.dtype, 1) in (a, b):
            return b if a == Constant(a.dtype, 1) else a
        if term.function == "*" and Constant(a.dtype, 0) in (a, b):
            return Constant(term.dtype, 0)
    return term


def _is_exact(term: Term) -> bool:
    return is_integer(term.dtype) or term.dtype == "bool"


def exact_quotient(a: Term, b: Term) -> Term:
    """A quotient of integers, which is exact: of a product with constants the constant is divided."""
    if isinstance(b, Constant) and isinstance(a, Apply) and a.function == "*":
        first, second = a.arguments
        for one, other in ((first, second), (second, first)):
            if isinstance(one, Constant) and int(one.value) % int(b.value) == 0:
                return fold(Apply(a.dtype, "*", (Constant(a.dtype, int(one.value) // int(b.value)), other)))
    return Apply(a.dtype, "quotient", (a, b))
