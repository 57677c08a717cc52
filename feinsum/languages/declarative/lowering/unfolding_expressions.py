"""Unfolding expressions: operators, choices and elements."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

from feinsum.errors import LanguageError
from feinsum.languages.declarative import syntax
from feinsum.languages.declarative.lowering.folding import (
    INDEX,
    cast,
    constant_index,
    fold,
    is_integer_dtype,
    same_typed,
    select,
)
from feinsum.languages.declarative.lowering.ranges import exact_quotient, interval, is_within
from feinsum.languages.declarative.lowering.terms import Apply, Constant, Select, Term
from feinsum.languages.declarative.lowering.unfolding_base import TensorExpression, UnfoldingBase, casting, number_tensor
from feinsum.languages.declarative.open_choices import key_of
from feinsum.languages.declarative.syntax import DeclarativeCall, FormCall, OperatorCall, SyntaxNode
from feinsum.languages.declarative.types import ANY_FLOAT, ANY_INT, promote

_INT = 2**31
_FAR = 2**64
_COMPARISONS = ("<", ">", "<=", ">=", "==", "!=")


class UnfoldingExpressions(UnfoldingBase):
    """Unfolds expressions."""

    @abstractmethod
    def element_of(self, node: syntax.Member) -> TensorExpression:
        """One of the tensors that a thread scope shares."""

    @abstractmethod
    def call(self, node: DeclarativeCall) -> TensorExpression:
        """The value of a call."""

    @abstractmethod
    def form(self, node: FormCall, shape: tuple[int, ...] | None = None) -> TensorExpression:
        """The value of a form; `shape` is what it is said to have."""

    def evaluate(self, node: SyntaxNode, shape: tuple[int, ...] | None = None) -> TensorExpression:
        """The value of an expression; `shape` is what it is said to have."""
        match node:
            case syntax.Literal(value=value):
                kind = "bool" if isinstance(value, bool) else ANY_INT if isinstance(value, int) else ANY_FLOAT
                return number_tensor(Constant(kind, value))
            case syntax.NameUse(name=name):
                found: TensorExpression = self.names[name]
                return found
            case OperatorCall():
                return self._operation(node)
            case syntax.Element():
                return self._element(node)
            case syntax.ListOf(items=items):
                return self.list_of([self.evaluate(item).at() for item in items])
            case syntax.Conditional():
                return self._choice(node)
            case DeclarativeCall():
                return self.call(node)
            case FormCall():
                return self.form(node, shape)
            case syntax.Alternative():
                chosen = node.ways[self.tunes.get(key_of(node), 0)]
                return self.evaluate(chosen.value, shape)
            case syntax.Member():
                return self.element_of(node)
        raise self.refuse(node, "this is not lowered")

    def list_of(self, items: list[Term]) -> TensorExpression:
        """A tensor of a few numbers."""
        dtype = ANY_INT
        for item in items:
            dtype = promote(dtype, item.dtype)

        def at(index: Term) -> Term:
            if isinstance(index, Constant):
                return cast(items[int(index.value)], dtype)
            found = cast(items[-1], dtype)
            for position in reversed(range(len(items) - 1)):
                is_it = Apply("bool", "==", (index, constant_index(position)))
                found = Select(dtype, is_it, cast(items[position], dtype), found)
            return found

        return TensorExpression((len(items),), dtype, at)

    def together(
        self, values: Sequence[TensorExpression], node: SyntaxNode, make: Callable[[list[Term]], Term]
    ) -> TensorExpression:
        """Elementwise: tensors of one shape, and numbers."""
        shapes = {v.shape for v in values if v.shape}
        if len(shapes) > 1:
            shown = " and ".join(str(list(s)) for s in sorted(shapes))
            raise self.fail("run-shape", node, f"shapes differ: {shown}")
        shape = next(iter(shapes), ())

        held = list(self.held)

        def at(*indices: Term) -> Term:
            terms = [v.at(*indices) if v.shape else v.at() for v in values]
            outside, self.held = self.held, held  # what holds where this stands, though it is asked for elsewhere
            try:
                return make(terms)
            finally:
                self.held = outside

        return TensorExpression(shape, self.type_of(shape, at), at)

    def _operation(self, node: OperatorCall) -> TensorExpression:
        if node.operator in ("and", "or"):
            first = self.evaluate(node.operands[0])
            with self.where(first.at(), node.operator == "and"):
                second = self.evaluate(node.operands[1])
            truth = Constant("bool", node.operator == "or")
            if node.operator == "and":
                return self.together([first, second], node, lambda t: select(t[0], t[1], truth))
            return self.together([first, second], node, lambda t: select(t[0], truth, t[1]))
        values = [self.evaluate(operand) for operand in node.operands]
        return self.together(values, node, lambda terms: self._apply(node, terms))

    def _apply(self, node: OperatorCall, terms: list[Term]) -> Term:
        operator = node.operator
        if operator == "not":
            return fold(Apply("bool", "not", tuple(terms)))
        if len(terms) == 1:
            return fold(Apply(terms[0].dtype, "neg", tuple(terms)))
        dtype = promote(terms[0].dtype, terms[1].dtype)
        pair = tuple(cast(term, dtype) for term in terms)
        if is_integer_dtype(dtype) and operator in ("/", "%"):
            if all(isinstance(t, Constant) for t in pair):
                a, b = (int(t.value) for t in pair if isinstance(t, Constant))
                if self.dead:
                    return Constant(dtype, 0)
                if b == 0 or (operator == "/" and a % b):
                    raise self.fail("run-division", node, f"{a} {operator} {b} is no integer")
                return Constant(dtype, a // b if operator == "/" else a % b)
            return self._divided(node, dtype, *pair)
        operator = "mod" if operator == "%" else operator
        found = fold(Apply("bool" if operator in _COMPARISONS else dtype, operator, pair))
        values = interval(found) if found.dtype == ANY_INT else None
        if values is not None and max(-values[0], values[1]) >= _INT:  # an index is an int of 32 bits, and data are not
            return fold(Apply("i64", operator, tuple(cast(term, "i64") for term in pair)))
        return found

    def _divided(self, node: OperatorCall, dtype: str, a: Term, b: Term) -> Term:
        """A quotient of integers that is proved to be exact, or a remainder by what is proved not to be 0."""
        if node.operator == "%":
            self.require_divisor(node, b)
            return Apply(dtype, "mod", (a, b))
        found = Apply(dtype, "quotient", (a, b)) if self.dead else exact_quotient(a, b)
        if found is None:
            message = "integers are divided exactly, which is not proved of these; floordiv and cdiv round"
            raise self.refuse(node, message)
        return found

    def require_divisor(self, node: SyntaxNode, term: Term) -> None:
        """Refuse to divide by an integer that may be 0."""
        if not self.dead and not is_within(term, [(1, _FAR), (-_FAR, -1)], self.held, self.unstable):
            raise self.refuse(node, "an integer is divided by what is not proved to be other than 0")

    def _choice(self, node: syntax.Conditional) -> TensorExpression:
        condition = self.evaluate(node.condition).at()
        if isinstance(condition, Constant):
            return self._known_choice(node, condition)
        with self.where(condition, True):
            then = self.block(node.then)
        with self.where(condition, False):
            otherwise = self.block(node.otherwise)
        ways = [then, otherwise]
        return self.together(ways, node, lambda t: select(condition, *same_typed(t)))

    def _known_choice(self, node: syntax.Conditional, condition: Constant) -> TensorExpression:
        """The way that a constant chooses, in the type that both ways have together."""
        way, other = (node.then, node.otherwise) if condition.value else (node.otherwise, node.then)
        value = self.block(way)
        try:
            with self.where(condition, not condition.value):
                left_out = self.block(other)
        except LanguageError:  # this way is not wanted, and may not exist at these lengths
            return value
        a, b = value.dtype, left_out.dtype
        dtype = a if a == b or "bool" in (a, b) else promote(a, b)
        return value if dtype == a else TensorExpression(value.shape, dtype, casting(value, dtype))

    def _element(self, node: syntax.Element) -> TensorExpression:
        base = self.evaluate(node.base)
        picks: list[Term | tuple[Term, int]] = []
        for index, length in zip(node.indices, base.shape, strict=True):
            if not isinstance(index, syntax.DeclarativeSlice):
                picks.append(self.evaluate(index).at())
            elif index.start is None or index.stop is None:
                picks.append((constant_index(0), length))
            else:
                start, stop = self.evaluate(index.start).at(), self.evaluate(index.stop).at()
                width = fold(Apply(INDEX, "-", (stop, start)))
                if not isinstance(width, Constant):
                    raise self.refuse(index, "a slice whose length depends on indices is not lowered")
                picks.append((start, int(width.value)))
        shape = tuple(pick[1] for pick in picks if isinstance(pick, tuple))
        for pick, length, written in zip(picks, base.shape, node.indices, strict=True):
            begin, many = pick if isinstance(pick, tuple) else (pick, 1)
            if many and not self.stays_inside(begin, length - many + 1):
                if isinstance(begin, Constant):
                    end = f":{begin.value + many}" if isinstance(pick, tuple) else ""
                    what = f"{'slice' if end else 'index'} {begin.value}{end}"
                    raise self.fail("run-bounds", node, f"{what} of an axis whose length is {length}")
                raise self.outside(node, length, begin, written)

        def at(*indices: Term) -> Term:
            rest = iter(indices)
            found = [fold(Apply(INDEX, "+", (p[0], next(rest)))) if isinstance(p, tuple) else p for p in picks]
            return base.at(*found)

        return TensorExpression(shape, base.dtype, at)
