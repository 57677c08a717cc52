"""Dead code: what has no effect and no user is left out, and so are allocas that nobody reads or writes.

%a = arith.mul %x, %x : f32             nobody uses %a
for %i = %0, %n { %b = load %A[%i] }    nothing happens in here
"""

from __future__ import annotations

from dataclasses import replace

from feinsum.languages.tensor.ir import TensorFunction, TensorOperation, TensorRegion, TensorValue
from feinsum.languages.tensor.memory_effects import VIEWS, has_effect


def remove_dead_code(function: TensorFunction) -> TensorFunction:
    """A function without what does nothing."""
    while True:
        used = {value for operation in function.body.walk() for value in operation.operands}
        idle = _idle_allocas(function)
        body = _cleaned(function.body, used, idle)
        if sum(1 for _ in body.walk()) == sum(1 for _ in function.body.walk()):
            return function
        function = replace(function, body=body)


def _idle_allocas(function: TensorFunction) -> set[TensorValue]:
    """Allocas of which there are only views and ends."""
    idle = {result for operation in function.body.walk() if operation.name == "alloca" for result in operation.results}
    parts = {value: value for value in idle}
    for operation in function.body.walk():
        for value in operation.operands:
            if value in parts:
                if operation.name in VIEWS:
                    parts.update((result, parts[value]) for result in operation.results)
                elif operation.name != "lifetime_stop":
                    idle.discard(parts[value])
    return idle


def _cleaned(region: TensorRegion, used: set[TensorValue], idle: set[TensorValue]) -> TensorRegion:
    kept: list[TensorOperation] = []
    for operation in region.operations:
        if operation.name == "lifetime_stop" and operation.operands[0] in idle:
            continue
        regions = tuple(_cleaned(inner, used, idle) for inner in operation.regions)
        cleaned = replace(operation, regions=regions)
        if operation.name == "yield" or used.intersection(operation.results) or has_effect(cleaned):
            kept.append(cleaned)
    return TensorRegion(region.kind, tuple(kept), region.parameters)
