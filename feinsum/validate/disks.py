"""The possible values of an epilogue of a complex sum that is known within a bound: arithmetic of disks around the
reference.

The rules are those of Gargantini and Henrici, "Circular arithmetic and the determination of polynomial zeros" (1972), with
what rounding may add to a product or quotient, a few units in the last place of its modulus.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from feinsum.elementwise import FUNCTIONS

Values = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Disk:
    """Values of the reference, and how far from them a correct one may be."""

    mid: Values
    bound: Values

    @staticmethod
    def exact(values: Any) -> Disk:
        return Disk(values, np.zeros(np.shape(values)))

    @staticmethod
    def around(values: Values, bound: Values) -> Disk:
        return Disk(values, bound)


@dataclass(frozen=True)
class DiskArithmetic:
    """Operators and functions of disks.

    :ivar dtype: the type in which a kernel computes.
    """

    dtype: np.dtype[Any]

    def apply(self, name: str, arguments: list[Any]) -> Any:
        """The value of an operator or function."""
        if name == "neg":
            return Disk(-arguments[0].mid, arguments[0].bound)
        if name == "conj":
            return Disk(np.conj(arguments[0].mid), arguments[0].bound)
        mid, bound, size = _RULES[name](*arguments)
        info = np.finfo(self.dtype)
        widest = bound + FUNCTIONS[name].complex_ulps * float(info.eps) * (size + bound) + 4 * float(info.tiny)
        # Parts of a result may overflow on the way where it comes within a factor of the largest number.
        return Disk(mid, np.where(np.isnan(widest) | (size + bound > 0.1 * float(info.max)), np.inf, widest))


def _add(a: Disk, b: Disk) -> tuple[Values, Values, Values]:
    return a.mid + b.mid, a.bound + b.bound, abs(a.mid + b.mid)


def _subtract(a: Disk, b: Disk) -> tuple[Values, Values, Values]:
    return a.mid - b.mid, a.bound + b.bound, abs(a.mid - b.mid)


def _multiply(a: Disk, b: Disk) -> tuple[Values, Values, Values]:
    size = abs(a.mid) * abs(b.mid)
    return a.mid * b.mid, abs(a.mid) * b.bound + abs(b.mid) * a.bound + a.bound * b.bound, size


def _divide(a: Disk, b: Disk) -> tuple[Values, Values, Values]:
    quotient, least = a.mid / b.mid, abs(b.mid) - b.bound
    bound = (a.bound + abs(quotient) * b.bound) / least
    return quotient, np.where(least > 0, bound, np.inf), abs(quotient)


def _exp(a: Disk) -> tuple[Values, Values, Values]:
    value = np.exp(a.mid)
    return value, abs(value) * np.expm1(a.bound), abs(value)


def _sin(a: Disk) -> tuple[Values, Values, Values]:
    most = np.cosh(abs(np.imag(a.mid)) + a.bound)
    return np.sin(a.mid), most * a.bound, most


def _cos(a: Disk) -> tuple[Values, Values, Values]:
    most = np.cosh(abs(np.imag(a.mid)) + a.bound)
    return np.cos(a.mid), most * a.bound, most


_RULES: Mapping[str, Callable[..., tuple[Values, Values, Values]]] = {
    "+": _add,
    "-": _subtract,
    "*": _multiply,
    "/": _divide,
    "exp": _exp,
    "sin": _sin,
    "cos": _cos,
}
