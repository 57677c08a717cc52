"""Copies whose loads are in flight together: a work-item loads several vectors before it stores the first of them.

for p in range(n): out[p] = A(p)    ->    for k in range(4): t[k] = A(p(k));  for k in range(4): out[p(k)] = t[k]

p stands for several indices of the output that lie side by side in it, so that short rows fill a work-group, too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from pymbolic.primitives import Comparison, Min, Variable, flattened_product, flattened_sum

from feinsum.skeletons.common.digits import Digits
from feinsum.skeletons.streaming.body import StreamBody
from feinsum.skeletons.streaming.plan import Flight


@dataclass(frozen=True)
class _OutputStrips:
    """The vectors of a group, counted in the order of the output.

    :ivar total: how many there are in the whole output, an int or an expression of parameters.
    :ivar group: the loop over groups; :ivar item: the loop over work-items.
    """

    body: StreamBody
    flight: Flight
    total: Any
    group: str
    item: str

    @classmethod
    def opened(cls, body: StreamBody, flight: Flight) -> _OutputStrips:
        """Add the loops over groups and work-items."""
        group = body.loops.open_shares(flight.letters, flight.share(body.plan.width))
        lengths = [body.loops.lengths[x] for x in flight.letters]
        known = math.prod(n for n in lengths if isinstance(n, int)) // flight.vector
        total = flattened_product((known, *(n for n in lengths if not isinstance(n, int))))
        return cls(body, flight, total, group, body.loops.fixed("item", body.plan.width, "l.0"))

    def number(self, part: str) -> Any:
        """The number of a vector, beyond the output perhaps."""
        width = self.body.plan.width
        terms = ((width * self.flight.strips, self.group), (width, part), (1, self.item))
        return flattened_sum(tuple(flattened_product((step, Variable(loop))) for step, loop in terms))

    @property
    def is_exact(self) -> bool:
        """Whether groups divide the output."""
        return isinstance(self.total, int) and self.total % (self.body.plan.width * self.flight.strips) == 0

    def placed(self, part: str) -> tuple[str, str]:
        """Find the place of a vector, or that of the last one there is: a variable, and the instruction that sets it.

        It is unsigned, so that compilers see that no number is negative whose digits are wanted.
        """
        draft = self.body.draft
        width = 8 * draft.kernel.index_dtype.itemsize
        place = draft.array("place", (), dtype=np.dtype(f"uint{width}"))
        number = self.number(part) if self.is_exact else Min((self.number(part), flattened_sum((self.total, -1))))
        return place, self.body.assign(Variable(place), number, (self.item, part), self.body.after)

    def at(self, place: str, lane: str) -> dict[str, Any]:
        """Where the numbers of a vector are along every index."""
        last = self.flight.letters[-1]
        lengths = [self.body.loops.lengths[x] for x in self.flight.letters[:-1]]
        # That of the first one does not matter, but for whether it is 1.
        counts = (*(n if isinstance(n, int) else 2 for n in lengths), self._vectors_of_a_row)
        digits = Digits(self.flight.letters, counts).of(Variable(place))
        return digits | ({last: flattened_sum((self.flight.vector * digits[last], Variable(lane)))} if lane else {})

    @property
    def _vectors_of_a_row(self) -> int:
        length = self.body.loops.lengths[self.flight.letters[-1]]
        return length // self.flight.vector if isinstance(length, int) else 2

    def inside(self, part: str) -> list[Any]:
        """The conditions on which there is a vector."""
        return [] if self.is_exact else [Comparison(self.number(part), "<", self.total)]


def copy_in_flight(body: StreamBody, flight: Flight) -> list[str]:
    """Write ``t[k] = A(p) * ...`` for all rows, and then what stores them; the ids of the stores."""
    strips, kept, loaded = _OutputStrips.opened(body, flight), [], list[str]()
    shape = (flight.strips, flight.vector) if flight.vector > 1 else (flight.strips,)
    for row in range(body.match.einsum.b):
        part, lane = _loops(body, flight)
        place, ready = strips.placed(part)
        value = body.term(row, body.at(None, strips.at(place, lane)))
        kept.append(body.array("flight", shape, row))
        loops = [part, *filter(None, [lane])]
        loaded.append(body.assign(body.entry(kept[-1], loops), value, [strips.item, *loops], [ready]))
    stores: list[str] = []
    for row, name in enumerate(kept):
        part, lane = _loops(body, flight)
        place, ready = strips.placed(part)
        target = body.result(row, body.at(None, strips.at(place, lane)))
        loops = [part, *filter(None, [lane])]
        after = (ready, *loaded, *stores)
        store = body.assign(target, body.entry(name, loops), [strips.item, *loops], after, strips.inside(part))
        stores += body.named(row, [store])
    return stores


def _loops(body: StreamBody, flight: Flight) -> tuple[str, str]:
    """New loops over the vectors of a work-item, and over their lanes if there are several."""
    (part,) = body.draft.unrolled(("part",), (flight.strips,))
    return part, body.vectors(flight.vector) if flight.vector > 1 else ""
