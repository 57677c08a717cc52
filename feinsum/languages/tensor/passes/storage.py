"""Storage: allocas end where they are not needed any more, and share memory with those that have ended.

    %a = alloca : memref<f32x8,local>              %a = alloca {"offset"=0} : memref<f32x8,local>
    axpby.n %1, %x, %0, %a                         axpby.n %1, %x, %0, %a
    axpby.n %1, %a, %0, %y                   ->    axpby.n %1, %a, %0, %y
    %b = alloca : memref<f32x4,local>              lifetime_stop %a
    axpby.n %1, %y, %0, %b                         %b = alloca {"offset"=0} : memref<f32x4,local>
                                                   axpby.n %1, %y, %0, %b
                                                   lifetime_stop %b

Memory is shared by allocas of one element type only, for compilers take it that pointers to different types point to
different elements.  The place is the first that is free (first fit), in elements of the type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from feinsum.languages.tensor.ir import TensorFunction, TensorOperation, TensorRegion, TensorValue
from feinsum.languages.tensor.memory_effects import roots
from feinsum.languages.tensor.types import TensorMemref, TensorScalar

_ALIGNMENT_BYTES = 128


def end_lifetimes(function: TensorFunction) -> TensorFunction:
    """The function with a ``lifetime_stop`` behind the last use of every alloca."""
    return replace(function, body=_ended(function.body, roots(function)))


def _ended(region: TensorRegion, root: Mapping[TensorValue, TensorValue]) -> TensorRegion:
    operations = [replace(op, regions=tuple(_ended(r, root) for r in op.regions)) for op in region.operations]
    stopped = {op.operands[0] for op in operations if op.name == "lifetime_stop"}
    last: dict[TensorValue, int] = {}
    for position, operation in enumerate(operations):
        if operation.name == "alloca":
            last[operation.results[0]] = position
        for inner in (operation, *(op for r in operation.regions for op in r.walk())):
            for value in inner.operands:
                if root.get(value) in last:
                    last[root[value]] = position
    kept: list[TensorOperation] = []
    for position, operation in enumerate(operations):
        kept.append(operation)
        for value, end in last.items():
            if end == position and value not in stopped:
                stop = TensorOperation("lifetime_stop", (value,), span=operation.span)
                kept.append(stop)
    return TensorRegion(region.kind, tuple(kept), region.parameters)


def length_of(type_: TensorMemref) -> int:
    """The elements from the first to the last of a memref of known shape."""
    if 0 in type_.shape:
        return 0
    reach = zip(type_.shape, type_.strides, strict=True)
    return 1 + sum(((size or 0) - 1) * (stride or 0) for size, stride in reach)


def place_allocas(function: TensorFunction) -> TensorFunction:
    """The function with a place for every alloca, in ``{"offset"=n}``."""
    return replace(function, body=_Places().region(function.body))


class _Places:
    """The memory in use at a point of the text: for each element type, spans of elements."""

    def __init__(self) -> None:
        self.taken: dict[TensorValue, tuple[TensorScalar, int, int]] = {}

    def region(self, region: TensorRegion) -> TensorRegion:
        before = dict(self.taken)
        kept: list[TensorOperation] = []
        for operation in region.operations:
            if operation.name == "alloca":
                operation = self._placed(operation)
            elif operation.name == "lifetime_stop":
                self.taken.pop(operation.operands[0], None)
            else:
                operation = replace(operation, regions=tuple(map(self.region, operation.regions)))
            kept.append(operation)
        self.taken = before
        return TensorRegion(region.kind, tuple(kept), region.parameters)

    def _placed(self, operation: TensorOperation) -> TensorOperation:
        (value,) = operation.results
        assert isinstance(value.type, TensorMemref)
        element, length = value.type.element, length_of(value.type)
        step = max(_ALIGNMENT_BYTES // element.size_bytes, 1)
        first = 0
        for begin, end in sorted((b, e) for other, b, e in self.taken.values() if other == element):
            if first + length <= begin:
                break
            first = max(first, -(-end // step) * step)
        self.taken[value] = element, first, first + length
        annotations = {**operation.annotations, "offset": first}
        return replace(operation, annotations=annotations)


def spans(function: TensorFunction) -> dict[TensorValue, tuple[TensorScalar, int, int]]:
    """The element type, first element and the one behind the last of each alloca that has a place."""
    return {
        value: (value.type.element, op.annotations["offset"], op.annotations["offset"] + length_of(value.type))
        for op in function.body.walk()
        if op.name == "alloca"
        for value in op.results
        if isinstance(value.type, TensorMemref)
    }
