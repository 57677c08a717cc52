"""Loops over tensors: equations that run in rounds, each of which makes the next state of a loop from the one before.

first[i] = ...,    and then count times    result[i] = a term of carried[i - 1], carried[i], carried[i + 1], round
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from feinsum.languages.declarative.lowering.terms import ArrayEquation, Term, TermVariable, substitute


@dataclass(frozen=True)
class State:
    """An array that a loop carries: `carried` is the state before a round, and `result` the one behind it."""

    first: str
    carried: str
    result: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class LoopScope:
    """A loop; it stands among equations, and has what these have.

    :ivar count: rounds, one at least.
    :ivar body: what a round makes, the results of the states among it.
    """

    count: int
    states: tuple[State, ...]
    body: tuple[Repeated, ...]
    scan: str = "loop"

    @property
    def arrays(self) -> tuple[str, ...]:
        """The arrays that it makes."""
        return tuple(state.result for state in self.states)

    @property
    def reads(self) -> frozenset[str]:
        """The arrays that it reads and did not make."""
        own = {state.carried for state in self.states} | {array for one in self.body for array in one.arrays}
        inside = frozenset(array for one in self.body for array in one.reads)
        return (inside - own) | {state.first for state in self.states}

    @property
    def free(self) -> frozenset[TermVariable]:
        """Variables that are not bound in here."""
        return frozenset(v for one in self.body for v in free(one))

    def rounds(self, names: Mapping[str, str]) -> Iterator[dict[str, str]]:
        """The names of the arrays of states in each round, given the names of others around the loop.

        Two buffers take turns; the last round writes the one of the result.
        """
        for number in range(self.count):
            found, ends_here = dict(names), (self.count - 1 - number) % 2 == 0
            for state in self.states:
                source, target = (state.carried, state.result) if ends_here else (state.result, state.carried)
                source = state.first if number == 0 else source
                found |= {state.carried: names.get(source, source), state.result: names.get(target, target)}
            yield found


Repeated: TypeAlias = ArrayEquation | LoopScope


def free(one: Repeated) -> frozenset[TermVariable]:
    """Variables of an equation, or of a loop, that belong to what is around."""
    return one.free if isinstance(one, LoopScope) else one.body.free - set(one.variables)


def replaced_terms(one: Repeated, values: Mapping[Term, Term]) -> Repeated:
    """An equation, or a loop, with other terms in place of some."""
    if isinstance(one, LoopScope):
        return replace(one, body=tuple(replaced_terms(inner, values) for inner in one.body))
    return replace(one, body=substitute(one.body, values))


def unchanging(scope: LoopScope) -> tuple[list[Repeated], LoopScope]:
    """The equations that are the same in all rounds, to be computed once before the loop, and the loop without them."""
    changing = {state.carried for state in scope.states} | set(scope.arrays)
    before: list[Repeated] = []
    inside: list[Repeated] = []
    for one in scope.body:
        if one.reads & changing or set(one.arrays) & changing:
            changing |= set(one.arrays)
            inside.append(one)
        else:
            before.append(one)
    return before, replace(scope, body=tuple(inside))
