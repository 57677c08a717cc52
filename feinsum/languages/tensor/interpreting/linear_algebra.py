"""Collective linear algebra by numpy: in double precision or 64-bit integers, and rounded once to the type of the result.

Where β is 0 the result is not read, so that what is not a number does not survive in it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from feinsum.languages.tensor.definitions import LINEAR_ALGEBRA
from feinsum.languages.tensor.interpreting.machine import Instruction, KernelInterpreter
from feinsum.languages.tensor.ir import TensorOperation
from feinsum.languages.tensor.numbers import Numbers, accumulation_type, rounded


def run_update(machine: KernelInterpreter, operation: TensorOperation) -> None:
    """``result := alpha * (what is made of the operands) + beta * result``."""
    alpha, *memrefs, beta, result = machine.operands(operation)
    type_ = result.memory.element
    dtype = accumulation_type(type_)
    factors = [view.memory.data[view.whole()].astype(dtype) for view in memrefs]
    turned = operation.attributes.get("transposes", ())
    factors = [
        factor.T if way == "t" and factor.ndim == 2 else factor
        for factor, way in zip(factors, [*turned, *"n" * len(factors)], strict=False)
    ]
    places = result.whole()
    with np.errstate(all="ignore"):
        value = alpha.astype(dtype).reshape(()) * _made(operation, factors)
        scale = beta.astype(dtype).reshape(())
        if scale != 0:
            value = value + scale * result.memory.data[places].astype(dtype)
        result.memory.data[places] = rounded(value, type_)


def _made(operation: TensorOperation, factors: list[Numbers]) -> Any:
    first = factors[0]
    match operation.name:
        case "gemm" | "gemv":
            return first @ factors[1]
        case "ger":
            return np.outer(first, factors[1])
        case "hadamard_product":
            return first * factors[1]
        case "cumsum":
            return np.cumsum(first, axis=operation.attributes["mode"])
        case "sum":
            return first.sum(axis=-1)
        case _:
            return first


INSTRUCTIONS: Final[dict[str, Instruction]] = dict.fromkeys(LINEAR_ALGEBRA, run_update)
