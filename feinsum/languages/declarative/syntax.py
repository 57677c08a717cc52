"""The tree of a program: frozen nodes, equal where they are spelled alike; `span` says where in the text a node is.

A form (`compute`, `reduce`, ...) is a name, arguments, a binder and a body; :mod:`.forms` says what each takes.  The same
nodes come from text (:mod:`.reading`) and from Python (:mod:`.tracing`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from feinsum.languages.source import Span
from feinsum.languages.trees import children_of

NOWHERE = Span(0, 0)


@dataclass(frozen=True, kw_only=True)
class SyntaxNode:
    """A part of a program that has a place in the text."""

    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Literal(SyntaxNode):
    """A literal; `value` is a bool, an int or a float, which are different numbers."""

    value: bool | int | float

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and (type(self.value), repr(self.value)) == (type(other.value), repr(other.value))

    def __hash__(self) -> int:
        return hash((type(self.value), repr(self.value)))


@dataclass(frozen=True)
class NameUse(SyntaxNode):
    """A use of a name."""

    name: str


@dataclass(frozen=True)
class Hole(SyntaxNode):
    """``...``, which stands for what is still to be written."""


@dataclass(frozen=True)
class OperatorCall(SyntaxNode):
    """An operator and its operands: ``-``, ``not`` of one; arithmetic, comparisons, ``and``, ``or`` of two."""

    operator: str
    operands: tuple[Expression, ...]


@dataclass(frozen=True)
class DeclarativeSlice(SyntaxNode):
    """``start:stop`` or ``:`` among indices."""

    start: Expression | None = None
    stop: Expression | None = None


@dataclass(frozen=True)
class Element(SyntaxNode):
    """``base[indices]``: an element, or a slice where there are fewer indices than axes or slices among them."""

    base: Expression
    indices: tuple[Expression | DeclarativeSlice, ...]


@dataclass(frozen=True)
class Member(SyntaxNode):
    """``shared.0``: one of the tensors that a thread scope shares."""

    base: Expression
    number: int


@dataclass(frozen=True)
class ListOf(SyntaxNode):
    """``[a, b]``: a shape, or a tensor of numbers."""

    items: tuple[Expression, ...]


@dataclass(frozen=True)
class Conditional(SyntaxNode):
    """``if c {a} else {b}`` and ``if c then a else b``; only the one that is chosen is evaluated."""

    condition: Expression
    then: StatementBlock
    otherwise: StatementBlock


@dataclass(frozen=True)
class DeclarativeCall(SyntaxNode):
    """``f(x, name = y)``."""

    function: str
    arguments: tuple[CallArgument, ...]

    @property
    def named(self) -> dict[str, Expression | Condition]:
        """Arguments by name; those without have their number."""
        return {a.name or str(k): a.value for k, a in enumerate(self.arguments)}


@dataclass(frozen=True)
class CallArgument(SyntaxNode):
    """An argument; `type` is given where it declares a parameter, as in ``blockDim: int``."""

    value: Expression | Condition
    name: str = ""
    type: Type | None = None


@dataclass(frozen=True)
class Condition(SyntaxNode):
    """``|x| c``, an argument of `while`."""

    binder: tuple[DeclarativeParameter, ...]
    body: Expression


@dataclass(frozen=True)
class DeclarativeParameter(SyntaxNode):
    """A name that a binder brings; its type is for readers."""

    name: str
    type: Type | None = None


@dataclass(frozen=True)
class FormCall(SyntaxNode):
    """``kind (arguments) |binder| body``."""

    kind: str
    arguments: tuple[CallArgument, ...]
    binder: tuple[DeclarativeParameter, ...]
    body: StatementBlock

    def argument(self, name: str) -> Expression | Condition | None:
        """The argument of a name, if it is given."""
        return next((a.value for a in self.arguments if a.name == name), None)


@dataclass(frozen=True)
class Alternative(SyntaxNode):
    """Ways to compute the same, by name."""

    ways: tuple[Let, ...]


@dataclass(frozen=True)
class ScalarType(SyntaxNode):
    """``f32``, ``int``, or a variable such as ``dtype``."""

    name: str


@dataclass(frozen=True)
class TensorType(SyntaxNode):
    """``Tensor<extents; dtype>``; where `Shared` and `Register` are values they allocate."""

    memory: str
    extents: tuple[Expression, ...]
    dtype: str | None = None


@dataclass(frozen=True)
class FunctionType(SyntaxNode):
    """``Tensor<N> -> Tensor<N>``."""

    parameters: tuple[Type, ...]
    result: Type


Type: TypeAlias = ScalarType | TensorType | FunctionType


@dataclass(frozen=True)
class Let(SyntaxNode):
    """``name = value`` or ``name: type = value``."""

    name: str
    value: Expression
    type: Type | None = None


@dataclass(frozen=True)
class Declaration(SyntaxNode):
    """``name: type``: a parameter of the program."""

    name: str
    type: Type


@dataclass(frozen=True)
class Assignment(SyntaxNode):
    """``a[i] = value``, in a thread scope."""

    target: Expression
    value: Expression


@dataclass(frozen=True)
class GuardedBlock(SyntaxNode):
    """``if c {...}``, in a thread scope."""

    condition: Expression
    body: StatementBlock


@dataclass(frozen=True)
class StatementBlock(SyntaxNode):
    """Statements, and the value of the last expression if the block ends with one."""

    statements: tuple[Statement, ...] = ()
    value: Expression | None = None


Expression: TypeAlias = (
    Literal
    | NameUse
    | Hole
    | OperatorCall
    | Element
    | Member
    | ListOf
    | Conditional
    | DeclarativeCall
    | FormCall
    | Alternative
    | TensorType
)
Statement: TypeAlias = (
    Let
    | Declaration
    | Assignment
    | GuardedBlock
    | FormCall
    | DeclarativeCall
    | Conditional
    | NameUse
    | OperatorCall
    | Element
    | Literal
)


@dataclass(frozen=True)
class DeclarativeFunction:
    """A program: its statements in order.

    :ivar parameters: what it declares, in order of the text: tensors, numbers and functions.
    :ivar results: the names of what it computes and nothing else in it reads, in order of the text.
    """

    name: str
    body: StatementBlock

    @cached_property
    def parameters(self) -> tuple[Declaration, ...]:
        found = [s for s in self.body.statements if isinstance(s, Declaration)]
        declared = {d.name for d in found}
        for node in walk_nodes(self.body):
            if isinstance(node, CallArgument) and node.type is not None and node.name not in declared:
                declared.add(node.name)
                found.append(Declaration(node.name, node.type, span=node.span))
        return tuple(found)

    @property
    def value_name(self) -> str:
        """The name among results of the value at the end, which has none in the text; nothing without such a value."""
        taken = any(isinstance(s, Let) and s.name == "result" for s in self.body.statements)
        return "" if self.body.value is None else "result_" if taken else "result"

    @cached_property
    def results(self) -> tuple[str, ...]:
        made: list[str] = []
        for statement in self.body.statements:
            if isinstance(statement, Let):
                made.append(statement.name)
            elif isinstance(statement, FormCall) and statement.kind == "thread":
                made += [n for n in shared_names(statement) if n not in made]
        used: set[str] = set()
        for statement in self.body.statements:
            shared = shared_names(statement) if isinstance(statement, FormCall) and statement.kind == "thread" else ()
            used |= {n.name for n in walk_nodes(statement) if isinstance(n, NameUse)} - set(shared)
        used |= {n.name for n in walk_nodes(self.body.value) if isinstance(n, NameUse)} if self.body.value else set()
        found = tuple(dict.fromkeys(n for n in made if n not in used))
        return (*found, self.value_name) if self.value_name else found


def shared_names(form: FormCall) -> tuple[str, ...]:
    """The tensors that a thread scope shares."""
    shared = form.argument("shared")
    return tuple(n.name for n in shared.items if isinstance(n, NameUse)) if isinstance(shared, ListOf) else ()


def walk_nodes(node: SyntaxNode) -> Iterator[SyntaxNode]:
    """A node and all below it, in order of the text."""
    yield node
    for child in children_of(node, SyntaxNode):
        yield from walk_nodes(child)
