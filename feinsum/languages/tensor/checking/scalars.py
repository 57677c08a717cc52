"""Checks of arithmetic, comparisons, casts, constants and exponentials."""

from __future__ import annotations

from typing import Final

from feinsum.languages.tensor.checking.check_report import Check, Report
from feinsum.languages.tensor.definitions import ARITHMETIC, DEFINITIONS
from feinsum.languages.tensor.ir import TensorOperation
from feinsum.languages.tensor.types import BOOL, Boolean, Coopmatrix, TensorScalar, Type


def _family(type_: Type) -> str:
    if isinstance(type_, TensorScalar):
        return "integers" if type_.is_integer else "complex" if type_.is_complex else "floating"
    if isinstance(type_, Boolean):
        return "bool"
    return "coopmatrices" if isinstance(type_, Coopmatrix) else "others"


def check_arithmetic(operation: TensorOperation, report: Report) -> None:
    name = operation.name.removeprefix("arith.")
    (result,) = operation.results
    operand = operation.operands[0]
    if name in ("abs", "im", "re") and isinstance(operand.type, TensorScalar) and operand.type.is_complex:
        if result.type != operand.type.component:
            message = f"{operation.name} of {operand.type} gives {operand.type.component}, not {result.type}"
            report.error("arith-operands", message, operand)
        return
    allowed = DEFINITIONS[operation.name].types
    if _family(operand.type) not in allowed:
        message = f"{operation.name} is for {' and '.join(allowed)}; %{operand.name} is of type {operand.type}"
        report.error("arith-type", message, operand)
        return
    for value in operation.operands:
        if value.type != result.type:
            message = f"%{value.name} is of type {value.type}, and the result of type {result.type}"
            report.error("arith-operands", message, value)
            return


def check_cast(operation: TensorOperation, report: Report) -> None:
    (operand,), (result,) = operation.operands, operation.results
    a, b = operand.type, result.type
    if isinstance(a, Coopmatrix) and isinstance(b, Coopmatrix):
        if (a.shape, a.use) != (b.shape, b.use):
            report.error("cast-type", f"a cast keeps shape and use: {a} is not cast to {b}", operand)
            return
        a, b = a.component, b.component
    if not (isinstance(a, TensorScalar) and isinstance(b, TensorScalar)):
        report.error("cast-type", f"{operand.type} is not cast to {result.type}", operand)
    elif a.is_complex and not b.is_complex:
        report.error("cast-complex", f"{a} is not cast to {b}; take arith.re or arith.im of it", operand)


def check_comparison(operation: TensorOperation, report: Report) -> None:
    a, b = operation.operands
    condition = operation.attributes["condition"]
    if not isinstance(a.type, TensorScalar) or a.type != b.type:
        report.error("cmp-type", f"%{a.name} and %{b.name} are of types {a.type} and {b.type}, not one scalar type", a, b)
    elif a.type.is_complex and condition not in ("eq", "ne"):
        report.error("cmp-type", f"complex numbers have no order; %{a.name} is of type {a.type}", a)
    if operation.results[0].type != BOOL:
        report.error("cmp-result", f"a comparison gives a bool, not {operation.results[0].type}")


def check_constant(operation: TensorOperation, report: Report) -> None:
    type_, value = operation.results[0].type, operation.attributes["value"]
    component = type_.component if isinstance(type_, Coopmatrix) else type_
    if isinstance(component, Boolean):
        fits, example = isinstance(value, bool), "true"
    elif not isinstance(component, TensorScalar):
        report.error("constant-type", f"there are no constants of type {type_}")
        return
    elif component.is_integer:
        fits, example = type(value) is int, "1"
        bits = 8 * component.size_bytes
        if fits and not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
            report.warn("constant-range", f"{value} has more than the {bits} bits of {component}")
    elif component.is_complex:
        fits, example = isinstance(value, complex), "[1.0,0.0]"
    else:
        fits, example = isinstance(value, float), "1.0"
    if not fits:
        shown = str(value).lower() if isinstance(value, bool) else value
        report.error("constant-type", f"{shown} is no {component}; write it as in {example}")


def check_math(operation: TensorOperation, report: Report) -> None:
    (operand,), (result,) = operation.operands, operation.results
    if not isinstance(operand.type, TensorScalar) or operand.type.is_integer:
        report.error("math-type", f"there is no exponential of type {operand.type}", operand)
    elif operand.type != result.type:
        message = f"%{operand.name} is of type {operand.type}, and the result of type {result.type}"
        report.error("math-type", message, operand)


CHECKS: Final[dict[str, Check]] = {
    **dict.fromkeys(ARITHMETIC, check_arithmetic),
    "cast": check_cast,
    "cmp": check_comparison,
    "constant": check_constant,
    "math": check_math,
}
