"""Parts that lowerings share: updates ``C := value + β C``, and known constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from feinsum.languages.tensor.ir import TensorFunction, TensorValue
from feinsum.languages.tensor.lowering.target import Target, summed_in
from feinsum.languages.tensor.rewriting import OperationBuilder, Rewriter, number_like
from feinsum.languages.tensor.types import TensorMemref, TensorScalar


class Lowering(Rewriter):
    """A rewriter that knows the target and the constants."""

    def __init__(self, function: TensorFunction, target: Target) -> None:
        super().__init__(function)
        self.target = target
        self.constants: Mapping[TensorValue, Any] = {
            op.results[0]: op.attributes["value"] for op in function.body.walk() if op.name == "constant"
        }

    def is_constant(self, value: TensorValue, number: int) -> bool:
        """Whether a scalar is known to be a number."""
        return value in self.constants and bool(self.constants[value] == number)

    def scaled(self, builder: OperationBuilder, alpha: TensorValue, value: TensorValue) -> TensorValue:
        """α times a value."""
        if self.is_constant(alpha, 1):
            return value
        return builder.arith("mul", builder.cast(alpha, value.type), value)

    def update(
        self,
        builder: OperationBuilder,
        value: TensorValue,
        beta: TensorValue,
        memref: TensorValue,
        indices: Sequence[TensorValue],
        atomic: str,
    ) -> None:
        """``memref[indices] := value + beta memref[indices]``, which is not read where beta is 0."""
        assert isinstance(memref.type, TensorMemref)
        element = memref.type.element
        if self.is_constant(beta, 0):
            builder.store(builder.cast(value, element), memref, *indices, atomic=atomic)
        elif atomic:
            builder.store(builder.cast(value, element), memref, *indices, atomic="atomic_add")
        elif beta in self.constants:
            builder.store(self._sum(builder, value, beta, memref, indices), memref, *indices)
        else:
            zero = builder.constant(number_like(0, beta.type), beta.type)
            (result,) = builder.branch(
                builder.compare("ne", beta, zero),
                lambda b: [self._sum(b, value, beta, memref, indices)],
                lambda b: [b.cast(value, element)],
                [element],
            )
            builder.store(result, memref, *indices)

    def _sum(
        self,
        builder: OperationBuilder,
        value: TensorValue,
        beta: TensorValue,
        memref: TensorValue,
        indices: Sequence[TensorValue],
    ) -> TensorValue:
        assert isinstance(memref.type, TensorMemref)
        before = builder.cast(builder.load(memref, *indices), value.type)
        return builder.cast(builder.arith("add", value, self.scaled(builder, beta, before)), memref.type.element)


def accumulator(memref: TensorValue) -> TensorScalar:
    """The type in which what a memref gets is computed."""
    assert isinstance(memref.type, TensorMemref)
    return summed_in(memref.type.element)
