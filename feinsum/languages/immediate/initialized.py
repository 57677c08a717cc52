"""Whether memory of work-items is written before it is read: the trips of loops are followed, element by element.

An index that only a call knows, or a loop of many trips, is taken for one that writes everything: what cannot be proved
wrong is no error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from feinsum.languages.diagnostics import Findings
from feinsum.languages.immediate.resolved import Action, Loop, Resolved, ViewUpdate
from feinsum.languages.immediate.syntax import ImmediateName
from feinsum.languages.immediate.views import ImmediateView, IntegerVariable, Root

_MOST_TRIPS: Final = 256
"""The most trips of nested loops together."""
_MOST_ELEMENTS: Final = 1 << 20
"""The most elements of an alloca whose writes are followed."""


def check_initialized(resolved: Resolved, findings: Findings) -> None:
    """Report to `findings` each read of an alloca that may see memory not written yet."""
    _Follower(findings).follow(resolved.actions, {}, _MOST_TRIPS)


class _Follower:
    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._written: dict[Root, Any] = {}
        self._said: set[tuple[ImmediateName, int]] = set()

    def follow(
        self, actions: tuple[Action, ...], values: Mapping[IntegerVariable, int], budget: int, depth: int = 0
    ) -> None:
        for action in actions:
            if isinstance(action, ViewUpdate):
                self._step(action, values)
            elif isinstance(action, Loop):
                self._loop(action, values, budget, depth + 1)

    def _loop(self, loop: Loop, values: Mapping[IntegerVariable, int], budget: int, depth: int) -> None:
        trips = loop.variable.values
        if len(trips) > budget:
            # the variable has no value, so what depends on it is taken for everything
            self.follow(loop.body, values, 1, depth)
            return
        for value in trips:
            # memory of the trip before is not that of this one
            for root in [root for root in self._written if root.depth >= depth]:
                del self._written[root]
            self.follow(loop.body, {**values, loop.variable: value}, budget // len(trips), depth)

    def _step(self, step: ViewUpdate, values: Mapping[IntegerVariable, int]) -> None:
        update = step.update
        if update.alpha != 0:
            for name, view in zip(update.operands, step.operands, strict=True):
                self._read(name, view, values)
        if update.beta != 0:
            self._read(update.result, step.result, values)
        self._write(step.result, values)

    def _mask(self, view: ImmediateView) -> Any:
        shape = view.root.type.shape
        if view.root.kind != "alloca" or math.prod(shape) > _MOST_ELEMENTS:
            return None
        return self._written.setdefault(view.root, np.zeros(shape, bool))

    def _read(self, name: ImmediateName, view: ImmediateView, values: Mapping[IntegerVariable, int]) -> None:
        mask, box = self._mask(view), _box(view, values)
        if mask is None or box is None or mask[box].all() or (name, name.span.start) in self._said:
            return
        self._said.add((name, name.span.start))
        note = self._findings.note("its memory has no content at first", view.root.span)
        some = "some of it was" if mask[box].any() else "it was"
        self._findings.error("alloca-unwritten", name.span, f"{name} is read before {some} written", [note])

    def _write(self, view: ImmediateView, values: Mapping[IntegerVariable, int]) -> None:
        mask, box = self._mask(view), _box(view, values)
        if mask is not None:
            mask[... if box is None else box] = True


def _box(view: ImmediateView, values: Mapping[IntegerVariable, int]) -> tuple[slice, ...] | None:
    """The indices of a root that a view is; None if only a call knows."""
    box = []
    for bounds in view.bounds:
        low, high = bounds.low, bounds.high
        if bounds.variable is not None:
            if bounds.variable not in values:
                return None
            low = bounds.base + values[bounds.variable]
            high = low + 1
        box.append(slice(low, high))
    return tuple(box)
