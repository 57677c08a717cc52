"""The base of unfolding: tensors as functions from indices to terms, names, equations, and refusals."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from feinsum.errors import LanguageError
from feinsum.languages.declarative.lowering.folding import INDEX, cast, constant_index
from feinsum.languages.declarative.lowering.ranges import Bounds, Held, is_within
from feinsum.languages.declarative.lowering.terms import (
    ArrayEquation,
    Constant,
    Load,
    Term,
    TermVariable,
    rebuild_term,
    substitute,
)
from feinsum.languages.declarative.syntax import DeclarativeSlice, Let, StatementBlock, SyntaxNode
from feinsum.languages.declarative.types import ANY_FLOAT, ANY_INT
from feinsum.languages.diagnostics import Note, broken_rule
from feinsum.languages.source import SourceText

CONCRETE: Final = {ANY_INT: "i64", ANY_FLOAT: "f64"}
"""The types that literals have in arrays."""
_GREATEST: Final = (1 << 63) - 1


@dataclass(frozen=True)
class TensorExpression:
    """A value: its lengths, its type, and what it is at given indices."""

    shape: tuple[int, ...]
    dtype: str
    at: Callable[..., Term]


def number_tensor(term: Term) -> TensorExpression:
    """A tensor without axes."""
    return TensorExpression((), term.dtype, lambda: term)


class UnfoldingBase(ABC):
    """The names of a program and the equations made so far.

    :ivar equations: of arrays that the program makes, and thread scopes, in order.
    :ivar empty: names of tensors that are not written yet.
    :ivar held: the conditions under which what is unfolded is evaluated; a false one along axes without elements.
    :ivar turns: the numbers of rounds of loops that carry arrays, which are the same for a whole array.
    :ivar unstable: arrays that a thread scope changes between two reads.
    """

    def __init__(self, source: SourceText, tunes: Mapping[str, int]) -> None:
        self.source, self.tunes = source, tunes
        self.names: dict[str, Any] = {}
        self.types: dict[str, str] = {}
        self.equations: list[Any] = []
        self.empty: set[str] = set()
        self._count = 0
        self.held: list[Held] = []
        self.unstable: frozenset[str] = frozenset()
        self.turns: frozenset[TermVariable] = frozenset()

    def refuse(self, node: SyntaxNode, message: str) -> LanguageError:
        """The error of a form that cannot be lowered, though the interpreter executes it."""
        return broken_rule(self.source, "lowering", node.span, message, [Note("`program.interpret` executes it")])

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

    def type_of(self, shape: Sequence[int], at: Callable[..., Term]) -> str:
        """The type of the elements of a value."""
        return at(*(constant_index(0) for _ in shape)).dtype

    @property
    def dead(self) -> bool:
        """Whether what is unfolded is evaluated for no index."""
        return any(isinstance(condition, Constant) and bool(condition.value) != wanted for condition, wanted in self.held)

    @property
    def guarded(self) -> bool:
        """Whether what is unfolded is evaluated for some indices, and not for others."""
        return not self.dead and any(not isinstance(condition, Constant) for condition, _ in self.held)

    @contextmanager
    def where(self, condition: Term, wanted: bool) -> Iterator[None]:
        """A context for evaluation where a condition holds, or does not."""
        self.held.append((condition, wanted))
        try:
            yield
        finally:
            self.held.pop()

    def array(self, name: str, variables: Sequence[TermVariable], body: Term, scan: str = "") -> str:
        """A new array with an equation."""
        fresh = self.fresh(name)
        body = cast(body, CONCRETE.get(body.dtype, body.dtype))
        body = Constant(body.dtype, 0) if self.dead else body  # what it reads may not exist
        self.equations.append(ArrayEquation(fresh, tuple(variables), body, scan))
        return fresh

    def variables(self, names: Sequence[str], lengths: Sequence[int]) -> tuple[TermVariable, ...]:
        """New indices."""
        return tuple(TermVariable(INDEX, self.fresh(name), length) for name, length in zip(names, lengths, strict=True))

    def loaded(self, name: str, value: TensorExpression, lead: Sequence[Term] = ()) -> TensorExpression:
        """A tensor that lies in an array, whose first indices are given."""
        dtype = CONCRETE.get(value.dtype, value.dtype)
        return TensorExpression(value.shape, dtype, lambda *indices: Load(dtype, name, (*lead, *indices)))

    def fail(self, rule: str, node: SyntaxNode, message: str) -> LanguageError:
        """The error of a rule that is broken at known lengths."""
        return broken_rule(self.source, rule, node.span, message)

    def stays_inside(self, index: Term, length: int) -> bool:
        """Whether ``0 <= index < length`` is proved, if need be by what the elements of arrays made here are."""
        return self._stays_within(index, (0, length - 1))

    def _stays_within(self, index: Term, bounds: Bounds) -> bool:
        if is_within(index, [bounds], self.held, self.unstable):
            return True
        made = {e.array: e for e in self.equations if isinstance(e, ArrayEquation) and not e.scan}
        held = [(_spelled_out(condition, made), wanted) for condition, wanted in self.held]
        return bool(made) and is_within(_spelled_out(index, made), [bounds], held, self.unstable)

    def outside(self, node: SyntaxNode, length: int, index: Term, written: SyntaxNode) -> LanguageError:
        """The error of an index that may be out of its axis, and the guard that would keep it inside."""
        text = "j" if isinstance(written, DeclarativeSlice) else self.source.quoted(written.span)
        sides = {
            f"{text} >= 0": self._stays_within(index, (0, _GREATEST)),
            f"{text} < {length}": self._stays_within(index, (-_GREATEST, length - 1)),
        }
        guard = " and ".join(side for side, is_proved in sides.items() if not is_proved) or " and ".join(sides)
        element = self.source.quoted(node.span)
        way_out = f"guard it, `if {guard} then {element} ...`, or clamp it, `min(max({text}, 0), {length - 1})`"
        message = f"index {text} is not proved to be inside of an axis whose length is {length}"
        return broken_rule(self.source, "run-bounds", node.span, message, [Note(way_out)])

    @abstractmethod
    def evaluate(self, node: SyntaxNode, shape: tuple[int, ...] | None = None) -> TensorExpression:
        """The value of an expression; `shape` is what it is said to have."""

    @abstractmethod
    def block(self, block: StatementBlock) -> TensorExpression:
        """The value of a block."""

    @abstractmethod
    def let(self, node: Let, *, top: bool = False) -> TensorExpression:
        """The value of a name; of a tensor at the top an array."""

    @abstractmethod
    def length(self, node: SyntaxNode) -> int:
        """An integer that lengths decide."""


def _spelled_out(term: Term, made: Mapping[str, ArrayEquation]) -> Term:
    """A term with what equations say in place of the elements of their arrays."""
    memo: dict[Term, Term] = {}

    def change(part: Term) -> Term:
        if part not in memo:
            memo[part] = found = rebuild_term(part, change)
            if isinstance(found, Load) and found.array in made:
                equation = made[found.array]
                own: dict[Term, Term] = dict(zip(equation.variables, found.indices, strict=True))
                memo[part] = change(substitute(equation.body, own))
        return memo[part]

    return change(term)


def casting(value: TensorExpression, dtype: str) -> Callable[..., Term]:
    """The elements of a tensor in a type."""
    return lambda *indices: cast(value.at(*indices), dtype)
