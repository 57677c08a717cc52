"""A plan of several moves for einsums that are bound by memory: every operand streams by once.

    out[i] = Σ_j A(i, j) x(j)        lanes along the rows of A, in whole strips, then what is left number by number

Lanes are OpenCL vectors within one work-item on CPUs, and the work-items of a group on GPUs.  A work-group takes a part
of the iterations; if the output is too small to occupy the device it takes a part of a sum, and a second launch adds up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import loopy as lp
from loopy.library.reduction import SumReductionOperation
from loopy.symbolic import Reduction
from pymbolic.primitives import Call, Product, Subscript, Sum, Variable, flattened_product, flattened_sum

from feinsum.errors import TransformError
from feinsum.lower.steps import read
from feinsum.match import Match
from feinsum.rewrites.loops import axis_length, divide, place, spread, spread_sum, without_race_warnings
from feinsum.rewrites.sums import UNROLL
from feinsum.rewrites.vectors import vectorize
from feinsum.skeletons.common.draft import Draft
from feinsum.skeletons.streaming.partial_sums import PartialSums, add_up, partial_sums
from feinsum.skeletons.streaming.strips import Loops, Strips

_ADDED_UP = 256
"""Sums of a work-group of the launch that adds up partial sums."""


@dataclass(frozen=True)
class Stream:
    """The roles and sizes of the plan.

    :ivar order: every index, as loops from the outside in; that of the lane is the loop over strips.
    :ivar lane: the index that runs along lanes.
    :ivar width: lanes of a vector or work-items of a group; 1 for neither.
    :ivar groups: index -> how many of its iterations a work-group does, the first along the first axis of the device; one
        of them may be summed over, and then partial sums are added up by a second launch.
    :ivar accumulators: strips of lanes that are summed side by side, where the lane is summed over.
    :ivar together: iterations of the innermost sum that are added up before they reach an accumulator, where it is not.
    :ivar vectors: whether lanes are those of vectors rather than work-items.
    :ivar streaming: whether results are stored past the caches.
    """

    order: str
    lane: str
    width: int
    groups: Mapping[str, int]
    accumulators: int = 1
    together: int = 1
    vectors: bool = True
    streaming: bool = False


def stream(t_unit: lp.TranslationUnit, match: Match, plan: Stream) -> lp.TranslationUnit:
    """Apply the plan to the instructions of a match, which share its loops.

    Before::

        for i: out[i] = sum(j, A(i, j) * x(j))

    After, with lane j, ``width=8, accumulators=4`` and i in groups of 100::

        for i in range(100 * g, 100 * g + 100):                                g = get_group_id(0)
            for k, l: acc[k, l] = 0
            for q, k, l: acc[k, l] += A(i, 32 q + 8 k + l) * x(32 q + 8 k + l)         whole strips of 32
            for j from the last whole strip on: rest += A(i, j) * x(j)
            out[i] = rest + sum([k, l], acc[k, l])

    :raises TransformError: if an instruction has a predicate, or the plan does not fit the einsum.

    Strip-mining in two loops instead of one with a guard.
    """
    insns = [t_unit[match.kernel_name].id_to_insn[insn_id] for insn_id in match.insn_ids]
    if any(insn.predicates for insn in insns):
        raise TransformError(f"instruction '{insns[0].id}' has a predicate, which the streams of a plan cannot have")
    after = frozenset[str]().union(*(insn.depends_on for insn in insns)) - set(match.insn_ids)
    streaming = _Streaming(t_unit[match.kernel_name], match, plan, after)
    t_unit = t_unit.with_kernel(streaming.kernel())
    if streaming.lanes:
        t_unit = vectorize(t_unit, match, streaming.lanes, plan.width, streaming=plan.streaming)
    return _spread_last(t_unit, streaming.partial.match, plan) if streaming.partial else t_unit


def _spread_last(t_unit: lp.TranslationUnit, match: Match, plan: Stream) -> lp.TranslationUnit:
    """Spread the launch that adds up partial sums over the device."""
    output, sizes = match.einsum.indexing.output, match.einsum.index_sizes
    first = dict.fromkeys(match.einsum.indexing.indices, 1)
    if plan.width > 1 and not plan.vectors:
        few = math.prod(int(axis) if isinstance(axis, int) else plan.width for axis in map(sizes.get, output)) < plan.width
        if few:
            return spread_sum(t_unit, match, plan.width, first)
        return spread(t_unit, match, output[-1], plan.width, first)
    if not output:
        return t_unit
    t_unit, (groups, _) = divide(t_unit, match, output[-1], (_ADDED_UP,), peel=False)
    return place(t_unit, match, {groups: "g.0"} | ({output[0]: "g.1"} if len(output) > 1 else {}))


class _Streaming:
    """The instructions of a plan while they are written down.

    :ivar outer: output index -> its loop, for those around everything else of a group.
    :ivar inside: loops inside a strip, by a word for their names: strips summed side by side, and lanes.
    :ivar lanes: loops that are to be vectors.
    """

    def __init__(self, kernel: lp.LoopKernel, match: Match, plan: Stream, after: frozenset[str]) -> None:
        _check(match, plan)
        self.match, self.plan, self.after = match, plan, after
        self.draft = Draft(kernel)
        indexing = match.einsum.indexing
        self.loops = Loops(self.draft, {x: axis_length(match, x) for x in indexing.indices}, plan.groups)
        self.by_items = plan.width > 1 and not plan.vectors
        self.loops.open_groups({plan.lane: plan.width} if self.by_items else {})
        self.sums = [x for x in plan.order if x != plan.lane and x in indexing.summed]
        before, _, self.behind = plan.order.partition(plan.lane)
        self.outer = {x: self.loops.plain(x) for x in before if x not in self.sums}
        self.inside = {"part": plan.accumulators} if plan.lane in indexing.summed and plan.accumulators > 1 else {}
        self.inside |= {"lane": plan.width} if plan.width > 1 else {}
        self.lanes: list[str] = []
        self.split = "".join(x for x in plan.groups if x in indexing.summed)
        self.partial: PartialSums | None = None
        if self.split:
            self.partial = partial_sums(self.draft, match, self.split, plan.groups[self.split])

    def kernel(self) -> lp.LoopKernel:
        """The kernel with the instructions of the plan."""
        summed = self.match.einsum.indexing.summed
        write = self._copy if not summed else self._sum_lanes if self.plan.lane in summed else self._keep_lanes
        stores = [store for row in range(self.match.einsum.b) for store in write(row)]
        rules = add_up(self.draft, self.partial, stores) if self.partial else {}
        kernel = self.draft.finished(self.match.insn_ids, ())
        # Whole strips and what they leave do not overlap.  Nor do groups, as the bounds of their loops tell, which loopy
        # does not look at; and where every work-item has the sum it lets one of them store it.
        apart = {store: frozenset((other, "any") for other in stores if other != store) for store in stores}
        return without_race_warnings(kernel, stores).copy(
            instructions=[
                insn.copy(no_sync_with=insn.no_sync_with | apart[insn.id]) if insn.id in apart else insn
                for insn in kernel.instructions
            ],
            substitutions={**kernel.substitutions, **rules},
        )

    def _copy(self, row: int) -> list[str]:
        """``out[i, v] = A(i, v) * ...`` in strips of v."""
        stores: list[str] = []
        for strips in self._strips():
            behind = {x: self.loops.plain(x) for x in self.behind}
            at = self._at(strips, behind)
            order = (strips.strip, *behind.values(), *strips.inside)
            stores.append(self._assign(self._result(row, at), self._term(row, at), order, (*self.after, *stores)))
        return self._named(row, stores)

    def _keep_lanes(self, row: int) -> list[str]:
        """``acc[v] += A(s, v) * ...`` for the strips of v of a group: they stay in the first cache."""
        first, last = self._strips(), self._strips()
        names = [self._array("acc", self._kept_shape(strips), row) for strips in first]
        done = [
            [self._assign(self._kept(name, strips), 0, (strips.strip, *strips.inside), self.after)]
            for name, strips in zip(names, first, strict=True)
        ]
        for loops, places in self._summands():
            for name, strips, before in zip(names, self._strips(), done, strict=True):
                entry = self._kept(name, strips)
                terms = [self._term(row, self._at(strips, place)) for place in places]
                order = (*loops, strips.strip, *strips.inside)
                before.append(self._assign(entry, flattened_sum((entry, *terms)), order, before))
        stores: list[str] = []
        for name, strips, before in zip(names, last, done, strict=True):
            target, order = self._result(row, self._at(strips)), (strips.strip, *strips.inside)
            stores.append(self._assign(target, self._kept(name, strips), order, (*before, *stores)))
        return self._named(row, stores)

    def _sum_lanes(self, row: int) -> list[str]:
        """``acc[lane] += A(i, v) * ...``, and then the sum over the lanes."""
        total: list[Any] = []
        done: list[str] = []
        loops = {x: self.loops.plain(x) for x in self.sums}
        for strips in self._strips():
            inside = self.inside if strips.whole else {}
            name = self._array("acc" if inside else "rest", tuple(inside.values()) if not self.by_items else (), row)
            begin = self._fixed(inside)
            first = self._assign(self._entry(name, () if self.by_items else begin), 0, begin, self.after)
            entry = self._entry(name, strips.inside if inside and not self.by_items else ())
            term = self._term(row, self._at(strips, loops))
            order = (*loops.values(), strips.strip, *strips.inside)
            update = self._assign(entry, flattened_sum((entry, term)), order, [first])
            value, insn = self._folded(name, update, row) if inside else (self._entry(name, ()), update)
            total.append(value)
            done.append(insn)
        value = Sum(tuple(total)) if len(total) > 1 else total[0]
        return self._named(row, [self._assign(self._result(row, self._at(None)), value, (), done)])

    def _folded(self, name: str, update: str, row: int) -> tuple[Any, str]:
        """The sum of accumulators, and the instruction that it has to wait for."""
        if self.by_items:
            (item,) = self._fixed(self.inside)
            return Reduction(SumReductionOperation(), (item,), self._entry(name, ())), update
        if self.plan.width == 1:
            return Sum(tuple(self._entry(name, (k,)) for k in range(self.plan.accumulators))), update
        lanes, (lane,) = self._array("lanes", (self.plan.width,), row), self._fixed({"lane": self.plan.width})
        parts = range(self.plan.accumulators) if "part" in self.inside else [None]
        entries = [self._entry(name, (lane,) if part is None else (part, lane)) for part in parts]
        insn = self._assign(self._entry(lanes, (lane,)), flattened_sum(tuple(entries)), (lane,), [update])
        return Sum(tuple(self._entry(lanes, (k,)) for k in range(self.plan.width))), insn

    def _strips(self) -> list[Strips]:
        """New loops along the lane: whole strips, and what they leave; or strips that work-items share."""
        lane, length = self.plan.lane, math.prod(self.inside.values())
        if self.by_items:
            return [self.loops.shared(lane, self.plan.width)]
        whole = self.loops.whole(lane, length, self.inside)
        if whole and self.plan.width > 1:
            whole = replace(whole, lane=whole.inside[-1])
            self._be_lane(whole.lane)
        return [strips for strips in (whole, self.loops.left(lane, length)) if strips]

    def _fixed(self, lengths: Mapping[str, int]) -> tuple[str, ...]:
        """New loops as they are inside a strip."""
        loops = self.draft.unrolled([f"{self.plan.lane}_{word}" for word in lengths], list(lengths.values()))
        if "lane" in lengths:
            self._be_lane(loops[-1])
        return loops

    def _be_lane(self, loop: str) -> None:
        if self.by_items:
            self.draft.tags[loop] = "l.0"
            return
        del self.draft.tags[loop]
        self.lanes.append(loop)

    def _summands(self) -> list[tuple[tuple[str, ...], list[dict[str, Any]]]]:
        """The loops of the sums other than along the lane, and where the terms are that are added up in them at once."""
        *others, last = self.sums
        loops = {x: self.loops.plain(x) for x in others}
        at = {x: Variable(loop) for x, loop in loops.items()}
        count = self.plan.together
        found = []
        whole, left = self.loops.whole(last, count), self.loops.left(last, count)
        if whole:
            places = [at | {last: flattened_sum((whole.position, k))} for k in range(count)]
            found.append(((*loops.values(), whole.strip), places))
        if left:
            found.append(((*loops.values(), left.strip, *left.inside), [at | {last: left.position}]))
        return found

    def _kept_shape(self, strips: Strips) -> tuple[int, ...]:
        """The accumulators of a group for strips of the lane."""
        width = self.plan.width
        if self.by_items:
            return ()
        if not strips.whole:
            return (width,)
        count = self.plan.groups.get(self.plan.lane, self.loops.lengths[self.plan.lane])
        return (-(-count // width), *self.inside.values())

    def _kept(self, name: str, strips: Strips) -> Any:
        """The accumulator of a position along the lane."""
        if self.by_items:
            return self._entry(name, ())
        if not strips.whole:
            return self._entry(name, strips.inside)
        strip = Variable(strips.strip)
        if self.plan.lane in self.plan.groups:
            first = self.plan.groups[self.plan.lane] // self.plan.width
            strip = flattened_sum((strip, flattened_product((-first, Variable(self.loops.groups[self.plan.lane])))))
        return Subscript(Variable(name), (strip, *map(Variable, strips.inside)))

    def _array(self, base: str, shape: tuple[int, ...], row: int) -> str:
        return self.draft.array(base, shape or (1,), dtype=self.match.einsum.dtypes[row])

    def _entry(self, name: str, at: Sequence[str | int]) -> Any:
        """An entry of an array of a shape that has one entry if `at` is empty."""
        return Subscript(Variable(name), tuple(Variable(x) if isinstance(x, str) else x for x in at) or (0,))

    def _at(self, strips: Strips | None, others: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Where a point is along every index: on the outer loops, in strips of the lane and on other loops."""
        loops = {**self.outer, **(others or {})}
        at = {x: Variable(loop) if isinstance(loop, str) else loop for x, loop in loops.items()}
        return at | ({self.plan.lane: strips.position} if strips else {})

    def _term(self, row: int, at: Mapping[str, Any]) -> Any:
        """The product of the operands at a point."""
        calls = tuple(
            Call(Variable(rule), tuple(at[x] for x in letters))
            for rule, letters in zip(self.match.rules[row], self.match.einsum.indexing.inputs, strict=True)
        )
        return calls[0] if len(calls) == 1 else Product(calls)

    def _result(self, row: int, at: Mapping[str, Any]) -> Any:
        index = tuple(at[x] for x in self.match.einsum.indexing.output)
        if self.partial:
            return read(self.partial.arrays[row], (Variable(self.loops.groups[self.split]), *index))
        return read(self.match.outputs[row], index)

    def _assign(self, assignee: Any, value: Any, loops: Sequence[str], after: Iterable[str]) -> str:
        """Add an assignment inside the groups and the outer loops."""
        within = [*self.loops.groups.values(), *self.outer.values(), *loops]
        self.draft.priorities.append(",".join(x for x in within if self.draft.tags.get(x, UNROLL) == UNROLL))
        return self.draft.assign(assignee, value, within, list(after))

    def _named(self, row: int, stores: list[str]) -> list[str]:
        """The stores of a row, the last one under the name of its instruction unless partial sums are stored."""
        if self.partial:
            return stores
        name = self.match.insn_ids[row]
        (last,) = (k for k, insn in enumerate(self.draft.instructions) if insn.id == stores[-1])
        self.draft.instructions[last] = self.draft.instructions[last].copy(id=name)
        return [*stores[:-1], name]


def _check(match: Match, plan: Stream) -> None:
    """Refuse a plan that does not fit the einsum."""
    indexing = match.einsum.indexing
    if sorted(plan.order) != sorted(indexing.indices) or plan.lane not in plan.order:
        raise TransformError(f"loops '{plan.order}' with lane '{plan.lane}' are not those of '{indexing}'")
    split = "".join(x for x in plan.groups if x in indexing.summed)
    if len(split) > 1:
        raise TransformError(f"the groups take parts of the sums over '{split}'; parts of one sum are enough")
    sums = [x for x in plan.order if x in indexing.summed and x != plan.lane]
    is_summed = plan.lane in indexing.summed
    strips = {plan.lane: plan.width * (plan.accumulators if is_summed else 1)}
    if sums and not is_summed:
        strips[sums[-1]] = plan.together
    for letter, length in strips.items():
        if plan.groups.get(letter, 0) % length:
            raise TransformError(f"a group does {plan.groups[letter]} of '{letter}', which is no multiple of {length}")
    if sums and not is_summed and plan.lane not in plan.groups and not isinstance(match.einsum.index_sizes[plan.lane], int):
        raise TransformError(f"a group keeps all sums along '{plan.lane}', whose length is not known")
