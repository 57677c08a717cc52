"""Thread scopes as statements of one work-group, whose expressions are terms.

What a scope shares becomes arrays of its own, which begin with what was there before.  Loops of a few rounds are unrolled,
so that what depends on the round is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from feinsum.languages.declarative import syntax
from feinsum.languages.declarative.forms import SCALARS
from feinsum.languages.declarative.lowering.folding import INDEX, cast, constant_index, fold
from feinsum.languages.declarative.lowering.terms import Apply, Constant, Load, Term, TermVariable, walk_terms
from feinsum.languages.declarative.lowering.unfolding_base import TensorExpression, number_tensor
from feinsum.languages.declarative.lowering.unfolding_forms import UnfoldingForms
from feinsum.languages.declarative.syntax import DeclarativeCall, FormCall, Let, StatementBlock
from feinsum.languages.declarative.types import ANY_FLOAT

_UNROLLED: Final = 16
"""Rounds of a loop up to which it is unrolled."""


@dataclass(frozen=True)
class ThreadArray:
    """An array that a scope changes: one that it shares, one of the group, or one of each work-item."""

    array: str
    kind: str
    shape: tuple[int, ...]
    dtype: str
    begins: str = ""
    """The array whose elements it has at first, if any."""


@dataclass(frozen=True)
class Store:
    """An assignment."""

    array: str
    indices: tuple[Term, ...]
    value: Term


@dataclass(frozen=True)
class Evaluate:
    """A name for a number, which is what it was when the statement was met."""

    variable: TermVariable
    value: Term


@dataclass(frozen=True)
class Guard:
    """Statements under a condition."""

    condition: Term
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class RepeatStatement:
    """Statements for every value of an index below a bound."""

    index: TermVariable
    count: Term
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class GroupBarrier:
    """A point where all work-items meet."""


Statement: TypeAlias = Store | Evaluate | Guard | RepeatStatement | GroupBarrier


@dataclass(frozen=True)
class ThreadScope:
    """A scope: how many threads, what memory, and statements.

    It stands among equations, and has what these have.
    """

    thread: TermVariable
    memory: tuple[ThreadArray, ...]
    body: tuple[Statement, ...]
    scan: str = "thread"

    @property
    def arrays(self) -> tuple[str, ...]:
        """The arrays that it makes."""
        return tuple(m.array for m in self.memory if m.kind == "shared")

    @property
    def reads(self) -> frozenset[str]:
        """The arrays that it reads and did not make."""
        own = {m.array for m in self.memory}
        loads = {t.array for term in _terms_of_body(self.body) for t in walk_terms(term) if isinstance(t, Load)}
        return frozenset((loads | {m.begins for m in self.memory if m.begins}) - own)


def _terms_of_body(body: tuple[Statement, ...]) -> list[Term]:
    found: list[Term] = []
    for statement in body:
        match statement:
            case Store(indices=indices, value=value):
                found += [*indices, value]
            case Evaluate(value=value):
                found.append(value)
            case Guard(condition=condition, body=inner):
                found += [condition, *_terms_of_body(inner)]
            case RepeatStatement(count=count, body=inner):
                found += [count, *_terms_of_body(inner)]
    return found


class UnfoldingThreads(UnfoldingForms):
    """Unfolds thread scopes."""

    def thread_scope(self, node: FormCall) -> ThreadScope:
        """A scope; what it shares is redeclared."""
        threads = node.argument("threads") or next(a.value for a in node.arguments if a.name != "shared")
        thread = TermVariable(INDEX, self.fresh(node.binder[0].name), self.length(threads))
        self._memory: list[ThreadArray] = []
        shared = [self._share(name) for name in syntax.shared_names(node)]
        with self.inside():
            for name, tensor in zip(syntax.shared_names(node), shared, strict=True):
                self.names[name] = tensor
            self._shared = shared
            self.names[node.binder[0].name] = number_tensor(thread)
            body = self._statements(node.body)
        for name, tensor in zip(syntax.shared_names(node), shared, strict=True):
            self.names[name] = tensor
        self.unstable = frozenset()
        return ThreadScope(thread, tuple(self._memory), body)

    def _share(self, name: str) -> TensorExpression:
        value: TensorExpression = self.names[name]
        variables = self.variables(["i"] * len(value.shape), value.shape)
        body = value.at(*variables)
        begins = ""
        if name not in self.empty:
            begins = body.array if isinstance(body, Load) and body.indices == variables else ""
            begins = begins or self.array(name, variables, body)
        dtype = value.dtype if value.dtype != ANY_FLOAT else "f64"
        self.empty.discard(name)
        return self._remember(ThreadArray(self.fresh(name), "shared", value.shape, dtype, begins))

    def _remember(self, memory: ThreadArray) -> TensorExpression:
        self._memory.append(memory)
        self.unstable |= {memory.array}
        return TensorExpression(memory.shape, memory.dtype, lambda *indices: Load(memory.dtype, memory.array, indices))

    def _statements(self, block: StatementBlock) -> tuple[Statement, ...]:
        found: list[Statement] = []
        for node in block.statements:
            match node:
                case Let():
                    found += self._let_in_thread(node)
                case syntax.Assignment():
                    found.append(self._store(node))
                case syntax.GuardedBlock():
                    condition = self.evaluate(node.condition).at()
                    with self.inside(), self.where(condition, True):
                        found.append(Guard(condition, self._statements(node.body)))
                case FormCall():
                    found += self._repeat(node)
                case DeclarativeCall():
                    found.append(GroupBarrier())
        return tuple(found)

    def _let_in_thread(self, node: Let) -> list[Statement]:
        """Memory, or a number that keeps the value that it has here."""
        if isinstance(node.value, syntax.TensorType):
            shape = tuple(self.length(extent) for extent in node.value.extents)
            word = node.value.dtype or "f64"
            memory = ThreadArray(self.fresh(node.name), node.value.memory, shape, self.types.get(word, word))
            if memory.dtype not in SCALARS:
                raise self.refuse(node, f"{memory.dtype} is the type of no argument")
            self.names[node.name] = self._remember(memory)
            return []
        value = self.let(node)
        if value.shape or not any(isinstance(t, Load) for t in walk_terms(value.at())):
            self.names[node.name] = value
            return []
        term = value.at()
        variable = TermVariable(term.dtype, self.fresh(node.name))
        self.names[node.name] = number_tensor(variable)
        return [Evaluate(variable, term)]

    def element_of(self, node: syntax.Member) -> TensorExpression:
        """``shared.0``."""
        return self._shared[node.number]

    def _store(self, node: syntax.Assignment) -> Store:
        target = node.target
        assert isinstance(target, syntax.Element)
        base = self.evaluate(target.base)
        zeros = base.at(*(constant_index(0) for _ in base.shape))
        assert isinstance(zeros, Load)
        indices = [self.evaluate(index).at() for index in target.indices]
        for index, length, written in zip(indices, base.shape, target.indices, strict=True):
            if not self.stays_inside(index, length):
                raise self.outside(node, length, index, written)
        return Store(zeros.array, tuple(indices), cast(self.evaluate(node.value).at(), base.dtype))

    def _repeat(self, node: FormCall) -> list[Statement]:
        begin, end = node.argument("begin"), node.argument("end")
        assert end is not None
        first = 0 if begin is None else self.length(begin)
        bound = self.evaluate(end).at()
        name = node.binder[0].name
        if isinstance(bound, Constant) and int(bound.value) - first <= _UNROLLED:
            found: list[Statement] = []
            for round_ in range(first, int(bound.value)):
                with self.inside():
                    self.names[name] = number_tensor(constant_index(round_))
                    found += self._statements(node.body)
            return found
        if not isinstance(bound, Constant):
            raise self.refuse(node, "a loop whose length differs between threads is not lowered")
        index = TermVariable(INDEX, self.fresh(name), int(bound.value) - first)
        with self.inside():
            self.names[name] = number_tensor(fold(Apply(INDEX, "+", (index, constant_index(first)))))
            return [RepeatStatement(index, constant_index(index.extent), self._statements(node.body))]
