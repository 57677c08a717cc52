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
    ArrayEquation,
    Constant,
    Load,
    Reduce,
    Term,
    TermVariable,
    guarded_terms,
    rename_variables,
    substitute,
    walk_terms,
)

_LEAST_USES: Final = 4
"""How often each element of an array has to be used that is made for it."""


@dataclass
class _ProductFactors:
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


def with_operands(equation: ArrayEquation) -> list[ArrayEquation]:
    """An equation whose sums are of products of arrays wherever that is worth it, and before it those that make these."""
    if equation.scan:
        return [equation]
    before: list[ArrayEquation] = []
    body = equation.body
    for term in list(_guarded_sums(equation)):
        found = _as_arrays(equation, term, len(before))
        if found is not None:
            made, new = found
            before += made
            body = substitute(body, {term: new})
    return [*before, ArrayEquation(equation.array, equation.variables, body)] if body != equation.body else [equation]


def _guarded_sums(equation: ArrayEquation) -> Iterator[Reduce]:
    """The sums of numbers that are evaluated for all elements: what a condition guards may not exist elsewhere."""
    guarded = guarded_terms(equation.body)
    inner = {t for r in walk_terms(equation.body) if isinstance(r, Reduce) for t in walk_terms(r.body)}
    for term in dict.fromkeys(walk_terms(equation.body)):
        if (
            isinstance(term, Reduce)
            and term.operator == "sum"
            and term.dtype in ("f32", "f64")
            and term not in guarded | inner
        ):
            yield term


def _as_arrays(equation: ArrayEquation, term: Reduce, count: int) -> tuple[list[ArrayEquation], Term] | None:
    """The arrays that a sum is to be made of, and the sum of their products; None if it stays as it is."""
    product = _ProductFactors(term.dtype)
    product.take(term.body)
    variables = [v for v in (*equation.variables, *term.variables) if v in term.body.free]
    terms = prod(v.extent for v in variables)
    made: list[ArrayEquation] = []
    operands: list[Term] = []
    left = list(product.factors)
    for factor in sorted((f for f in product.factors if not _is_array_element(f, term.dtype)), key=lambda f: -len(f.free)):
        if factor not in left:
            continue
        own = [v for v in variables if v in factor.free]
        if not 0 < prod(v.extent for v in own) * _LEAST_USES <= terms:
            return None
        together = [f for f in left if f.free <= factor.free]
        left = [f for f in left if f not in together]
        made.append(
            _array_operand(f"{equation.array}_factor{count + len(made)}", own, _multiply_factors(term.dtype, together))
        )
        operands.append(Load(term.dtype, made[-1].array, tuple(own)))
    operands = [*left, *operands]
    if len(operands) < 2 or not (made or product.scalars or product.divisors):
        return None
    new: Term = Reduce(term.dtype, "sum", term.variables, _multiply_factors(term.dtype, operands))
    new = _multiply_factors(term.dtype, [*product.scalars, new])
    for divisor in product.divisors:
        new = Apply(term.dtype, "/", (new, divisor))
    return made, new


def _is_array_element(term: Term, dtype: str) -> bool:
    """Whether a factor is an element of an array, each of whose indices is one of those around."""
    if not isinstance(term, Load) or term.dtype != dtype or len(set(term.indices)) < len(term.indices):
        return False
    return all(isinstance(index, TermVariable) for index in term.indices)


def _array_operand(name: str, variables: list[TermVariable], body: Term) -> ArrayEquation:
    own = {v: TermVariable(v.dtype, f"{v.name}_{name}", v.extent) for v in variables}
    return ArrayEquation(name, tuple(own.values()), rename_variables(body, own))


def _multiply_factors(dtype: str, factors: list[Term]) -> Term:
    first, *others = factors
    for other in others:
        first = Apply(dtype, "*", (first, other))
    return first
