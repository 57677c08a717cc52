"""Rows of memory that vectors are loaded from and stored to, as instructions of a kernel whose lanes become vectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import loopy as lp
from loopy.kernel.instruction import CInstruction
from loopy.symbolic import get_dependencies
from pymbolic.primitives import Min, Subscript, Variable

from feinsum.errors import TransformError
from feinsum.rewrites.finishing import FINISHED
from feinsum.rewrites.vectors.access import (
    NAMES,
    MemoryRow,
    at_lane,
    common_divisor,
    load_code,
    room_under,
    row_of_subscript,
    store_code,
    store_pieces,
)

if TYPE_CHECKING:
    from feinsum.rewrites.vectors.vectorize import VectorLanes

SHORTEST_STREAM_BYTES = 16
"""There is no shorter vector store past the caches on x86."""


def load_row(
    lanes: VectorLanes, insn: lp.Assignment, iname: str, read: Subscript, row: MemoryRow
) -> tuple[str, list[CInstruction]]:
    """Statements that load a row into vectors of its own: the whole ones in a loop, then what is left."""
    name = read.aggregate.name
    array = lanes.array(name)
    target = lanes.array(insn.assignee_name)
    kept = lanes.vectors(name, target.dtype)
    predicates, room = room_under(insn.predicates, iname)
    if row.last is None and room is not None:
        row = replace(row, last=room - 1)
    length = lanes.blocks * lanes.width if name in lanes.memory else lanes.length
    whole, rest = divmod(length, lanes.width) if row.last is None else (lanes.blocks, 0)
    parts = [part for part in ((lanes.width, 0, whole), (rest, whole, 1)) if part[0] and part[2]]
    ids = [lanes.fresh(f"{insn.id}_load") for _ in parts]
    loads: list[CInstruction] = []
    for number, (count, start, blocks) in enumerate(parts):
        loop = lanes.piece_loop(iname, blocks, unroll=True)
        at = Variable(loop) + start
        first = row.offset + at * lanes.width * row.stride
        left = () if row.last is None else (("room", row.last + 1 - at * lanes.width),)
        known = None if row.last is not None else count
        code = load_code(
            scalar_name(target),
            lanes.width,
            known,
            name,
            kept.name,
            in_row=row.stride == 1,
            number=scalar_name(array),
            aligned=_is_aligned_row(lanes, row),
        )
        loads.append(
            CInstruction(
                (("at", at), *left, ("step", row.stride), ("first", first)),
                code,
                read_variables=frozenset([name]),
                assignees=(Subscript(Variable(kept.name), (at, 0)),),
                id=ids[number],
                within_inames=(insn.within_inames - {iname}) | {loop},
                within_inames_is_final=True,
                predicates=predicates,
                depends_on=insn.depends_on,
                depends_on_is_final=True,
                no_sync_with=insn.no_sync_with | _mark_disjoint(ids, number),
            )
        )
    return kept.name, loads


def store_row(
    lanes: VectorLanes,
    insn: lp.Assignment,
    iname: str,
    block: str,
    lane: str,
    values: Sequence[Any],
    inside: frozenset[str],
    finish: Callable[[Sequence[str], Sequence[str]], str] | None = None,
) -> None:
    """Compute the result in vectors and write them out: whole vectors first, then the rest by halves.

    :param values: the row, or rows of which one is made.
    :param finish: adds what makes of these vectors what is to be stored, in the first of them: it takes their names and the
        ids of what fills them, and returns that of the last instruction.
    """
    target = lanes.array(insn.assignee_name)
    scalar = scalar_name(target)
    rows = [lanes.vectors(target.name, target.dtype) for _ in values]
    kept = rows[0]
    row = row_of_subscript(target, insn.assignee, iname)
    if row is None:
        raise TransformError(f"'{insn.assignee}' is not indexed by lane '{iname}' alone along one axis")
    predicates, room = room_under(insn.predicates, iname)
    filled = [
        insn.copy(
            id=lanes.fresh(f"{insn.id}_vectors"),
            assignee=Subscript(Variable(own.name), (Variable(block), Variable(lane))),
            expression=value,
            within_inames=inside,
            predicates=predicates,
        )
        for own, value in zip(rows, values, strict=True)
    ]
    lanes.instructions += filled
    aligned = _aligned_lanes(lanes, target, insn.assignee, iname, row)
    covered = _row_pieces(lanes, target.name, row, aligned)
    ids = [lanes.fresh(f"{insn.id}_store") for _ in covered[1:]] + [insn.id]
    ready = [compute.id for compute in filled]
    previous = finish([own.name for own in rows], ready) if finish else ready[0]
    for number, (size, count, start) in enumerate(covered):
        loop = lanes.piece_loop(iname, count, unroll=target.name in lanes.memory)
        at = Variable(loop) * size + start
        left = () if room is None else (("room", room - at),)
        code = store_code(
            scalar,
            size,
            kept.name,
            target.name,
            streaming=bool(aligned),
            guarded=room is not None,
            aligned=_is_aligned_row(lanes, row),
        )
        store = CInstruction(
            (("at", at), *left, ("to", row.offset + row.stride * at)),
            code,
            read_variables=frozenset([kept.name]),
            assignees=(_first_of(target, insn.assignee, iname, at),),
            id=ids[number],
            within_inames=(insn.within_inames - {iname}) | {loop},
            within_inames_is_final=True,
            predicates=predicates,
            depends_on=insn.depends_on | {*ready, previous},
            depends_on_is_final=True,
            no_sync_with=insn.no_sync_with | _mark_disjoint(ids, number),
            tags=FINISHED if finish else None,
        )
        lanes.instructions.append(store)
        previous = store.id


def _is_aligned_row(lanes: VectorLanes, row: MemoryRow) -> bool:
    """Whether a row is to be loaded and stored by pointers to vectors, as it begins where these may."""
    return lanes.aligned and row.stride == 1 and common_divisor(row.offset) % lanes.width == 0


def _aligned_lanes(lanes: VectorLanes, target: Any, assignee: Any, iname: str, row: MemoryRow) -> int:
    """How many lanes the longest vector has that can be stored past the caches, which needs aligned rows; 0 if none can.

    Rows that are updated are in the caches already, from where a store past them would drive them out.
    """
    finishing = lanes.finishing.get(target.name)
    updated = finishing is not None and finishing.reads_output
    if not lanes.streaming or updated or target.name not in lanes.kernel.arg_dict or row.stride != 1:
        return 0
    strides = [
        tag.stride if isinstance(tag.stride, int) else 1
        for entry, tag in zip(assignee.index_tuple, target.dim_tags, strict=True)
        if iname not in get_dependencies(entry)
    ]
    # Where rows are aligned, a tile may still begin within one, as the last of overlapping tiles does.
    common = math.gcd(lanes.length, *strides, common_divisor(row.offset))
    size = min(lanes.width, common & -common)
    return size if size * target.dtype.itemsize >= SHORTEST_STREAM_BYTES else 0


def _row_pieces(lanes: VectorLanes, target: str, row: MemoryRow, aligned: int) -> list[tuple[int, int, int]]:
    if row.stride != 1:
        return [(1, lanes.length, 0)]
    if target in lanes.memory:
        return [(lanes.width, lanes.blocks, 0)]
    return [(aligned, lanes.length // aligned, 0)] if aligned else store_pieces(lanes.length, lanes.width)


def _first_of(target: Any, assignee: Any, iname: str, at: Any) -> Any:
    """The first number of a store, said to be inside the array, as the code of the store sees to it."""
    index = [
        Min((at_lane(entry, iname, at), end - 1)) if iname in get_dependencies(entry) else entry
        for entry, end in zip(assignee.index_tuple, target.shape, strict=True)
    ]
    return assignee.aggregate[tuple(index)]


def _mark_disjoint(ids: list[str], number: int) -> frozenset[tuple[str, str]]:
    """Tell loopy that pieces of a row do not overlap: loopy 2025.2 raises AttributeError when it looks for itself."""
    return frozenset((other, "any") for other in ids if other != ids[number])


def scalar_name(array: Any) -> str:
    name = array.dtype.numpy_dtype.name
    if name not in NAMES:
        raise TransformError(f"'{array.name}' is {name}; vectors hold float32 or float64")
    return NAMES[name]
