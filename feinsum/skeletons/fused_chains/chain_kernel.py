"""The kernel of a fused chain while events are written into it: its loops, its local memory, its operands and outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import prod
from typing import Any

import loopy as lp
from loopy.symbolic import get_dependencies
from pymbolic.primitives import Call, Comparison, If, LogicalNot, Min, Variable, flattened_product, flattened_sum

from feinsum.errors import TransformError
from feinsum.match import Match
from feinsum.match.stored_functions import Finishing
from feinsum.rewrites.loops import axis_length
from feinsum.skeletons.common.digits import VECTOR_BYTES
from feinsum.skeletons.common.draft import KernelDraft, all_of
from feinsum.skeletons.common.matrix_product import substituted
from feinsum.skeletons.fused_chains.chain_steps import lengths_within
from feinsum.skeletons.fused_chains.events import LocalArray
from feinsum.skeletons.fused_chains.plan import FusedChain

FETCHED_BYTES = 256
"""The bytes of the output's content that a work-item loads at a time before it stores; chosen by hand."""


class GroupKernel:
    """A kernel whose instructions become the events of a work-group.

    :ivar schedule: the events, and the layouts of the arrays in local memory.
    :ivar item: the number of a work-item.
    :ivar around: the loops around all events; :ivar inside: also that over the blocks of a group, named `round`.
    :ivar origin: index in blocks -> where the block begins; :ivar ends: index in blocks -> its length.
    :ivar last: the instructions that the next ones come after.
    """

    def __init__(self, kernel: lp.LoopKernel, match: Match, plan: FusedChain) -> None:
        e = match.einsum
        self.match, self.plan, self.block = match, plan, plan.block
        self.rows = [kernel.id_to_insn[insn_id] for insn_id in match.insn_ids]
        if any(insn.predicates for insn in self.rows):
            raise TransformError(
                f"instruction '{self.rows[0].id}' has a predicate, which work-items that share it cannot have"
            )
        dtypes = {*e.dtypes, *(a.dtype for a in e.arrays)}
        if len(dtypes) > 1:
            raise TransformError(f"'{e}' has numbers of several types, which cannot share local memory")
        (self.dtype,) = dtypes
        self.draft = KernelDraft(kernel)
        self.lengths = lengths_within(e, self.block.block_tile)
        self.schedule = plan.schedule
        self.memory = [
            self.draft.array("local_memory", (size,), lp.AddressSpace.LOCAL, self.dtype, VECTOR_BYTES)
            for size in self.schedule.sizes
        ]
        self.last = frozenset[str]().union(*(insn.depends_on for insn in self.rows)) - set(match.insn_ids)
        self._deal_blocks()

    def _deal_blocks(self) -> None:
        """Loops over groups, work-items and, for groups that stay, their blocks."""
        blocks, stay = self.block.block_tile, self.plan.persistent_groups
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
        self.draft.domain("", [lane], f"0 <= {lane} < {self.block.items}")
        self.draft.tags[lane] = "l.0"
        self.inside = self.around | set(rounds)
        self.round = rounds[0] if rounds else ""

    def begun(self, around: frozenset[str], origin: Mapping[str, Any]) -> list[Any]:
        """The condition that there is a block at `origin`, which is not known ahead of the loop over blocks."""
        if origin is self.origin or around == self.inside:
            return []
        return [Comparison(begin, "<", self.ends[x]) for x, begin in origin.items()]

    def turns(self, total: int) -> tuple[Any, list[str]]:
        """A work-item's share of so many entries, `items` apart, and its loop over them if it has several."""
        items = self.block.items
        if total == items:
            return self.item, []
        turn = self.draft.fresh("turn")
        if total % items:
            self.draft.domain(str(self.item), [turn], f"0 <= {turn} and {turn} * {items} + {self.item} < {total}")
        else:
            self.draft.domain("", [turn], f"0 <= {turn} < {total // items}")
        return Variable(turn) * items + self.item, [turn]

    def assign(self, assignee: Any, value: Any, loops: frozenset[str], **kwargs: Any) -> str:
        return self.draft.assign(assignee, value, loops, self.last, alone=True, **kwargs)

    def entry(self, held: LocalArray, at: Mapping[str, Any]) -> Any:
        """An entry of an array in local memory."""
        return self.place(held, self.schedule.layouts[held.array].place([at[x] for x in held.letters]))

    def place(self, held: LocalArray, place: Any) -> Any:
        """A place of an array in local memory."""
        return Variable(self.memory[self.schedule.slots[held.array]])[place]

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
        return end is not None and not (isinstance(end, int) and end % self.block.block_tile[letter] == 0)

    def put(
        self,
        row: int,
        at: Mapping[str, Any],
        value: Any,
        loops: frozenset[str],
        own: Mapping[str, int],
        predicates: Sequence[Any] = (),
    ) -> None:
        """Store an entry of the output, or what is made of it and of what stands there, unless it is beyond the end.

        :param own: those of the loops that are unrolled, and how long they are.
        """
        insn, names = self.rows[row], self.match.loops[row]
        places = {x: self._place(x, at[x]) for x in self.match.einsum.indexing.output}
        predicates = [*predicates, *(Comparison(places[x], "<", self.ends[x]) for x in places if self._sticks_out(x))]
        assignee = substituted(insn.assignee, {names[x]: place for x, place in places.items()})
        finishing = self.match.finishing.get(insn.assignee_name)
        if finishing is not None:
            present = self._fetch(finishing, assignee, loops, own, predicates) if finishing.reads_output else assignee
            value = finishing.at(value, present, assignee.index_tuple)
        self.last |= {self.assign(assignee, value, loops, predicates=predicates, insn_id=insn.id)}

    def _fetch(
        self, finishing: Finishing, assignee: Any, loops: frozenset[str], own: Mapping[str, int], predicates: Sequence[Any]
    ) -> Any:
        """Load what stands in the output at many entries before any of these is stored, as compilers move no load of an
        array before a store to it; what holds it for one entry.

        Before::

            for i, j: out[i, j] = F(acc[i, j], out[i, j])

        After, where registers hold as many as there are j::

            for i:
                for j: present[j] = out[i, j]
                for j: out[i, j] = F(acc[i, j], present[j])
        """
        together = _most_together(own, FETCHED_BYTES // self.dtype.itemsize)
        again = dict(zip(together, self.draft.unrolled(together, [own[x] for x in together]), strict=True))
        shared = [x for x in own if x not in again]
        for each in (again.values(), again):
            self.draft.priorities += [",".join([*shared, *each])] if shared and again else []
        array = Variable(self.draft.array("present", tuple(own[x] for x in together) or (1,), dtype=self.dtype))
        renamed = {x: Variable(name) for x, name in again.items()}
        conditions = [substituted(condition, renamed) for condition in predicates]
        conditions += [] if finishing.unread is None else [LogicalNot(finishing.unread)]
        value = substituted(assignee, renamed)
        # Conditions of the value, not of the instruction: compilers would add to what they load in the branch around it.
        value = If(all_of(conditions), value, 0.0) if conditions else value
        inside = (loops - set(together)) | set(again.values())
        self.last |= {self.assign(array[tuple(renamed.values()) or (0,)], value, inside)}
        return array[tuple(map(Variable, together)) or (0,)]

    def wait(self) -> None:
        """Let the work-items of a group wait for one another."""
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


def _most_together(loops: Mapping[str, int], most: int) -> tuple[str, ...]:
    """The loops, in their order, whose lengths have the largest product up to `most`."""
    subsets = (each for count in range(len(loops) + 1) for each in combinations(loops, count))
    return max(
        (each for each in subsets if prod(loops[x] for x in each) <= most), key=lambda each: prod(loops[x] for x in each)
    )
