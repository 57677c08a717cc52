"""Whether integers stay within bounds when lengths are known; what is not proved is refused: kernels check nothing.

What no polynomial in indices is, such as an element of an array, is a number of its own in the range of its type; guards
and clamps narrow it.  Arithmetic of data may wrap, so it counts as a polynomial only where it is proved not to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Final, TypeAlias

from feinsum.languages.declarative.extents import Extent
from feinsum.languages.declarative.index_bounds import Surroundings, look
from feinsum.languages.declarative.lowering.folding import integer_limits, is_integer_dtype
from feinsum.languages.declarative.lowering.terms import (
    Apply,
    Constant,
    Load,
    Reduce,
    Select,
    Term,
    TermVariable,
    substitute,
    walk_terms,
)

Held: TypeAlias = tuple[Term, bool]
"""A condition, and whether it holds or not."""

Bounds: TypeAlias = tuple[int, int]
"""The least and the greatest value."""

_ROUNDING = ("floordiv", "quotient", "cdiv", "mod", "rest", "min", "max")
_OPPOSITE = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "==": "!=", "!=": "=="}
_MOST_CASES: Final = 64
"""Conjunctions that conditions are split into; a condition that would make more is not used."""


def interval(term: Term) -> tuple[int, int] | None:
    """The least and the greatest value of an integer; None where neither its parts nor its type say."""
    if term.dtype == "bool":
        return 0, 1
    if not is_integer_dtype(term.dtype):
        return None
    found, bounds = _values(term), integer_limits(term.dtype)
    if bounds is None or (found is not None and bounds[0] <= found[0] and found[1] <= bounds[1]):
        return found
    return bounds  # it wraps


def _values(term: Term) -> tuple[int, int] | None:
    match term:
        case Constant(value=value):
            return int(value), int(value)
        case TermVariable(extent=extent) if extent > 0:
            return 0, extent - 1
        case Select(then=then, otherwise=otherwise):
            a, b = interval(then), interval(otherwise)
            return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))
        case Reduce(operator="argmin" | "argmax", variables=variables) if (count := prod(v.extent for v in variables)) > 0:
            return 0, count - 1
        case Apply(function=function, arguments=arguments):
            return _of_operation(function, [interval(a) for a in arguments])
    return None


def _of_operation(function: str, parts: Sequence[tuple[int, int] | None]) -> tuple[int, int] | None:
    found = [p for p in parts if p is not None]
    if len(found) < len(parts):
        return None
    if function in ("neg", "cast"):
        low, high = found[0]
        return (-high, -low) if function == "neg" else (low, high)
    if len(found) != 2:
        return None
    (a, b), (c, d) = found
    match function:
        case "+":
            return a + c, b + d
        case "-":
            return a - d, b - c
        case "*":
            corners = [a * c, a * d, b * c, b * d]
            return min(corners), max(corners)
        case "min":
            return min(a, c), min(b, d)
        case "max":
            return max(a, c), max(b, d)
        case "mod" | "rest" if c > 0:
            return 0, d - 1
        case "floordiv" | "quotient" | "cdiv" if c > 0:
            up = function == "cdiv"
            corners = [-(-x // y) if up else x // y for x in (a, b) for y in (c, d)]
            return min(corners), max(corners)
    return None


@dataclass
class Facts:
    """The facts known about integers at a place, as inequalities.

    :ivar unstable: arrays that change between two reads, so that a guard's read says nothing of the next read.
    :ivar ranges: names of indices and other integers, and how many values each may have from 0 on.
    :ivar conditions: the polynomials that are not negative.
    """

    unstable: frozenset[str] = frozenset()
    ranges: dict[str, int] = field(default_factory=dict)
    conditions: list[Extent] = field(default_factory=list)
    known: dict[Term, Extent] = field(default_factory=dict)

    def take(self, condition: Term, wanted: bool) -> None:
        """A comparison of integers that holds, or does not; of other conditions nothing follows."""
        if not isinstance(condition, Apply) or condition.function not in _OPPOSITE:
            return
        a, b = (polynomial(argument, self) for argument in condition.arguments)
        if a is None or b is None:
            return
        one, operator = Extent.of(1), condition.function if wanted else _OPPOSITE[condition.function]
        self.conditions += {
            "<": [b - a - one], "<=": [b - a], ">": [a - b - one], ">=": [a - b], "==": [a - b, b - a], "!=": [],
        }[operator]  # fmt: skip

    def proves(self, found: Extent, low: int, high: int) -> bool:
        """Whether a polynomial is proved to lie between two numbers."""
        if any(len(monomial) > 1 for monomial, _ in found.terms):
            return False
        ranges = tuple((name, Extent.of(length)) for name, length in self.ranges.items())
        known = Surroundings(ranges, tuple(c for c in self.conditions if all(len(m) < 2 for m, _ in c.terms)))
        return look(found - Extent.of(low), Extent.of(high - low + 1), known) == "inside"

    def wraps(self, term: Term, found: Extent) -> bool:
        """Whether the type of a term may be too narrow for its value."""
        bounds, values = integer_limits(term.dtype), _values(term)
        if bounds is None or (values is not None and bounds[0] <= values[0] and values[1] <= bounds[1]):
            return False
        return not self.proves(found, *bounds)

    def value(self, term: Term) -> Extent | None:
        """A name for a term that is no polynomial, and what is known of it."""
        if self.unstable and any(isinstance(part, Load) and part.array in self.unstable for part in walk_terms(term)):
            return self._new(interval(term))
        if term not in self.known:
            found = self._rounded(term) if isinstance(term, Apply) else None
            found = self._new(interval(term)) if found is None else found
            if found is None:
                return None
            self.known[term] = found
        return self.known[term]

    def _rounded(self, term: Apply) -> Extent | None:
        """What is rounded, and minima and maxima, as inequalities know them."""
        if term.function not in _ROUNDING or len(term.arguments) != 2:
            return None
        first, second = term.arguments
        a, b = polynomial(first, self), polynomial(second, self)
        if a is None or b is None:
            return None
        if term.function in ("min", "max"):
            own = self._new(interval(term))
            sign = Extent.of(1 if term.function == "max" else -1)
            self.conditions += [] if own is None else [sign * (own - a), sign * (own - b)]
            return own
        if b.constant is None or b.constant <= 0:
            return None
        up = term.function == "cdiv"
        own = self._new(_of_operation("cdiv" if up else "floordiv", [interval(first), (b.constant, b.constant)]))
        if own is None:
            return None
        rest = own * b - a if up else a - own * b
        self.conditions += [rest, b - Extent.of(1) - rest]
        return rest if term.function in ("mod", "rest") else own

    def _new(self, values: tuple[int, int] | None) -> Extent | None:
        if values is None:
            return None
        name = f"number {len(self.ranges)}"
        self.ranges[name] = values[1] - values[0] + 1
        return Extent.of(name) + Extent.of(values[0])


def polynomial(term: Term, facts: Facts | None = None) -> Extent | None:
    """An integer as a polynomial in indices, if it is one.

    :param facts: where all other integers get names; without it they are no polynomials.
    """
    if not is_integer_dtype(term.dtype):
        return None
    found = _polynomial(term, facts)
    if facts is None or (found is not None and not facts.wraps(term, found)):
        return found
    return facts.value(term)


def _polynomial(term: Term, facts: Facts | None) -> Extent | None:
    match term:
        case Constant(value=value):
            return Extent.of(int(value))
        case TermVariable(name=name, extent=extent) if extent > 0:
            if facts is not None:
                facts.ranges[name] = extent
            return Extent.of(name)
        case Apply(function="cast", arguments=(inner,)):
            return polynomial(inner, facts)
        case Apply(function="neg", arguments=(inner,)):
            found = polynomial(inner, facts)
            return None if found is None else -found
        case Apply(function="+" | "-" | "*" as function, arguments=(first, second)):
            a, b = polynomial(first, facts), polynomial(second, facts)
            if a is None or b is None:
                return None
            return a + b if function == "+" else a - b if function == "-" else a * b
    return None


def is_within(
    term: Term, bounds: Sequence[Bounds], held: Sequence[Held], unstable: frozenset[str] = frozenset(), splits: int = 6
) -> bool:
    """Whether a term is proved to lie within one of some bounds under what holds.

    :param unstable: arrays that change between two reads.
    :param splits: choices in the term whose ways are proved one by one.
    """
    values = interval(term)
    if values is not None and any(low <= values[0] and values[1] <= high for low, high in bounds):
        return True
    if all(_is_proved(term, bounds, conditions, unstable) for conditions in _cases(held)):
        return True
    choice, ways = (_choice_in(term) if splits else None) or (None, ())
    for way, condition in ways:
        known = [(substitute(one, {choice: way}), wanted) for one, wanted in (*held, condition) if choice is not None]
        if choice is None or not is_within(substitute(term, {choice: way}), bounds, known, unstable, splits - 1):
            return False
    return choice is not None


def _is_proved(term: Term, bounds: Sequence[Bounds], conditions: Sequence[Held], unstable: frozenset[str]) -> bool:
    facts = Facts(unstable)
    for condition, wanted in conditions:
        facts.take(condition, wanted)
    found = polynomial(term, facts)
    return found is not None and any(facts.proves(found, low, high) for low, high in bounds)


def _choice_in(term: Term) -> tuple[Term, tuple[tuple[Term, Held], ...]] | None:
    """A choice that an integer is computed from, outside of what binds indices, and the condition of each of its ways."""
    if isinstance(term, Select):
        return term, ((term.then, (term.condition, True)), (term.otherwise, (term.condition, False)))
    if not isinstance(term, Apply) or not is_integer_dtype(term.dtype):
        return None
    if term.function in ("min", "max"):
        a, b = term.arguments
        first = Apply("bool", "<=" if term.function == "min" else ">=", (a, b))
        return term, ((a, (first, True)), (b, (first, False)))
    return next((found for part in term.arguments if (found := _choice_in(part)) is not None), None)


def _cases(held: Sequence[Held]) -> list[list[Held]]:
    """Conjunctions of comparisons, one of which holds; none where the conditions contradict each other."""
    cases: list[list[Held]] = [[]]
    for condition, wanted in held:
        ways = _condition_ways(condition, wanted)
        if len(cases) * len(ways) <= _MOST_CASES:
            cases = [case + way for case in cases for way in ways]
    return cases


def _condition_ways(condition: Term, wanted: bool) -> list[list[Held]]:
    """The conjunctions of comparisons in which a condition holds, or does not."""
    match condition:
        case Constant(value=value):
            return [[]] if bool(value) == wanted else []
        case Apply(function="not", arguments=(inner,)):
            return _condition_ways(inner, not wanted)
        case Select(condition=first, then=then, otherwise=otherwise):
            ways = [a + b for a in _condition_ways(first, True) for b in _condition_ways(then, wanted)]
            ways += [a + b for a in _condition_ways(first, False) for b in _condition_ways(otherwise, wanted)]
            return ways if len(ways) <= _MOST_CASES else [[]]
        case Apply(function="==" | "!=" as function, arguments=(left, _) as both) if is_integer_dtype(left.dtype):
            if (function == "==") != wanted:
                return [[(Apply("bool", sign, both), True)] for sign in ("<", ">")]
    return [[(condition, wanted)]]


def exact_quotient(a: Term, b: Term) -> Term | None:
    """A quotient of integers, if it is proved to be exact: every coefficient of an index is divided, or cancels."""
    divisor = b.value if isinstance(b, Constant) else None
    found = polynomial(a)
    if not divisor or found is None or any(c % int(divisor) for _, c in found.terms):
        return None
    return Apply(a.dtype, "quotient", (a, b))
