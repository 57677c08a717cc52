"""Conditions that keep an index within its array: what has to hold of a whole tile for all of them to hold in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from feinsum.languages.declarative.extents import Extent
from feinsum.languages.declarative.lowering.ranges import polynomial
from feinsum.languages.declarative.lowering.terms import (
    Apply,
    Constant,
    Reduce,
    Select,
    Term,
    TermVariable,
    rebuild_term,
    walk_terms,
)


def unguarded(
    term: Term, variables: Sequence[TermVariable], around: Sequence[TermVariable] = ()
) -> tuple[list[Extent], Term] | None:
    """The condition under which all conditions in a term hold for all values of variables, and the term without them.

    What has to hold is that polynomials in the variables around are not negative, unless they never are.  None if a
    condition is no such thing.
    """
    conditions: list[Extent] = []
    own = {v.name: v.extent for v in variables}

    def change(part: Term) -> Term:
        if isinstance(part, Select):
            found = _worst(part.condition, own)
            if found is None:
                raise ValueError
            conditions.extend(c for c in found if c not in conditions)
            return change(part.then)
        if isinstance(part, Reduce) and any(isinstance(t, Select) for t in walk_terms(part)):
            raise ValueError
        return rebuild_term(part, change)

    try:
        body = change(term)
    except ValueError:
        return None
    extents = {v.name: v.extent for v in around}
    return [c for c in conditions if _least_value(c, extents) is None or _least_value(c, extents) < 0], body  # type: ignore[operator]


def _least_value(extent: Extent, lengths: Mapping[str, int]) -> int | None:
    """The least value of a polynomial of degree 1 in indices of these lengths; None for another one."""
    if any(len(monomial) > 1 for monomial, _ in extent.terms):
        return None
    least = {m[0]: 0 if c > 0 else lengths[m[0]] - 1 for m, c in extent.terms if m and m[0] in lengths}
    return extent.at(least).constant


def _worst(condition: Term, own: Mapping[str, int]) -> list[Extent] | None:
    """Polynomials that are not negative where a condition holds for all values of indices; None for other conditions."""
    match condition:
        case Select(condition=first, then=then, otherwise=Constant(value=False)):
            both = [_worst(first, own), _worst(then, own)]
            return None if None in both else [extent for found in both for extent in found or ()]
        case Apply(function="<" | "<=" | ">" | ">=" as function, arguments=(left, right)):
            a, b = polynomial(left), polynomial(right)
            if a is None or b is None:
                return None
            difference = b - a if function[0] == "<" else a - b
            difference = difference - Extent.of(1) if len(function) == 1 else difference
            least: dict[str, int] = {}
            for monomial, coefficient in difference.terms:
                if coefficient.denominator != 1 or (set(monomial) & set(own) and len(monomial) > 1):
                    return None
                if len(monomial) == 1 and monomial[0] in own:
                    least[monomial[0]] = 0 if coefficient > 0 else own[monomial[0]] - 1
            return [difference.at(least)]
    return None
