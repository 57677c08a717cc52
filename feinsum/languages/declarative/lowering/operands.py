"""Operands: what is multiplied in a sum becomes arrays, so that the sum is an einsum.

    sum_k 2 * exp(A[i, k]) * B[k, j]    ->    E[i, k] = exp(A[i, k]),    2 * sum_k E[i, k] * B[k, j]

A function of a factor is computed once for each element of the factor, and not for each term of the sum.  That takes an
array, which is worth it where every element of the array is used several times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Final

from feinsum.languages.declarative.lowering.terms import (
    Apply,
    Constant,
    Equation,
    Load,
    Reduce,
    Select,
    Term,
    Variable,
    rename,
    substitute,
    walk,
)

_LEAST_USES: Final = 4
"""How often each element of an array has to be used that is made for it."""


@dataclass
class _Product:
    """The factors of a product; `scalars` and `divisors` are the same for all terms."""

    dtype: str
    scalars: list[Term] = field(default_factory=list)
    divisors: list[Term] = field(default_factory=list)
    factors: list[Term] = field(default_factory=list)

    def take(self, term: Term) -> None:
        """Add the factors of a term."""
        match term:
            case Apply(function="*", arguments=arguments) if term.dtype == self.dtype:
                for argument in arguments:
                    self.take(argument)
            case Apply(function="/", arguments=(above, below)) if term.dtype == self.dtype and not below.free:
                self.take(above)
                self.divisors.append(below)
            case Apply(function="neg", arguments=(inner,)) if term.dtype == self.dtype:
                self.scalars.append(Constant(self.dtype, -1.0))
                self.take(inner)
            case _:
                (self.factors if term.free else self.scalars).append(term)


def with_operands(equation: Equation) -> list[Equation]:
    """An equation whose sums are of products of arrays wherever that is worth it, and before it those that make these."""
    if equation.scan:
        return [equation]
    before: list[Equation] = []
    body = equation.body
    for term in list(_sums(equation)):
        found = _as_arrays(equation, term, len(before))
        if found is not None:
            made, new = found
            before += made
            body = substitute(body, {term: new})
    return [*before, Equation(equation.array, equation.variables, body)] if body != equation.body else [equation]


def _sums(equation: Equation) -> Iterator[Reduce]:
    """The sums of numbers that are evaluated for all elements: what a condition guards may not exist elsewhere."""
    guarded = {t for s in walk(equation.body) if isinstance(s, Select) for way in (s.then, s.otherwise) for t in walk(way)}
    inner = {t for r in walk(equation.body) if isinstance(r, Reduce) for t in walk(r.body)}
    for term in dict.fromkeys(walk(equation.body)):
        if (
            isinstance(term, Reduce)
            and term.operator == "sum"
            and term.dtype in ("f32", "f64")
            and term not in guarded | inner
        ):
            yield term


def _as_arrays(equation: Equation, term: Reduce, count: int) -> tuple[list[Equation], Term] | None:
    """The arrays that a sum is to be made of, and the sum of their products; None if it stays as it is."""
    product = _Product(term.dtype)
    product.take(term.body)
    variables = [v for v in (*equation.variables, *term.variables) if v in term.body.free]
    terms = prod(v.extent for v in variables)
    made: list[Equation] = []
    operands: list[Term] = []
    left = list(product.factors)
    for factor in sorted((f for f in product.factors if not _is_array(f, term.dtype)), key=lambda f: -len(f.free)):
        if factor not in left:
            continue
        own = [v for v in variables if v in factor.free]
        if not 0 < prod(v.extent for v in own) * _LEAST_USES <= terms:
            return None
        together = [f for f in left if f.free <= factor.free]
        left = [f for f in left if f not in together]
        made.append(_array(f"{equation.array}_factor{count + len(made)}", own, _times(term.dtype, together)))
        operands.append(Load(term.dtype, made[-1].array, tuple(own)))
    operands = [*left, *operands]
    if len(operands) < 2 or not (made or product.scalars or product.divisors):
        return None
    new: Term = Reduce(term.dtype, "sum", term.variables, _times(term.dtype, operands))
    new = _times(term.dtype, [*product.scalars, new])
    for divisor in product.divisors:
        new = Apply(term.dtype, "/", (new, divisor))
    return made, new


def _is_array(term: Term, dtype: str) -> bool:
    """Whether a factor is an element of an array, each of whose indices is one of those around."""
    if not isinstance(term, Load) or term.dtype != dtype or len(set(term.indices)) < len(term.indices):
        return False
    return all(isinstance(index, Variable) for index in term.indices)


def _array(name: str, variables: list[Variable], body: Term) -> Equation:
    own = {v: Variable(v.dtype, f"{v.name}_{name}", v.extent) for v in variables}
    return Equation(name, tuple(own.values()), rename(body, own))


def _times(dtype: str, factors: list[Term]) -> Term:
    first, *others = factors
    for other in others:
        first = Apply(dtype, "*", (first, other))
    return first
