"""Expressions of loopy as expressions of OpenCL C on vectors, whose functions take all lanes at once: ``exp(float8)``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pymbolic.mapper import Mapper

from feinsum.elementwise import MATH
from feinsum.epilogue.vector_functions import ERF
from feinsum.errors import TransformError
from feinsum.lower.epilogue_expressions import IN_LOOPY

_OTHERS = ("copysign", "fmod", "pow", "round")
"""Functions of OpenCL C that kernels may call and epilogues have not, or not by that name."""
_NAMES = {name: name for name in _OTHERS} | {
    name: row.opencl for row in MATH.values() for name in (row.name, row.opencl, IN_LOOPY[row.name])
}
"""The names in OpenCL C of functions in loopy, whose arguments and value are reals of one type, numbers or vectors."""


def vector_code(expression: Any, scalar: str, width: int, leaves: Mapping[Any, str]) -> str:
    """C for an expression of vectors and numbers, which is a vector or a number itself.

    :param scalar: the type of the numbers.
    :param leaves: the C of parts of the expression: of whatever depends on lanes, and of all arrays.
    :raises TransformError: if there is a function in it that OpenCL C has not.
    """
    return str(_VectorCode(scalar, width, leaves)(expression))


class _VectorCode(Mapper[str, []]):  # type: ignore[misc]  # pymbolic's mappers are not typed for strict checking
    def __init__(self, scalar: str, width: int, leaves: Mapping[Any, str]) -> None:
        super().__init__()
        self.scalar, self.width, self.vector, self.leaves = scalar, width, f"{scalar}{width}", leaves

    def rec(self, expr: Any) -> str:
        known = self.leaves.get(expr) if hasattr(expr, "mapper_method") else None
        return known if known is not None else str(super().rec(expr))

    __call__ = rec

    def _wide(self, expr: Any) -> str:
        """A vector: functions and choices of OpenCL C want all arguments of one type."""
        return f"(({self.vector}) {self.rec(expr)})"

    def _joined(self, operator: str, parts: Any) -> str:
        return f"({f' {operator} '.join(map(self.rec, parts))})"

    def map_constant(self, expr: Any) -> str:
        if isinstance(expr, (bool, np.bool_)):
            return str(int(expr))
        value = float(expr)
        if not np.isfinite(value):
            return "NAN" if np.isnan(value) else "INFINITY" if value > 0 else "(-INFINITY)"
        text = repr(value) + ("f" if self.scalar == "float" else "")
        return f"({text})" if value < 0 else text

    def map_variable(self, expr: Any) -> str:
        return f"(({self.scalar}) {expr.name})"

    def map_sum(self, expr: Any) -> str:
        return self._joined("+", expr.children)

    def map_product(self, expr: Any) -> str:
        return self._joined("*", expr.children)

    def map_quotient(self, expr: Any) -> str:
        return self._joined("/", (expr.numerator, expr.denominator))

    def map_power(self, expr: Any) -> str:
        return f"pow({self._wide(expr.base)}, {self._wide(expr.exponent)})"

    def map_call(self, expr: Any) -> str:
        name = _NAMES.get(expr.function.name)
        if name is None:
            raise TransformError(f"'{expr}' calls a function of which there is none for vectors")
        if name == "erf" and self.scalar == "float":
            name = f"{ERF}{self.width}"
        return f"{name}({', '.join(map(self._wide, expr.parameters))})"

    def map_min(self, expr: Any) -> str:
        return self._nested("fmin", expr.children)

    def map_max(self, expr: Any) -> str:
        return self._nested("fmax", expr.children)

    def _nested(self, function: str, children: Any) -> str:
        first, *rest = map(self._wide, children)
        for other in rest:
            first = f"{function}({first}, {other})"
        return first

    def map_comparison(self, expr: Any) -> str:
        return self._joined(expr.operator, (expr.left, expr.right))

    def map_logical_and(self, expr: Any) -> str:
        return self._joined("&&", expr.children)

    def map_logical_or(self, expr: Any) -> str:
        return self._joined("||", expr.children)

    def map_logical_not(self, expr: Any) -> str:
        return f"(!{self.rec(expr.child)})"

    def map_if(self, expr: Any) -> str:
        return f"({self.rec(expr.condition)} ? {self._wide(expr.then)} : {self._wide(expr.else_)})"

    def map_type_cast(self, expr: Any) -> str:
        return self.rec(expr.child)
