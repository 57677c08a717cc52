"""Constants: scalar instructions of constants become constants, and what these decide is decided.

    %n = size %A[0] : index                ->  %n = constant 4 : index        where the type says so
    %m = arith.mul %n, %n : index          ->  %m = constant 16 : index
    %c = cmp.lt %n, %m : bool              ->  %c = constant true : bool
    if %c { X } else { Y }                 ->  X
    %B = subview %A[%n:2] : memref         ->  %B = subview %A[4:2] : memref

Numbers are rounded as the interpreter rounds them; results that no text can say, such as infinities, are left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

import numpy as np

from feinsum.languages.tensor.ir import TensorFunction, TensorOperation, TensorValue
from feinsum.languages.tensor.numbers import component, compute_scalar, dtype_of, rounded
from feinsum.languages.tensor.rewriting import OperationBuilder, Rewriter
from feinsum.languages.tensor.types import Coopmatrix, PointerGroup, TensorMemref, TensorScalar, Type


def fold_constants(function: TensorFunction) -> TensorFunction:
    """A function in which what the text decides is decided."""
    return _Folder(function).run()


class _Folder(Rewriter):
    def __init__(self, function: TensorFunction) -> None:
        super().__init__(function)
        self.constants: dict[TensorValue, Any] = {}

    def rewrite(self, operation: TensorOperation, builder: OperationBuilder) -> Sequence[TensorValue] | None:
        name = operation.name
        if name == "constant":
            self.constants[operation.results[0]] = operation.attributes["value"]
        elif name == "size":
            return self._size(operation, builder)
        elif name == "if":
            return self._branch(operation, builder)
        elif name == "for":
            return self._loop(operation)
        elif name == "subview":
            return self._subview(operation, builder)
        elif name == "subgroup_broadcast" and operation.operands[0] in self.constants:
            return operation.operands[:1]
        elif name in ("cmp", "cast", "math") or name.startswith("arith."):
            return self._scalar(operation, builder)
        return None

    def _put(self, value: Any, type_: Type, like: TensorValue, builder: OperationBuilder) -> Sequence[TensorValue]:
        made = replace(like, type=type_)
        builder.operations.append(TensorOperation("constant", (), (made,), {"value": value}, span=builder.span))
        self.constants[made] = value
        return (made,)

    def _size(self, operation: TensorOperation, builder: OperationBuilder) -> Sequence[TensorValue] | None:
        type_ = operation.operands[0].type
        known = type_.size if isinstance(type_, PointerGroup) else None
        if isinstance(type_, TensorMemref):
            known = type_.shape[operation.attributes["mode"]]
        result = operation.results[0]
        return None if known is None else self._put(known, result.type, result, builder)

    def _scalar(self, operation: TensorOperation, builder: OperationBuilder) -> Sequence[TensorValue] | None:
        result = operation.results[0]
        if isinstance(result.type, Coopmatrix) or any(value not in self.constants for value in operation.operands):
            return self._identity(operation)
        operands = [
            rounded(self.constants[value], component(value.type))
            if not _is_integer_type(value.type)
            else np.array(self.constants[value]).astype(dtype_of(component(value.type)))
            for value in operation.operands
        ]
        name = operation.name.removeprefix("arith.")
        if _is_integer_type(result.type) and not _is_defined(name, operands):
            return None
        if name == "cast":
            if not np.isfinite(operands[0]) or (_is_integer_type(result.type) and abs(complex(operands[0])) >= 2**31):
                return None
            found = rounded(operands[0], component(result.type))
        else:
            found = compute_scalar(
                operation.attributes.get("condition") or operation.attributes.get("function") or name, operands, result.type
            )
        value = found.item()
        return self._put(value, result.type, result, builder) if _can_be_written(value) else None

    def _identity(self, operation: TensorOperation) -> Sequence[TensorValue] | None:
        """The operand itself, for integers plus 0 and times 1."""
        neutral = {"arith.add": 0, "arith.mul": 1}.get(operation.name)
        if neutral is None or not _is_integer_type(operation.results[0].type):
            return None
        for one, other in (operation.operands, operation.operands[::-1]):
            if self.constants.get(one) == neutral and isinstance(one.type, TensorScalar):
                return (other,)
        return None

    def _branch(self, operation: TensorOperation, builder: OperationBuilder) -> Sequence[TensorValue] | None:
        if operation.operands[0] not in self.constants:
            return None
        chosen = operation.regions[:1] if self.constants[operation.operands[0]] else operation.regions[1:]
        for region in chosen:
            body = region.operations
            last = body[-1] if body and body[-1].name == "yield" else None
            self.into(body if last is None else body[:-1], builder)
            return tuple(self.known.get(value, value) for value in (last.operands if last else ()))
        return ()

    def _loop(self, operation: TensorOperation) -> Sequence[TensorValue] | None:
        """A loop that is never entered gives what it would begin with."""
        low, high = (self.constants.get(value) for value in operation.operands[:2])
        if low is None or high is None or low < high:
            return None
        return operation.operands[len(operation.operands) - len(operation.results) :]

    def _subview(self, operation: TensorOperation, builder: OperationBuilder) -> Sequence[TensorValue] | None:
        """Write known offsets into a subview."""
        memref, *dynamic = operation.operands
        left, kept, offsets = iter(dynamic), [], []
        for offset, size in zip(operation.attributes["offsets"], operation.attributes["sizes"], strict=True):
            if offset is None:
                value = next(left)
                offset = self.constants.get(value)
                if offset is None or offset < 0:
                    offset = None
                    kept.append(value)
            offsets.append(offset)
            if size is None:
                kept.append(next(left))
        if len(kept) == len(dynamic):
            return None
        result = replace(operation.results[0])
        attributes = {**operation.attributes, "offsets": tuple(offsets)}
        builder.operations.append(replace(operation, operands=(memref, *kept), results=(result,), attributes=attributes))
        return (result,)


def _is_integer_type(type_: Type) -> bool:
    return isinstance(type_, TensorScalar) and type_.is_integer


def _is_defined(name: str, operands: Sequence[Any]) -> bool:
    """Whether the language says what an operation of integers gives."""
    if name in ("div", "rem"):
        return bool(operands[1] != 0)
    return name not in ("shl", "shr") or 0 <= int(operands[1]) < 8 * operands[1].dtype.itemsize


def _can_be_written(value: Any) -> bool:
    if isinstance(value, complex):
        return isfinite(value.real) and isfinite(value.imag)
    return isfinite(value) if isinstance(value, float) else bool(value != -(2**63))
