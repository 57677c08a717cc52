"""Memory: the arrays of a call, by root; arrays of numpy and of pyopencl alike, in whatever order their axes lie.

A group is an array with an axis of items in front.  What lies scattered is gathered before and scattered behind a call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from feinsum.languages.immediate.arguments import BoundParameter
from feinsum.languages.immediate.function_plan import (
    At,
    FunctionPlan,
    PlannedContraction,
    PlannedLoop,
    Range,
    TensorTerm,
    Unit,
)
from feinsum.languages.immediate.types import MemrefGroup
from feinsum.languages.immediate.views import IntegerVariable, Root


@dataclass
class CallMemory:
    """The arrays of one call.

    :ivar arrays: by root; those of items have one axis more in front.
    :ivar later: what is done when all is computed.
    :ivar remarks: what was copied that need not be.
    """

    arrays: dict[Root, Any] = field(default_factory=dict)
    later: list[Callable[[], None]] = field(default_factory=list)
    remarks: dict[str, str] = field(default_factory=dict)
    sample: Any = None
    """Some array of the call."""

    def part(self, term: TensorTerm, values: Mapping[IntegerVariable, int], batched: bool) -> Any:
        """The part of an array that a term is, without its axes of one value."""
        array = self.arrays[term.root]
        index: list[Any] = [slice(None)] if batched else []
        plain = True
        for entry, length in zip(term.entries, term.root.type.shape, strict=True):
            if isinstance(entry, Range):
                index.append(slice(entry.low, entry.high))
                plain = plain and entry.length == length
            else:
                index.append(_entry_value(entry, values))
                plain = False
        return array if plain else array[(*index, ...)] if isinstance(array, np.ndarray) else array[tuple(index)]


def _entry_value(entry: At, values: Mapping[IntegerVariable, int]) -> int:
    return entry.base + (0 if entry.variable is None else values[entry.variable])


def tensors_of_units(units: Sequence[Unit]) -> list[Root]:
    """The tensors of units, in order of appearance."""
    found: dict[Root, None] = {}
    for unit in units:
        if isinstance(unit, PlannedLoop):
            found |= dict.fromkeys(tensors_of_units(unit.body))
        elif isinstance(unit, PlannedContraction):
            found |= dict.fromkeys(term.root for term in (*unit.terms, unit.result))
    return list(found)


def arguments_in(plan: FunctionPlan) -> set[IntegerVariable]:
    """The arguments that are indices."""
    entries = [entry for unit in plan.contractions() for term in (*unit.terms, unit.result) for entry in term.entries]
    variables = {entry.variable for entry in entries if isinstance(entry, At) and entry.variable is not None}
    return {variable for variable in variables if variable.start is None}


def lay_out(tensors: Sequence[Root], bound: Sequence[BoundParameter], count: int) -> CallMemory:
    """The memory of a call; allocas are made as they are written.

    :param tensors: the :func:`tensors_of_units` of a plan.
    """
    memory = CallMemory(sample=next((array for one in bound for array in one.arrays), np.zeros(0)))
    known = {one.parameter.name.text: one for one in bound}
    items: dict[str, Any] = {}
    for root in tensors:
        if root.kind == "argument":
            memory.arrays[root] = known[root.name].value
        elif root.kind == "item":
            one = known[root.group]
            if root.group not in items:
                items[root.group] = _item_array(one, memory)
            start = 0 if root.offset is None else known[root.offset.name].value
            whole = items[root.group]
            memory.arrays[root] = whole if start == 0 and len(whole) == count else whole[start : start + count]
    return memory


def _item_array(one: BoundParameter, memory: CallMemory) -> Any:
    """The items of a group as an array with an axis of items in front."""
    if not isinstance(one.value, list):
        return one.value
    assert isinstance(one.parameter.type, MemrefGroup)
    item = one.parameter.type.memref
    gathered = np.stack(one.value) if one.value else np.zeros((0, *item.shape), item.element.dtype)
    memory.remarks[one.name] = f"{one.name} is gathered, for its items lie anywhere"
    if one.is_written:
        memory.remarks[one.name] += ", and scattered again"

        def scatter() -> None:
            for target, values in zip(one.value, gathered, strict=True):
                target[...] = values

        memory.later.append(scatter)
    return gathered


def new_like(sample: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """An array of undefined content, of the library of another one."""
    if isinstance(sample, np.ndarray):
        return np.empty(shape, dtype)
    return type(sample)(sample.queue, shape, dtype)


def ones_like(sample: Any, count: int) -> Any:
    """Ones, of the library and type of another array.

    They are copied to a device: the kernels that pyopencl fills arrays with make compilers speak.
    """
    ones = np.ones(count, sample.dtype)
    if isinstance(sample, np.ndarray):
        return ones
    made = new_like(sample, ones.shape, ones.dtype)
    made.set(ones)
    return made
