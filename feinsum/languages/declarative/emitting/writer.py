"""Terms as statements of C: each term that is used again gets a variable, in the scope where it is first needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from feinsum.epilogue.vector_functions import INVERSE, INVERSE_TYPE, QUOTIENTS, name_in_c
from feinsum.languages.declarative.emitting.operators import FIRST, INFIX, PLAIN, better, combined, extremum
from feinsum.languages.declarative.emitting.types import c_type, literal
from feinsum.languages.declarative.forms import FUNCTIONS
from feinsum.languages.declarative.lowering.folding import is_integer_dtype
from feinsum.languages.declarative.lowering.terms import (
    Apply,
    Constant,
    Iterate,
    Load,
    LoopState,
    Reduce,
    Select,
    Term,
    TermVariable,
)


class StatementWriter:
    """Writes statements.

    :param place: where an element of an array lies, given its name and the text of its indices.
    """

    def __init__(self, place: Callable[[Load, Sequence[str]], str]) -> None:
        self.lines: list[str] = []
        self._place = place
        self._known: list[dict[Term, str]] = [{}]
        self._depth = 1
        self._count = 0
        self._lanes: tuple[TermVariable, int, str] | None = None

    def line(self, text: str) -> None:
        """Write a line."""
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def braces(self, head: str) -> Iterator[None]:
        """Lines in braces, behind which what they define is forgotten."""
        self.line(f"{head} {{" if head else "{")
        self._depth += 1
        self._known.append({})
        try:
            yield
        finally:
            self._known.pop()
            self._depth -= 1
            self.line("}")

    def fresh(self, word: str = "v") -> str:
        """A name for a variable."""
        self._count += 1
        return f"{word}{self._count}"

    def declare(self, type_: str, text: str = "", word: str = "v") -> str:
        """A new variable, with a value if one is given; its name."""
        name = self.fresh(word)
        self.line(f"{type_} {name} = {text};" if text else f"{type_} {name};")
        return name

    def define(self, term: Term, text: str) -> None:
        """Let a term be known by a name."""
        self._known[-1][term] = text

    def value(self, term: Term) -> str:
        """A text for a term; statements that it needs are written."""
        for known in reversed(self._known):
            if term in known:
                return known[term]
        if isinstance(term, Constant):
            return literal(term.value, term.dtype)
        if isinstance(term, TermVariable):
            raise AssertionError(f"{term} is not bound")
        found = self._write(term)
        self.define(term, found)
        return found

    @contextmanager
    def vectors(self, lane: TermVariable, width: int, dtype: str) -> Iterator[None]:
        """Terms of an index become vectors of its next values; :func:`is_vectorial` says which of them can."""
        self._lanes = (lane, width, dtype)
        try:
            yield
        finally:
            self._lanes = None

    def scalar(self, term: Term) -> str:
        """An index, which is that of the first lane of a vector."""
        lanes, self._lanes = self._lanes, None
        try:
            return self.value(term)
        finally:
            self._lanes = lanes

    def type_of(self, term: Term) -> str:
        """The type of the variable of a term."""
        if self._lanes is not None and self._lanes[0] in term.free:
            return f"{c_type(term.dtype)}{self._lanes[1]}"
        return c_type(term.dtype)

    def _in_vectors(self, term: Term) -> bool:
        return self._lanes is not None and self._lanes[0] in term.free

    def _width(self, term: Term) -> int:
        """Numbers of the vector that a term is, or 0."""
        return self._lanes[1] if self._lanes is not None and self._lanes[0] in term.free else 0

    def widened(self, term: Term) -> str:
        """A term as a vector, though it may be the same in all lanes."""
        text = self.value(term)
        if self._in_vectors(term) or self._lanes is None:
            return text
        return f"({c_type(term.dtype)}{self._lanes[1]})({text})"

    def _write(self, term: Term) -> str:
        if self._in_vectors(term) and isinstance(term, Load) and self._lanes is not None:
            width = self._lanes[1]
            return self._named(term, f"vload{width}(0, &{self._place(term, [self.scalar(i) for i in term.indices])})")
        if self._in_vectors(term) and isinstance(term, Apply) and term.function not in PLAIN:
            return self._named(term, self._apply(term, [self.widened(a) for a in term.arguments]))
        match term:
            case Load(indices=indices):
                return self._named(term, self._place(term, [self.value(i) for i in indices]))
            case Apply(function="/", dtype="f32", arguments=(a, b)) if self._in_vectors(a) and not self._in_vectors(b):
                return self._named(term, self._quotients(a, b))
            case Apply():
                text = self._apply(term, [self.value(a) for a in term.arguments])
                return self._named(term, text)
            case Select():
                return self._select(term)
            case Reduce():
                return self.reduce(term, {})
            case LoopState(loop=loop, number=number):
                return self._loop(loop)[number]
        raise AssertionError(f"{term} has no value")

    def _named(self, term: Term, text: str) -> str:
        return self.declare(f"const {self.type_of(term)}", text)

    def _quotients(self, dividend: Term, divisor: Term) -> str:
        """Numbers of a vector divided by one that they share: a core multiplies several times as fast."""
        return f"{QUOTIENTS}{self._width(dividend)}({self.value(dividend)}, {self.inverse(divisor)})"

    def inverse(self, divisor: Term) -> str:
        """The inverse of a number by which vectors are divided; compilers leave it in a loop, so it is wanted before."""
        term = Apply(divisor.dtype, "inverse", (divisor,))
        for known in reversed(self._known):
            if term in known:
                return known[term]
        name = self.fresh()
        self.line(f"const {INVERSE_TYPE} {name} = {INVERSE}({self.value(divisor)});")
        self.define(term, name)
        return name

    def _apply(self, term: Apply, arguments: list[str]) -> str:
        function, c = term.function, c_type(term.dtype)
        if function == "cast":
            return f"{arguments[0]} != 0" if term.dtype == "bool" else f"({c}) {arguments[0]}"
        if function in INFIX:
            return f"{arguments[0]} {INFIX[function]} {arguments[1]}"
        match function:
            case "neg":
                return f"-{arguments[0]}"
            case "not":
                return f"!{arguments[0]}"
            case "mod":
                return f"mod_{c}({', '.join(arguments)})"
            case "floordiv":
                return f"floordiv_{c}({', '.join(arguments)})"
            case "cdiv":
                return f"-floordiv_{c}(-{arguments[0]}, {arguments[1]})"
            case "min" | "max":
                a, b = arguments
                return extremum(function, term.dtype, a, b, self._width(term))
            case "isnan":  # that of OpenCL C takes no integers
                return f"{arguments[0]} != {arguments[0]}"
            case "abs" if is_integer_dtype(term.dtype):
                return f"abs({arguments[0]})"
        if is_integer_dtype(term.dtype):  # an exact function, which changes no integer
            return arguments[0]
        return f"{name_in_c(FUNCTIONS[function], c, self._width(term))}({', '.join(arguments)})"

    def _select(self, term: Select) -> str:
        condition, name = self.value(term.condition), self.declare(c_type(term.dtype))
        with self.braces(f"if ({condition})"):
            self.line(f"{name} = {self.value(term.then)};")
        with self.braces("else"):
            self.line(f"{name} = {self.value(term.otherwise)};")
        return name

    def _head(self, variable: TermVariable, begin: str, step: str) -> tuple[str, str]:
        """The head of a loop over a variable, and what the variable is in it.

        Work-items that share a length which they divide go as many rounds, which a compiler sees where counting begins
        with 0: then it writes the rounds out.
        """
        name = self.fresh("i")
        shared = begin != "0" and step.isdigit() and variable.extent % int(step) == 0
        first, own = ("0", f"({name} + {begin})") if shared else (begin, name)
        return f"for (int {name} = {first}; {name} < {variable.extent}; {name} += {step})", own

    @contextmanager
    def over(self, variables: Sequence[TermVariable], steps: Mapping[TermVariable, tuple[str, str]]) -> Iterator[None]:
        """Lines in loops over variables; `steps` says where one begins and how far it goes at once."""
        with ExitStack() as stack:
            for variable in variables:
                head, own = self._head(variable, *steps.get(variable, ("0", "1")))
                stack.enter_context(self.braces(head))
                self.define(variable, own)
            yield

    def reduce(self, term: Reduce, steps: Mapping[TermVariable, tuple[str, str]]) -> str:
        """A reduction, or one lane's part of it; that of argmin and argmax has its best value in ``<name>_value``."""
        if term.operator in ("argmin", "argmax"):
            return self._arg_reduce(term, steps)
        name = self.declare(self.type_of(term), FIRST[term.operator](term.dtype), "acc")
        width = self._width(term)
        with self.over(term.variables, steps):
            self.accumulate(name, term, width)
        return name

    def accumulate(self, name: str, term: Reduce, width: int = 0) -> None:
        """Bring the body of a reduction into a variable."""
        value = self.widened(term.body) if width else self.value(term.body)
        self.line(f"{name} = {combined(term.operator, term.dtype, name, value, width)};")

    def _arg_reduce(self, term: Reduce, steps: Mapping[TermVariable, tuple[str, str]]) -> str:
        name, dtype = self.declare("long", "-1", "acc"), term.body.dtype
        self.line(f"{c_type(dtype)} {name}_value = 0;")
        with self.over(term.variables, steps):
            value, position = self.value(term.body), "0"
            for variable in term.variables:
                position = f"({position} * {variable.extent} + {self.value(variable)})"
            with self.braces(f"if ({name} < 0 || {better(term.operator, dtype, value, f'{name}_value')})"):
                self.line(f"{name} = {position};")
                self.line(f"{name}_value = {value};")
        return name

    def _loop(self, loop: Iterate) -> list[str]:
        """The states that a loop ends with."""
        key = LoopState(loop.dtype, loop, -1)
        for known in reversed(self._known):
            if key in known:
                return known[key].split()
        names = [self.fresh("s") for _ in loop.states]
        for name, first in zip(names, loop.first, strict=True):
            self.line(f"{c_type(loop.dtype)} {name} = {self.value(first)};")
        head = "for (;;)"
        if loop.index is not None and loop.count is not None:
            number = self.fresh("i")
            head = f"for (int {number} = 0; {number} < {self.value(loop.count)}; {number}++)"
        with self.braces(head):
            for state, name in zip(loop.states, names, strict=True):
                self.define(state, name)
            if loop.index is not None:
                self.define(loop.index, number)
            if loop.going is not None:
                self.line(f"if (!{self.value(loop.going)}) break;")
            following = [self.value(term) for term in loop.following]
            copies = [self.declare(f"const {c_type(loop.dtype)}", text) for text in following]
            for name, copy in zip(names, copies, strict=True):
                self.line(f"{name} = {copy};")
        self.define(key, " ".join(names))
        return names
