"""Repeated calls: a function that is one launch is enqueued for device arrays like earlier ones without a second look.

What a call checks and prepares follows from shapes, strides and types of its arrays; only whether they share memory, and of
which context they are, has to be seen each time.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

from feinsum.compile.call_cache import CallCache, likeness
from feinsum.languages.calling.overlap import have_own_buffers
from feinsum.languages.immediate.function_plan import FunctionPlan, PlannedContraction
from feinsum.languages.immediate.memory import CallMemory
from feinsum.languages.immediate.running import UnitRunner

if TYPE_CHECKING:
    from feinsum.kernel.kernel_calls import BoundKernel


class Repeated:
    """The calls of one function that were one launch of buffers as they were: kernels, and names of their arguments, the
    one that is written last."""

    def __init__(self) -> None:
        self._known: CallCache[tuple[BoundKernel, tuple[str, ...]]] = CallCache(64)

    def enqueue(self, arguments: Mapping[str, Any], count: int | None, queue: Any, context: Any) -> Any:
        """Launch the kernel of an earlier call like this one; what it writes, or None if there was none."""
        if not self._known:
            return None
        key = _repeated_call_key(arguments, count)
        known = None if key is None else self._known.get(key)
        if known is None or not _are_apart(arguments, context):
            return None
        bound, names = known
        arrays = [arguments[name] for name in names]
        target = arrays[-1]
        events = [event for array in arrays for event in array.events]
        done = bound.enqueue(queue or target.queue, [array.base_data for array in arrays], events or None)
        target.add_event(done)
        return target

    def learn(
        self,
        arguments: Mapping[str, Any],
        count: int | None,
        plan: FunctionPlan,
        memory: CallMemory,
        runner: UnitRunner,
        items: int,
    ) -> None:
        """Remember a call, if it was one launch of whole arguments."""
        if len(plan.units) != 1 or not items:
            return
        (unit,) = plan.units
        if not isinstance(unit, PlannedContraction) or unit.alpha == 0:
            return
        owners = {id(value): name for name, value in arguments.items()}
        terms = (*unit.terms, unit.result)
        parts = [memory.arrays[term.root] for term in terms]
        if not all(term.is_whole and id(part) in owners for term, part in zip(terms, parts, strict=True)):
            return
        bound = runner.bound(unit, parts, items)
        key = _repeated_call_key(arguments, count)
        if bound is not None and key is not None:
            self._known[key] = bound, tuple(owners[id(part)] for part in parts)


def _repeated_call_key(arguments: Mapping[str, Any], count: int | None) -> Hashable:
    """The key of a call; None unless all arguments are arrays that begin where their buffers do."""
    for value in arguments.values():
        if getattr(value, "offset", 1):  # arrays of the host have none
            return None
    return tuple(arguments), likeness(arguments.values()), count


def _are_apart(arguments: Mapping[str, Any], context: Any) -> bool:
    """Whether every argument has a whole buffer of a context to itself."""
    return have_own_buffers([*arguments.values()]) and all(value.context == context for value in arguments.values())
