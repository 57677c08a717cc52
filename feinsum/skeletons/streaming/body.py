"""The parts of all streams: strips of the lane, entries of arrays, terms, and stores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import loopy as lp
from pymbolic.primitives import Call, Product, Subscript, Variable

from feinsum.lower.schedule_steps import read_element
from feinsum.match import Match
from feinsum.rewrites.loops import axis_length
from feinsum.rewrites.sum_moves import UNROLL
from feinsum.skeletons.common.draft import KernelDraft
from feinsum.skeletons.streaming.partial_sums import PartialSums, partial_result, partial_sums
from feinsum.skeletons.streaming.plan import Stream
from feinsum.skeletons.streaming.strips import LoopStrips, StripLoops


@dataclass(frozen=True)
class StreamBody:
    """The instructions of a plan while they are written down.

    :ivar after: the instructions that come before all of them.
    :ivar outer: output index -> its loop, for those around everything else of a group.
    :ivar partial: where the partial sums go, if groups take parts of a sum.
    :ivar lanes: loops that are to be vectors.
    :ivar functions: of OpenCL C that the instructions call, by their names.
    """

    match: Match
    plan: Stream
    draft: KernelDraft
    loops: StripLoops
    after: frozenset[str]
    outer: Mapping[str, str]
    partial: PartialSums | None
    lanes: list[str] = field(default_factory=list)
    functions: dict[str, str] = field(default_factory=dict)

    @classmethod
    def opened(cls, kernel: lp.LoopKernel, match: Match, plan: Stream, after: frozenset[str]) -> Self:
        """Add the loops over groups, and those of the output around all else."""
        draft = KernelDraft(kernel)
        loops = StripLoops(draft, {x: axis_length(match, x) for x in match.einsum.indexing.indices}, plan.block_tile)
        loops.open_groups({plan.lane: plan.width} if plan.by_items else {}, 1 if plan.flight else 0)
        before = plan.order.partition(plan.flight.letters if plan.flight else plan.lane)[0]
        inner = {*plan.summed, *(plan.grid.counts if plan.grid else ())}
        outer = {x: loops.plain(x) for x in before if x not in inner}
        partial = partial_sums(draft, match, plan.split, plan.block_tile[plan.split]) if plan.split else None
        return cls(match, plan, draft, loops, after, outer, partial)

    @property
    def inside(self) -> dict[str, int]:
        """Lengths of the loops inside a strip, by a word for their names: strips summed side by side, and lanes."""
        plan = self.plan
        found = {"part": plan.accumulators} if plan.lane in plan.summed and plan.accumulators > 1 else {}
        return found | ({"lane": plan.width} if plan.width > 1 else {})

    def strips(self, *, unrolled: bool = False) -> list[LoopStrips]:
        """New loops along the lane: whole strips, and the remainder; or strips that work-items share.

        :param unrolled: whether the remainder is unrolled where it is known.
        """
        lane, length = self.plan.lane, math.prod(self.inside.values())
        if self.plan.by_items:
            return [self.loops.shared(lane, self.plan.width)]
        whole = self.loops.whole(lane, length, self.inside)
        if whole and self.plan.width > 1:
            whole = replace(whole, lane=whole.inside[-1])
            self._be_lane(whole.lane)
        return [strips for strips in (whole, self.loops.left(lane, length, unrolled=unrolled)) if strips]

    def fixed(self, lengths: Mapping[str, int]) -> tuple[str, ...]:
        """New loops as they are inside a strip."""
        loops = self.draft.unrolled([f"{self.plan.lane}_{word}" for word in lengths], list(lengths.values()))
        if "lane" in lengths:
            self._be_lane(loops[-1])
        return loops

    def _be_lane(self, loop: str) -> None:
        """Let a loop run along lanes: as work-items, or as vectors once the kernel is written."""
        if self.plan.by_items:
            self.draft.tags[loop] = "l.0"
            return
        del self.draft.tags[loop]
        self.lanes.append(loop)

    def vectors(self, length: int) -> str:
        """A new loop over the numbers of a vector of so many."""
        (loop,) = self.draft.unrolled([f"{self.plan.lane}_lane"], [length])
        del self.draft.tags[loop]
        self.lanes.append(loop)
        return loop

    def array(self, base: str, shape: tuple[int, ...], row: int) -> str:
        """A new private array of the type of a row; of one entry if it has no axes."""
        return self.draft.array(base, shape or (1,), dtype=self.match.einsum.dtypes[row])

    def entry(self, name: str, at: Sequence[str | int]) -> Any:
        """An entry of an array of a shape that has one entry if `at` is empty."""
        return Subscript(Variable(name), tuple(Variable(x) if isinstance(x, str) else x for x in at) or (0,))

    def at(self, strips: LoopStrips | None, others: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Where a point is along every index: on the outer loops, in strips of the lane and on other loops."""
        loops = {**self.outer, **(others or {})}
        at = {x: Variable(loop) if isinstance(loop, str) else loop for x, loop in loops.items()}
        return at | ({self.plan.lane: strips.position} if strips else {})

    def term(self, row: int, at: Mapping[str, Any], known: Mapping[int, Any] | None = None) -> Any:
        """The product of the operands at a point.

        :param known: operand -> its value there, where that is somewhere else than in memory.
        """
        known, letters_of = known or {}, zip(self.match.rules[row], self.match.einsum.indexing.inputs, strict=True)
        calls = tuple(
            known.get(operand, Call(Variable(rule), tuple(at[x] for x in letters)))
            for operand, (rule, letters) in enumerate(letters_of)
        )
        return calls[0] if len(calls) == 1 else Product(calls)

    def result(self, row: int, at: Mapping[str, Any]) -> Any:
        """The entry of the output at a point, or that of the partial sums of the group."""
        if self.partial:
            index = tuple(at[x] for x in self.match.einsum.indexing.output)
            return read_element(self.partial.arrays[row], (Variable(self.loops.groups[self.plan.split]), *index))
        return partial_result(self.draft.kernel, self.match, row, at)

    def assign(
        self, assignee: Any, value: Any, loops: Sequence[str], after: Iterable[str], predicates: Sequence[Any] = ()
    ) -> str:
        """Add an assignment inside the groups and the outer loops."""
        within = [*self.loops.groups.values(), *self.outer.values(), *loops]
        self.draft.priorities.append(",".join(x for x in within if self.draft.tags.get(x, UNROLL) == UNROLL))
        return self.draft.assign(assignee, value, within, list(after), predicates=predicates)

    def named(self, row: int, stores: list[str]) -> list[str]:
        """The stores of a row, the last one under the name of its instruction unless partial sums are stored."""
        if self.partial:
            return stores
        name = self.match.insn_ids[row]
        (last,) = (k for k, insn in enumerate(self.draft.instructions) if insn.id == stores[-1])
        self.draft.instructions[last] = self.draft.instructions[last].copy(id=name)
        return [*stores[:-1], name]
