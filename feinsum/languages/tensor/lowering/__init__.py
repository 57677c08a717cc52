"""Lowering: what a work-group does together becomes what its work-items do, in the same language."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from feinsum.languages.tensor.ir import TensorFunction
from feinsum.languages.tensor.lowering.gemms import lower_products
from feinsum.languages.tensor.lowering.linear_algebra import lower_linear_algebra
from feinsum.languages.tensor.lowering.target import Target
from feinsum.languages.tensor.passes import PASSES

Pass = Callable[[TensorFunction, Target], TensorFunction]


def _plain_instruction(name: str) -> Pass:
    return lambda function, target: PASSES[name](function)


PIPELINE: Final[dict[str, Pass]] = {
    **{name: _plain_instruction(name) for name in ("names", "constants", "dead-code")},
    "linear-algebra": lower_linear_algebra,
    **{name: _plain_instruction(name) for name in ("lifetimes", "storage", "barriers")},
    "tiles": lower_products,
}
"""All passes, in order."""


def stages(function: TensorFunction, target: Target) -> Iterator[tuple[str, TensorFunction]]:
    """The function after each pass."""
    for name, run in PIPELINE.items():
        function = run(function, target)
        yield name, function


def lower_function(function: TensorFunction, target: Target) -> TensorFunction:
    """The function after the last pass."""
    for _, lowered in stages(function, target):
        function = lowered
    return function
