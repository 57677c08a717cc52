"""Sums of operands that run across each other, ``out = Σ_ij A(i, j) B(j, i)``, in tiles that pass through local memory.

for steps of a group:  tile[j, i] = B(j, i)  lanes along i;  barrier;  acc += A(i, j) * tile[j, i]  lanes along j

A work-group goes through several tiles of the indices that are summed over, and adds up its own sums at the end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import loopy as lp
from loopy.library.reduction import SumReductionOperation
from loopy.symbolic import Reduction
from pymbolic.primitives import (
    Call,
    Comparison,
    FloorDiv,
    Min,
    Product,
    Remainder,
    Subscript,
    Variable,
    flattened_product,
    flattened_sum,
)

from feinsum.errors import TransformError
from feinsum.lower.schedule_steps import read_element
from feinsum.match import Match
from feinsum.rewrites.loops import axis_length
from feinsum.skeletons.common.digits import Digits
from feinsum.skeletons.common.draft import KernelDraft
from feinsum.skeletons.streaming.partial_sums import PartialSums, add_up, sums_of_shares
from feinsum.skeletons.streaming.plan import CrossedTiles, Stream
from feinsum.skeletons.streaming.strips import strip_parameters


@dataclass
class CrossedSums:
    """The instructions of a plan while they are written down.

    :ivar first: index -> where the tile at hand begins, or where an index without tiles is.
    :ivar share: which share of the sums a group has.
    :ivar group: the loop over groups; :ivar step: that over the tiles of a group, if sums have such.
    """

    match: Match
    plan: Stream
    tiles: CrossedTiles
    draft: KernelDraft
    after: frozenset[str]
    lengths: dict[str, Any] = field(default_factory=dict)
    first: dict[str, Any] = field(default_factory=dict)
    share: Any = 0
    group: str = ""
    step: tuple[str, ...] = ()
    partial: PartialSums | None = None

    def __post_init__(self) -> None:
        self.lengths = {x: axis_length(self.match, x) for x in self.match.einsum.indexing.indices}
        output, summed = self.match.einsum.indexing.output, self.plan.summed
        long = [x for x in output if not isinstance(self.lengths[x], int)]
        unknown = long[1:] + [x for x in summed if not isinstance(self.lengths[x], int)]
        if unknown:
            raise TransformError(f"the length of '{unknown[0]}' is not known, along which there are tiles")
        parts = self.tiles.parts(self.lengths, summed)
        self._open_groups([*long, *(x for x in output if x not in long)], parts)
        if summed:
            self._open_steps([x for x in self.plan.order if x in summed])
        if parts > 1:
            self.partial = sums_of_shares(self.draft, self.match, parts)

    def _open_groups(self, letters: Sequence[str], parts: int) -> None:
        """Add the loop over groups: tiles of the output, and shares of the sums; the length of the first may be long."""
        known = [-(-n // self.tiles.count(x)) if isinstance(n := self.lengths[x], int) else 2 for x in letters]
        group = self.draft.fresh("tiles_group")
        inner = math.prod(known[1:]) * parts
        if letters and not isinstance(self.lengths[letters[0]], int):
            length = self.lengths[letters[0]]
            last = f"{self.tiles.count(letters[0])}*floor({group}/{inner}) < {length}"
            self.draft.domain(strip_parameters(length), [group], f"0 <= {group} and {last}")
        else:
            self.draft.domain("", [group], f"0 <= {group} < {math.prod(known) * parts}")
        self.draft.tags[group] = "g.0"
        self.group = str(group)
        digits = Digits([*letters, ""], (*known, parts)).of(Variable(group))
        self.share = digits.pop("")
        self.first = {x: flattened_product((self.tiles.count(x), digit)) for x, digit in digits.items()}

    def _open_steps(self, summed: Sequence[str]) -> None:
        """Add the loop over the tiles of a group."""
        counts = tuple(-(-self.lengths[x] // self.tiles.count(x)) for x in summed)
        total, turns = math.prod(counts), self.tiles.turns
        step = self.draft.fresh("tile")
        number = flattened_sum((flattened_product((turns, self.share)), Variable(step)))
        self.draft.domain(self.group, [step], f"0 <= {step} < {turns} and {number} < {total}")
        self.step = (str(step),)
        for x, digit in Digits(summed, counts).of(number).items():
            self.first[x] = flattened_product((self.tiles.count(x), digit))

    @property
    def rows(self) -> int:
        """Rows of a tile that the work-items of a group are in at once."""
        return self.plan.width // self.tiles.length

    def _items(self, count: int) -> str:
        """A new loop over so many work-items."""
        (item,) = self.draft.unrolled(("item",), (count,))
        self.draft.tags[item] = "l.0"
        return item

    def _loops(self) -> tuple[str, str]:
        """New loops over work-items, and over the places of each in a tile."""
        (part,) = self.draft.unrolled(("part",), (self.tiles.length // self.rows,))
        return self._items(self.plan.width), part

    def _row(self, item: str, part: str) -> Any:
        return flattened_sum((FloorDiv(Variable(item), self.tiles.length), flattened_product((self.rows, Variable(part)))))

    def _column(self, item: str) -> Any:
        return Remainder(Variable(item), self.tiles.length)

    def _at(self, inside: dict[str, Any]) -> dict[str, Any]:
        """Where a place of a tile is along every index, that of the last one there is beyond the end."""
        at = dict(self.first)
        for x, offset in inside.items():
            place, length = flattened_sum((self.first[x], offset)), self.lengths[x]
            exact = isinstance(length, int) and length % self.tiles.length == 0
            at[x] = place if exact else Min((place, flattened_sum((length, -1))))
        return at

    def _there(self, inside: dict[str, Any]) -> list[Any]:
        """The conditions on which there is a place."""
        found = []
        for x, offset in inside.items():
            length = self.lengths[x]
            if not isinstance(length, int) or length % self.tiles.length:
                found.append(Comparison(flattened_sum((self.first[x], offset)), "<", length))
        return found

    def _assign(
        self, assignee: Any, value: Any, loops: Sequence[str], after: Sequence[str], there: Sequence[Any] = ()
    ) -> str:
        within = [self.group, *loops]
        self.draft.priorities.append(",".join(x for x in within if self.draft.tags.get(x, "unr_hint") == "unr_hint"))
        return self.draft.assign(assignee, value, within, [*after, *self.after], predicates=there)

    def written(self) -> tuple[lp.LoopKernel, list[str]]:
        """The kernel, and the ids of what stores its sums."""
        stores = [self._row_of(row) for row in range(self.match.einsum.b)]
        rules = add_up(self.draft, self.partial, stores) if self.partial else {}
        kernel = self.draft.finished(self.match.insn_ids, ())
        return kernel.copy(substitutions={**kernel.substitutions, **rules}), stores

    def _row_of(self, row: int) -> str:
        """Write what a row of the einsum computes; the id of what stores it."""
        parts = self.tiles.length // self.rows
        across, lane = self.tiles.across, self.plan.lane
        calls, turned = self._operands(row)
        own, loaded = "", list[str]()
        if calls:  # before the barrier, so that all loads are in flight together
            own = self.draft.array("own", (parts,), dtype=self.match.einsum.dtypes[row])
            item, part = self._loops()
            at = self._at({across: self._row(item, part), lane: self._column(item)})
            value = self._product([self._call(call, letters, at) for call, letters in calls])
            loaded = [self._assign(Variable(own)[Variable(part)], value, [*self.step, item, part], [])]
        kept = [self._kept(row, call, letters, loaded) for call, letters in turned]
        item, part = self._loops()
        inside = {across: self._row(item, part), lane: self._column(item)}
        factors = [Subscript(Variable(name), (inside[lane], inside[across])) for name, _ in kept]
        term = self._product([*([Variable(own)[Variable(part)]] if calls else []), *factors])
        ready = [*loaded, *(insn for _, insn in kept)]
        if not self.plan.summed:
            return self._stored(row, inside, term, [item, part], ready)
        acc = self.draft.array("acc", (parts,), dtype=self.match.einsum.dtypes[row])
        first = self._loops()
        empty = self._assign(Variable(acc)[Variable(first[1])], 0, first, [])
        entry = Variable(acc)[Variable(part)]
        value = flattened_sum((entry, term))
        return self._store(
            row, acc, self._assign(entry, value, [*self.step, item, part], [empty, *ready], self._there(inside))
        )

    def _operands(self, row: int) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """Rules and indices of the operands that are read as they lie, and of those that pass through tiles."""
        both: tuple[list[tuple[str, str]], list[tuple[str, str]]] = ([], [])
        for rule, letters in zip(self.match.rules[row], self.match.einsum.indexing.inputs, strict=True):
            both[letters in self.tiles.operands].append((rule, letters))
        return both

    def _kept(self, row: int, rule: str, letters: str, after: Sequence[str]) -> tuple[str, str]:
        """Copy a tile of an operand, lanes along its rows; the array, and the instruction."""
        length = self.tiles.length
        dtype = self.match.einsum.args[row][self.match.rules[row].index(rule)][0].dtype
        tile = self.draft.array("crossed", (length, length + self.tiles.spare), lp.AddressSpace.LOCAL, dtype)
        item, part = self._loops()
        place = self._row(item, part), self._column(item)
        value = self._call(rule, letters, self._at({self.plan.lane: place[0], self.tiles.across: place[1]}))
        return tile, self._assign(Subscript(Variable(tile), place), value, [*self.step, item, part], after)

    def _call(self, rule: str, letters: str, at: dict[str, Any]) -> Any:
        return Call(Variable(rule), tuple(at[x] for x in letters))

    def _product(self, factors: Sequence[Any]) -> Any:
        return factors[0] if len(factors) == 1 else Product(tuple(factors))

    def _store(self, row: int, acc: str, done: str) -> str:
        """Add up the sums of the work-items of a group as far as they are of one entry, and store them."""
        across, lane, length = self.tiles.across, self.plan.lane, self.tiles.length
        kept = [x for x in (across, lane) if x in self.match.einsum.indexing.output]
        if len(kept) == 2:
            item, part = self._loops()
            inside = {across: self._row(item, part), lane: self._column(item)}
            return self._stored(row, inside, Variable(acc)[Variable(part)], [item, part], [done])
        if kept == [across]:
            item, part = self._loops()
            place = self._row(item, part), self._column(item)
            return self._store_sums(row, across, place, Variable(acc)[Variable(part)], [item, part], done)
        item = self._items(self.plan.width)
        mine = flattened_sum(tuple(Variable(acc)[k] for k in range(length // self.rows)))
        if kept == [lane]:
            place = self._column(item), FloorDiv(Variable(item), length)
            return self._store_sums(row, lane, place, mine, [item], done)
        total = self.draft.array("total", (), dtype=self.match.einsum.dtypes[row])
        done = self._assign(Variable(total), mine, [item], [done])
        return self._stored(row, {}, Reduction(SumReductionOperation(), (item,), Variable(total)), [], [done])

    def _store_sums(
        self, row: int, letter: str, place: tuple[Any, Any], value: Any, loops: Sequence[str], done: str
    ) -> str:
        """Store the sum over the second digit of `place` for each value of the first one, which is along an index."""
        length = self.tiles.length
        terms = length if letter == self.tiles.across else self.rows
        shape = (length, terms + self.tiles.spare)
        sums = self.draft.array("sums", shape, lp.AddressSpace.LOCAL, self.match.einsum.dtypes[row])
        done = self._assign(Subscript(Variable(sums), place), value, loops, [done])
        entry, term = self._items(length), self.draft.fresh("term")
        self.draft.domain("", [term], f"0 <= {term} < {terms}")
        total = Reduction(SumReductionOperation(), (term,), Subscript(Variable(sums), (Variable(entry), Variable(term))))
        return self._stored(row, {letter: Variable(entry)}, total, [entry], [done])

    def _stored(self, row: int, inside: dict[str, Any], value: Any, loops: Sequence[str], after: Sequence[str]) -> str:
        at = {x: flattened_sum((self.first[x], inside.get(x, 0))) for x in self.match.einsum.indexing.output}
        index = tuple(at[x] for x in self.match.einsum.indexing.output)
        target = read_element(self.match.outputs[row], index)
        if self.partial:
            target = read_element(self.partial.arrays[row], (self.share, *index))
        store = self._assign(target, value, loops, after, self._there(inside))
        if self.partial:
            return store
        (last,) = (k for k, insn in enumerate(self.draft.instructions) if insn.id == store)
        self.draft.instructions[last] = self.draft.instructions[last].copy(id=self.match.insn_ids[row])
        return self.match.insn_ids[row]
