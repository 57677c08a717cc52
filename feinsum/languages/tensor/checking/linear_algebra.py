"""Checks of collective linear algebra: orders, shapes, and the types α ≼ promote(A, B) ≼ C and β ≼ C."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from feinsum.languages.tensor.checking.check_report import Check, Report
from feinsum.languages.tensor.checking.signature import check_alignment, warn_of_unused
from feinsum.languages.tensor.definitions import DEFAULT_ALIGNMENT, DEFINITIONS, LINEAR_ALGEBRA
from feinsum.languages.tensor.ir import TensorOperation, TensorValue
from feinsum.languages.tensor.types import C32, I32, Extent, TensorMemref, TensorScalar, promotable, promote, written_extent

_ORDERS: Final = {
    "axpby": ((0, 1, 2), (0, 1, 2)),
    "sum": ((1, 2), (0, 1)),
    "gemm": ((2,), (2,), (2,)),
    "gemv": ((2,), (1,), (1,)),
    "ger": ((1,), (1,), (2,)),
    "hadamard_product": ((1, 2), (1, 2), (1, 2)),
}
"""Orders that the memrefs of an instruction may have."""


def check_alloca(operation: TensorOperation, report: Report) -> None:
    type_ = operation.results[0].type
    if not isinstance(type_, TensorMemref):
        report.error("alloca-type", f"an alloca gives a memref, not {type_}")
        return
    if None in type_.shape or None in type_.strides:
        report.error("alloca-type", f"the size of {type_} is not known")
    warn_of_unused(operation.annotations, ("alignment",), report)
    if "alignment" in operation.annotations:
        check_alignment(operation.annotations["alignment"], type_, report, DEFAULT_ALIGNMENT)


def check_update(operation: TensorOperation, report: Report) -> None:
    """An instruction `result := alpha * (operands) + beta * result`."""
    roles = DEFINITIONS[operation.name].roles
    named = dict(zip(roles, operation.operands, strict=True))
    alpha, beta = named.pop("alpha"), named.pop("beta")
    wrong = [value for value in (alpha, beta) if not isinstance(value.type, TensorScalar)]
    wrong += [value for value in named.values() if not isinstance(value.type, TensorMemref)]
    if wrong:
        value = wrong[0]
        wanted = "a scalar" if value in (alpha, beta) else "a memref"
        report.error("operand-memref", f"%{value.name} of {operation.name} is {value.type}, not {wanted}", value)
        return
    values = list(named.values())
    memrefs = [value.type for value in values if isinstance(value.type, TensorMemref)]
    if _orders_fit(operation, dict(zip(named, values, strict=True)), memrefs, report):
        _check_shapes(operation, values, memrefs, report)
    _check_update_types(alpha, beta, values, memrefs, report)
    if operation.attributes["atomic"] and report.constants.get(beta) not in _ATOMIC_BETAS:
        report.error("atomic-beta", f"β is %{beta.name}, and in an atomic update a constant 0 or 1", beta)


_ATOMIC_BETAS: Final = (0, 1)


def _orders_fit(
    operation: TensorOperation, named: dict[str, TensorValue], memrefs: Sequence[TensorMemref], report: Report
) -> bool:
    name = operation.name
    if name == "cumsum":
        return _cumsum_orders_fit(operation, memrefs[0], report)
    for (role, value), memref, allowed in zip(named.items(), memrefs, _ORDERS[name], strict=True):
        if memref.order not in allowed:
            wanted = " or ".join(map(str, allowed))
            report.error("order", f"{role} of {name} is of order {wanted}; %{value.name} is of order {memref.order}", value)
            return False
    orders = [memref.order for memref in memrefs]
    values = list(named.values())
    if name == "sum" and orders[0] != orders[1] + 1:
        report.error(
            "order", f"the sum of a memref of order {orders[0]} is of order {orders[0] - 1}, not {orders[1]}", *values
        )
        return False
    if name in ("axpby", "hadamard_product") and len(set(orders)) > 1:
        report.error("order", f"the memrefs of {name} have one order, not {', '.join(map(str, orders))}", *values)
        return False
    return True


def _cumsum_orders_fit(operation: TensorOperation, memref: TensorMemref, report: Report) -> bool:
    mode = operation.attributes.get("mode", 0)
    if memref.order < 1:
        report.error("order", f"A of cumsum is of order 1 at least; %{operation.operands[1].name} is of order 0")
        return False
    if not 0 <= mode < memref.order:
        report.error("cumsum-mode", f"mode {mode} of a memref with modes 0 to {memref.order - 1}", operation.operands[1])
    return True


def _check_shapes(
    operation: TensorOperation, values: Sequence[TensorValue], memrefs: Sequence[TensorMemref], report: Report
) -> None:
    """The shape of the result is that of the operation; sizes that are summed over agree."""
    turned = iter(operation.attributes.get("transposes", ()))
    shapes = [memref.shape for memref in memrefs]
    if operation.name in ("axpby", "gemm", "gemv", "sum"):
        shapes = [
            shape[::-1] if len(shape) == 2 and number < len(shapes) - 1 and next(turned, "n") == "t" else shape
            for number, shape in enumerate(shapes)
        ]
    *factors, result = shapes
    summed: tuple[Extent, ...] = ()
    wanted: tuple[Extent, ...]
    match operation.name:
        case "gemm":
            wanted, summed = (factors[0][0], factors[1][1]), (factors[0][1], factors[1][0])
        case "gemv":
            wanted, summed = (factors[0][0],), (factors[0][1], factors[1][0])
        case "ger":
            wanted = (factors[0][0], factors[1][0])
        case "sum":
            wanted = factors[0][:1] if result else ()
        case "hadamard_product" if factors[0] != factors[1]:
            report.error(
                "shape",
                f"a product of {_shape_words(factors[0])} and {_shape_words(factors[1])}, element by element",
                *values,
            )
            return
        case _:
            wanted = factors[0]
    if summed and summed[0] != summed[1]:
        sizes = f"{written_extent(summed[0])} columns and {written_extent(summed[1])} rows"
        report.error("shape", f"factors of {sizes}{_size_advice(summed)}", *values[:2])
    if wanted != result:
        found = f"the result is {_shape_words(wanted)}, and %{values[-1].name} is {_shape_words(result)}"
        report.error("shape", f"{found}{_size_advice((*wanted, *result))}", *values)


def _shape_words(shape: Sequence[Extent]) -> str:
    return "x".join(map(written_extent, shape)) or "a single element"


def _size_advice(extents: Sequence[Extent]) -> str:
    """Advice on making a size known to the compiler."""
    known = [extent for extent in extents if extent is not None]
    return f"; for a known size, take a subview such as [0:{known[0]}]" if None in extents and known else ""


def _check_update_types(
    alpha: TensorValue, beta: TensorValue, values: Sequence[TensorValue], memrefs: Sequence[TensorMemref], report: Report
) -> None:
    *factors, result = [memref.element for memref in memrefs]
    product = factors[0] if len(factors) == 1 else promote(*factors)
    if product is None:
        report.error("promotion-operands", f"neither of {factors[0]} and {factors[1]} holds the other", *values[:2])
    else:
        _check_promotion("promotion-alpha", "α", alpha.type, product, report, alpha, *values[:-1])
        _check_promotion("promotion-result", "the operand", product, result, report, *values)
    _check_promotion("promotion-beta", "β", beta.type, result, report, beta, values[-1])


def _check_promotion(rule: str, what: str, narrow: object, wide: TensorScalar, report: Report, *about: TensorValue) -> None:
    if not isinstance(narrow, TensorScalar):
        return
    if not promotable(narrow, wide):
        report.error(rule, f"{what} is {narrow}, which is not promotable to {wide}", *about)
    elif narrow == I32 and wide == C32:
        report.warn("promotion-inexact", f"{what} is i32, and c32 holds integers of 24 bits exactly", *about)


CHECKS: Final[dict[str, Check]] = {
    "alloca": check_alloca,
    **dict.fromkeys(LINEAR_ALGEBRA, check_update),
}
