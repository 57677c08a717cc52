"""The table of elementwise functions: one row for each, from which epilogues, the languages and the proofs read.

The row of ``atan`` says: it is ``arctan`` in numpy and ``atan`` in OpenCL C, takes reals, errs by at most 5 units in the
last place, is finite, and rises everywhere.  :doc:`/guides/elementwise-functions` says how to add one.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

_EVERYWHERE: Final = (-math.inf, math.inf)


@dataclass(frozen=True)
class Function:
    """A row: an elementwise function or operator.

    The function has one name in programs, numpy and OpenCL C, unless the row says otherwise.

    :ivar name: the name in the texts of epilogues and programs.
    :ivar arity: the number of arguments.
    :ivar kinds: the kinds of numpy's types that it takes: ``i`` and ``u`` integers, ``f`` reals, ``c`` complex numbers.
    :ivar numpy: its name in numpy; where numpy has no such function, that of Python's ``math`` is used.
    :ivar opencl: its name in OpenCL C, for reals (section 6.15.2, "Math Functions"), where it takes vectors as well.
    :ivar own: whether :mod:`feinsum.epilogue.vector_functions` has it for vectors of float32.
    :ivar arrays: its values on numpy arrays, where neither numpy nor ``math`` has it.
    :ivar number: its value on plain numbers, where ``math`` has none of its name.
    :ivar condition: whether its value is a truth value.
    :ivar ulps: the error that OpenCL allows in units in the last place, in single and in double precision (tables of
        "Relative Error as ULPs"); where the standard leaves it to the implementation, the error that current ones keep.  An
        exact function has 0, and makes integers of integers.
    :ivar complex_ulps: the error of the modulus for complex numbers.
    :ivar total: whether its value is finite for all finite arguments that are not very large.
    :ivar domain: the least and the largest argument for which it is defined.
    :ivar turns: the arguments at which a function of one argument turns from falling to rising or back; empty if it is
        monotone, or monotone along each of two arguments; None where this does not describe it.
    :ivar slope: the largest absolute derivative of a function without `turns`.  A function with neither is a method of
        :class:`feinsum.validate.intervals.IntervalArithmetic`, which has its name in numpy.
    :ivar image: the range of its values, where there is a `slope`.
    """

    name: str
    arity: int = 1
    kinds: str = "f"
    numpy: str = ""
    opencl: str = ""
    own: bool = False
    arrays: Callable[..., Any] | None = None
    number: Callable[..., Any] | None = None
    condition: bool = False
    ulps: float = 4.0
    complex_ulps: float = 0.0
    total: bool = False
    domain: tuple[float, float] = _EVERYWHERE
    turns: tuple[float, ...] | None = None
    slope: float | None = None
    image: tuple[float, float] = _EVERYWHERE

    def __post_init__(self) -> None:
        for library in ("numpy", "opencl"):
            object.__setattr__(self, library, getattr(self, library) or self.name)

    @cached_property
    def evaluate(self) -> Callable[..., Any]:
        """The function of numpy arrays."""
        import numpy as np

        found = self.arrays or getattr(np, self.numpy, None)
        return found or np.vectorize(getattr(math, self.name), otypes=[np.float64])

    @property
    def fold(self) -> Callable[..., Any] | None:
        """The function of plain numbers; None if calls on constants are not folded."""
        return self.number or getattr(math, self.name, None)


def _rsqrt(x: Any) -> Any:
    import numpy as np

    return 1 / np.sqrt(x)


def _table(*rows: Function) -> Mapping[str, Function]:
    return {row.name: row for row in rows}


_ALL, _REAL = "iufc", "iuf"

OPERATORS: Final = _table(
    Function("+", 2, _ALL, "add", number=operator.add, ulps=0.5, complex_ulps=2, total=True),
    Function("-", 2, _ALL, "subtract", number=operator.sub, ulps=0.5, complex_ulps=2, total=True),
    Function("*", 2, _ALL, "multiply", number=operator.mul, ulps=0.5, complex_ulps=4, total=True, turns=()),
    Function("/", 2, "fc", "divide", number=operator.truediv, ulps=2.5, complex_ulps=16),
    Function("**", 2, "f", "power", "pow", number=lambda a, b: float(a) ** b, ulps=16),
    Function("neg", 1, "ifc", "negative", number=operator.neg, ulps=0, total=True, turns=()),
)
COMPARISONS: Final = _table(
    *(
        Function(name, 2, _REAL, numpy, number=number, condition=True, total=True)
        for name, numpy, number in (
            ("<", "less", operator.lt),
            ("<=", "less_equal", operator.le),
            (">", "greater", operator.gt),
            (">=", "greater_equal", operator.ge),
            ("==", "equal", operator.eq),
            ("!=", "not_equal", operator.ne),
        )
    )
)
LOGIC: Final = _table(
    Function("and", 2, _ALL, "logical_and", condition=True, total=True),
    Function("or", 2, _ALL, "logical_or", condition=True, total=True),
    Function("not", 1, _ALL, "logical_not", number=operator.not_, condition=True, total=True),
)
MATH: Final = _table(
    Function("min", 2, _REAL, "fmin", "fmin", number=min, ulps=0, total=True, turns=()),
    Function("max", 2, _REAL, "fmax", "fmax", number=max, ulps=0, total=True, turns=()),
    Function("abs", 1, "if", "abs", "fabs", number=abs, ulps=0, total=True, turns=(0.0,)),
    Function("floor", ulps=0, total=True, turns=()),
    Function("ceil", ulps=0, total=True, turns=()),
    Function("trunc", ulps=0, total=True, turns=()),
    Function("rint", ulps=0, total=True, turns=()),
    Function("sqrt", ulps=3, domain=(0, math.inf), turns=()),
    Function("rsqrt", arrays=_rsqrt, domain=(0, math.inf), turns=()),
    Function("cbrt", total=True, turns=()),
    Function("exp", 1, "fc", own=True, complex_ulps=16, turns=()),
    Function("exp2", turns=()),
    Function("expm1", turns=()),
    Function("log", domain=(0, math.inf), turns=()),
    Function("log2", domain=(0, math.inf), turns=()),
    Function("log10", domain=(0, math.inf), turns=()),
    Function("log1p", domain=(-1, math.inf), turns=()),
    Function("sin", 1, "fc", complex_ulps=16, total=True, slope=1.0, image=(-1, 1)),
    Function("cos", 1, "fc", complex_ulps=16, total=True, slope=1.0, image=(-1, 1)),
    Function("tan", ulps=5),
    Function("asin", 1, "f", "arcsin", domain=(-1, 1), turns=()),
    Function("acos", 1, "f", "arccos", domain=(-1, 1), turns=()),
    Function("atan", 1, "f", "arctan", ulps=5, total=True, turns=()),
    Function("atan2", 2, "f", "arctan2", ulps=6, total=True),
    Function("sinh", turns=()),
    Function("cosh", turns=(0.0,)),
    Function("tanh", ulps=5, total=True, turns=()),
    Function("asinh", 1, "f", "arcsinh", total=True, turns=()),
    Function("acosh", 1, "f", "arccosh", domain=(1, math.inf), turns=()),
    Function("atanh", 1, "f", "arctanh", ulps=5, domain=(-1, 1), turns=()),
    Function("erf", own=True, ulps=16, total=True, turns=()),
    Function("erfc", ulps=16, total=True, turns=()),
    Function("hypot", 2, total=True),
)
"""Functions that OpenCL C has, by name."""
NAMED: Final[Mapping[str, Function]] = {
    **_table(Function("where", 3, _REAL, ulps=0, total=True), Function("conj", 1, "fc", ulps=0, total=True, turns=())),
    **MATH,
}
FUNCTIONS: Final[Mapping[str, Function]] = {**OPERATORS, **COMPARISONS, **LOGIC, **NAMED}

EXPANDED: Final[Mapping[str, tuple[str, str]]] = {
    "gelu": ("x", "0.5*x*(1 + erf(sqrt(0.5)*x))"),
    "gelu_tanh": ("x", f"0.5*x*(1 + tanh(sqrt(2/{math.pi})*(x + 0.044715*(x*x*x))))"),
    "silu": ("x", "x/(1 + exp(-x))"),
    # Not max(x, 0), which makes a zero of NaN.
    "relu": ("x", "where(x < 0, 0, x)"),
    "sigmoid": ("x", "1/(1 + exp(-x))"),
    "pow": ("xy", "x**y"),
    "isnan": ("x", "x != x"),
}
"""Functions that stand for expressions of others: their arguments, a letter each, and the text of the expression.

``gelu`` is ``x Φ(x)`` with the error function, and ``gelu_tanh`` its approximation by a hyperbolic tangent (Hendrycks and
Gimpel, "Gaussian Error Linear Units", 2016, section 2); ``silu`` is ``x/(1 + exp(-x))``; ``relu`` is ``max(x, 0)`` and
propagates NaN.
"""
