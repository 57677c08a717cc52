"""Whether indices stay within their axes when lengths are known; what is not proved is refused: kernels check none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from feinsum.languages.declarative.bounds import Surroundings, look
from feinsum.languages.declarative.extents import Extent
from feinsum.languages.declarative.lowering.terms import Apply, Constant, Select, Term, Variable

Held: TypeAlias = tuple[Term, bool]
"""A condition, and whether it holds or not."""

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


def polynomial(term: Term) -> Extent | None:
    """An index as a polynomial in variables, if it is one."""
    match term:
        case Constant(value=value):
            return Extent.of(int(value))
        case Variable(name=name, extent=extent) if extent > 0:
            return Extent.of(name)
        case Apply(function="cast", arguments=(inner,)):
            return polynomial(inner)
        case Apply(function="neg", arguments=(inner,)):
            found = polynomial(inner)
            return None if found is None else -found
        case Apply(function="+" | "-" | "*" as function, arguments=(first, second)):
            a, b = polynomial(first), polynomial(second)
            if a is None or b is None:
                return None
            return a + b if function == "+" else a - b if function == "-" else a * b
    return None


def is_inside(index: Term, length: int, held: Sequence[Held]) -> bool:
    """Whether ``0 <= index < length`` is proved under what holds."""
    values = interval(index)
    if values is not None and values[0] >= 0 and values[1] < length:
        return True
    found = polynomial(index)
    if found is None or any(len(monomial) > 1 for monomial, _ in found.terms):
        return False
    conditions = [c for condition, wanted in held for c in _inequalities(condition, wanted)]
    terms = [index, *(condition for condition, _ in held)]
    ranges = tuple({v.name: (v.name, Extent.of(v.extent)) for t in terms for v in t.free if v.extent}.values())
    known = Surroundings(ranges, tuple(c for c in conditions if all(len(m) < 2 for m, _ in c.terms)))
    return look(found, Extent.of(length), known) == "inside"


def _inequalities(condition: Term, wanted: bool) -> list[Extent]:
    """What is not negative where a condition holds, or does not; as much of it as is of indices."""
    match condition:
        case Apply(function="not", arguments=(inner,)):
            return _inequalities(inner, not wanted)
        case Select(condition=first, then=then, otherwise=Constant(value=False)) if wanted:  # and
            return _inequalities(first, True) + _inequalities(then, True)
        case Select(condition=first, then=Constant(value=True), otherwise=second) if not wanted:  # or
            return _inequalities(first, False) + _inequalities(second, False)
        case Apply(function=function, arguments=(left, right)) if function in _OPPOSITE:
            a, b = polynomial(left), polynomial(right)
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
    """What follows from two indices being different, where one of them cannot be greater."""
    values = _of_operation("-", [interval(left), interval(right)])
    if values is None:
        return []
    low, high = values
    one = Extent.of(1)
    return [difference - one] if low == 0 else [-difference - one] if high == 0 else []
