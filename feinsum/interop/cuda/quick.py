"""Calls that are like earlier ones, with as little around the launch as may be.

A call is recognised by its arrays (:mod:`feinsum.interop.cuda.recognition`); whatever differs goes the long way, which says
what is wrong or copies what it must.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from feinsum.interop.cuda.holders import Holder
from feinsum.interop.cuda.launching import BoundLaunches

MOST = 4
"""Kinds of calls that are tried before the long way."""


@dataclass(frozen=True)
class QuickStep:
    """A kernel's launches, and what makes the memory for its results and between them.

    :ivar slots: where the pointers of its operands are, and those of its results that are given; None if they are all, in
        order.
    :ivar results: makes those that are not given.
    """

    slots: tuple[int, ...] | None
    results: tuple[Callable[[], Any], ...]
    scratch: tuple[Callable[[], Any], ...]
    bound: BoundLaunches

    def run(self, pointers: Sequence[int], held: Holder, stream: int) -> list[Any]:
        """Its results, of those that are not given."""
        made = [make() for make in self.results]
        taken = list(pointers) if self.slots is None else [pointers[slot] for slot in self.slots]
        kept = [make() for make in self.scratch]  # until it is launched: then the stream keeps the order
        taken += [held.pointer(one) for one in (*made, *kept)]
        self.bound.enqueue(taken, stream)
        return made

    def alone(self, held: Holder) -> Callable[[list[int], int], list[Any]] | None:
        """A function with as little around the launch as possible; None unless it is one launch with at most one result."""
        if self.scratch or len(self.bound.launches) != 1 or len(self.results) > 1 or self.slots is not None:
            return None
        enqueue, address = self.bound.launches[0].enqueue, held.pointer
        if not self.results:
            return lambda pointers, stream: enqueue(pointers, stream) or []
        [make] = self.results

        def run(pointers: list[int], stream: int) -> list[Any]:
            made = make()
            pointers.append(address(made))
            enqueue(pointers, stream)
            return [made]

        return run


class QuickCall:
    """Calls like one that was made.

    :param given: its operands.
    :param out: the arrays that were given for its results; none if they are to be made.
    :param alignments: at a multiple of how many bytes each of these must begin.
    :param finish: makes what the caller gets of the list of results.
    """

    def __init__(
        self,
        held: Holder,
        number: int,
        given: Sequence[Any],
        out: Sequence[Any],
        alignments: Sequence[int],
        steps: Sequence[QuickStep],
        finish: Callable[[Any], Any] | None,
    ) -> None:
        self._held, self._number, self._steps, self._finish = held, number, tuple(steps), finish
        self._operands, self._count = len(given), len(given) + len(out)
        self._recognise = held.like([*given, *out], alignments)
        self._current_device, self._stream, self._written = held.current_device, held.stream, held.written
        self._run = (steps[0].alone(held) if len(steps) == 1 else None) or self._in_turn
        self._sizes = [int(one.nbytes) for one in (*given, *out)]

    def __call__(self, values: Sequence[Any], out: Any = None) -> Any:
        """The result; None if the call is another."""
        wanted = () if out is None else _wanted(out)
        pointers = self._pointers(values, wanted)
        number = self._number
        if pointers is None or self._current_device() != number:
            return None
        made = self._run(pointers, self._stream(number))
        if out is not None:
            for one in wanted:
                self._written(one)
            return out
        return made[0] if self._finish is None else self._finish(made)

    def is_like(self, values: Sequence[Any], out: Any) -> bool:
        """Whether it is such a call."""
        return self._pointers(values, _wanted(out)) is not None

    def _pointers(self, values: Sequence[Any], wanted: Sequence[Any]) -> list[int] | None:
        given = (*values, *wanted) if wanted else values
        if len(given) != self._count or len(values) != self._operands:
            return None
        pointers = self._recognise(given)
        return None if pointers is None or (wanted and self._overlap(pointers)) else pointers

    def _in_turn(self, pointers: list[int], stream: int) -> list[Any]:
        """The results of the last step."""
        alive = []  # until all is launched
        for step in self._steps:
            made = step.run(pointers, self._held, stream)
            alive.append(made)
            pointers += [self._held.pointer(one) for one in made]
        return made

    def _overlap(self, pointers: Sequence[int]) -> bool:
        """Whether a result is to be where something else is, which is to be copied first or refused."""
        for k in range(self._operands, self._count):
            begin, end = pointers[k], pointers[k] + self._sizes[k]
            for other, size in zip(pointers[:k], self._sizes, strict=False):
                if other < end and begin < other + size:
                    return True
        return False


def _wanted(out: Any) -> Sequence[Any]:
    if out is None:
        return ()
    return out if out.__class__ in (tuple, list) else (out,)


class QuickCalls:
    """The last kinds of calls; a list of arrays, or a mapping of `names` to them."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._count = len(names)
        self._known: tuple[QuickCall, ...] = ()
        pick = itemgetter(*names) if names else None
        self._pick: Any = (lambda arrays: (pick(arrays),)) if len(names) == 1 and pick is not None else pick

    def add(self, call: QuickCall, values: Sequence[Any], out: Any = None) -> None:
        """Remember the call of these arrays, and forget the oldest, unless it is known or never recognised."""
        if call.is_like(values, out) and not any(known.is_like(values, out) for known in self._known):
            self._known = (call, *self._known)[:MOST]

    def __call__(self, values: Sequence[Any], out: Any = None) -> Any:
        """The result; None if nothing like it was called before."""
        for known in self._known:
            found = known(values, out)
            if found is not None:
                return found
        return None

    def named(self, arrays: Mapping[str, Any], out: Any = None) -> Any:
        """The results for arrays given by name."""
        if len(arrays) != self._count:
            return None
        try:
            values = self._pick(arrays)
        except KeyError:
            return None
        return self(values, out)
