"""The functions of epilogues: operators, comparisons, and functions of OpenCL C (section 6.15.2, "Math Functions")."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from feinsum.epilogue.tree import Call, Node, Number


@dataclass(frozen=True)
class Function:
    """An operator or function.

    :ivar arity: how many arguments it has.
    :ivar kinds: the kinds of numpy's types that it takes: ``i`` and ``u`` integers, ``f`` reals, ``c`` complex numbers.
    :ivar fold: its value for plain numbers; None if it is not worked out beforehand.
    :ivar condition: whether its value is a truth value.
    :ivar ulps: the error that OpenCL allows in units in the last place, in single and in double precision (tables of
        "Relative Error as ULPs"); numbers that it leaves to the implementation are those that current ones keep.
    :ivar total: whether its value is finite for all finite arguments that are not very large.
    """

    arity: int
    kinds: str = "f"
    fold: Callable[..., float] | None = None
    condition: bool = False
    ulps: float = 4.0
    total: bool = False


_ALL, _REAL = "iufc", "iuf"

OPERATORS: Mapping[str, Function] = {
    "+": Function(2, _ALL, lambda a, b: a + b, ulps=0.5, total=True),
    "-": Function(2, _ALL, lambda a, b: a - b, ulps=0.5, total=True),
    "*": Function(2, _ALL, lambda a, b: a * b, ulps=0.5, total=True),
    "/": Function(2, "fc", lambda a, b: a / b, ulps=2.5),
    "**": Function(2, "f", lambda a, b: float(a) ** b, ulps=16),
    "neg": Function(1, "ifc", lambda a: -a, ulps=0, total=True),
}
COMPARISONS: Mapping[str, Function] = {
    x: Function(2, _REAL, condition=True, total=True) for x in ("<", "<=", ">", ">=", "==", "!=")
}
LOGIC: Mapping[str, Function] = {
    "and": Function(2, _ALL, condition=True, total=True),
    "or": Function(2, _ALL, condition=True, total=True),
    "not": Function(1, _ALL, condition=True, total=True),
}
NAMED: Mapping[str, Function] = {
    "where": Function(3, _REAL, ulps=0, total=True),
    "min": Function(2, _REAL, min, ulps=0, total=True),
    "max": Function(2, _REAL, max, ulps=0, total=True),
    "abs": Function(1, "if", abs, ulps=0, total=True),
    "floor": Function(1, fold=math.floor, ulps=0, total=True),
    "ceil": Function(1, fold=math.ceil, ulps=0, total=True),
    "sqrt": Function(1, fold=math.sqrt, ulps=3),
    "exp": Function(1, "fc", fold=math.exp),
    "log": Function(1, fold=math.log),
    "log10": Function(1, fold=math.log10),
    "sin": Function(1, "fc", fold=math.sin, total=True),
    "cos": Function(1, "fc", fold=math.cos, total=True),
    "tan": Function(1, fold=math.tan, ulps=5),
    "asin": Function(1, fold=math.asin),
    "acos": Function(1, fold=math.acos),
    "atan": Function(1, fold=math.atan, ulps=5, total=True),
    "sinh": Function(1, fold=math.sinh),
    "cosh": Function(1, fold=math.cosh),
    "tanh": Function(1, fold=math.tanh, ulps=5, total=True),
    "erf": Function(1, fold=math.erf, ulps=16, total=True),
    "erfc": Function(1, fold=math.erfc, ulps=16, total=True),
    "exp2": Function(1, fold=lambda a: 2.0**a),
    "expm1": Function(1, fold=math.expm1),
    "log2": Function(1, fold=math.log2),
    "log1p": Function(1, fold=math.log1p),
    "cbrt": Function(1, ulps=4, total=True),
    "asinh": Function(1, fold=math.asinh, total=True),
    "acosh": Function(1, fold=math.acosh),
    "atanh": Function(1, fold=math.atanh, ulps=5),
    "atan2": Function(2, fold=math.atan2, ulps=6, total=True),
    "hypot": Function(2, fold=math.hypot, total=True),
    "conj": Function(1, "fc", ulps=0, total=True),
}
FUNCTIONS: Mapping[str, Function] = {**OPERATORS, **COMPARISONS, **LOGIC, **NAMED}


def _call(function: str, *arguments: Node | float) -> Call:
    return Call(function, tuple(Number(x) if isinstance(x, (int, float)) else x for x in arguments))


def _sigmoid(x: Node) -> Node:
    return _call("/", 1, _call("+", 1, _call("exp", _call("neg", x))))


def _silu(x: Node) -> Node:
    return _call("/", x, _call("+", 1, _call("exp", _call("neg", x))))


def _relu(x: Node) -> Node:
    # Not max(x, 0), which makes a zero of NaN.
    return _call("where", _call("<", x, 0), 0, x)


def _gelu(x: Node) -> Node:
    return _call("*", _call("*", 0.5, x), _call("+", 1, _call("erf", _call("*", math.sqrt(0.5), x))))


def _gelu_tanh(x: Node) -> Node:
    cube = _call("*", _call("*", x, x), x)
    inner = _call("*", math.sqrt(2 / math.pi), _call("+", x, _call("*", 0.044715, cube)))
    return _call("*", _call("*", 0.5, x), _call("+", 1, _call("tanh", inner)))


EXPANDED: Mapping[str, Callable[[Node], Node]] = {
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": _silu,
    "relu": _relu,
    "sigmoid": _sigmoid,
}
"""Functions of one argument that stand for expressions.

``gelu`` is ``x Φ(x)`` with the error function, and ``gelu_tanh`` its approximation by a hyperbolic tangent (Hendrycks and
Gimpel, "Gaussian Error Linear Units", 2016, section 2); ``silu`` is ``x/(1 + exp(-x))``; ``relu`` is ``max(x, 0)`` and
keeps what is no number.
"""
