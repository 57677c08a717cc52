"""Effects: what an operation reads and writes, and of which memory each memref is a part."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from feinsum.languages.tensor.definitions import DEFINITIONS
from feinsum.languages.tensor.ir import TensorFunction, TensorOperation, TensorValue
from feinsum.languages.tensor.types import PointerGroup, TensorMemref

VIEWS: Final = frozenset({"subview", "expand", "fuse"})
TALKS: Final = frozenset({"subgroup_broadcast", "subgroup_add", "subgroup_max", "subgroup_min", "barrier"})
"""The instructions that work-items execute together, and so must all reach."""
_KEPT: Final = frozenset({"barrier", "yield", "lifetime_stop"})


def roots(function: TensorFunction) -> dict[TensorValue, TensorValue]:
    """The parameter or alloca that each memref is a part of; parameters and allocas are parts of themselves."""
    found = {value: value for value in function.parameters if isinstance(value.type, (TensorMemref, PointerGroup))}
    for operation in function.body.walk():
        if operation.name == "alloca":
            found.update((result, result) for result in operation.results)
        elif operation.name in VIEWS or operation.name == "load":
            for result in operation.results:
                if isinstance(result.type, TensorMemref):
                    found[result] = found[operation.operands[0]]
    return found


def read_by(operation: TensorOperation) -> list[TensorValue]:
    """The memrefs that an operation itself reads."""
    named = DEFINITIONS[operation.name]
    found = [operation.operands[named.roles.index(role)] for role in named.reads]
    return found + (written_by(operation) if operation.attributes.get("atomic") == "atomic_add" else [])


def written_by(operation: TensorOperation) -> list[TensorValue]:
    """The memrefs that an operation itself writes."""
    named = DEFINITIONS[operation.name]
    return [operation.operands[named.roles.index(role)] for role in named.writes]


def written_parameters(function: TensorFunction) -> list[TensorValue]:
    """The parameters that a function may write, in order."""
    root = roots(function)
    changed = {root[value] for op in function.body.walk() for value in written_by(op) if value in root}
    return [parameter for parameter in function.parameters if parameter in changed]


def has_effect(operation: TensorOperation) -> bool:
    """Whether an operation, or one inside it, does more than to give its results."""
    return any(bool(written_by(inner)) or inner.name in _KEPT - {"yield"} for inner in everything((operation,)))


def everything(operations: Iterable[TensorOperation]) -> Iterable[TensorOperation]:
    """Operations, and all inside them."""
    for operation in operations:
        yield operation
        for region in operation.regions:
            yield from region.walk()
