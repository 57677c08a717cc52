"""Partial sums of the groups of a sum, and the launch that adds them up: ``out[i] = Σ_c partial[c, i]``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from string import ascii_letters
from typing import Any

import loopy as lp
from loopy.library.reduction import SumReductionOperation
from loopy.symbolic import Reduction
from pymbolic.primitives import Call, FloorDiv, Subscript, Variable, flattened_sum

from feinsum.einsum import Array, BatchedEinsum
from feinsum.lower.schedule_steps import read_element
from feinsum.match import Match
from feinsum.rewrites.loops import axis_length
from feinsum.skeletons.common.draft import KernelDraft
from feinsum.skeletons.streaming.strips import strip_parameters
from feinsum.subscripts import Subscripts


@dataclass(frozen=True)
class PartialSums:
    """The launch that adds up the sums over each `count` of the `length` iterations of an index.

    :ivar whole: the match of the einsum.
    :ivar match: ``ci->i`` for an einsum with output i; its operands are arrays in global memory.
    """

    whole: Match
    match: Match
    length: Any
    count: int

    @property
    def arrays(self) -> tuple[str, ...]:
        """The array of the partial sums of each row: ``partial[c, i]``, c the group."""
        return tuple(row[0][0].name for row in self.match.einsum.args)


def partial_sums(draft: KernelDraft, match: Match, letter: str, count: int) -> PartialSums:
    """Provide arrays for the partial sums along an index of a match; :func:`add_up` writes the launch that reads them.

    ``rfactor`` in Halide and TVM.
    """
    length = axis_length(match, letter)
    parts = -(-length // count) if isinstance(length, int) else FloorDiv(flattened_sum((length, count - 1)), count)
    axis: int | str = parts if isinstance(parts, int) else draft.fresh(f"{match.inames[letter]}_parts")
    return _provided(draft, match, parts, axis, length, count)


def partial_result(kernel: lp.LoopKernel, match: Match, row: int, at: Mapping[str, Any]) -> Any:
    """The entry of an output at a point, where the kernel has it: with zeros for axes of indices that are joined."""
    loops = {loop: at[x] for x, loop in match.loops[row].items() if x in at}
    assignee = kernel.id_to_insn[match.insn_ids[row]].assignee
    index = assignee.index_tuple if isinstance(assignee, Subscript) else ()
    return read_element(match.outputs[row], tuple(loops.get(x.name, x) if isinstance(x, Variable) else x for x in index))


def sums_of_shares(draft: KernelDraft, match: Match, shares: int) -> PartialSums:
    """Provide arrays for the partial sums of so many shares of all that is summed over."""
    return _provided(draft, match, shares, shares, shares, 1)


def _provided(draft: KernelDraft, match: Match, parts: Any, axis: int | str, length: Any, count: int) -> PartialSums:
    e = match.einsum
    chunk = next(x for x in ascii_letters if x not in e.indexing.indices)
    output = e.indexing.output
    sizes = {**e.index_sizes, chunk: axis}
    shape = (parts, *(axis_length(match, x) for x in output))
    arrays = [draft.array("partial", shape, lp.AddressSpace.GLOBAL, dtype) for dtype in e.dtypes]
    rows = [
        (Array(name, tuple(sizes[x] for x in chunk + output), dtype),) for name, dtype in zip(arrays, e.dtypes, strict=True)
    ]
    loops = {x: draft.fresh(f"{x}_sum") for x in chunk + output}
    combined = replace(
        match,
        einsum=BatchedEinsum(Subscripts((chunk + output,), output), tuple((row,) for row in rows)),
        rules=tuple((draft.fresh(f"{name}_"),) for name in arrays),
        loops=(loops,) * e.b,
        axes={**match.axes, **({axis: str(parts)} if isinstance(axis, str) else {})},
    )
    return PartialSums(match, combined, length, count)


def add_up(draft: KernelDraft, sums: PartialSums, stores: Sequence[str]) -> dict[str, lp.SubstitutionRule]:
    """Write the instructions that add up partial sums, after those that store them.

    :returns: the rules by which they read.
    """
    match = sums.match
    barrier = draft.fresh_id("barrier")
    draft.instructions.append(lp.BarrierInstruction(barrier, depends_on=frozenset(stores), synchronization_kind="global"))
    output, chunk = match.einsum.indexing.output, match.einsum.indexing.summed
    inames = match.inames
    draft.domain(
        strip_parameters(sums.length),
        [inames[chunk]],
        f"0 <= {inames[chunk]} and {sums.count}*{inames[chunk]} < {sums.length}",
    )
    for letter in output:
        length = axis_length(match, letter)
        draft.domain(strip_parameters(length), [inames[letter]], f"0 <= {inames[letter]} < {length}")
    rules = {}
    for row, (name, (rule,)) in enumerate(zip(sums.arrays, match.rules, strict=True)):
        formal = tuple(f"i{axis}" for axis in range(1 + len(output)))
        rules[rule] = lp.SubstitutionRule(rule, formal, read_element(name, tuple(map(Variable, formal))))
        value = Call(Variable(rule), tuple(Variable(inames[x]) for x in chunk + output))
        draft.assign(
            partial_result(draft.kernel, sums.whole, row, {x: Variable(inames[x]) for x in output}),
            Reduction(SumReductionOperation(), (inames[chunk],), value),
            [inames[x] for x in output],
            [barrier],
            insn_id=match.insn_ids[row],
        )
    return rules
