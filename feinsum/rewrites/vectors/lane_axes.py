"""Which axes of private arrays a lane runs along, and which loops are lanes with it."""

from __future__ import annotations

import loopy as lp
from loopy.symbolic import get_dependencies
from pymbolic.primitives import Variable

from feinsum.errors import TransformError
from feinsum.rewrites.reads import subscripts_in


def follow_lanes(
    kernel: lp.LoopKernel, lanes: frozenset[str], others: frozenset[str]
) -> tuple[dict[str, int], frozenset[str], frozenset[str]]:
    """The axis along which lanes run in each private array, those of them read by number too, and every lane."""
    private = {t.name for t in kernel.temporary_variables.values() if t.address_space == lp.AddressSpace.PRIVATE}
    references = [
        (insn.id, reference)
        for insn in kernel.instructions
        if isinstance(insn, lp.Assignment)
        for reference in subscripts_in(insn.assignee) | subscripts_in(insn.expression)
        if reference.aggregate.name in private
    ]
    axes: dict[str, int] = {}
    while True:
        for insn_id, reference in references:
            at = [k for k, index in enumerate(reference.index_tuple) if get_dependencies(index) & lanes]
            if not at:
                continue
            axis = axes.setdefault(reference.aggregate.name, at[0])
            if at != [axis] or not isinstance(reference.index_tuple[axis], Variable):
                raise TransformError(f"'{reference}' in '{insn_id}' is not indexed by a lane along axis {axis} alone")
        along = [r.index_tuple[axes[r.aggregate.name]] for _, r in references if r.aggregate.name in axes]
        found = lanes | {index.name for index in along if isinstance(index, Variable) and index.name not in others}
        if found == lanes:
            break
        lanes = found
    memory = set()
    for _, reference in references:
        name = reference.aggregate.name
        if name in axes and not get_dependencies(reference.index_tuple[axes[name]]) & lanes:
            memory.add(name)
            if axes[name] != len(reference.index_tuple) - 1:
                raise TransformError(f"lanes run along axis {axes[name]} of '{name}', so its numbers are not in a row")
    return {name: axis for name, axis in axes.items() if name not in memory}, frozenset(memory), lanes
