"""Operators and reductions as OpenCL C spells them, and which of them vectors have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from feinsum.elementwise import COMPARISONS, MATH
from feinsum.languages.declarative.emitting.types import c_type, extreme, literal
from feinsum.languages.declarative.lowering.folding import is_integer_dtype
from feinsum.languages.declarative.lowering.terms import Apply, Load, Reduce, Term, TermVariable, walk_terms

INFIX: Final = {
    **{s: s for s in ("+", "-", "*", "/", *COMPARISONS)},
    "quotient": "/",
    "rest": "%",
}
VECTOR_OPERATORS: Final = ("sum", "prod", "min", "max")
"""Reductions of vectors, lane by lane."""
PLAIN: Final = ("+", "-", "*", "/", "neg")
"""Functions that take vectors and numbers together."""
_VECTORIAL: Final = (*PLAIN, *MATH, "pow")
FIRST: Final[Mapping[str, Callable[[str], str]]] = {
    "sum": lambda t: literal(0, t),
    "prod": lambda t: literal(1, t),
    "min": lambda t: extreme(t, True),
    "max": lambda t: extreme(t, False),
    "any": lambda t: "0",
    "all": lambda t: "1",
}
"""The initial values of reductions."""


def combined(operator: str, dtype: str, a: str, b: str, width: int = 0) -> str:
    """Two partial results together; `width` is that of vectors, or 0."""
    match operator:
        case "sum":
            return f"{a} + {b}"
        case "prod":
            return f"{a} * {b}"
        case "any":
            return f"{a} || {b}"
        case "all":
            return f"{a} && {b}"
    return extremum(operator, dtype, a, b, width)


def extremum(operator: str, dtype: str, a: str, b: str, width: int = 0) -> str:
    """The smaller or the greater of two numbers, or that which is none."""
    c = c_type(dtype)
    if width:
        return f"select({b}, {a}, ({a} != {a}) | ({a} {'<' if operator == 'min' else '>'} {b}))"
    if is_integer_dtype(dtype):
        return f"{operator}(({c}) ({a}), ({c}) ({b}))"
    return f"{'least' if operator == 'min' else 'greatest'}_{c}({a}, {b})"


def better(operator: str, dtype: str, a: str, b: str) -> str:
    """Whether a value comes before the best so far; of numbers that are none the first does."""
    sign = "<" if operator == "argmin" else ">"
    return f"{a} {sign} {b}" if is_integer_dtype(dtype) else f"({a} {sign} {b} || ({a} != {a} && {b} == {b}))"


def _index_steps(index: Term, lane: TermVariable) -> bool:
    """Whether an index goes on by one with another."""
    match index:
        case Apply(function="+", arguments=(a, b)):
            return (_index_steps(a, lane) and lane not in b.free) or (_index_steps(b, lane) and lane not in a.free)
        case Apply(function="-", arguments=(a, b)):
            return _index_steps(a, lane) and lane not in b.free
    return index == lane


def is_vectorial(term: Term, lane: TermVariable, dtype: str) -> bool:
    """Whether what depends on an index can be computed in vectors of it: of one type, without conditions, side by side."""
    if lane not in term.free:
        return True
    if term.dtype != dtype:
        return False
    match term:
        case Load(indices=indices):
            return _index_steps(indices[-1], lane) and all(lane not in index.free for index in indices[:-1])
        case Apply(function=function, arguments=arguments):
            return function in _VECTORIAL and all(is_vectorial(a, lane, dtype) for a in arguments)
        case Reduce(operator=operator, variables=variables, body=body):
            return operator in VECTOR_OPERATORS and lane not in variables and is_vectorial(body, lane, dtype)
    return False


def divisors(term: Term, lane: TermVariable) -> list[Term]:
    """Numbers of float32 by which vectors of an index are divided, and which depend on nothing that is bound below."""
    quotients = [t for t in walk_terms(term) if isinstance(t, Apply) and t.function == "/" and t.dtype == "f32"]
    shared = [t.arguments[1] for t in quotients if lane in t.arguments[0].free and lane not in t.arguments[1].free]
    return [divisor for divisor in dict.fromkeys(shared) if divisor.free <= term.free]
