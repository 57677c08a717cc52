"""Loads and stores of cooperative matrices: vector by vector where rows follow each other, else element by element."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from math import gcd
from typing import Final

from feinsum.languages.tensor.emitting.context import (
    Amount,
    Context,
    EmittedView,
    divisor_of,
    plus,
    product_expression,
    within,
)
from feinsum.languages.tensor.emitting.fragments import FragmentCoordinate, Fragments
from feinsum.languages.tensor.emitting.layouts import DIGITS, Matrix, component_of
from feinsum.languages.tensor.emitting.matrices import declare, element_position, for_each_element, is_small, vector_of
from feinsum.languages.tensor.emitting.memory import loaded_element, stored
from feinsum.languages.tensor.emitting.numbers import zero
from feinsum.languages.tensor.ir import TensorOperation, TensorValue
from feinsum.languages.tensor.types import BF16, F16, F32, F64


def _is_transposed(operation: TensorOperation) -> bool:
    return bool(operation.attributes.get("transposes") == ("t",))


class _MatrixAccess:
    """The places of a matrix's elements in memory, and those to be checked."""

    def __init__(
        self,
        context: Context,
        operation: TensorOperation,
        matrix: Matrix,
        view: EmittedView,
        x: TensorValue,
        y: TensorValue,
    ) -> None:
        self.matrix, self.turned = matrix, _is_transposed(operation)
        self.x, self.y = _view_origin(context, x), _view_origin(context, y)
        checked = operation.attributes["checked"]
        self.rows_checked = checked in ("rows_checked", "both_checked")
        self.columns_checked = checked in ("cols_checked", "both_checked")
        along = (1, 0) if self.turned else (0, 1)
        self.sizes = view.shape[along[0]], view.shape[along[1]]
        self.strides = view.strides[along[0]], view.strides[along[1]]
        self.starts = (self.y, self.x) if self.turned else (self.x, self.y)

    def place(self, row: Amount, column: Amount) -> Amount:
        """Where the element of a row and a column of the matrix lies."""
        return plus(
            product_expression(plus(self.starts[0], row), self.strides[0]),
            product_expression(plus(self.starts[1], column), self.strides[1]),
        )

    def condition(self, row: Amount, column: Amount) -> str:
        """Whether an element is there; empty where it is."""
        tests = []
        if self.matrix.may_lack_rows:
            if isinstance(row, str):
                tests.append(f"{row} < {self.matrix.type.rows}")
            elif row >= self.matrix.type.rows:
                return "0"
        if self.rows_checked:
            tests.append(f"(ulong)({plus(self.starts[0], row)}) < (ulong){self.sizes[0]}")
        if self.columns_checked:
            tests.append(f"(ulong)({plus(self.starts[1], column)}) < (ulong){self.sizes[1]}")
        return " && ".join(tests)

    def test(self, row: FragmentCoordinate, column: FragmentCoordinate) -> str:
        """The condition for an element of a fragment; "0" if it is never there."""
        known = [row.test(self.matrix.type.rows), column.test(self.matrix.type.columns)]
        if "0" in known:
            return "0"
        return " && ".join(filter(None, [*known, self.condition(row.text, column.text)]))

    def vectors(self, piece: Amount) -> list[tuple[int, int]]:
        """The vectors of which a piece is made in memory: first lane and length; empty if elements lie apart.

        Of a vector that the matrix does not fill these are fewer: 7 rows of 8 are vectors of 4, 2 and 1.
        """
        matrix = self.matrix
        if matrix.width == 1 or not isinstance(piece, int) or self.strides[0] != 1 or self.rows_checked:
            return []
        left = matrix.width if matrix.overlaps else min(matrix.type.rows - piece * matrix.width, matrix.width)
        found, lane = [], 0
        while lane < left:
            length = 1 << ((left - lane).bit_length() - 1)
            found.append((lane, length))
            lane += length
        return found


def _view_origin(context: Context, value: TensorValue) -> Amount:
    text = context.text(value)
    return int(text.rstrip("L")) if text.rstrip("L").isdigit() else text


def emit_matrix_load(context: Context, operation: TensorOperation) -> None:
    source, x, y = operation.operands
    view: EmittedView = context.values[source]
    matrix = declare(context, operation.results[0])
    context.values[operation.results[0]] = matrix
    access = _MatrixAccess(context, operation, matrix, view, x, y)

    def element(row: Amount, column: Amount) -> str:
        condition = access.condition(row, column)
        if condition == "0":
            return zero(view.element)
        text = loaded_element(view, access.place(row, column))
        return f"({condition} ? {text} : {zero(view.element)})" if condition else text

    if isinstance(matrix, Fragments):
        with context.guard(context.mask):
            _load_fragments(context, access, matrix, view)
        return

    def body(q: Amount) -> None:
        column, piece = element_position(q, matrix.pieces)
        if vectors := access.vectors(piece):
            first = matrix.first(piece)
            loads = [_vector_loaded(view, access.place(plus(first, lane), column), n) for lane, n in vectors]
            missing = matrix.width - sum(n for _, n in vectors)
            text = (
                loads[0] if len(loads) == 1 and not missing else vector_of(matrix, loads + [zero(view.element)] * missing)
            )
            if access.columns_checked:
                text = f"{access.condition(0, column)} ? {text} : ({matrix.c})(0)"
        else:
            text = vector_of(matrix, [element(matrix.row(piece, lane), column) for lane in range(matrix.width)])
        context.put(f"{matrix.name}[{q}] = {text}")

    with context.guard(context.mask):
        if (length := _aligned_length(context, access, view, x, y)) > 1:
            _load_columns(context, access, view, length)
        else:
            for_each_element(context, matrix.length, body, is_small(matrix))


