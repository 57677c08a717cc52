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
        row = FUNCTIONS[name]
        mid, bound, size = _RULES[name](row.evaluate, *arguments)
        if not row.ulps:
            return Disk(mid, bound)
        info = np.finfo(self.dtype)
        widest = bound + row.complex_ulps * float(info.eps) * (size + bound) + 4 * float(info.tiny)
        # Parts of a result may overflow on the way where it comes within a factor of the largest number.
        return Disk(mid, np.where(np.isnan(widest) | (size + bound > 0.1 * float(info.max)), np.inf, widest))


def _as_far(call: Any, a: Disk) -> tuple[Values, Values, Values]:
    """A function that keeps distances."""
    return call(a.mid), a.bound, abs(a.mid)


def _sum(call: Any, a: Disk, b: Disk) -> tuple[Values, Values, Values]:
    mid = call(a.mid, b.mid)
    return mid, a.bound + b.bound, abs(mid)


def _product(call: Any, a: Disk, b: Disk) -> tuple[Values, Values, Values]:
    size = abs(a.mid) * abs(b.mid)
    return call(a.mid, b.mid), abs(a.mid) * b.bound + abs(b.mid) * a.bound + a.bound * b.bound, size


def _quotient(call: Any, a: Disk, b: Disk) -> tuple[Values, Values, Values]:
    quotient, least = call(a.mid, b.mid), abs(b.mid) - b.bound
    bound = (a.bound + abs(quotient) * b.bound) / least
    return quotient, np.where(least > 0, bound, np.inf), abs(quotient)


def _exp_disk(call: Any, a: Disk) -> tuple[Values, Values, Values]:
    value = call(a.mid)
    return value, abs(value) * np.expm1(a.bound), abs(value)


def _wave(call: Any, a: Disk) -> tuple[Values, Values, Values]:
    """A sine or cosine, whose derivative is at most the hyperbolic cosine of the imaginary part."""
    most = np.cosh(abs(np.imag(a.mid)) + a.bound)
    return call(a.mid), most * a.bound, most


_RULES: Mapping[str, Callable[..., tuple[Values, Values, Values]]] = {
    "+": _sum,
    "-": _sum,
    "*": _product,
    "/": _quotient,
    "neg": _as_far,
    "conj": _as_far,
    "exp": _exp_disk,
    "sin": _wave,
    "cos": _wave,
}
"""For each operator or function: its value, the bound before rounding and its size, from numpy's function and disks."""
