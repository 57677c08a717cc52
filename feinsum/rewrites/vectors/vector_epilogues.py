"""Functions of sums in vectors: ``y[b] = gelu(y[b] + bias[b])`` before the vectors y of a row are stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import loopy as lp
from loopy.kernel.array import ArrayBase
from loopy.kernel.instruction import CInstruction
from loopy.symbolic import get_dependencies
from pymbolic.primitives import Comparison, If, LogicalAnd, Subscript, Variable

from feinsum.epilogue.vector_functions import own_functions
from feinsum.match.expression_uses import find_uses
from feinsum.match.stored_functions import VALUE, Finishing, value_of
from feinsum.rewrites.reads import subscripts_in
from feinsum.rewrites.vectors.access import NAMES, at_lane, room_under, row_of_subscript
from feinsum.rewrites.vectors.memory_rows import load_row, scalar_name
from feinsum.rewrites.vectors.vector_calls import vector_code

if TYPE_CHECKING:
    from feinsum.rewrites.vectors.vectorize import VectorLanes


def finish_row(
    lanes: VectorLanes,
    insn: lp.Assignment,
    iname: str,
    finishing: Finishing,
    rows: Sequence[str],
    ready: Sequence[str],
) -> str:
    """Statements that apply the function to the sums of a row, or of several; the id of the last of them.

    Before::

        for b: y[b] = a[b]

    After, for ``gelu(v + bias[j])`` with j along the lanes::

        for b: bias_vectors[b] = vload8(bias + 8 b)
        for b: y[b] = gelu(y[b] + bias_vectors[b])                    all lanes at once

    :param insn: the instruction that stores the row.
    :param rows: the vectors of each; the results are put into the first ones.
    :param ready: the ids of the instructions that fill them.
    """
    target = lanes.array(insn.assignee_name)
    several = tuple(map(value_of, range(len(rows))))
    expression = finishing.of(several if len(rows) > 1 else VALUE, insn.assignee)
    leaves: dict[Any, str] = {
        VALUE: f"{rows[0]}[at]",
        **{own: f"{row}[at]" for own, row in zip(several, rows, strict=True)},
    }
    names = find_uses(expression).values - {leaf.name for leaf in leaves}
    numbers = {Variable(name) for name in names if isinstance(lanes.kernel.arg_dict.get(name), ArrayBase)}
    kept, reads = rows[0], [*rows, *sorted(names)]
    loaded = []
    for read in sorted(subscripts_in(expression) | numbers, key=str):
        name, ids = _read_lanes(lanes, insn, iname, read)
        leaves[read] = f"{name}[at]" if iname in get_dependencies(read) else name
        reads.append(name)
        loaded += ids
    loop = lanes.piece_loop(iname, lanes.blocks, unroll=True)
    code = vector_code(expression, scalar_name(target), lanes.width, leaves)
    # loopy orders definitions by these names
    lanes.functions |= {f"70_{name}": text for name, text in own_functions(code)}
    done = CInstruction(
        (("at", Variable(loop) + 0),),
        f"{kept}[at] = {code};",
        read_variables=frozenset(reads),
        assignees=(Subscript(Variable(kept), (Variable(loop), 0)),),
        id=lanes.fresh(f"{insn.id}_finished"),
        within_inames=(insn.within_inames - {iname}) | {loop},
        within_inames_is_final=True,
        predicates=room_under(insn.predicates, iname)[0],
        depends_on=frozenset([*ready, *loaded]),
        depends_on_is_final=True,
    )
    lanes.instructions.append(done)
    return str(done.id)


def _read_lanes(lanes: VectorLanes, insn: lp.Assignment, iname: str, read: Any) -> tuple[str, list[str]]:
    """The vectors or the number that hold an entry of an array for all lanes, and the ids of the instructions that fill
    them."""
    if iname not in get_dependencies(read):
        return _read_once(lanes, insn, iname, read)
    array = lanes.array(read.aggregate.name)
    row = row_of_subscript(array, read, iname)
    target = lanes.array(insn.assignee_name)
    if row is None or array.dtype.numpy_dtype.name not in NAMES or array.dtype.itemsize > target.dtype.itemsize:
        return _gather_lanes(lanes, insn, iname, read)
    name, loads = load_row(lanes, insn, iname, read, row)
    lanes.instructions += loads
    return name, [load.id for load in loads]


def _read_once(lanes: VectorLanes, insn: lp.Assignment, iname: str, read: Any) -> tuple[str, list[str]]:
    """``number = bias[i]``, for what is the same for all lanes."""
    name = lanes.number(getattr(read, "aggregate", read).name, lanes.array(insn.assignee_name).dtype)
    loaded = insn.copy(
        id=lanes.fresh(f"{insn.id}_load"),
        assignee=Variable(name),
        expression=read,
        within_inames=insn.within_inames - {iname},
        predicates=room_under(insn.predicates, iname)[0],
    )
    lanes.instructions.append(loaded)
    return name, [loaded.id]


def _gather_lanes(lanes: VectorLanes, insn: lp.Assignment, iname: str, read: Subscript) -> tuple[str, list[str]]:
    """``vectors[b].l = bias[...]`` lane by lane, for what does not stand in a row.

    The position of a lane is kept in a temporary, as loopy 2025.2 would take its quotients apart into those of numbers that
    may be negative, which C rounds the other way.
    """
    kept = lanes.vectors(read.aggregate.name, lanes.array(insn.assignee_name).dtype)
    block, lane = lanes.loops(iname)
    lanes.tags[lane] = "unr"
    position = Variable(block) * lanes.width + Variable(lane)
    there = [at_lane(p, iname, position) for p in sorted(insn.predicates, key=str) if iname in get_dependencies(p)]
    if lanes.length % lanes.width:
        there.append(Comparison(position, "<", lanes.length))
    place = Variable(lanes.number("place", lanes.kernel.index_dtype))
    value = at_lane(read, iname, place)
    placed = insn.copy(
        id=lanes.fresh(f"{insn.id}_place"),
        assignee=place,
        expression=position,
        within_inames=(insn.within_inames - {iname}) | {block, lane},
        predicates=room_under(insn.predicates, iname)[0],
    )
    lanes.instructions.append(placed)
    gathered = insn.copy(
        id=lanes.fresh(f"{insn.id}_load"),
        depends_on=insn.depends_on | {placed.id},
        assignee=Subscript(Variable(kept.name), (Variable(block), Variable(lane))),
        expression=If(LogicalAnd(tuple(there)) if len(there) > 1 else there[0], value, 0) if there else value,
        within_inames=(insn.within_inames - {iname}) | {block, lane},
        predicates=room_under(insn.predicates, iname)[0],
    )
    lanes.instructions.append(gathered)
    return kept.name, [gathered.id]
