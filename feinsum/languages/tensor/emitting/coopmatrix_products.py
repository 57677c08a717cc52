"""Products of cooperative matrices: D = A B + C, one column of A with one row of B after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import cgen

from feinsum.languages.tensor.emitting.context import Amount, Context, plus, product_expression
from feinsum.languages.tensor.emitting.fragments import Fragments, multiply_fragments
from feinsum.languages.tensor.emitting.layouts import Matrix
from feinsum.languages.tensor.emitting.matrices import (
    MOST_WRITTEN_OUT,
    by_components,
    cast_into,
    declare,
    element_position,
    fill_matrix,
    for_each_element,
)
from feinsum.languages.tensor.emitting.numbers import arithmetic_expression, c_type_of, conversion
from feinsum.languages.tensor.ir import TensorOperation, TensorValue
from feinsum.languages.tensor.types import BF16, F16, F32, F64, Coopmatrix, TensorScalar

_UNSIGNED: Final = {"i32": "uint", "i64": "ulong", "index": "ulong"}


def emit_product(context: Context, operation: TensorOperation) -> None:
    """D = A B + C, one column of A with one row of B after the other."""
    a, b, c = (context.values[value] for value in operation.operands)
    (result,) = operation.results
    assert isinstance(result.type, Coopmatrix)
    total = replace(c, name=context.fresh(result.name))

    context.body.append(cgen.ArrayOf(cgen.Value(total.c, total.name), total.length))
    depth, pieces = a.type.columns, total.pieces
    small = total.length * depth <= MOST_WRITTEN_OUT
    fill_matrix(context, total, lambda q: f"{c.name}[{q}]")
    if isinstance(total, Fragments):
        multiply_fragments(context, a, b, total)
        _round_and_cast(context, result, total)
        return

    def step(k: Amount) -> None:
        def body(q: Amount) -> None:
            column, piece = element_position(q, pieces)
            left = f"{a.name}[{plus(piece, product_expression(k, pieces))}]"
            right = f"{b.name}[{plus(k, product_expression(column, depth))}]"
            context.put(f"{total.name}[{q}] = {_multiplied(a, b, total, left, right, f'{total.name}[{q}]')}")

        for_each_element(context, total.length, body, small)

    if a.width != total.width:
        a = _with_width(context, a, total.width)
    for_each_element(context, depth, step, small)
    _round_and_cast(context, result, total)


def _round_and_cast(context: Context, result: TensorValue, total: Matrix) -> None:
    """Round sums, and cast them to what the result is."""
    _round(context, total)
    if result.type == total.type:
        context.values[result] = total
    else:
        context.values[result] = narrow = declare(context, result)
        cast_into(context, total, narrow)


def _with_width(context: Context, source: Matrix, width: int) -> Matrix:
    """The same matrix in vectors of another width."""
    pieces = -(-source.type.rows // width)
    made = Matrix(context.fresh("a"), source.type, width, pieces, source.replicated, source.step)

    context.body.append(cgen.ArrayOf(cgen.Value(made.c, made.name), made.length))
    cast_into(context, source, made)
    return made


def _round(context: Context, total: Matrix) -> None:
    """Sums of f16 and bf16 are rounded when they are whole."""
    type_ = total.type.component
    if type_ in (F16, BF16):

        def text(q: Amount) -> str:
            return by_components(total, lambda part: f"round_{type_}({part(f'{total.name}[{q}]', total.width)})")

        fill_matrix(context, total, text)


def _multiplied(a: Matrix, b: Matrix, total: Matrix, left: str, right: str, sum_: str) -> str:
    """left times right plus a sum, in the type of the sum."""
    type_, width = total.type.component, total.width
    floats = (F16, BF16, F32, F64)
    if type_ in floats and a.type.component in floats and b.type.component in floats:
        vector = left if c_type_of(a.type.component) == c_type_of(type_) else _convert_vector(left, total)
        number = right if c_type_of(b.type.component) == c_type_of(type_) else f"({c_type_of(type_)}){right}"
        return f"fma({vector}, {f'({total.c})({number})' if width > 1 else number}, {sum_})"

    if type_.name in _UNSIGNED and a.type.component == type_ and b.type.component == type_ and width > 1:
        c, u = total.c, f"{_UNSIGNED[type_.name]}{width}"
        return f"as_{c}(as_{u}({left}) * as_{u}(({c})({right})) + as_{u}({sum_}))"

    def one(part: Callable[[str, int], str]) -> str:
        x = conversion(part(left, a.width), a.type.component, _unrounded(type_))
        y = conversion(right, b.type.component, _unrounded(type_))
        product = arithmetic_expression("mul", type_, [f"({x})", f"({y})"], _unrounded(type_))
        return arithmetic_expression("add", _unrounded(type_), [part(sum_, width), f"({product})"], _unrounded(type_))

    return by_components(total, one)


def _unrounded(type_: TensorScalar) -> TensorScalar:
    return F32 if type_ in (F16, BF16) else type_


def _convert_vector(vector: str, total: Matrix) -> str:
    return f"convert_{total.c}({vector})" if total.width > 1 else f"({total.c}){vector}"


EMITTERS: Final[Mapping[str, Callable[[Context, TensorOperation], None]]] = {
    "cooperative_matrix_mul_add": emit_product,
}