def _load_fragments(context: Context, access: _MatrixAccess, matrix: Fragments, view: EmittedView) -> None:
    for name, row, column in matrix.elements():
        condition = access.test(row, column)
        text = zero(view.element)
        if condition != "0":
            text = loaded_element(view, access.place(row.text, column.text))
            text = f"({condition}) ? {text} : {zero(view.element)}" if condition else text
        context.put(f"{name} = {text}")


def _store_fragments(context: Context, access: _MatrixAccess, matrix: Fragments, view: EmittedView, atomic: str) -> None:
    for name, row, column in matrix.elements():
        condition = access.test(row, column)
        if condition != "0":
            with context.guard(condition or None):
                stored(context, view, access.place(row.text, column.text), name, atomic)


def _aligned_length(context: Context, access: _MatrixAccess, view: EmittedView, x: TensorValue, y: TensorValue) -> int:
    """How many rows of a matrix that all hold are one aligned vector of 16 bytes; 1 where that is not known.

    A GPU loads it at once, and to load single elements would keep it from multiplying.
    """
    matrix = access.matrix
    usual = matrix.replicated and context.target.shuffles and view.element in (F32, F64) and is_small(matrix)
    if not usual or access.rows_checked or access.strides[0] != 1:
        return 1
    length = 16 // view.element.size_bytes
    first, second = (y, x) if access.turned else (x, y)
    along = context.divisors.get(first, divisor_of(access.starts[0]))
    across = context.divisors.get(second, divisor_of(access.starts[1])) * divisor_of(access.strides[1])
    return length if gcd(along, across, divisor_of(access.strides[1]), view.aligned, length) == length else 1


def _load_columns(context: Context, access: _MatrixAccess, view: EmittedView, length: int) -> None:
    """Columns in vectors, and what is left of them in elements."""
    matrix = access.matrix
    type_ = f"{matrix.c}{length}"
    rows = matrix.type.rows
    for column in range(matrix.type.columns):
        condition = access.condition(0, column)
        for row in range(0, rows - length + 1, length):
            pointer = f"(__{view.space} const {type_} *)({view.pointer} + {within(access.place(row, column))})"
            text = f"*{pointer}"
            vector = context.declare(type_, "b", f"{condition} ? {text} : ({type_})(0)" if condition else text)
            for lane in range(length):
                context.put(f"{matrix.name}[{column * rows + row + lane}] = {vector}.s{lane}")
        for row in range(rows - rows % length, rows):
            text = loaded_element(view, access.place(row, column))
            text = f"{condition} ? {text} : {zero(view.element)}" if condition else text
            context.put(f"{matrix.name}[{column * rows + row}] = {text}")


def _vector_loaded(view: EmittedView, place: Amount, length: int) -> str:
    """Elements one behind the other, as computed with."""
    if length == 1:
        return loaded_element(view, place)
    pointer = f"{view.pointer} + {within(place)}"
    if view.element == BF16:
        return f"as_float{length}(convert_uint{length}(vload{length}(0, {pointer})) << 16)"
    return f"{'vload_half' if view.element == F16 else 'vload'}{length}(0, {pointer})"


def _store_vector(context: Context, view: EmittedView, place: Amount, vector: str, length: int) -> None:
    if length == 1:
        stored(context, view, place, vector)
        return
    pointer = f"{view.pointer} + {within(place)}"
    if view.element == BF16:
        context.put(f"vstore{length}(convert_ushort{length}(as_uint{length}({vector}) >> 16), 0, {pointer})")
    else:
        suffix = f"_half{length}_rte" if view.element == F16 else f"{length}"
        context.put(f"vstore{suffix}({vector}, 0, {pointer})")


def emit_matrix_store(context: Context, operation: TensorOperation) -> None:
    value, target, x, y = operation.operands
    view: EmittedView = context.values[target]
    matrix: Matrix = context.values[value]
    access = _MatrixAccess(context, operation, matrix, view, x, y)
    atomic = operation.attributes["atomic"]
    if isinstance(matrix, Fragments):
        with context.guard(context.mask):
            _store_fragments(context, access, matrix, view, atomic)
        return

    def body(q: Amount) -> None:
        column, piece = element_position(q, matrix.pieces)
        if (vectors := access.vectors(piece)) and not atomic:
            first = matrix.first(piece)
            with context.guard(access.condition(0, column) if access.columns_checked else None):
                for lane, length in vectors:
                    part = f"{matrix.name}[{q}]"
                    if length < matrix.width:
                        part += f".s{DIGITS[lane : lane + length]}"
                    _store_vector(context, view, access.place(plus(first, lane), column), part, length)
            return
        for lane in range(matrix.width):
            row = matrix.row(piece, lane)
            conditions = [access.condition(row, column)]
            if conditions[0] == "0":
                continue
            if matrix.overlaps and atomic:
                conditions.append(f"{row} >= {product_expression(piece, matrix.width)}")
            if matrix.replicated and not context.target.is_alone:
                conditions.append(f"lane == {within(q)} % {context.target.subgroup_size}")
            component = component_of(f"{matrix.name}[{q}]", matrix.width, lane)
            with context.guard(" && ".join(filter(None, conditions)) or None):
                stored(context, view, access.place(row, column), component, atomic)

    with context.guard(context.mask) if context.mask else nullcontext():
        for_each_element(context, matrix.length, body, is_small(matrix))


EMITTERS: Final[Mapping[str, Callable[[Context, TensorOperation], None]]] = {
    "cooperative_matrix_load": emit_matrix_load,
    "cooperative_matrix_store": emit_matrix_store,
}
