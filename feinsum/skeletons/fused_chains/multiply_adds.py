"""A step of a fused chain by multiply-adds: each work-item computes a tile of the result at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pymbolic.primitives import Comparison, Product, Variable, flattened_product, flattened_sum

from feinsum.skeletons.fused_chains.chain_kernel import GroupKernel
from feinsum.skeletons.fused_chains.chain_steps import TileSharing
from feinsum.skeletons.fused_chains.events import MOVED_TOGETHER, ContractStep, InRegisters, LocalArray

_WRITTEN_OUT = 400
"""Products of a work-item that are written out; a longer sum stays a loop, which the OpenCL compiler may unroll."""


class WorkItemTile:
    """The entries of an array that a work-item treats at a time.

    They lie as far apart as there are tiles along an index, so that neighbours of one are those of another.

    :ivar turns: the loop over the tiles of a work-item, whose numbers lie `items` apart; :ivar around: all loops.
    :ivar predicates: when there is a tile, where the loop is written out and so goes on to the end.
    """

    def __init__(
        self, work: GroupKernel, sharing: TileSharing, around: frozenset[str], *, written_out: bool = False
    ) -> None:
        self.work, self.sharing = work, sharing
        self.tile = {x: n for x, n in sharing.tile.items() if n > 1}
        self.letters = "".join(self.tile)
        items, total = work.block.items, sharing.digits.total
        if written_out:
            self.turns = list(work.draft.unrolled(("turn",), (-(-total // items),)))
            number = Variable(self.turns[0]) * items + work.item
        else:
            number, self.turns = work.turns(total)
        self.turn = Variable(self.turns[0]) if self.turns else 0
        self.predicates = [Comparison(number, "<", total)] if written_out and total % items else []
        self.first = sharing.digits.of(number)
        self.around = around | set(self.turns)

    def loops(self, letters: Sequence[str] | None = None) -> tuple[dict[str, str], dict[str, Any]]:
        """New loops through the tile along some of its indices, by default all, and where they are."""
        letters = self.letters if letters is None else letters
        names = self.work.draft.unrolled([f"{x}_tile" for x in letters], [self.sharing.tile[x] for x in letters])
        counts = dict(zip(self.sharing.digits.letters, self.sharing.digits.counts, strict=True))
        places = {
            x: flattened_sum((self.first[x], flattened_product((Variable(name), counts[x]))))
            for x, name in zip(letters, names, strict=True)
        }
        return dict(zip(letters, names, strict=True)), {**self.first, **places}

    def array(self, base: str, letters: str | None = None) -> _Entry:
        """A new array in registers for the tile along some of its indices, as a function of loops through it."""
        letters = self.letters if letters is None else letters
        shape = tuple(self.tile[x] for x in letters) or (1,)
        name = self.work.draft.array(base, shape, dtype=self.work.dtype)
        return lambda loops: Variable(name)[tuple(Variable(loops[x]) for x in letters) or (0,)]


class RegisterTileStep:
    """One contraction of a row, tile by tile, in registers.

    :ivar before: the contraction whose result this one takes from registers, if it does.
    :ivar result: the tile of the result, once it is written.
    """

    def __init__(
        self, work: GroupKernel, event: ContractStep, sharing: TileSharing, before: RegisterTileStep | None
    ) -> None:
        self.work, self.event, self.sharing = work, event, sharing
        chained = any(isinstance(source, InRegisters) for source in event.sources)
        self.before = before if chained else None
        self.contraction = work.block.steps[event.step].contraction
        self.early: dict[int, str] = {}

    def can_load_early(self) -> bool:
        """Whether there are operands to read where they are, few enough numbers of each for registers."""
        sums = math.prod(self.work.lengths[x] for x in self.contraction.indexing.summed)
        few = sums * math.prod(self.sharing.tile.values()) <= MOVED_TOGETHER * max(self.sharing.tile.values(), default=1)
        return few and None in self.event.sources and self.sharing.digits.total <= self.work.block.items

    def load_early(self, around: frozenset[str], origin: Mapping[str, Any]) -> None:
        """Load such operands before they are needed."""
        for number, letters in enumerate(self.contraction.indexing.inputs):
            if self.event.sources[number] is not None:
                continue
            tile = WorkItemTile(self.work, self.sharing, around, written_out=True)
            own, summed = [x for x in tile.letters if x in letters], self.contraction.indexing.summed
            lengths = [self.work.lengths[x] for x in summed]
            if number not in self.early:
                shape = (*lengths, *(tile.tile[x] for x in own)) or (1,)
                self.early[number] = self.work.draft.array("early", shape, dtype=self.work.dtype)
            sums = self.work.draft.unrolled(["sum"] * len(summed), lengths)
            loops, at = tile.loops(own)
            index = tuple(map(Variable, (*sums, *loops.values()))) or (0,)
            at |= dict(zip(summed, map(Variable, sums), strict=True))
            value = self.work.operand(self.contraction.operands[number], self.event.row, at, origin)
            inside = tile.around | set(sums) | set(loops.values())
            predicates = [*tile.predicates, *self.work.begun(around, origin)]
            loaded = self.work.assign(Variable(self.early[number])[index], value, inside, predicates=predicates)
            self.work.last |= {loaded}

    def write(self) -> None:
        """Load what the tile needs, multiply, sum up, store."""
        self.tile = tile = WorkItemTile(self.work, self.sharing, self.work.inside)
        summed = self.contraction.indexing.summed
        if not summed:
            values = self._load(tile.around, {})
            self._finish(lambda loops: _product_of_factors([value(loops) for value in values]))
            return
        acc = tile.array("acc")
        loops, _ = tile.loops()
        self._set(acc(loops), 0, tile.around | set(loops.values()))
        sums = self._sums(summed)
        inside = tile.around | set(sums.values())
        values = self._load(inside, sums)
        loops, _ = tile.loops()
        term = _product_of_factors([value(loops) for value in values])
        self._set(acc(loops), acc(loops) + term, inside | set(loops.values()))
        self.work.draft.priorities.append(",".join((*tile.turns, *sums.values(), *loops.values())))
        self._finish(acc)

    def _load(self, around: frozenset[str], sums: Mapping[str, str]) -> list[_Entry]:
        """Load the factors into registers, those multiplied that have the same entries of the tile."""
        groups: dict[str, list[int]] = {}
        for number, letters in enumerate(self.contraction.indexing.inputs):
            groups.setdefault("".join(x for x in self.tile.letters if x in letters), []).append(number)
        values, loaded = [], frozenset[str]()
        for letters, factors in groups.items():
            value, (loops, at) = self.tile.array("value", letters), self.tile.loops(letters)
            at |= {x: Variable(name) for x, name in sums.items()}
            read = [self._factor(number, at, {**sums, **loops}) for number in factors]
            loaded |= {self.work.assign(value(loops), _product_of_factors(read), around | set(loops.values()))}
            values.append(value)
        self.work.last |= loaded
        return values

    def _factor(self, number: int, at: Mapping[str, Any], loops: Mapping[str, str]) -> Any:
        source = self.event.sources[number]
        if isinstance(source, InRegisters) and self.before is not None:
            return self.before.result(loops)
        if number in self.early:
            return Variable(self.early[number])[tuple(map(Variable, loops.values())) or (0,)]
        if isinstance(source, LocalArray):
            return self.work.entry(source, at)
        return self.work.operand(self.contraction.operands[number], self.event.row, at)

    def _finish(self, value: _Entry) -> None:
        """Store the tile in local memory, or in the output, or leave it where it is."""
        self.result = value
        if isinstance(self.event.target, InRegisters):
            return
        loops, at = self.tile.loops()
        inside = self.tile.around | set(loops.values())
        if self.event.target is None:
            own = {name: self.tile.tile[x] for x, name in loops.items()}
            self.work.put(self.event.row, at, value(loops), inside, own)
        else:
            self._set(self.work.entry(self.event.target, at), value(loops), inside)

    def _sums(self, summed: str) -> dict[str, str]:
        """Loops over the indices summed over: written out if they are short."""
        lengths = [self.work.lengths[x] for x in summed]
        if self.early or self.before or math.prod(lengths) * math.prod(self.tile.tile.values()) <= _WRITTEN_OUT:
            return dict(zip(summed, self.work.draft.unrolled(["sum"] * len(summed), lengths), strict=True))
        names = [self.work.draft.fresh("sum") for _ in summed]
        for name, length in zip(names, lengths, strict=True):
            self.work.draft.domain("", [name], f"0 <= {name} < {length}")
        return dict(zip(summed, names, strict=True))

    def _set(self, assignee: Any, value: Any, loops: frozenset[str]) -> None:
        self.work.last |= {self.work.assign(assignee, value, loops)}


_Entry = Callable[[Mapping[str, str]], Any]
"""An entry of an array in registers, by the loops through the tile."""


def _product_of_factors(factors: Sequence[Any]) -> Any:
    return Product(tuple(factors)) if len(factors) > 1 else factors[0]
