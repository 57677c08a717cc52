"""Scalars: arithmetic, comparisons, casts, constants and builtins as C; of coopmatrices component by component."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Final

from feinsum.languages.tensor.definitions import ARITHMETIC
from feinsum.languages.tensor.emitting import matrices
from feinsum.languages.tensor.emitting.context import Context, known_number
from feinsum.languages.tensor.emitting.numbers import arithmetic_expression, comparison, conversion, literal
from feinsum.languages.tensor.ir import TensorOperation
from feinsum.languages.tensor.types import F64, INDEX, Boolean, Coopmatrix, TensorScalar, Type


def _scalar(type_: Type) -> TensorScalar | Boolean:
    assert isinstance(type_, (TensorScalar, Boolean))
    return type_


def emit_arithmetic(context: Context, operation: TensorOperation) -> None:
    name = operation.name.removeprefix("arith.")
    (result,) = operation.results
    if isinstance(result.type, Coopmatrix):
        matrices.emit_elementwise(context, operation, name)
        return
    operands = [context.text(value) for value in operation.operands]
    if name == "mul" and result.type == INDEX:
        divisors = (context.divisors.get(value, known_number(context.text(value))) for value in operation.operands)
        context.divisors[result] = prod(divisors)
    context.assign(result, arithmetic_expression(name, _scalar(operation.operands[0].type), operands, _scalar(result.type)))


def emit_comparison(context: Context, operation: TensorOperation) -> None:
    a, b = operation.operands
    text = comparison(operation.attributes["condition"], _scalar(a.type), context.text(a), context.text(b))
    context.assign(operation.results[0], text)


def emit_cast(context: Context, operation: TensorOperation) -> None:
    (source,), (result,) = operation.operands, operation.results
    if isinstance(result.type, Coopmatrix):
        matrices.emit_matrix_cast(context, operation)
        return
    assert isinstance(source.type, TensorScalar)
    assert isinstance(result.type, TensorScalar)
    context.assign(result, conversion(context.text(source), source.type, result.type))


def emit_math(context: Context, operation: TensorOperation) -> None:
    (source,), (result,) = operation.operands, operation.results
    type_ = _scalar(result.type)
    name = "exp" if type_ == F64 else operation.attributes["function"]
    context.assign(result, arithmetic_expression(name, type_, [context.text(source)], type_))


def emit_constant(context: Context, operation: TensorOperation) -> None:
    (result,), value = operation.results, operation.attributes["value"]
    if isinstance(result.type, Coopmatrix):
        matrices.emit_matrix_constant(context, operation)
    else:
        context.values[result] = literal(value, _scalar(result.type))


def emit_builtin(context: Context, operation: TensorOperation) -> None:
    target = context.target
    context.values[operation.results[0]] = {
        "group_id": "gid",
        "group_size": "count",
        "num_subgroups": str(target.subgroups),
        "subgroup_size": str(target.subgroup_size),
        "subgroup_id": "subgroup",
        "subgroup_local_id": "lane",
    }[operation.attributes["builtin"]]


EMITTERS: Final[Mapping[str, Callable[[Context, TensorOperation], None]]] = {
    **dict.fromkeys(ARITHMETIC, emit_arithmetic),
    "builtin": emit_builtin,
    "cast": emit_cast,
    "cmp": emit_comparison,
    "constant": emit_constant,
    "math": emit_math,
}
