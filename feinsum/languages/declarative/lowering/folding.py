"""Making terms: types are brought together, and what constants decide is decided."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from feinsum import elementwise
from feinsum.languages.declarative.forms import FUNCTIONS, SCALARS
from feinsum.languages.declarative.lowering.terms import Apply, Constant, Select, Term, rebuild_term
from feinsum.languages.declarative.types import ANY_FLOAT, ANY_INT, promote

INDEX: Final = ANY_INT
"""The type of indices."""


def constant_index(value: int) -> Constant:
    """A constant index."""
    return Constant(INDEX, int(value))


def is_integer_dtype(dtype: str) -> bool:
    """Whether a type is one of integers."""
    return dtype == ANY_INT or dtype[:1] in ("i", "u")


def cast(term: Term, dtype: str) -> Term:
    """A term in a type."""
    if term.dtype == dtype:
        return term
    if isinstance(term, Constant):
        if not is_integer_dtype(dtype):
            return Constant(dtype, term.value)
        if not isinstance(term.value, float):
            return Constant(dtype, wrapped_integer(term.value, dtype))
        if math.isfinite(term.value) and int(term.value) == wrapped_integer(int(term.value), dtype):
            return Constant(dtype, int(term.value))
    return Apply(dtype, "cast", (term,))


def integer_limits(dtype: str) -> tuple[int, int] | None:
    """The least and the greatest integer of a type of data; None of the type of literals."""
    if dtype == ANY_INT:
        return None
    info = np.iinfo(SCALARS[dtype])
    return int(info.min), int(info.max)


def wrapped_integer(value: int, dtype: str) -> int:
    """An integer as its type keeps it."""
    if (bounds := integer_limits(dtype)) is None:
        return int(value)
    low, high = bounds
    return (int(value) - low) % (high - low + 1) + low


def same_typed(terms: list[Term]) -> tuple[Term, Term]:
    """Two terms in the type of both."""
    a, b = terms
    dtype = a.dtype if a.dtype == b.dtype else promote(a.dtype, b.dtype)
    return cast(a, dtype), cast(b, dtype)


def select(condition: Term, then: Term, otherwise: Term) -> Term:
    """A choice, which is one way where its condition is known."""
    if isinstance(condition, Constant):
        return then if condition.value else otherwise
    return Select(then.dtype, condition, then, otherwise)


def apply_function(name: str, terms: list[Term]) -> Term:
    """A function of numbers."""
    kind = FUNCTIONS[name]
    dtype = terms[0].dtype if len(terms) == 1 else promote(terms[0].dtype, terms[1].dtype)
    if kind.ulps:
        dtype = promote(dtype, ANY_FLOAT)
    return fold(Apply("bool" if kind.condition else dtype, name, tuple(cast(t, dtype) for t in terms)))


_FOLDED: Final[Mapping[str, Any]] = {
    **{name: elementwise.FUNCTIONS[name].number for name in ("+", "-", "*", "neg", "not", "min", "max")},
    **{name: row.number for name, row in elementwise.COMPARISONS.items()},
    **{name: FUNCTIONS[name].evaluate for name in ("cdiv", "floordiv")},
}


def fold(term: Apply) -> Term:
    """A term of constants as a constant, and without what changes nothing."""
    values = [t.value for t in term.arguments if isinstance(t, Constant)]
    if len(values) == len(term.arguments) and term.function in _FOLDED and all(map(_is_exact, term.arguments)):
        found = _FOLDED[term.function](*values)
        return Constant(term.dtype, wrapped_integer(found, term.dtype) if is_integer_dtype(term.dtype) else found)
    if is_integer_dtype(term.dtype) and len(term.arguments) == 2:
        a, b = term.arguments
        if term.function == "+" and a == Constant(a.dtype, 0):
            return b
        if term.function in ("+", "-") and b == Constant(b.dtype, 0):
            return a
        if term.function == "*" and Constant(a.dtype, 1) in (a, b):
            return b if a == Constant(a.dtype, 1) else a
        if term.function == "*" and Constant(a.dtype, 0) in (a, b):
            return Constant(term.dtype, 0)
    return term


def simplified(term: Term) -> Term:
    """A term with what constants decide by now decided."""
    memo: dict[Term, Term] = {}

    def change(one: Term) -> Term:
        if isinstance(one, Select) and one not in memo:
            condition = change(one.condition)
            known = condition if isinstance(condition, Constant) else None
            way = None if known is None else one.then if known.value else one.otherwise
            memo[one] = rebuild_term(one, change) if way is None else change(way)
        elif one not in memo:
            found = rebuild_term(one, change)
            memo[one] = fold(found) if isinstance(found, Apply) else found
        return memo[one]

    return change(term)


def _is_exact(term: Term) -> bool:
    return is_integer_dtype(term.dtype) or term.dtype == "bool"
