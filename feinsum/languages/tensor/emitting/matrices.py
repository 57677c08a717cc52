"""Cooperative matrices: how the work-items of a sub-group hold them, and what they do with them.

    matrix_a, matrix_acc    work-item l of s holds rows l, l + s, l + 2 s, ...; one alone holds all, in vectors, of
                            which the last holds rows of the one before it again where it were not full else
    matrix_b                every work-item holds all of it: products read it with one index for the whole sub-group

so that a product needs nothing of other work-items; where matrix units multiply, :mod:`.fragments` says who holds what.
Element q of an array is piece q mod P of column q div P.  Small matrices are written out, so that arrays become registers;
loops remain for large ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import cgen

from feinsum.languages.tensor.emitting.context import Amount, Context
from feinsum.languages.tensor.emitting.fragments import fragments
from feinsum.languages.tensor.emitting.layouts import Matrix, component_of, layout
from feinsum.languages.tensor.emitting.numbers import arithmetic_expression, conversion, literal, zero
from feinsum.languages.tensor.ir import TensorOperation, TensorValue
from feinsum.languages.tensor.types import BF16, F16, F32, F64, Coopmatrix, TensorScalar

MOST_WRITTEN_OUT = 1024


def declare(context: Context, value: TensorValue) -> Matrix:
    """A new array for a value."""
    assert isinstance(value.type, Coopmatrix)
    held = context.on_units.get(value)
    name = context.fresh(value.name)
    matrix = layout(context, value.type, name) if held is None else fragments(value.type, name, held)

    context.body.append(cgen.ArrayOf(cgen.Value(matrix.c, matrix.name), matrix.length))
    return matrix


def for_each_element(context: Context, count: int, body: Callable[[Amount], None], written_out: bool) -> None:
    if written_out:
        for number in range(count):
            body(number)
        return
    name = context.fresh("q")
    with context.loop(f"int {name} = 0", f"{name} < {count}", f"++{name}"):
        body(name)


def element_position(number: Amount, by: int) -> tuple[Amount, Amount]:
    """Column and piece of an element of an array."""
    if isinstance(number, int):
        return divmod(number, by)
    return (number, 0) if by == 1 else (f"({number} / {by})", f"({number} % {by})")


def is_small(matrix: Matrix) -> bool:
    return matrix.length * matrix.width <= MOST_WRITTEN_OUT // 2


def vector_of(matrix: Matrix, components: list[str]) -> str:
    return f"({matrix.c})({', '.join(components)})" if matrix.width > 1 else components[0]


def fill_matrix(context: Context, matrix: Matrix, text: Callable[[Amount], str]) -> None:
    """Store the text of each element of the array."""

    def body(q: Amount) -> None:
        context.put(f"{matrix.name}[{q}] = {text(q)}")

    for_each_element(context, matrix.length, body, is_small(matrix))


def emit_matrix_constant(context: Context, operation: TensorOperation) -> None:
    matrix = declare(context, operation.results[0])
    value = literal(operation.attributes["value"], matrix.type.component)
    filled = f"({matrix.c})({value})" if matrix.width > 1 else value
    fill_matrix(context, matrix, lambda q: filled)
    context.values[operation.results[0]] = matrix


def by_components(matrix: Matrix, compute: Callable[[Callable[[str, int], str]], str]) -> str:
    """A vector of what is computed of components; `compute` gets how to name a component of a vector."""
    return vector_of(
        matrix,
        [compute(lambda vector, width, lane=lane: component_of(vector, width, lane)) for lane in range(matrix.width)],  # type: ignore[misc]
    )


def emit_elementwise(context: Context, operation: TensorOperation, name: str) -> None:
    """Arithmetic of matrices held alike."""
    matrix = declare(context, operation.results[0])
    operands = [context.values[value] for value in operation.operands]
    type_ = operands[0].type.component

    def text(q: Amount) -> str:
        vectors = [f"{operand.name}[{q}]" for operand in operands]
        if type_ in (F32, F64):
            return arithmetic_expression(name, type_, vectors, type_)
        return by_components(
            matrix,
            lambda part: arithmetic_expression(
                name, type_, [part(v, o.width) for v, o in zip(vectors, operands, strict=True)], matrix.type.component
            ),
        )

    fill_matrix(context, matrix, text)
    context.values[operation.results[0]] = matrix


def emit_scale(context: Context, operation: TensorOperation) -> None:
    matrix = declare(context, operation.results[0])
    source: Matrix = context.values[operation.operands[1]]
    factor, type_ = context.text(operation.operands[0]), matrix.type.component

    def text(q: Amount) -> str:
        vector = f"{source.name}[{q}]"
        if type_ in (F32, F64):
            return f"{factor} * {vector}"
        return by_components(
            matrix, lambda part: arithmetic_expression("mul", type_, [factor, part(vector, source.width)], type_)
        )

    fill_matrix(context, matrix, text)
    context.values[operation.results[0]] = matrix


def emit_matrix_cast(context: Context, operation: TensorOperation) -> None:
    """Between types of different vectors, component by component."""
    source: Matrix = context.values[operation.operands[0]]
    matrix = declare(context, operation.results[0])
    context.values[operation.results[0]] = matrix
    cast_into(context, source, matrix)


def cast_into(context: Context, source: Matrix, matrix: Matrix) -> None:
    before, after = source.type.component, matrix.type.component
    if source.width == matrix.width:

        def text(q: Amount) -> str:
            vector = f"{source.name}[{q}]"
            if matrix.width > 1 and _has_conversion(before, after):
                return f"convert_{matrix.c}({vector})"
            return by_components(matrix, lambda part: conversion(part(vector, source.width), before, after))

        fill_matrix(context, matrix, text)
        return
    for column in range(matrix.type.columns):
        for piece in range(matrix.pieces):
            components = []
            for lane in range(matrix.width):
                row = matrix.row(piece, lane)
                assert isinstance(row, int)
                there = row < source.type.rows
                components.append(conversion(source.component(row, column), before, after) if there else zero(after))
            context.put(f"{matrix.name}[{column * matrix.pieces + piece}] = {vector_of(matrix, components)}")


def _has_conversion(before: TensorScalar, after: TensorScalar) -> bool:
    """Whether vectors are converted as a whole."""
    if before.is_complex or after.is_complex or after in (F16, BF16):
        return False
    return before.is_integer or not after.is_integer


EMITTERS: Final[Mapping[str, Callable[[Context, TensorOperation], None]]] = {
    "cooperative_matrix_scale": emit_scale,
}
