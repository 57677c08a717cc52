"""The possible values of an epilogue of a sum that is known within a bound: interval arithmetic on reals.

Every value is kept three times: as the reference has it, and as the least and the largest that a correct kernel may have.
An operation takes the extremes of its arguments' intervals, and what its own rounding may add: the units in the last place
that OpenCL C allows (:data:`feinsum.elementwise.FUNCTIONS`), twice, and the smallest normal number, below which a
device may flush to zero.  So an error of v is passed on as far as ω passes it on at that very entry, which is its local
Lipschitz constant where it has one; a step, as of ``where``, is allowed to fall either way where the bound reaches over it.
(Moore, Kearfott and Cloud, *Introduction to Interval Analysis*, chapters 2 and 5.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from feinsum.elementwise import FUNCTIONS, Function

Values = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Interval:
    """Values of the reference, and the least and largest that are right."""

    mid: Values
    low: Values
    high: Values

    @staticmethod
    def exact(values: Any) -> Interval:
        return Interval(values, values, values)

    @staticmethod
    def around(values: Values, bound: Values) -> Interval:
        return Interval(values, values - bound, values + bound)

    @property
    def bound(self) -> Values:
        """How far from the reference a correct value may be; infinite where anything may come of rounding.

        So it is where the reference is infinite and a correct value need not be: ``log(0)``, where 0 may be rounded.
        """
        widest = np.maximum(self.high - self.mid, self.mid - self.low)
        may_be_finite = np.isfinite(self.low) | np.isfinite(self.high) | (self.low < self.high)
        other = np.where(may_be_finite, np.inf, 0)
        return np.where(np.isfinite(self.mid), np.where(np.isnan(widest), np.inf, widest), other)


@dataclass(frozen=True)
class Truth:
    """Whether a condition holds: for the reference, for all correct values, and for some."""

    mid: Values
    surely: Values
    maybe: Values


@dataclass(frozen=True)
class IntervalArithmetic:
    """Operators and functions of intervals.

    :ivar dtype: the type in which a kernel computes.
    """

    dtype: np.dtype[Any]

    def apply(self, name: str, arguments: list[Any]) -> Any:
        """The value of an operator or function."""
        row = FUNCTIONS[name]
        if row.condition:
            return _condition(name, arguments)
        return self._rounded(row.ulps, self._ideal(row, arguments))

    def _ideal(self, row: Function, arguments: list[Any]) -> Interval:
        """The extremes over the arguments' intervals, before rounding."""
        if row.turns is not None:
            return _in_pieces(row, *arguments) if row.arity == 1 else _corners(row.evaluate, *arguments)
        if row.slope is not None:
            return _lipschitz(row, row.slope, *arguments)
        own: Callable[..., Interval] = getattr(self, row.numpy)
        return own(*arguments)

    def _rounded(self, ulps: float, x: Interval) -> Interval:
        """With what rounding adds, and infinite beyond the largest number."""
        info = np.finfo(self.dtype)
        if not ulps:
            return x
        # The smallest normal number: results below it may be flushed to zero.
        low = x.low - 2 * ulps * float(info.eps) * abs(x.low) - float(info.tiny)
        high = x.high + 2 * ulps * float(info.eps) * abs(x.high) + float(info.tiny)
        most = float(info.max)
        low = np.where(low < -most, -np.inf, np.where(low > most, np.inf, low))
        return Interval(x.mid, low, np.where(high > most, np.inf, np.where(high < -most, -np.inf, high)))

    def add(self, a: Interval, b: Interval) -> Interval:
        return Interval(a.mid + b.mid, a.low + b.low, a.high + b.high)

    def subtract(self, a: Interval, b: Interval) -> Interval:
        return Interval(a.mid - b.mid, a.low - b.high, a.high - b.low)

    def divide(self, a: Interval, b: Interval) -> Interval:
        return _unless((b.low <= 0) & (b.high >= 0) & (b.low != b.high), _corners(np.divide, a, b))

    def power(self, a: Interval, b: Interval) -> Interval:
        """The power of a positive base; for others it is unknown, unless base and exponent are exact."""
        exact = (a.low == a.high) & (b.low == b.high)
        return _unless((a.low <= 0) & ~exact, _corners(np.power, a, b))

    def hypot(self, a: Interval, b: Interval) -> Interval:
        size = FUNCTIONS["abs"]
        return _corners(np.hypot, _in_pieces(size, a), _in_pieces(size, b))

    def tan(self, a: Interval) -> Interval:
        """Between two of its poles."""
        apart = np.floor(a.low / np.pi + 0.5) != np.floor(a.high / np.pi + 0.5)
        return _unless(apart, _in_pieces(FUNCTIONS["tan"], a))

    def arctan2(self, a: Interval, b: Interval) -> Interval:
        """Away from where it jumps."""
        return _unless((b.low <= 0) & (a.low <= 0) & (a.high >= 0), _corners(np.arctan2, a, b))

    def where(self, condition: Truth, a: Interval, b: Interval) -> Interval:
        """Either where it is not sure which."""
        low = np.where(condition.surely, a.low, np.where(condition.maybe, np.minimum(a.low, b.low), b.low))
        high = np.where(condition.surely, a.high, np.where(condition.maybe, np.maximum(a.high, b.high), b.high))
        return Interval(np.where(condition.mid, a.mid, b.mid), low, high)


