"""Sums of GPUs whose groups are grids of work-items, lanes along the rows of memory and several rows at a time.

out[i] = Σ_j A(i, j) x(j), with 16 lanes along j and 8 rows along i:

    for blocks of 8 rows: acc += A(8 q + m, 16 s + n) x(16 s + n)        m, n = get_local_id(1), get_local_id(0)
                          out[8 q + m] = sum(n, acc)                     a tree in local memory
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from loopy.library.reduction import SumReductionOperation
from loopy.symbolic import Reduction
from pymbolic.primitives import Subscript, Variable, flattened_sum

from feinsum.skeletons.streaming.body import StreamBody
from feinsum.skeletons.streaming.plan import ItemGrid
from feinsum.skeletons.streaming.strips import Items, LoopStrips

_AXES = ("l.0", "l.1")


@dataclass(frozen=True)
class GridSums:
    """The sums of one row of the einsum.

    :ivar kept: output index along work-items -> its loops.
    """

    body: StreamBody
    grid: ItemGrid
    row: int
    kept: Mapping[str, LoopStrips]

    @classmethod
    def opened(cls, body: StreamBody, grid: ItemGrid, row: int) -> GridSums:
        """Add the loops over the blocks of results of a group."""
        along = {x: axis for x, axis in zip(grid.counts, _AXES, strict=False) if x not in body.plan.summed}
        return cls(body, grid, row, {x: body.loops.shared(x, grid.counts[x], Items(tag)) for x, tag in along.items()})

    def written(self) -> list[str]:
        """``acc[k] = 0``, ``acc[k] += A(i, j) x(j)``, and the sum of these over the work-items that share it."""
        body, count = self.body, self.grid.loads
        acc = body.array("acc", (count,), self.row)
        (load,) = body.draft.unrolled(["load"], [count])
        done = body.assign(self._entry(acc, load), 0, (*self._results(), *self._all(), load), body.after)
        for at, loops, load in self._terms():
            entry = self._entry(acc, load)
            value = flattened_sum((entry, body.term(self.row, at)))
            done = body.assign(entry, value, (*self._results(), *loops), [done])
        value = flattened_sum(tuple(Subscript(Variable(acc), (k,)) for k in range(count)))
        if items := self._all():
            value = Reduction(SumReductionOperation(), items, value)
        target = body.result(self.row, self._at())
        return body.named(self.row, [body.assign(target, value, self._results(), [done])])

    def _entry(self, name: str, load: str) -> Any:
        return Subscript(Variable(name), (Variable(load) if load else 0,))

    def _results(self) -> tuple[str, ...]:
        """The loops over results, those over blocks first."""
        strips = self.kept.values()
        return (*(x.strip for x in strips if x.strip not in self.body.loops.groups.values()), *(x.lane for x in strips))

    def _at(self, others: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Where results and, if `others` say so, terms are along every index."""
        return self.body.at(None, {**{x: strips.position for x, strips in self.kept.items()}, **(others or {})})

    def _all(self) -> tuple[str, ...]:
        """A new loop over the work-items that share a sum, if several do."""
        found = self._sharing()
        fixed = self.body.loops.fixed
        loops = (items.loop or fixed(f"{x}_item", self.grid.counts[x], items.tag) for x, items in found.items())
        return tuple(dict.fromkeys(loops))

    def _terms(self) -> Iterator[tuple[dict[str, Any], list[str], str]]:
        """Where terms are, their loops, and that over what is on its way together: of whole strips, and of what is left."""
        plan, loops, letter = self.body.plan, self.body.loops, self.grid.flight
        for whole in (True, False):
            if not self._is_needed(whole=whole):
                continue
            sharing, around = self._sharing(), tuple[str, ...]()
            at: dict[str, Any] = {}
            outer, inner = [], []
            for x in (x for x in plan.order if x in plan.summed and x != letter):
                strips = None
                if x in sharing:
                    strips = loops.shared(x, self.grid.counts[x], replace(sharing[x], around=around))
                at[x] = strips.position if strips else Variable(loops.plain(x))
                outer.append(strips.strip if strips else at[x].name)
                inner += [strips.lane] if strips else []
                around = (*around, strips.strip) if strips else around
            flight = self._flight(sharing, around, whole=whole)
            if flight:
                at[letter] = flight.position
                outer.append(flight.strip)
                inner = [*flight.inside, *inner]
            yield self._at(at), list(dict.fromkeys([*outer, *inner])), flight.inside[0] if flight and whole else ""

    def _is_needed(self, *, whole: bool) -> bool:
        """Whether there are whole strips of what is on its way at a time, or they leave something."""
        letter = self.grid.flight
        if not letter:
            return whole
        length, end = self.grid.strips()[letter], self.body.loops.lengths[letter]
        if not isinstance(end, int):
            return whole or length > 1
        return end >= length if whole else end % length > 0

    def _sharing(self) -> dict[str, Items]:
        """Summed index -> the work-items along it; if the grid has summed indices only, one loop goes through both."""
        summed, counts = self.body.plan.summed, self.grid.counts
        if len(counts) > 1 and set(counts) <= set(summed):
            loop = self.body.loops.fixed("item", self.grid.items, _AXES[0])
            lane, rows = counts
            return {lane: Items(loop=loop, row=counts[lane]), rows: Items(loop=loop, row=counts[lane], along=False)}
        return {x: Items(tag) for x, tag in zip(counts, _AXES, strict=False) if x in summed}

    def _flight(self, sharing: Mapping[str, Items], around: tuple[str, ...], *, whole: bool) -> LoopStrips | None:
        """Strips of the index of which several terms are on their way at a time, or of what these leave."""
        loops, letter, loads = self.body.loops, self.grid.flight, self.grid.loads
        if not letter:
            return None
        if letter not in sharing:
            return loops.whole(letter, loads, {"load": loads}) if whole else loops.left(letter, loads)
        items = replace(sharing[letter], around=around)
        strips = loops.dealt if whole else loops.dealt_rest
        return strips(letter, self.grid.counts[letter], loads, items)


def sum_in_grid(body: StreamBody, row: int) -> list[str]:
    """The instructions of the sums of a row; the ids of the stores."""
    assert body.plan.grid is not None
    return GridSums.opened(body, body.plan.grid, row).written()
