"""The possible values of an epilogue of a sum that is known within a bound: interval arithmetic on reals.

Every value is kept three times: as the reference has it, and as the least and the largest that a correct kernel may have.
An operation takes the extremes of its arguments' intervals, and what its own rounding may add: the units in the last place
that OpenCL C allows (:data:`feinsum.epilogue.functions.FUNCTIONS`), twice, and the smallest normal number, below which a
device may flush to zero.  So an error of v is passed on as far as ω passes it on at that very entry, which is its local
Lipschitz constant where it has one; a step, as of ``where``, is allowed to fall either way where the bound reaches over it.
(Moore, Kearfott and Cloud, *Introduction to Interval Analysis*, chapters 2 and 5.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from feinsum.epilogue.functions import FUNCTIONS

Values = np.ndarray[Any, Any]

_vector_erf, _vector_erfc = np.vectorize(math.erf, otypes=[np.float64]), np.vectorize(math.erfc, otypes=[np.float64])

RISING: Mapping[str, tuple[Callable[..., Any], float, float]] = {
    "exp": (np.exp, -np.inf, np.inf),
    "exp2": (np.exp2, -np.inf, np.inf),
    "expm1": (np.expm1, -np.inf, np.inf),
    "log": (np.log, 0, np.inf),
    "log2": (np.log2, 0, np.inf),
    "log10": (np.log10, 0, np.inf),
    "log1p": (np.log1p, -1, np.inf),
    "sqrt": (np.sqrt, 0, np.inf),
    "cbrt": (np.cbrt, -np.inf, np.inf),
    "asin": (np.arcsin, -1, 1),
    "atan": (np.arctan, -np.inf, np.inf),
    "sinh": (np.sinh, -np.inf, np.inf),
    "tanh": (np.tanh, -np.inf, np.inf),
    "asinh": (np.arcsinh, -np.inf, np.inf),
    "acosh": (np.arccosh, 1, np.inf),
    "atanh": (np.arctanh, -1, 1),
    "erf": (_vector_erf, -np.inf, np.inf),
    "floor": (np.floor, -np.inf, np.inf),
    "ceil": (np.ceil, -np.inf, np.inf),
}
"""Functions that rise everywhere, and where they are defined."""
FALLING: Mapping[str, tuple[Callable[..., Any], float, float]] = {
    "acos": (np.arccos, -1, 1),
    "erfc": (_vector_erfc, -np.inf, np.inf),
}


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
        if FUNCTIONS[name].condition:
            return _condition(name, arguments)
        return self._rounded(name, self._ideal(name, arguments))

    def _ideal(self, name: str, arguments: list[Any]) -> Interval:
        """The extremes over the arguments' intervals, before rounding."""
        if name == "where":
            return _choice(*arguments)
        if name in RISING:
            return _monotone(RISING[name], arguments[0], rising=True)
        if name in FALLING:
            return _monotone(FALLING[name], arguments[0], rising=False)
        own: Callable[..., Interval] = getattr(self, _METHODS[name])
        return own(*arguments)

    def _rounded(self, name: str, x: Interval) -> Interval:
        """With what rounding adds, and infinite beyond the largest number."""
        info, ulps = np.finfo(self.dtype), FUNCTIONS[name].ulps
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

    def negate(self, a: Interval) -> Interval:
        return Interval(-a.mid, -a.high, -a.low)

    def multiply(self, a: Interval, b: Interval) -> Interval:
        return _corners(np.multiply, a, b)

    def divide(self, a: Interval, b: Interval) -> Interval:
        return _unless((b.low <= 0) & (b.high >= 0) & (b.low != b.high), _corners(np.divide, a, b))

    def power(self, a: Interval, b: Interval) -> Interval:
        """Of a positive base; of another one nothing is known, unless it and its power are exact."""
        exact = (a.low == a.high) & (b.low == b.high)
        return _unless((a.low <= 0) & ~exact, _corners(np.power, a, b))

    def least(self, a: Interval, b: Interval) -> Interval:
        return Interval(np.fmin(a.mid, b.mid), np.fmin(a.low, b.low), np.fmin(a.high, b.high))

    def largest(self, a: Interval, b: Interval) -> Interval:
        return Interval(np.fmax(a.mid, b.mid), np.fmax(a.low, b.low), np.fmax(a.high, b.high))

    def absolute(self, a: Interval) -> Interval:
        across = (a.low < 0) & (a.high > 0)
        low = np.where(across, 0, np.minimum(abs(a.low), abs(a.high)))
        return Interval(abs(a.mid), low, np.maximum(abs(a.low), abs(a.high)))

    def cosh(self, a: Interval) -> Interval:
        return _monotone((np.cosh, -np.inf, np.inf), self.absolute(a), rising=True)

    def hypot(self, a: Interval, b: Interval) -> Interval:
        return _corners(np.hypot, self.absolute(a), self.absolute(b))

    def sin(self, a: Interval) -> Interval:
        return _lipschitz(np.sin, a)

    def cos(self, a: Interval) -> Interval:
        return _lipschitz(np.cos, a)

    def tan(self, a: Interval) -> Interval:
        """Between two of its poles."""
        apart = np.floor(a.low / np.pi + 0.5) != np.floor(a.high / np.pi + 0.5)
        return _unless(apart, _monotone((np.tan, -np.inf, np.inf), a, rising=True))

    def atan2(self, a: Interval, b: Interval) -> Interval:
        """Away from where it jumps."""
        return _unless((b.low <= 0) & (a.low <= 0) & (a.high >= 0), _corners(np.arctan2, a, b))

    def conjugate(self, a: Interval) -> Interval:
        return a


