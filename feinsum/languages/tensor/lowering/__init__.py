"""Lowering: what a work-group does together becomes what its work-items do, in the same language."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from feinsum.languages.tensor.ir import Function
from feinsum.languages.tensor.lowering.linear_algebra import lower_linear_algebra
from feinsum.languages.tensor.lowering.products import lower_products
from feinsum.languages.tensor.lowering.target import Target
from feinsum.languages.tensor.passes import PASSES

Pass = Callable[[Function, Target], Function]


def _plain(name: str) -> Pass:
    return lambda function, target: PASSES[name](function)


PIPELINE: Final[dict[str, Pass]] = {
    **{name: _plain(name) for name in ("names", "constants", "dead-code")},
    "linear-algebra": lower_linear_algebra,
    **{name: _plain(name) for name in ("lifetimes", "storage", "barriers")},
    "tiles": lower_products,
}
"""All passes, in order."""


def stages(function: Function, target: Target) -> Iterator[tuple[str, Function]]:
    """What each pass makes of a function."""
    for name, run in PIPELINE.items():
        function = run(function, target)
        yield name, function


def lower(function: Function, target: Target) -> Function:
    """What the last pass makes of a function."""
    for _, lowered in stages(function, target):
        function = lowered
    return function
