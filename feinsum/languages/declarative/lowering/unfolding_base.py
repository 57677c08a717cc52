"""The base of unfolding: tensors as functions from indices to terms, names, equations, and refusals."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from feinsum.errors import LanguageError
from feinsum.languages.declarative.lowering.folding import INDEX, cast, integer
from feinsum.languages.declarative.lowering.ranges import Held
from feinsum.languages.declarative.lowering.terms import Equation, Load, Term, Variable
from feinsum.languages.declarative.syntax import Block, Let, Node
from feinsum.languages.declarative.types import ANY_FLOAT, ANY_INT
from feinsum.languages.diagnostics import Note, broken_rule
from feinsum.languages.source import Source

CONCRETE: Final = {ANY_INT: "i64", ANY_FLOAT: "f64"}
"""The types that literals have in arrays."""


@dataclass(frozen=True)
class Tensor:
    """A value: its lengths, its type, and what it is at given indices."""

    shape: tuple[int, ...]
    dtype: str
    at: Callable[..., Term]


def number(term: Term) -> Tensor:
    """A tensor without axes."""
    return Tensor((), term.dtype, lambda: term)


class UnfoldingBase(ABC):
    """The names of a program and the equations made so far.

    :ivar equations: of arrays that the program makes, and thread scopes, in order.
    :ivar empty: names of tensors that nobody has written.
    :ivar asked_type: whether only the type of a value matters now, and not which of its elements is asked for.
    """

    def __init__(self, source: Source, tunes: Mapping[str, int]) -> None:
        self.source, self.tunes = source, tunes
        self.names: dict[str, Any] = {}
        self.types: dict[str, str] = {}
        self.equations: list[Any] = []
        self.empty: set[str] = set()
        self._count = 0
        self.held: list[Held] = []
        self.asked_type = False

    def refuse(self, node: Node, message: str) -> LanguageError:
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
        before, self.asked_type = self.asked_type, True
        try:
            return at(*(integer(0) for _ in shape)).dtype
        finally:
            self.asked_type = before

    @contextmanager
    def where(self, condition: Term, wanted: bool) -> Iterator[None]:
        """What is evaluated where a condition holds, or does not."""
        self.held.append((condition, wanted))
        try:
            yield
        finally:
            self.held.pop()

    def array(self, name: str, variables: Sequence[Variable], body: Term, scan: str = "") -> str:
        """A new array with an equation."""
        fresh = self.fresh(name)
        body = cast(body, CONCRETE.get(body.dtype, body.dtype))
        self.equations.append(Equation(fresh, tuple(variables), body, scan))
        return fresh

    def variables(self, names: Sequence[str], lengths: Sequence[int]) -> tuple[Variable, ...]:
        """New indices."""
        return tuple(Variable(INDEX, self.fresh(name), length) for name, length in zip(names, lengths, strict=True))

    def loaded(self, name: str, value: Tensor, lead: Sequence[Term] = ()) -> Tensor:
        """A tensor that lies in an array, whose first indices are given."""
        dtype = CONCRETE.get(value.dtype, value.dtype)
        return Tensor(value.shape, dtype, lambda *indices: Load(dtype, name, (*lead, *indices)))

    def fail(self, rule: str, node: Node, message: str) -> LanguageError:
        """What a rule refuses as lengths are known."""
        return broken_rule(self.source, rule, node.span, message)

    @abstractmethod
    def evaluate(self, node: Node, shape: tuple[int, ...] | None = None) -> Tensor:
        """The value of an expression; `shape` is what it is said to have."""

    @abstractmethod
    def block(self, block: Block) -> Tensor:
        """The value of a block."""

    @abstractmethod
    def let(self, node: Let, *, top: bool = False) -> Tensor:
        """The value of a name; of a tensor at the top an array."""

    @abstractmethod
    def length(self, node: Node) -> int:
        """An integer that lengths decide."""


def casting(value: Tensor, dtype: str) -> Callable[..., Term]:
    """The elements of a tensor in a type."""
    return lambda *indices: cast(value.at(*indices), dtype)