_METHODS = {
    "+": "add",
    "-": "subtract",
    "neg": "negate",
    "*": "multiply",
    "/": "divide",
    "**": "power",
    "min": "least",
    "max": "largest",
    "abs": "absolute",
    "conj": "conjugate",
} | {name: name for name in ("cosh", "hypot", "sin", "cos", "tan", "atan2")}


def _unless(unknown: Values, x: Interval) -> Interval:
    """Nothing is known where `unknown` says so."""
    return Interval(x.mid, np.where(unknown, -np.inf, x.low), np.where(unknown, np.inf, x.high))


def _monotone(function: tuple[Callable[..., Any], float, float], a: Interval, *, rising: bool) -> Interval:
    call, least, most = function
    low, high = (a.low, a.high) if rising else (a.high, a.low)
    found = Interval(call(a.mid), call(low), call(high))
    lowest, highest = np.minimum(low, high), np.maximum(low, high)
    outside = (lowest < least) | (highest > most) | np.isnan(found.low) | np.isnan(found.high)
    wholly = (highest < least) | (lowest > most) | np.isnan(low) | np.isnan(high)
    return _unless(outside & ~wholly, found)


def _corners(call: Callable[..., Any], a: Interval, b: Interval) -> Interval:
    """The extremes of a function that is monotone along each argument: they are where both are at an end."""
    found = [call(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    low, high = np.minimum.reduce(found), np.maximum.reduce(found)
    given = np.isnan(a.low) | np.isnan(b.low)  # no number comes of none
    return _unless(np.isnan(low) & ~given, Interval(call(a.mid, b.mid), low, high))


def _lipschitz(call: Callable[..., Any], a: Interval) -> Interval:
    """A function that changes at most as much as its argument."""
    mid, radius = call(a.mid), np.maximum(a.high - a.mid, a.mid - a.low)
    return Interval(mid, np.maximum(mid - radius, -1), np.minimum(mid + radius, 1))


def _choice(condition: Truth, a: Interval, b: Interval) -> Interval:
    """Either where it is not sure which."""
    low = np.where(condition.surely, a.low, np.where(condition.maybe, np.minimum(a.low, b.low), b.low))
    high = np.where(condition.surely, a.high, np.where(condition.maybe, np.maximum(a.high, b.high), b.high))
    return Interval(np.where(condition.mid, a.mid, b.mid), low, high)


def _condition(name: str, arguments: list[Any]) -> Truth:
    if name == "not":
        (a,) = arguments
        return Truth(~a.mid, ~a.maybe, ~a.surely)
    a, b = arguments
    if name in ("and", "or"):
        call = np.logical_and if name == "and" else np.logical_or
        return Truth(call(a.mid, b.mid), call(a.surely, b.surely), call(a.maybe, b.maybe))
    if name in (">", ">="):
        return _condition({">": "<", ">=": "<="}[name], [b, a])
    if name == "!=":
        same = _condition("==", [a, b])
        return Truth(~same.mid, ~same.maybe, ~same.surely)
    if name == "==":
        surely = (a.low == a.high) & (b.low == b.high) & (a.low == b.low)
        return Truth(a.mid == b.mid, surely, (a.low <= b.high) & (b.low <= a.high))
    less: Callable[..., Any] = np.less if name == "<" else np.less_equal
    return Truth(less(a.mid, b.mid), less(a.high, b.low), less(a.low, b.high))
