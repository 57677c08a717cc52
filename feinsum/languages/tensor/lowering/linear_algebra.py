"""Linear algebra: collective instructions become loops over elements, and products become gemm.

gemv, ger          gemm, of matrices with one column or row
gemm.t             for one work-item, gemm.n of a copy, whose columns are vectors
axpby, hadamard    foreach over the elements of the result
sum to a vector    foreach over the elements of the result, and a loop over what is summed
sum to a number    partial sums of work-items, of sub-groups, and of these
cumsum             foreach over the fibres along the mode, and a loop along it
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from feinsum.languages.tensor.ir import TensorFunction, TensorOperation, TensorValue
from feinsum.languages.tensor.lowering.common import Lowering, accumulator
from feinsum.languages.tensor.lowering.target import Target
from feinsum.languages.tensor.passes.storage import length_of
from feinsum.languages.tensor.rewriting import OperationBuilder
from feinsum.languages.tensor.types import I32, INDEX, Extent, TensorMemref, make_tensor_memref

_GATHERED = 64
"""Columns of a result times rows in a vector, up to which rows of a transposed A are gathered as quickly as copied.

On a Zen 3, 32x32 doubles took 1.5 times as long by gathering, 56x9 floats too, and 8x8 floats 0.8 times as long.
"""
_CACHED_BYTES = 1 << 16
"""The most bytes of a copy that stays in the caches of a core."""


def lower_linear_algebra(function: TensorFunction, target: Target) -> TensorFunction:
    """The function without linear algebra but gemm."""
    return _LinearAlgebra(function, target).run()


class _LinearAlgebra(Lowering):
    def rewrite(self, operation: TensorOperation, builder: OperationBuilder) -> Sequence[TensorValue] | None:
        rule = _RULES.get(operation.name)
        if rule is None:
            return None
        rule(self, operation, builder)
        return ()


def _atomic(operation: TensorOperation) -> str:
    return str(operation.attributes["atomic"])


def _as_matrix(builder: OperationBuilder, vector: TensorValue, column: bool) -> TensorValue:
    """A vector seen as a matrix of one column, or of one row."""
    type_ = vector.type
    assert isinstance(type_, TensorMemref)
    (size,), (stride,) = type_.shape, type_.strides
    other: Extent = stride if size == 1 else None if size is None or stride is None else size * stride
    shape, strides = ((size, 1), (stride, other)) if column else ((1, size), (stride, stride))
    bounds = (size, 1) if column else (1, size)
    dynamic = [builder.size(vector, 0)] if size is None else []
    made = make_tensor_memref(type_.element, shape, strides, type_.local)
    return builder.compute("expand", (vector, *dynamic), made, "matrix", mode=0, shape=bounds)


def _gemv(lowering: _LinearAlgebra, operation: TensorOperation, builder: OperationBuilder) -> None:
    alpha, A, x, beta, y = operation.operands
    operands = (alpha, A, _as_matrix(builder, x, True), beta, _as_matrix(builder, y, True))
    turned = (*operation.attributes["transposes"], "n")
    builder.emit("gemm", operands, attributes={"transposes": turned, "atomic": _atomic(operation)})


def _ger(lowering: _LinearAlgebra, operation: TensorOperation, builder: OperationBuilder) -> None:
    alpha, x, y, beta, C = operation.operands
    operands = (alpha, _as_matrix(builder, x, True), _as_matrix(builder, y, False), beta, C)
    builder.emit("gemm", operands, attributes={"transposes": ("n", "n"), "atomic": _atomic(operation)})


def _gemm(lowering: _LinearAlgebra, operation: TensorOperation, builder: OperationBuilder) -> None:
    """A transposed A is copied, where rows of it would be gathered for several tiles of columns."""
    alpha, A, B, beta, C = operation.operands
    first, second = operation.attributes["transposes"]
    copy = _transposed_type(A)
    if first == "t" and _is_worth_a_copy(lowering.target, copy, C):
        turned = builder.compute("alloca", (), copy, "turned")
        sizes = [builder.size(A, mode) for mode in range(2)]
        builder.foreach(sizes, lambda b, k, i: b.store(b.load(A, k, i), turned, i, k))
        attributes = {**operation.attributes, "transposes": ("n", second)}
        builder.emit("gemm", (alpha, turned, B, beta, C), attributes=attributes)
        builder.emit("lifetime_stop", (turned,))
    else:
        builder.emit("gemm", operation.operands, attributes=operation.attributes)


def _transposed_type(matrix: TensorValue) -> TensorMemref:
    """The type of a transposed copy."""
    assert isinstance(matrix.type, TensorMemref)
    return make_tensor_memref(matrix.type.element, matrix.type.shape[::-1], None, True)


def _is_worth_a_copy(target: Target, copy: TensorMemref, C: TensorValue) -> bool:
    """Whether a copy of known size fits the cache and is read more often than it takes to be made."""
    assert isinstance(C.type, TensorMemref)
    rows, columns = C.type.shape
    if None in copy.shape or rows is None or not target.is_alone:
        return False
    gathered = (columns or _GATHERED) * target.vector_width(rows, accumulator(C))
    return gathered > _GATHERED and 0 < length_of(copy) * copy.element.size_bytes <= _CACHED_BYTES


def _axpby(lowering: _LinearAlgebra, operation: TensorOperation, builder: OperationBuilder) -> None:
    alpha, A, beta, B = operation.operands
    turned = operation.attributes["transposes"] == ("t",)
    order = _mode_order(B)

    def body(b: OperationBuilder, *indices: TensorValue) -> None:
        here = indices[:order]
        value = b.cast(b.load(A, *(here[::-1] if turned else here)), accumulator(B))
        lowering.update(b, lowering.scaled(b, alpha, value), beta, B, here, _atomic(operation))

    builder.foreach([builder.size(B, mode) for mode in range(order)], body)


def _hadamard(lowering: _LinearAlgebra, operation: TensorOperation, builder: OperationBuilder) -> None:
    alpha, A, B, beta, C = operation.operands
    type_ = accumulator(C)

    def body(b: OperationBuilder, *indices: TensorValue) -> None:
        value = b.arith("mul", b.cast(b.load(A, *indices), type_), b.cast(b.load(B, *indices), type_))
        lowering.update(b, lowering.scaled(b, alpha, value), beta, C, indices, _atomic(operation))

    builder.foreach([builder.size(C, mode) for mode in range(_mode_order(C))], body)


def _mode_order(value: TensorValue) -> int:
    assert isinstance(value.type, TensorMemref)
    return value.type.order


def _cumsum(lowering: _LinearAlgebra, operation: TensorOperation, builder: OperationBuilder) -> None:
    """One after the other along the mode, so that A and B may be the same memory."""
    alpha, A, beta, B = operation.operands
    mode, type_ = operation.attributes["mode"], accumulator(B)
    length = builder.size(B, mode)
    others = [builder.size(B, other) for other in range(_mode_order(B)) if other != mode]

    def fibre(b: OperationBuilder, *indices: TensorValue) -> None:
        around = indices[: len(others)]

        def step(b: OperationBuilder, i: TensorValue, before: TensorValue) -> Sequence[TensorValue]:
            here = (*around[:mode], i, *around[mode:])
            total = b.arith("add", before, b.cast(b.load(A, *here), type_))
            lowering.update(b, lowering.scaled(b, alpha, total), beta, B, here, _atomic(operation))
            return [total]

        b.loop([b.index(0), length], step, [b.zero(type_)])

    builder.foreach(others, fibre)


def _lower_sum(lowering: _LinearAlgebra, operation: TensorOperation, builder: OperationBuilder) -> None:
    alpha, A, beta, y = operation.operands
    turned = operation.attributes["transposes"] == ("t",)
    if _mode_order(y) == 0:
        _sum_to_number(lowering, operation, builder)
        return
    along = 0 if turned else 1
    length = builder.size(A, along)

    def body(b: OperationBuilder, i: TensorValue) -> None:
        total = _loop_total(b, A, lambda k: (k, i) if turned else (i, k), [b.index(0), length], y)
        lowering.update(b, lowering.scaled(b, alpha, total), beta, y, [i], _atomic(operation))

    builder.foreach([builder.size(y, 0)], body)


def _loop_total(
    b: OperationBuilder,
    A: TensorValue,
    place: Callable[[TensorValue], Sequence[TensorValue]],
    bounds: Sequence[TensorValue],
    y: TensorValue,
) -> TensorValue:
    """The sum of A over a loop."""
    type_ = accumulator(y)

    def step(b: OperationBuilder, k: TensorValue, before: TensorValue) -> Sequence[TensorValue]:
        return [b.arith("add", before, b.cast(b.load(A, *place(k)), type_))]

    return b.loop(bounds, step, [b.zero(type_)])[0]


def _sum_to_number(lowering: _LinearAlgebra, operation: TensorOperation, builder: OperationBuilder) -> None:
    """Every work-item sums a part; a sub-group's sum waits in local memory for the first work-item to add them."""
    alpha, A, beta, y = operation.operands
    target, type_ = lowering.target, accumulator(y)
    length = builder.size(A, 0)
    atomic = _atomic(operation)
    if target.is_alone:

        def alone(b: OperationBuilder) -> None:
            total = _loop_total(b, A, lambda k: [k], [b.index(0), length], y)
            lowering.update(b, lowering.scaled(b, alpha, total), beta, y, [], atomic)

        builder.parallel(alone)
        return
    stage = builder.compute("alloca", (), make_tensor_memref(type_, (target.subgroups,), None, True), "stage")

    def body(b: OperationBuilder) -> None:
        group, lane = b.builtin("subgroup_id", I32), b.builtin("subgroup_local_id", I32)
        first = b.arith("add", b.arith("mul", group, b.constant(target.subgroup_size, I32)), lane)
        item = b.cast(first, INDEX)
        part = _loop_total(b, A, lambda k: [k], [item, length, b.index(target.work_items)], y)
        whole = b.compute("subgroup_add", (part,), type_, scan="reduce")
        zero = b.constant(0, I32)
        b.branch(b.compare("eq", lane, zero), lambda c: c.store(whole, stage, c.cast(group, INDEX)))
        b.emit("barrier", attributes={"global": "", "local": "local"})

        def last(c: OperationBuilder) -> None:
            total = _loop_total(c, stage, lambda k: [k], [c.index(0), c.index(target.subgroups)], y)
            lowering.update(c, lowering.scaled(c, alpha, total), beta, y, [], atomic)

        b.branch(b.compare("eq", first, zero), last)

    builder.parallel(body)
    builder.emit("lifetime_stop", (stage,))


_RULES: Final[dict[str, Callable[[_LinearAlgebra, TensorOperation, OperationBuilder], None]]] = {
    "axpby": _axpby,
    "cumsum": _cumsum,
    "gemm": _gemm,
    "gemv": _gemv,
    "ger": _ger,
    "hadamard_product": _hadamard,
    "sum": _lower_sum,
}
