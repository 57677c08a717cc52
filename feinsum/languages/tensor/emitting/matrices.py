"""Cooperative matrices: how the work-items of a sub-group hold them, and what they do with them.

    matrix_a, matrix_acc    work-item l of s holds rows l, l + s, l + 2 s, ...; one alone holds all, in vectors
    matrix_b                every work-item holds all of it: products read it with one index for the whole sub-group

so that a product needs nothing of other work-items.  Element q of an array is piece q mod P of column q div P.  Small
matrices are written out, so that arrays become registers; loops remain for large ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final

import cgen

from feinsum.languages.tensor.emitting.context import Amount, Context, View, plus, times, within
from feinsum.languages.tensor.emitting.memory import loaded, stored
from feinsum.languages.tensor.emitting.numbers import arithmetic, c_type, conversion, literal, zero
from feinsum.languages.tensor.ir import Operation, Value
from feinsum.languages.tensor.types import BF16, F16, F32, F64, Coopmatrix, Scalar

_MOST_WRITTEN_OUT = 1024
_DIGITS = "0123456789abcdef"
_UNSIGNED: Final = {"i32": "uint", "i64": "ulong", "index": "ulong"}


@dataclass(frozen=True)
class Matrix:
    """A coopmatrix as an array of `pieces` times `columns` vectors of `width` elements; `step` rows apart."""

    name: str
    type: Coopmatrix
    width: int
    pieces: int
    replicated: bool
    step: int

    @property
    def length(self) -> int:
        return self.pieces * self.type.columns

    @property
    def c(self) -> str:
        """The C type of a vector."""
        return c_type(self.type.component) + (str(self.width) if self.width > 1 else "")

    def row(self, piece: Amount, lane: int) -> Amount:
        """The row of an element of a piece."""
        if self.replicated or self.step == 1:
            return plus(times(piece, self.width), lane)
        return plus("lane", times(piece, self.step))

    @property
    def may_lack_rows(self) -> bool:
        """Whether some elements of the pieces are of no row."""
        return self.pieces * (self.width if self.step == 1 or self.replicated else self.step) != self.type.rows


def layout(context: Context, type_: Coopmatrix, name: str) -> Matrix:
    """How a coopmatrix is held."""
    target = context.target
    if type_.use == "matrix_b":
        return Matrix(name, type_, 1, type_.rows, True, 1)
    width = target.vector_width(type_.rows, type_.component)
    held = width if target.is_alone else target.subgroup_size
    return Matrix(name, type_, width, -(-type_.rows // held), target.is_alone, 1 if target.is_alone else held)


def declare(context: Context, value: Value) -> Matrix:
    """A new array for a value."""
    assert isinstance(value.type, Coopmatrix)
    matrix = layout(context, value.type, context.fresh(value.name))

    context.body.append(cgen.ArrayOf(cgen.Value(matrix.c, matrix.name), matrix.length))
    return matrix


def _each(context: Context, count: int, body: Callable[[Amount], None], written_out: bool) -> None:
    if written_out:
        for number in range(count):
            body(number)
        return
    name = context.fresh("q")
    with context.loop(f"int {name} = 0", f"{name} < {count}", f"++{name}"):
        body(name)


def _split(number: Amount, by: int) -> tuple[Amount, Amount]:
    """Column and piece of an element of an array."""
    if isinstance(number, int):
        return divmod(number, by)
    return (number, 0) if by == 1 else (f"({number} / {by})", f"({number} % {by})")


def _small(matrix: Matrix) -> bool:
    return matrix.length * matrix.width <= _MOST_WRITTEN_OUT // 2


def _component(vector: str, width: int, lane: int) -> str:
    return f"{vector}.s{_DIGITS[lane]}" if width > 1 else vector


def _vector(matrix: Matrix, components: list[str]) -> str:
    return f"({matrix.c})({', '.join(components)})" if matrix.width > 1 else components[0]


def copy(context: Context, source: Matrix, target: Matrix) -> None:
    _each(context, source.length, lambda q: context.put(f"{target.name}[{q}] = {source.name}[{q}]"), _small(source))


def emit_constant(context: Context, operation: Operation) -> None:
    matrix = declare(context, operation.results[0])
    value = literal(operation.attributes["value"], matrix.type.component)
    filled = f"({matrix.c})({value})" if matrix.width > 1 else value
    _each(context, matrix.length, lambda q: context.put(f"{matrix.name}[{q}] = {filled}"), _small(matrix))
    context.values[operation.results[0]] = matrix


def _by_components(matrix: Matrix, compute: Callable[[Callable[[str, int], str]], str]) -> str:
    """A vector of what is computed of components; `compute` gets how to name a component of a vector."""
    return _vector(
        matrix,
        [compute(lambda vector, width, lane=lane: _component(vector, width, lane)) for lane in range(matrix.width)],  # type: ignore[misc]
    )


def emit_elementwise(context: Context, operation: Operation, name: str) -> None:
    """Arithmetic of matrices held alike."""
    matrix = declare(context, operation.results[0])
    operands = [context.values[value] for value in operation.operands]
    type_ = operands[0].type.component

    def body(q: Amount) -> None:
        vectors = [f"{operand.name}[{q}]" for operand in operands]
        if type_ in (F32, F64):
            text = arithmetic(name, type_, vectors, type_)
        else:
            text = _by_components(
                matrix,
                lambda part: arithmetic(
                    name, type_, [part(v, o.width) for v, o in zip(vectors, operands, strict=True)], matrix.type.component
                ),
            )
        context.put(f"{matrix.name}[{q}] = {text}")

    _each(context, matrix.length, body, _small(matrix))
    context.values[operation.results[0]] = matrix


def emit_scale(context: Context, operation: Operation) -> None:
    matrix = declare(context, operation.results[0])
    source: Matrix = context.values[operation.operands[1]]
    factor, type_ = context.text(operation.operands[0]), matrix.type.component

    def body(q: Amount) -> None:
        vector = f"{source.name}[{q}]"
        if type_ in (F32, F64):
            text = f"{factor} * {vector}"
        else:
            text = _by_components(
                matrix, lambda part: arithmetic("mul", type_, [factor, part(vector, source.width)], type_)
            )
        context.put(f"{matrix.name}[{q}] = {text}")

    _each(context, matrix.length, body, _small(matrix))
    context.values[operation.results[0]] = matrix


def emit_cast(context: Context, operation: Operation) -> None:
    """Between types of different vectors, component by component."""
    source: Matrix = context.values[operation.operands[0]]
    matrix = declare(context, operation.results[0])
    context.values[operation.results[0]] = matrix
    _cast_into(context, source, matrix)


def _cast_into(context: Context, source: Matrix, matrix: Matrix) -> None:
    before, after = source.type.component, matrix.type.component
    if source.width == matrix.width:

        def body(q: Amount) -> None:
            vector = f"{source.name}[{q}]"
            if matrix.width > 1 and _has_conversion(before, after):
                context.put(f"{matrix.name}[{q}] = convert_{matrix.c}({vector})")
            else:
                text = _by_components(matrix, lambda part: conversion(part(vector, source.width), before, after))
                context.put(f"{matrix.name}[{q}] = {text}")

        _each(context, matrix.length, body, _small(matrix))
        return
    for column in range(matrix.type.columns):
        for piece in range(matrix.pieces):
            components = []
            for lane in range(matrix.width):
                other, rest = divmod(piece * matrix.width + lane, source.width)
                if other < source.pieces:
                    vector = f"{source.name}[{column * source.pieces + other}]"
                    components.append(conversion(_component(vector, source.width, rest), before, after))
                else:
                    components.append(zero(after))
            context.put(f"{matrix.name}[{column * matrix.pieces + piece}] = {_vector(matrix, components)}")


def _has_conversion(before: Scalar, after: Scalar) -> bool:
    """Whether vectors are converted as a whole."""
    if before.is_complex or after.is_complex or after in (F16, BF16):
        return False
    return before.is_integer or not after.is_integer


# products


def emit_product(context: Context, operation: Operation) -> None:
    """D = A B + C, one column of A with one row of B after the other."""
    a, b, c = (context.values[value] for value in operation.operands)
    (result,) = operation.results
    assert isinstance(result.type, Coopmatrix)
    total = Matrix(context.fresh(result.name), c.type, c.width, c.pieces, c.replicated, c.step)

    context.body.append(cgen.ArrayOf(cgen.Value(total.c, total.name), total.length))
    depth, pieces = a.type.columns, total.pieces
    small = total.length * depth <= _MOST_WRITTEN_OUT
    copy(context, c, total)

    def step(k: Amount) -> None:
        def body(q: Amount) -> None:
            column, piece = _split(q, pieces)
            left = f"{a.name}[{plus(piece, times(k, pieces))}]"
            right = f"{b.name}[{plus(k, times(column, depth))}]"
            context.put(f"{total.name}[{q}] = {_multiplied(a, b, total, left, right, f'{total.name}[{q}]')}")

        _each(context, total.length, body, small)

    if a.width != total.width:
        a = _with_width(context, a, total.width)
    _each(context, depth, step, small)
    if result.type == total.type:
        _round(context, total)
        context.values[result] = total
    else:
        _round(context, total)
        context.values[result] = narrow = declare(context, result)
        _cast_into(context, total, narrow)


def _with_width(context: Context, source: Matrix, width: int) -> Matrix:
    """The same matrix in other vectors."""
    pieces = -(-source.type.rows // width)
    made = Matrix(context.fresh("a"), source.type, width, pieces, source.replicated, source.step)

    context.body.append(cgen.ArrayOf(cgen.Value(made.c, made.name), made.length))
    _cast_into(context, source, made)
    return made


def _round(context: Context, total: Matrix) -> None:
    """Sums of f16 and bf16 are rounded when they are whole."""
    type_ = total.type.component
    if type_ in (F16, BF16):

        def body(q: Amount) -> None:
            text = _by_components(total, lambda part: f"round_{type_}({part(f'{total.name}[{q}]', total.width)})")
            context.put(f"{total.name}[{q}] = {text}")

        _each(context, total.length, body, _small(total))


def _multiplied(a: Matrix, b: Matrix, total: Matrix, left: str, right: str, sum_: str) -> str:
    """left times right plus a sum, in the type of the sum."""
    type_, width = total.type.component, total.width
    floats = (F16, BF16, F32, F64)
    if type_ in floats and a.type.component in floats and b.type.component in floats:
        vector = left if c_type(a.type.component) == c_type(type_) else _converted(left, total)
        number = right if c_type(b.type.component) == c_type(type_) else f"({c_type(type_)}){right}"
        return f"fma({vector}, {f'({total.c})({number})' if width > 1 else number}, {sum_})"

    if type_.name in _UNSIGNED and a.type.component == type_ and b.type.component == type_ and width > 1:
        c, u = total.c, f"{_UNSIGNED[type_.name]}{width}"
        return f"as_{c}(as_{u}({left}) * as_{u}(({c})({right})) + as_{u}({sum_}))"

    def one(part: Callable[[str, int], str]) -> str:
        x = conversion(part(left, a.width), a.type.component, _unrounded(type_))
        y = conversion(right, b.type.component, _unrounded(type_))
        product = arithmetic("mul", type_, [f"({x})", f"({y})"], _unrounded(type_))
        return arithmetic("add", _unrounded(type_), [part(sum_, width), f"({product})"], _unrounded(type_))

    return _by_components(total, one)


def _unrounded(type_: Scalar) -> Scalar:
    return F32 if type_ in (F16, BF16) else type_


def _converted(vector: str, total: Matrix) -> str:
    return f"convert_{total.c}({vector})" if total.width > 1 else f"({total.c}){vector}"


# memory


def _turned(operation: Operation) -> bool:
    return bool(operation.attributes.get("transposes") == ("t",))


class _Access:
    """Where the elements of a matrix are in memory, and which are to be checked."""

    def __init__(self, context: Context, operation: Operation, matrix: Matrix, view: View, x: Value, y: Value) -> None:
        self.matrix, self.turned = matrix, _turned(operation)
        self.x, self.y = _origin(context, x), _origin(context, y)
        checked = operation.attributes["checked"]
        self.rows_checked = checked in ("rows_checked", "both_checked")
        self.columns_checked = checked in ("cols_checked", "both_checked")
        along = (1, 0) if self.turned else (0, 1)
        self.sizes = view.shape[along[0]], view.shape[along[1]]
        self.strides = view.strides[along[0]], view.strides[along[1]]
        self.starts = (self.y, self.x) if self.turned else (self.x, self.y)

    def place(self, row: Amount, column: Amount) -> Amount:
        """Where the element of a row and a column of the matrix lies."""
        return plus(times(plus(self.starts[0], row), self.strides[0]), times(plus(self.starts[1], column), self.strides[1]))

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

    def vectors(self, piece: Amount) -> list[tuple[int, int]]:
        """The vectors of which a piece is made in memory: first lane and length; empty if elements lie apart.

        Of a piece that the matrix does not fill these are fewer: 7 rows of 8 are vectors of 4, 2 and 1.
        """
        matrix = self.matrix
        if matrix.width == 1 or not isinstance(piece, int) or self.strides[0] != 1 or self.rows_checked:
            return []
        left = min(matrix.type.rows - piece * matrix.width, matrix.width)
        found, lane = [], 0
        while lane < left:
            length = 1 << ((left - lane).bit_length() - 1)
            found.append((lane, length))
            lane += length
        return found


def _origin(context: Context, value: Value) -> Amount:
    text = context.text(value)
    return int(text.rstrip("L")) if text.rstrip("L").isdigit() else text


def emit_load(context: Context, operation: Operation) -> None:
    source, x, y = operation.operands
    view: View = context.values[source]
    matrix = declare(context, operation.results[0])
    context.values[operation.results[0]] = matrix
    access = _Access(context, operation, matrix, view, x, y)

    def element(row: Amount, column: Amount) -> str:
        condition = access.condition(row, column)
        if condition == "0":
            return zero(view.element)
        text = loaded(view, access.place(row, column))
        return f"({condition} ? {text} : {zero(view.element)})" if condition else text

    def body(q: Amount) -> None:
        column, piece = _split(q, matrix.pieces)
        if vectors := access.vectors(piece):
            first = times(piece, matrix.width)
            loads = [_vector_loaded(view, access.place(plus(first, lane), column), n) for lane, n in vectors]
            missing = matrix.width - sum(n for _, n in vectors)
            text = loads[0] if len(loads) == 1 and not missing else _vector(matrix, loads + [zero(view.element)] * missing)
            if access.columns_checked:
                text = f"{access.condition(0, column)} ? {text} : ({matrix.c})(0)"
        else:
            text = _vector(matrix, [element(matrix.row(piece, lane), column) for lane in range(matrix.width)])
        context.put(f"{matrix.name}[{q}] = {text}")

    with context.guard(context.mask):
        _each(context, matrix.length, body, _small(matrix))


def _vector_loaded(view: View, place: Amount, length: int) -> str:
    """Elements one behind the other, as computed with."""
    if length == 1:
        return loaded(view, place)
    pointer = f"{view.pointer} + {within(place)}"
    if view.element == BF16:
        return f"as_float{length}(convert_uint{length}(vload{length}(0, {pointer})) << 16)"
    return f"{'vload_half' if view.element == F16 else 'vload'}{length}(0, {pointer})"


def _store_vector(context: Context, view: View, place: Amount, vector: str, length: int) -> None:
    if length == 1:
        stored(context, view, place, vector)
        return
    pointer = f"{view.pointer} + {within(place)}"
    if view.element == BF16:
        context.put(f"vstore{length}(convert_ushort{length}(as_uint{length}({vector}) >> 16), 0, {pointer})")
    else:
        suffix = f"_half{length}_rte" if view.element == F16 else f"{length}"
        context.put(f"vstore{suffix}({vector}, 0, {pointer})")


def emit_store(context: Context, operation: Operation) -> None:
    value, target, x, y = operation.operands
    view: View = context.values[target]
    matrix: Matrix = context.values[value]
    access = _Access(context, operation, matrix, view, x, y)
    atomic = operation.attributes["atomic"]

    def body(q: Amount) -> None:
        column, piece = _split(q, matrix.pieces)
        if (vectors := access.vectors(piece)) and not atomic:
            first = times(piece, matrix.width)
            with context.guard(access.condition(0, column) if access.columns_checked else None):
                for lane, length in vectors:
                    part = f"{matrix.name}[{q}]"
                    if length < matrix.width:
                        part += f".s{_DIGITS[lane : lane + length]}"
                    _store_vector(context, view, access.place(plus(first, lane), column), part, length)
            return
        for lane in range(matrix.width):
            row = matrix.row(piece, lane)
            conditions = [access.condition(row, column)]
            if conditions[0] == "0":
                continue
            if matrix.replicated and not context.target.is_alone:
                conditions.append(f"lane == {within(q)} % {context.target.subgroup_size}")
            component = _component(f"{matrix.name}[{q}]", matrix.width, lane)
            with context.guard(" && ".join(filter(None, conditions)) or None):
                stored(context, view, access.place(row, column), component, atomic)

    with context.guard(context.mask) if context.mask else nullcontext():
        _each(context, matrix.length, body, _small(matrix))


EMITTERS: Final[Mapping[str, Callable[[Context, Operation], None]]] = {
    "cooperative_matrix_load": emit_load,
    "cooperative_matrix_mul_add": emit_product,
    "cooperative_matrix_scale": emit_scale,
    "cooperative_matrix_store": emit_store,
}