def _unless(unknown: Values, x: Interval) -> Interval:
    """Nothing is known where `unknown` says so."""
    return Interval(x.mid, np.where(unknown, -np.inf, x.low), np.where(unknown, np.inf, x.high))


def _in_pieces(row: Function, a: Interval) -> Interval:
    """The extremes of a function that is monotone between its turns: they are at the ends and at turns between them."""
    # Zeros have no sign here: rsqrt of a negative one is negative.
    first, second = row.evaluate(a.low + 0.0), row.evaluate(a.high + 0.0)
    falls = first > second
    low, high = np.where(falls, second, first), np.where(falls, first, second)
    for turn in row.turns or ():
        between, value = (a.low < turn) & (a.high > turn), row.evaluate(turn)
        low, high = np.where(between, np.minimum(low, value), low), np.where(between, np.maximum(high, value), high)
    least, most = row.domain
    outside = (a.low < least) | (a.high > most) | np.isnan(low) | np.isnan(high)
    wholly = (a.high < least) | (a.low > most) | np.isnan(a.low) | np.isnan(a.high)
    return _unless(outside & ~wholly, Interval(row.evaluate(a.mid), low, high))


def _corners(call: Callable[..., Any], a: Interval, b: Interval) -> Interval:
    """The extremes of a function that is monotone along each argument: they are where both are at an end."""
    found = [call(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    low, high = np.minimum.reduce(found), np.maximum.reduce(found)
    given = np.isnan(a.low) | np.isnan(b.low)  # no number comes of none
    return _unless(np.isnan(low) & ~given, Interval(call(a.mid, b.mid), low, high))


def _lipschitz(row: Function, slope: float, a: Interval) -> Interval:
    """A function that changes at most `slope` times as much as its argument."""
    mid, radius = row.evaluate(a.mid), slope * np.maximum(a.high - a.mid, a.mid - a.low)
    least, most = row.image
    return Interval(mid, np.maximum(mid - radius, least), np.minimum(mid + radius, most))


def _condition(name: str, arguments: list[Any]) -> Truth:
    if name == "not":
        (a,) = arguments
        return Truth(~a.mid, ~a.maybe, ~a.surely)
    a, b = arguments
    call = FUNCTIONS[name].evaluate
    if name in ("and", "or"):
        return Truth(call(a.mid, b.mid), call(a.surely, b.surely), call(a.maybe, b.maybe))
    if name in (">", ">="):
        return _condition({">": "<", ">=": "<="}[name], [b, a])
    if name == "!=":
        same = _condition("==", [a, b])
        return Truth(~same.mid, ~same.maybe, ~same.surely)
    if name == "==":
        surely = (a.low == a.high) & (b.low == b.high) & (a.low == b.low)
        return Truth(a.mid == b.mid, surely, (a.low <= b.high) & (b.low <= a.high))
    return Truth(call(a.mid, b.mid), call(a.high, b.low), call(a.low, b.high))
