"""Contractions one after the other by one work-group, partial results in local memory: ``out = ((u A) B) C``.

A work-group takes a block of the long index, so that what lies between two contractions never leaves the chip; its
work-items share the entries of each result, a tile of them at a time in registers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import loopy as lp
from loopy.symbolic import get_dependencies
from pymbolic.primitives import Call, Comparison, Min, Variable, flattened_product, flattened_sum

from feinsum.errors import TransformError
from feinsum.match import Match
from feinsum.rewrites.loops import axis_length, without_race_warnings
from feinsum.skeletons.common.digits import VECTOR_BYTES
from feinsum.skeletons.common.draft import Draft
from feinsum.skeletons.common.products import substituted
from feinsum.skeletons.fused_chains.arrangements import arrange
from feinsum.skeletons.fused_chains.plan import (
    MOVED_TOGETHER,
    Compute,
    Copy,
    CopyMatrix,
    Event,
    GroupPlan,
    Held,
    MatrixSharing,
    Sharing,
    Store,
    lengths_within,
)
from feinsum.skeletons.fused_chains.products import MatrixContraction, copy_matrix
from feinsum.skeletons.fused_chains.tiles import Tile, TileContraction
from feinsum.skeletons.nvidia.matrix_units import fragment_unit, register_matrix_unit


def contract_in_groups(t_unit: lp.TranslationUnit, match: Match, plan: GroupPlan) -> lp.TranslationUnit:
    """Contract along the steps of a plan, a block of the output in each work-group.

    Before::

        for e, i, j: out[e, i, j] = sum([k, l], A(i, k) * B(j, l) * u(e, k, l))

    After steps ``A u`` and ``B (A u)`` with blocks of W elements e and T work-items n, tiles of 2 e and all of i::

        for e, k, l in the block, n sharing them: copy[e, k, l] = u(g W + e, k, l)
        ... lbarrier
        for n in W / 2 by l, sharing them:
            for k: for e, i: acc[e, i] += A(i, k) * copy[n's e, k, n's l]
            for e, i: partial[n's e, i, n's l] = acc[e, i]
        ... lbarrier
        for n ...: out[g W + n's e, n's i, j] = ... B(j, l) * partial[n's e, n's i, l]

    Local arrays are padded against bank conflicts and share memory where they are not needed at a time.  In the last
    block, what sticks out is computed from the last elements again and not stored.

    :raises TransformError: if the plan does not fit the einsum, its numbers have several types, an instruction has a
        predicate, or there are more indices in blocks than axes of groups.

    ``compute_at`` with ``store_in`` shared memory in Halide, ``set_scope("shared")`` in TVM.
    """
    t_unit = t_unit.with_kernel(Work(t_unit[match.kernel_name], match, plan).result())
    for unit in {step.unit for step in plan.steps if step.unit}:
        t_unit = register_matrix_unit(t_unit, fragment_unit(unit))
    return t_unit


@dataclass
class Work:
    """The kernel while its instructions become the events of an arrangement.

    :ivar around: the loops around all events; :ivar inside: also that over the blocks of a group.
    :ivar origin: index in blocks -> where the block begins.
    :ivar last: the instructions that the next ones come after.
    """

    kernel: lp.LoopKernel
    match: Match
    plan: GroupPlan

    def __post_init__(self) -> None:
        kernel, e = self.kernel, self.match.einsum
        self.rows = [kernel.id_to_insn[insn_id] for insn_id in self.match.insn_ids]
        if any(insn.predicates for insn in self.rows):
            raise TransformError(
                f"instruction '{self.rows[0].id}' has a predicate, which work-items that share it cannot have"
            )
        dtypes = {*e.dtypes, *(a.dtype for a in e.arrays)}
        if len(dtypes) > 1:
            raise TransformError(f"'{e}' has numbers of several types, which cannot share local memory")
        (self.dtype,) = dtypes
        self.draft = Draft(kernel)
        self.lengths = lengths_within(e, self.plan.blocks)
        self.found = arrange(e, self.plan, self.dtype.itemsize)
        self.memory = [
            self.draft.array("local_memory", (size,), lp.AddressSpace.LOCAL, self.dtype, VECTOR_BYTES)
            for size in self.found.sizes
        ]
        self.last = frozenset[str]().union(*(insn.depends_on for insn in self.rows)) - set(self.match.insn_ids)

    def result(self) -> lp.LoopKernel:
        self._deal_blocks()
        for copy in self.found.first:
            if isinstance(copy, CopyMatrix):
                copy_matrix(self, copy)
            else:
                self._copy(copy, self.around)
        copies = self._first_copies() if self.plan.prefetch else {}
        events = list(enumerate(self.found.events))
        contractions = self._contractions(events)
        early = [c for c in contractions.values() if self.plan.early and c.can_load_early()]
        around, origin = (self.around, self._origin_of_round(0)) if self.plan.prefetch else (self.inside, self.origin)
        moved = {number: self._moved(copy) for number, copy in copies.items()}
        for number, copy in copies.items():
            self._load(copy, moved[number], around, origin)
        for contraction in early:
            contraction.load_early(around, origin)
        for number, event in events:
            if number in self.found.barriers:
                self._wait()
                for k in [k for k in copies if k < number]:
                    self._load(copies.pop(k), moved[k], self.inside, self._origin_of_round(Variable(self.round) + 1))
            if number in moved and isinstance(event, Copy):
                self._keep(event, moved[number], self.inside)
            elif isinstance(event, Copy):
                self._copy(event, self.inside)
            elif isinstance(event, Store):
                self._store(event)
            else:
                contractions[number].write()
                if contractions[number] in early and self.plan.prefetch:
                    contractions[number].load_early(self.inside, self._origin_of_round(Variable(self.round) + 1))
        if self.plan.stay:
            self._wait()
        kernel = self.draft.finished(self.match.insn_ids, ())
        # The bounds of its turns tell which work-item writes what; loopy looks for the item in the index alone, where it is
        # not if there is but one number.
        return without_race_warnings(kernel, (insn.id for insn in self.draft.instructions))

    def _first_copies(self) -> dict[int, Copy]:
        """The copies at the beginning of a block."""
        found: dict[int, Copy] = {}
        for number, event in enumerate(self.found.events):
            if not isinstance(event, Copy):
                break
            found[number] = event
        return found

    def _contractions(self, events: Sequence[tuple[int, Event]]) -> dict[int, TileContraction | MatrixContraction]:
        """The writer of each contraction, by the number of its event."""
        found: dict[int, TileContraction | MatrixContraction] = {}
        before: TileContraction | None = None
        for number, event in events:
            if not isinstance(event, Compute):
                continue
            if isinstance(event.sharing, MatrixSharing):
                found[number] = MatrixContraction(self, event, event.sharing)
            else:
                found[number] = before = TileContraction(self, event, event.sharing, before)
        return found

    def _origin_of_round(self, number: Any) -> dict[str, Any]:
        return {x: substituted(begin, {self.round: number}) for x, begin in self.origin.items()}

    def begun(self, around: frozenset[str], origin: Mapping[str, Any]) -> list[Any]:
        """When there is a block at `origin`: ahead of the loop over blocks, that is not known."""
        if origin is self.origin or around == self.inside:
            return []
        return [Comparison(begin, "<", self.ends[x]) for x, begin in origin.items()]

    def _deal_blocks(self) -> None:
        """Loops over groups, work-items and, for groups that stay, their blocks."""
        blocks, stay = self.plan.blocks, self.plan.stay
        if len(blocks) > 3 or (stay and len(blocks) != 1):
            raise TransformError(f"blocks of '{''.join(blocks)}' are too many for the axes of groups")
        groups = [self.draft.fresh("group") for _ in blocks]
        lane = self.draft.fresh("item")
        self.item = Variable(lane)
        self.around = frozenset([*groups, lane])
        self.origin: dict[str, Any] = {}
        self.ends = {letter: axis_length(self.match, letter) for letter in blocks}
        rounds: list[str] = []
        for axis, (letter, group) in enumerate(zip(blocks, groups, strict=True)):
            length, end = blocks[letter], self.ends[letter]
            parameters = ", ".join(sorted(get_dependencies(end)))
            if stay:
                rounds = [self.draft.fresh("round")]
                self.draft.domain("", [group], f"0 <= {group} < {stay}")
                begun = f"({rounds[0]} * {stay} + {group}) * {length} < {end}"
                self.draft.domain(", ".join(filter(None, (parameters, group))), rounds, f"0 <= {rounds[0]} and {begun}")
                self.origin[letter] = (Variable(rounds[0]) * stay + Variable(group)) * length
            else:
                self.draft.domain(parameters, [group], f"0 <= {group} and {group} * {length} < {end}")
                self.origin[letter] = flattened_product((Variable(group), length))
            self.draft.tags[group] = f"g.{axis}"
        self.draft.domain("", [lane], f"0 <= {lane} < {self.plan.items}")
        self.draft.tags[lane] = "l.0"
        self.inside = self.around | set(rounds)
        self.round = rounds[0] if rounds else ""

    def _copy(self, copy: Copy, around: frozenset[str]) -> None:
        if self._is_short(copy.sharing):
            moved = self._moved(copy)
            self._load(copy, moved, around, self.origin)
            self._keep(copy, moved, around)
            return
        tile = Tile(self, copy.sharing, around)
        loops, at = tile.loops()
        value = self.operand(copy.operand, copy.row, at, self.origin)
        self.last |= {self.assign(self.entry(copy.target, at), value, tile.around | set(loops.values()))}

    def _moved(self, copy: Copy) -> str:
        """Registers for what a work-item copies, so that all of it is loaded before any of it is stored."""
        turns = -(-copy.sharing.digits.total // self.plan.items)
        return self.draft.array("moved", (turns, *copy.sharing.tile.values()), dtype=self.dtype)

    def _load(self, copy: Copy, moved: str, around: frozenset[str], origin: Mapping[str, Any]) -> None:
        tile = Tile(self, copy.sharing, around, written_out=True)
        loops, at = tile.loops(tuple(copy.sharing.tile))
        entry = Variable(moved)[(tile.turn, *map(Variable, loops.values()))]
        value = self.operand(copy.operand, copy.row, at, origin)
        predicates = [*tile.predicates, *self.begun(around, origin)]
        self.last |= {self.assign(entry, value, tile.around | set(loops.values()), predicates=predicates)}

    def _keep(self, copy: Copy, moved: str, around: frozenset[str]) -> None:
        tile = Tile(self, copy.sharing, around, written_out=True)
        loops, at = tile.loops(tuple(copy.sharing.tile))
        entry = Variable(moved)[(tile.turn, *map(Variable, loops.values()))]
        inside = tile.around | set(loops.values())
        self.last |= {self.assign(self.entry(copy.target, at), entry, inside, predicates=tile.predicates)}

    def _store(self, event: Store) -> None:
        tile = Tile(self, event.sharing, self.inside, written_out=self._is_short(event.sharing))
        loops, at = tile.loops()
        inside = tile.around | set(loops.values())
        self.put(event.row, at, self.entry(event.source, at), inside, tile.predicates)

    def _is_short(self, sharing: Sharing) -> bool:
        """Whether the loop over what a work-item moves may be written out."""
        turns = -(-sharing.digits.total // self.plan.items)
        return turns * math.prod(sharing.tile.values()) <= MOVED_TOGETHER

    def turns(self, total: int) -> tuple[Any, list[str]]:
        """What a work-item has of so many numbers, `items` apart, and its loop over them if it has several."""
        items = self.plan.items
        if total == items:
            return self.item, []
        turn = self.draft.fresh("turn")
        if total % items:
            self.draft.domain(str(self.item), [turn], f"0 <= {turn} and {turn} * {items} + {self.item} < {total}")
        else:
            self.draft.domain("", [turn], f"0 <= {turn} < {total // items}")
        return Variable(turn) * items + self.item, [turn]

    def _wait(self) -> None:
        barrier = lp.BarrierInstruction(
            self.draft.fresh_id("wait"),
            depends_on=self.last,
            synchronization_kind="local",
            mem_kind="local",
            within_inames=self.inside,
            within_inames_is_final=True,
        )
        self.draft.instructions.append(barrier)
        self.last = frozenset([barrier.id])

    def assign(self, assignee: Any, value: Any, loops: frozenset[str], **kwargs: Any) -> str:
        return self.draft.assign(assignee, value, loops, self.last, alone=True, **kwargs)

    def entry(self, held: Held, at: Mapping[str, Any]) -> Any:
        """An entry of an array in local memory."""
        return self.place(held, self.found.layouts[held.array].place([at[x] for x in held.letters]))

    def place(self, held: Held, place: Any) -> Any:
        """A place of an array in local memory."""
        return Variable(self.memory[self.found.slots[held.array]])[place]

    def operand(self, operand: int, row: int, at: Mapping[str, Any], origin: Mapping[str, Any] | None = None) -> Any:
        """An entry of an operand where it is, of the last block not beyond the end.

        :param origin: where the block begins; by default the block at hand.
        """
        letters = self.match.einsum.indexing.inputs[operand]
        origin = self.origin if origin is None else origin
        places = [flattened_sum((origin[x], at[x])) if x in origin else at[x] for x in letters]
        beyond = [x in origin and (origin is not self.origin or self._sticks_out(x)) for x in letters]
        places = [Min((p, self.ends[x] - 1)) if b else p for x, p, b in zip(letters, places, beyond, strict=True)]
        return Call(Variable(self.match.rules[row][operand]), tuple(places))

    def _place(self, letter: str, at: Any) -> Any:
        return flattened_sum((self.origin[letter], at)) if letter in self.origin else at

    def _sticks_out(self, letter: str) -> bool:
        end = self.ends.get(letter)
        return end is not None and not (isinstance(end, int) and end % self.plan.blocks[letter] == 0)

    def put(
        self, row: int, at: Mapping[str, Any], value: Any, loops: frozenset[str], predicates: Sequence[Any] = ()
    ) -> None:
        """Store an entry of the output, unless it is beyond the end."""
        insn, names = self.rows[row], self.match.loops[row]
        places = {x: self._place(x, at[x]) for x in self.match.einsum.indexing.output}
        predicates = [*predicates, *(Comparison(places[x], "<", self.ends[x]) for x in places if self._sticks_out(x))]
        assignee = substituted(insn.assignee, {names[x]: place for x, place in places.items()})
        self.last |= {self.assign(assignee, value, loops, predicates=predicates, insn_id=insn.id)}
