"""Calls that are like earlier ones, with as little around the launch as may be.

A call is recognised by shapes, strides, types and the device of its arrays; whatever differs goes the long way, which says
what is wrong or copies what it must.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from feinsum.interop.cuda.holders import Holder
from feinsum.interop.cuda.launching import BoundLaunches

MOST = 4
"""Kinds of calls that are tried before the long way."""


@dataclass(frozen=True)
class QuickStep:
    """A kernel's launches, and what makes the memory for its results and between them.

    :ivar slots: where the pointers of its operands are.
    """

    slots: tuple[int, ...]
    results: tuple[Callable[[], Any], ...]
    scratch: tuple[Callable[[], Any], ...]
    bound: BoundLaunches

    def run(self, pointers: list[int], held: Holder, stream: int) -> list[Any]:
        """Its results."""
        made = [make() for make in self.results]
        taken = [pointers[slot] for slot in self.slots]
        taken += [held.pointer(one) for one in made]
        if self.scratch:
            kept = [make() for make in self.scratch]  # until it is launched: then the stream keeps the order
            taken += [held.pointer(one) for one in kept]
        for launch in self.bound.launches:
            launch.enqueue(taken, stream)
        return made


class QuickCall:
    """Calls like one that was made.

    :param marks: by which each array is recognised, see :meth:`Holder.mark`.
    """

    def __init__(self, held: Holder, number: int, marks: Sequence[Any], steps: Sequence[QuickStep], finish: Any) -> None:
        self._held, self._number, self._marks = held, number, tuple(marks)
        self._steps, self._finish = tuple(steps), finish
        self._match, self._is_current, self._stream = held.match, held.is_current, held.stream

    def __call__(self, values: Sequence[Any]) -> Any:
        """The result; None if the call is another."""
        marks = self._marks
        if len(values) != len(marks):
            return None
        pointers: list[int] = []
        for value, mark in zip(values, marks, strict=True):
            pointer = self._match(value, mark)
            if pointer is None:
                return None
            pointers.append(pointer)
        number = self._number
        if not self._is_current(number):
            return None
        stream, alive = self._stream(number), []
        for step in self._steps:
            made = step.run(pointers, self._held, stream)
            if len(self._steps) > 1:
                alive.append(made)
                pointers.append(self._held.pointer(made[0]))
        return made[0] if self._finish is None else self._finish(made)


class QuickCalls:
    """The last kinds of calls; a list of arrays, or a mapping of `names` to them."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._names = tuple(names)
        self._known: tuple[QuickCall, ...] = ()

    def add(self, call: QuickCall) -> None:
        """Remember one more, and forget the oldest."""
        self._known = (call, *self._known)[:MOST]

    def __call__(self, values: Sequence[Any]) -> Any:
        """The result; None if nothing like it was called before."""
        for known in self._known:
            found = known(values)
            if found is not None:
                return found
        return None

    def named(self, arrays: Mapping[str, Any]) -> Any:
        """The same for arrays by name."""
        if len(arrays) != len(self._names):
            return None
        try:
            return self([arrays[name] for name in self._names])
        except KeyError:
            return None
