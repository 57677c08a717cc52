"""Checks of cooperative matrices and of operations of a sub-group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from feinsum.languages.tensor.checking.check_report import Check, Report
from feinsum.languages.tensor.ir import TensorOperation, TensorValue
from feinsum.languages.tensor.types import I32, INDEX, Coopmatrix, TensorMemref, TensorScalar, promotable, promote


def _check_position(memref: TensorValue, position: Sequence[TensorValue], component: TensorScalar, report: Report) -> None:
    """The memref that a matrix is loaded from or stored to, and where."""
    if not isinstance(memref.type, TensorMemref) or memref.type.order != 2:
        report.error("matrix-type", f"%{memref.name} is of type {memref.type}, and not a memref of order 2", memref)
    elif memref.type.element != component:
        report.error("matrix-component", f"a matrix of {component}, and %{memref.name} of {memref.type.element}", memref)
    for value in position:
        if value.type != INDEX:
            report.error("index-type", f"%{value.name} is of type {value.type}, not index; cast it", value)


def check_load(operation: TensorOperation, report: Report) -> None:
    memref, *position = operation.operands
    type_ = operation.results[0].type
    if not isinstance(type_, Coopmatrix):
        report.error("matrix-type", f"what is loaded is a coopmatrix, not {type_}")
        return
    _check_position(memref, position, type_.component, report)


def check_store(operation: TensorOperation, report: Report) -> None:
    value, memref, *position = operation.operands
    if not isinstance(value.type, Coopmatrix):
        report.error("matrix-type", f"%{value.name} is of type {value.type}, and not a coopmatrix", value)
        return
    _check_position(memref, position, value.type.component, report)


def check_product(operation: TensorOperation, report: Report) -> None:
    values = [*operation.operands, *operation.results]
    types = [value.type for value in values if isinstance(value.type, Coopmatrix)]
    if len(types) < len(values):
        wrong = next(value for value in values if not isinstance(value.type, Coopmatrix))
        report.error("matrix-type", f"%{wrong.name} is of type {wrong.type}, and not a coopmatrix", wrong)
        return
    a, b, c, d = types
    for value, type_, use in zip(values, types, ("matrix_a", "matrix_b", "matrix_acc", "matrix_acc"), strict=True):
        if type_.use != use:
            report.error("matrix-use", f"%{value.name} is a {type_.use}, and stands where a {use} does", value)
    if a.columns != b.rows:
        report.error("matrix-shape", f"A has {a.columns} columns, and B {b.rows} rows", *values[:2])
    for name, type_, value in (("C", c, values[2]), ("the result", d, values[3])):
        if type_.shape != (a.rows, b.columns):
            product, found = f"{a.rows}x{b.columns}", f"{type_.rows}x{type_.columns}"
            report.error("matrix-shape", f"the product is {product}, and {name} {found}", value)
    product_type = promote(a.component, b.component)
    if product_type is None:
        report.error("promotion-operands", f"neither of {a.component} and {b.component} holds the other", *values[:2])
    elif not promotable(product_type, c.component):
        report.error("promotion-result", f"the product is {product_type}, not promotable to {c.component}", *values[:3])
    if c.component.is_complex and not d.component.is_complex:
        report.error("cast-complex", f"the sum is {c.component}, which is not cast to {d.component}", values[2])


def check_scale(operation: TensorOperation, report: Report) -> None:
    scalar, matrix = operation.operands
    result = operation.results[0].type
    if not isinstance(matrix.type, Coopmatrix):
        report.error("matrix-type", f"%{matrix.name} is of type {matrix.type}, and not a coopmatrix", matrix)
        return
    if scalar.type != matrix.type.component:
        report.error("matrix-component", f"a factor of type {scalar.type} for {matrix.type}", scalar, matrix)
    if result != matrix.type:
        report.error("matrix-type", f"a scaled {matrix.type} is no {result}", matrix)


def check_broadcast(operation: TensorOperation, report: Report) -> None:
    value, item = operation.operands
    _check_scalar(value, operation, report)
    if item.type != I32:
        report.error("subgroup-index", f"%{item.name} is of type {item.type}, not i32", item)


def check_scan(operation: TensorOperation, report: Report) -> None:
    (value,) = operation.operands
    _check_scalar(value, operation, report)
    if operation.name != "subgroup_add" and isinstance(value.type, TensorScalar) and value.type.is_complex:
        report.error("subgroup-type", f"complex numbers have no order; %{value.name} is of type {value.type}", value)


def _check_scalar(value: TensorValue, operation: TensorOperation, report: Report) -> None:
    result = operation.results[0].type
    if not isinstance(value.type, TensorScalar):
        report.error("subgroup-type", f"%{value.name} is of type {value.type}, and not a scalar", value)
    elif value.type != result:
        report.error("subgroup-type", f"%{value.name} is of type {value.type}, and the result of type {result}", value)


CHECKS: Final[dict[str, Check]] = {
    "cooperative_matrix_load": check_load,
    "cooperative_matrix_store": check_store,
    "cooperative_matrix_mul_add": check_product,
    "cooperative_matrix_scale": check_scale,
    "subgroup_broadcast": check_broadcast,
    **dict.fromkeys(("subgroup_add", "subgroup_max", "subgroup_min"), check_scan),
}
