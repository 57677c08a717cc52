"""Terms: what one element is, as a tree of scalar operations, and equations between arrays made of them.

    equation   y[i, j] = term, for all i and j; or the running reduction of the term along the last index
    Reduce     brings together a term for all values of indices that it binds
    Iterate    the state of a loop, one number or a few; Part is one of these

Terms are compared by what they say, so that equal ones are computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, TypeAlias

from feinsum.languages.trees import children_of, with_changed_children


@dataclass(frozen=True)
class _TermBase:
    dtype: str

    @cached_property
    def free(self) -> frozenset[TermVariable]:
        """Variables that are not bound in here."""
        found = frozenset().union(*(child.free for child in subterms(self)))
        return found - frozenset(bound(self))  # type: ignore[arg-type]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((type(self).__name__, *(getattr(self, part.name) for part in fields(self))))


@dataclass(frozen=True)
class Constant(_TermBase):
    """A number."""

    value: Any
    __hash__ = _TermBase.__hash__


@dataclass(frozen=True)
class TermVariable(_TermBase):
    """An index that runs from 0 below `extent`, or the state of a loop, whose extent is 0."""

    name: str
    extent: int = 0
    __hash__ = _TermBase.__hash__

    @property
    def free(self) -> frozenset[TermVariable]:
        return frozenset((self,))


@dataclass(frozen=True)
class Load(_TermBase):
    """An element of an array."""

    array: str
    indices: tuple[Term, ...]
    __hash__ = _TermBase.__hash__


@dataclass(frozen=True)
class Apply(_TermBase):
    """An operator or a function of numbers; ``cast`` converts to `dtype`."""

    function: str
    arguments: tuple[Term, ...]
    __hash__ = _TermBase.__hash__


@dataclass(frozen=True)
class Select(_TermBase):
    """One of two terms; the other is not evaluated."""

    condition: Term
    then: Term
    otherwise: Term
    __hash__ = _TermBase.__hash__


@dataclass(frozen=True)
class Reduce(_TermBase):
    """A term for all values of variables, brought together."""

    operator: str
    variables: tuple[TermVariable, ...]
    body: Term
    __hash__ = _TermBase.__hash__


@dataclass(frozen=True)
class Iterate(_TermBase):
    """A loop: states begin as `first`, and become `following` for `count` times, or as long as `going` holds.

    :ivar index: the number of the round, where there is a count.
    """

    states: tuple[TermVariable, ...]
    first: tuple[Term, ...]
    following: tuple[Term, ...]
    going: Term | None = None
    index: TermVariable | None = None
    count: Term | None = None
    __hash__ = _TermBase.__hash__


@dataclass(frozen=True)
class LoopState(_TermBase):
    """One of the states that a loop ends with."""

    loop: Iterate
    number: int
    __hash__ = _TermBase.__hash__


Term: TypeAlias = Constant | TermVariable | Load | Apply | Select | Reduce | Iterate | LoopState


@dataclass(frozen=True)
class ArrayEquation:
    """The elements of an array; `scan` is the operator of a running reduction along the last variable."""

    array: str
    variables: tuple[TermVariable, ...]
    body: Term
    scan: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the array."""
        return tuple(v.extent for v in self.variables)

    @property
    def arrays(self) -> tuple[str, ...]:
        """The arrays that it makes."""
        return (self.array,)

    @property
    def dtype(self) -> str:
        """The type of its elements."""
        return self.body.dtype

    @property
    def reads(self) -> frozenset[str]:
        """The arrays that it reads."""
        return frozenset(term.array for term in walk_terms(self.body) if isinstance(term, Load))


def bound(term: Term) -> tuple[TermVariable, ...]:
    """The variables that a term binds in what is below it."""
    if isinstance(term, Reduce):
        return term.variables
    if isinstance(term, Iterate):
        return (*term.states, *((term.index,) if term.index is not None else ()))
    return ()


def subterms(term: Term | _TermBase) -> Iterator[Term]:
    """The terms right below a term."""
    return children_of(term, _TermBase)  # type: ignore[arg-type]


def walk_terms(term: Term) -> Iterator[Term]:
    """A term and all below it, each once."""
    seen: set[Term] = set()
    pending = [term]
    while pending:
        one = pending.pop()
        if one not in seen:
            seen.add(one)
            yield one
            pending += subterms(one)


def rebuild_term(term: Term, change: Callable[[Term], Term]) -> Term:
    """A term with its children changed."""
    found: Term = with_changed_children(term, _TermBase, change)  # type: ignore[arg-type]
    return found


def guarded_terms(term: Term) -> set[Term]:
    """All terms in here that a condition guards; they are not evaluated for every element, and may not exist elsewhere."""
    selects = [one for one in walk_terms(term) if isinstance(one, Select)]
    return {one for s in selects for way in (s.then, s.otherwise) for one in walk_terms(way)}


def substitute(term: Term, values: Mapping[Term, Term]) -> Term:
    """A term with others in place of variables, or of anything else."""
    memo: dict[Term, Term] = dict(values)

    def change(one: Term) -> Term:
        if one not in memo:
            memo[one] = rebuild_term(one, change)
        return memo[one]

    return change(term)


def rename_variables(term: Term, names: Mapping[TermVariable, TermVariable]) -> Term:
    """A term with other variables."""
    values: dict[Term, Term] = {old: new for old, new in names.items()}  # noqa: C416  for the types
    return substitute(term, values)
