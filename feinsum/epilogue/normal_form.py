"""The normal form of epilogues: one tree for equal functions, by rules that change no value.

Constants are folded, and operations without effect are dropped: ``x + 0``, ``1*x``, ``x/1``, ``x**1``, ``-(-x)``; ``x**2``
is ``x*x``, and ``x - -y`` is ``x + y``.  A product of zero and a term that reads the output is zero, so that the output is
not read (a constant β = 0 of the BLAS); other products with zero stay, as the other factor may be NaN.  The arguments of
``+``, ``*``, ``min`` and ``max`` have an order that depends on no name.  (``x + 0`` and ``x`` differ in the sign of a zero,
which is not kept.)
"""

from __future__ import annotations

import math

from feinsum.elementwise import FUNCTIONS
from feinsum.epilogue.tree import (
    EpilogueCall,
    EpilogueNumber,
    EpilogueScalar,
    Node,
    Present,
    Read,
    Sum,
    reads_output,
    rebuild_tree,
    walk_tree,
)

_WHOLE, _WIDEST = 2**53, 2**64
_COMMUTATIVE = ("+", "*", "min", "max")
_FIRST_IN_SUMS = (Sum, EpilogueCall, Read, Present, EpilogueScalar, EpilogueNumber)
_FIRST_IN_PRODUCTS = (EpilogueNumber, EpilogueScalar, Sum, Read, Present, EpilogueCall)


def normal_form(node: Node) -> Node:
    """The tree in normal form."""
    return rebuild_tree(node, _simplify)


def skeleton(node: Node) -> str:
    """The tree as text without names: ``("+" v r:float64:1)``."""
    match node:
        case Sum():
            return "v"
        case Present():
            return "w"
        case EpilogueScalar():
            return "s"
        case Read():
            return f"r:{node.array.dtype.name}:{','.join(map(str, node.axes))}"
        case EpilogueNumber():
            return repr(node.value)
    return f"({node.function} {' '.join(map(skeleton, node.arguments))})"


def _simplify(node: Node) -> Node:
    if isinstance(node, EpilogueNumber):
        return EpilogueNumber(_plain_number(node.value))
    if not isinstance(node, EpilogueCall):
        return node
    known = _folded_call(node)
    if known is not None:
        return EpilogueNumber(known)
    for rule in (_neutral_call, _signs, _powers, _normal_choice):
        found = rule(node)
        if found is not None:
            return found
    return _ordered(node)


def _plain_number(value: float) -> int | float:
    if isinstance(value, int):
        return value if abs(value) < _WIDEST else float(value)
    return int(value) if math.isfinite(value) and value == int(value) and abs(value) < _WHOLE else value


def _folded_call(node: EpilogueCall) -> int | float | None:
    """The value of a call of plain numbers, where it is finite."""
    function = FUNCTIONS[node.function]
    fold, values = function.fold, [argument.value for argument in node.arguments if isinstance(argument, EpilogueNumber)]
    if fold is None or function.condition or len(values) < len(node.arguments):
        return None
    try:
        found = fold(*values)
        return _plain_number(found) if isinstance(found, (int, float)) and math.isfinite(found) else None
    except (ArithmeticError, ValueError):
        return None


def _is(node: Node, value: float) -> bool:
    return isinstance(node, EpilogueNumber) and node.value == value


def _neutral_call(node: EpilogueCall) -> Node | None:
    """The call without an argument that changes nothing, or the zero for which nothing is read."""
    if node.function == "neg":
        (inner,) = node.arguments
        return inner.arguments[0] if isinstance(inner, EpilogueCall) and inner.function == "neg" else None
    if node.function not in ("+", "-", "*", "/"):
        return None
    first, second = node.arguments
    if node.function == "*" and any(_is(a, 0) and reads_output(b) for a, b in ((first, second), (second, first))):
        return EpilogueNumber(0)
    unit = 0 if node.function in "+-" else 1
    if _is(second, unit):
        return first
    if _is(first, unit) and node.function in "+*":
        return second
    return _simplify(EpilogueCall("neg", (second,))) if _is(first, 0) and node.function == "-" else None


def _signs(node: EpilogueCall) -> Node | None:
    """A sum or difference with the sign of an argument made part of it."""
    if node.function not in ("+", "-"):
        return None
    first, second = node.arguments
    for kept, other in ((first, second), (second, first)) if node.function == "+" else ((first, second),):
        positive = _negated(other)
        if positive is not None:
            return _simplify(EpilogueCall("-" if node.function == "+" else "+", (kept, positive)))
    return None


def _negated(node: Node) -> Node | None:
    """The node whose negative a node is; None if it has no minus sign."""
    if isinstance(node, EpilogueNumber) and node.value < 0:
        return EpilogueNumber(-node.value)
    return node.arguments[0] if isinstance(node, EpilogueCall) and node.function == "neg" else None


def _powers(node: EpilogueCall) -> Node | None:
    """Squares, cubes and first powers as products."""
    if (
        node.function != "**"
        or not isinstance(node.arguments[1], EpilogueNumber)
        or node.arguments[1].value not in (1, 2, 3)
    ):
        return None
    base, power = node.arguments[0], node.arguments[1].value
    found = base
    for _ in range(int(power) - 1):
        found = _ordered(EpilogueCall("*", (found, base)))
    return found


def _normal_choice(node: EpilogueCall) -> Node | None:
    """A choice between equal things, or that of a constant in place of a truth value."""
    return node.arguments[1] if node.function == "where" and node.arguments[1] == node.arguments[2] else None


def _ordered(node: EpilogueCall) -> EpilogueCall:
    """The call with its arguments in order, where they have none of their own."""
    if node.function not in _COMMUTATIVE:
        return node
    ranks = _FIRST_IN_PRODUCTS if node.function == "*" else _FIRST_IN_SUMS
    return EpilogueCall(
        node.function, tuple(sorted(node.arguments, key=lambda x: (ranks.index(type(x)), skeleton(x), _rows_of_sums(x))))
    )


def _rows_of_sums(node: Node) -> tuple[int, ...]:
    """The rows whose sums stand in a node; where nothing else decides, the sum of the first row comes first."""
    return tuple(part.row for part in walk_tree(node) if isinstance(part, Sum) and part.row is not None)
