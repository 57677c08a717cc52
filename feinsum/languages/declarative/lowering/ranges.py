"""Whether indices stay within their axes when lengths are known; what is not proved is refused: kernels check none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TypeAlias

from feinsum.languages.declarative.bounds import Surroundings, look
from feinsum.languages.declarative.extents import Extent
from feinsum.languages.declarative.lowering.terms import Apply, Constant, Reduce, Select, Term, Variable

Held: TypeAlias = tuple[Term, bool]
"""A condition, and whether it holds or not."""

_ROUNDING = ("floordiv", "quotient", "cdiv", "mod", "rest", "min", "max")
_OPPOSITE = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "==": "!=", "!=": "=="}


def interval(term: Term) -> tuple[int, int] | None:
    """The least and the greatest value of an index, if its parts have any."""
    match term:
        case Constant(value=value):
            return int(value), int(value)
        case Variable(extent=extent) if extent > 0:
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
class Rounded:
    """Results of rounding, and minima and maxima: integers that are known by inequalities.

    :ivar ranges: names, and how many values each may have from 0 on.
    :ivar conditions: what is not negative.
    """

    ranges: dict[str, int] = field(default_factory=dict)
    conditions: list[Extent] = field(default_factory=list)
    known: dict[Term, Extent] = field(default_factory=dict)

    def value(self, term: Apply) -> Extent | None:
        """A name for such a term, and what is known of it; None for others."""
        if term not in self.known and (found := self._value(term)) is not None:
            self.known[term] = found
        return self.known.get(term)

    def _value(self, term: Apply) -> Extent | None:
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
        name = f"rounded {len(self.ranges)}"
        self.ranges[name] = values[1] - values[0] + 1
        return Extent.of(name) + Extent.of(values[0])


def polynomial(term: Term, rounded: Rounded | None = None) -> Extent | None:
    """An index as a polynomial in variables, if it is one.

    :param rounded: where what is rounded gets names; without it that is no polynomial.
    """
    match term:
        case Constant(value=value):
            return Extent.of(int(value))
        case Variable(name=name, extent=extent) if extent > 0:
            return Extent.of(name)
        case Apply(function="cast", arguments=(inner,)):
            return polynomial(inner, rounded)
        case Apply(function="neg", arguments=(inner,)):
            found = polynomial(inner, rounded)
            return None if found is None else -found
        case Apply(function="+" | "-" | "*" as function, arguments=(first, second)):
            a, b = polynomial(first, rounded), polynomial(second, rounded)
            if a is None or b is None:
                return None
            return a + b if function == "+" else a - b if function == "-" else a * b
        case Apply() if rounded is not None:
            return rounded.value(term)
    return None


def is_inside(index: Term, length: int, held: Sequence[Held]) -> bool:
    """Whether ``0 <= index < length`` is proved under what holds."""
    values = interval(index)
    if values is not None and values[0] >= 0 and values[1] < length:
        return True
    rounded = Rounded()
    found = polynomial(index, rounded)
    if found is None or any(len(monomial) > 1 for monomial, _ in found.terms):
        return False
    conditions = [c for condition, wanted in held for c in _inequalities(condition, wanted, rounded)]
    conditions += rounded.conditions
    terms = [index, *(condition for condition, _ in held)]
    lengths = {v.name: v.extent for t in terms for v in t.free if v.extent} | rounded.ranges
    ranges = tuple((name, Extent.of(length)) for name, length in lengths.items())
    known = Surroundings(ranges, tuple(c for c in conditions if all(len(m) < 2 for m, _ in c.terms)))
    return look(found, Extent.of(length), known) == "inside"


def _inequalities(condition: Term, wanted: bool, rounded: Rounded) -> list[Extent]:
    """The terms of indices that are not negative where a condition holds, or does not."""
    match condition:
        case Apply(function="not", arguments=(inner,)):
            return _inequalities(inner, not wanted, rounded)
        case Select(condition=first, then=then, otherwise=Constant(value=False)) if wanted:  # and
            return _inequalities(first, True, rounded) + _inequalities(then, True, rounded)
        case Select(condition=first, then=Constant(value=True), otherwise=second) if not wanted:  # or
            return _inequalities(first, False, rounded) + _inequalities(second, False, rounded)
        case Apply(function=function, arguments=(left, right)) if function in _OPPOSITE:
            a, b = polynomial(left, rounded), polynomial(right, rounded)
            if a is None or b is None:
                return []
            one = Extent.of(1)
            operator = function if wanted else _OPPOSITE[function]
            if operator == "!=":
                return _beside(left, right, a - b)
            return {
                "<": [b - a - one], "<=": [b - a], ">": [a - b - one], ">=": [a - b], "==": [a - b, b - a],
            }[operator]  # fmt: skip
    return []


def _beside(left: Term, right: Term, difference: Extent) -> list[Extent]:
    """The inequality that follows from two indices being different, where one of them cannot be greater."""
    values = _of_operation("-", [interval(left), interval(right)])
    if values is None:
        return []
    low, high = values
    one = Extent.of(1)
    return [difference - one] if low == 0 else [-difference - one] if high == 0 else []


def exact_quotient(a: Term, b: Term) -> Term | None:
    """A quotient of integers, if it is proved to be exact: every coefficient of an index is divided, or cancels."""
    divisor = b.value if isinstance(b, Constant) else None
    found = polynomial(a)
    if not divisor or found is None or any(c % int(divisor) for _, c in found.terms):
        return None
    return Apply(a.dtype, "quotient", (a, b))
