"""Sums of a stream: of lanes, ``acc[lane] += A(i, v) x(v)``, or for each place along them, ``acc[v] += A(s, v) x(s)``."""

from __future__ import annotations

import math
from typing import Any

from loopy.library.reduction import SumReductionOperation
from loopy.symbolic import Reduction
from pymbolic.primitives import Subscript, Sum, Variable, flattened_product, flattened_sum

from feinsum.skeletons.streaming.body import StreamBody
from feinsum.skeletons.streaming.squares import parts_across, turned_squares
from feinsum.skeletons.streaming.strips import LoopStrips


def keep_lanes(body: StreamBody, row: int) -> list[str]:
    """``acc[v] += A(s, v) * ...`` for the strips of v of a group: they stay in the first cache."""
    first, last = body.strips(), body.strips()
    names = [body.array("acc", _kept_shape(body, strips), row) for strips in first]
    done = [
        [body.assign(_lane_accumulator(body, name, strips), 0, (strips.strip, *strips.inside), body.after)]
        for name, strips in zip(names, first, strict=True)
    ]
    for loops, places in _summands(body):
        for name, strips, before in zip(names, body.strips(), done, strict=True):
            entry = _lane_accumulator(body, name, strips)
            terms = [body.term(row, body.at(strips, place)) for place in places]
            order = (*loops, strips.strip, *strips.inside)
            before.append(body.assign(entry, flattened_sum((entry, *terms)), order, before))
    stores: list[str] = []
    for name, strips, before in zip(names, last, done, strict=True):
        target, order = body.result(row, body.at(strips)), (strips.strip, *strips.inside)
        stores.append(body.assign(target, _lane_accumulator(body, name, strips), order, (*before, *stores)))
    return body.named(row, stores)


def sum_lanes(body: StreamBody, row: int) -> list[str]:
    """``acc[lane] += A(i, v) * ...``, and then the sum over the lanes; of what is left of less than a vector, each number
    has a sum of its own, as additions to a single one would wait for each other."""
    total: list[Any] = []
    done: list[str] = []
    apart = 0 < _known_left(body) < body.plan.width
    for strips in body.strips(unrolled=apart):
        if not strips.whole and apart:
            entries, insn = _left_apart(body, row, strips)
            total.extend(entries)
            done.append(insn)
            continue
        inside = body.inside if strips.whole else {}
        name = body.array("acc" if inside else "rest", tuple(inside.values()) if not body.plan.by_items else (), row)
        begin = body.fixed(inside)
        update = body.assign(body.entry(name, () if body.plan.by_items else begin), 0, begin, body.after)
        entry = body.entry(name, strips.inside if inside and not body.plan.by_items else ())
        for across in parts_across(body, strips):
            update = _add_terms(body, row, entry, strips, across, update)
        value, insn = _folded_sum(body, name, update, row) if inside else (body.entry(name, ()), update)
        total.append(value)
        done.append(insn)
    value = Sum(tuple(total)) if len(total) > 1 else total[0]
    return body.named(row, [body.assign(body.result(row, body.at(None)), value, (), done)])


def _known_left(body: StreamBody) -> int:
    """The length of the remainder after whole strips, 0 if it is not known."""
    length = body.loops.lengths[body.plan.lane]
    return length % math.prod(body.inside.values()) if isinstance(length, int) else 0


def _left_apart(body: StreamBody, row: int, strips: LoopStrips) -> tuple[list[Any], str]:
    """The sums of the numbers of such a remainder, and the instruction that they have to wait for."""
    count = _known_left(body)
    name = body.array("rest", (count,), row)
    begin = body.draft.unrolled([f"{body.plan.lane}_rest"], [count])
    update = body.assign(body.entry(name, begin), 0, begin, body.after)
    for across in parts_across(body, strips):
        update = _add_terms(body, row, body.entry(name, strips.inside), strips, across, update)
    return [body.entry(name, (k,)) for k in range(count)], update


def _add_terms(body: StreamBody, row: int, entry: Any, strips: LoopStrips, across: LoopStrips | None, after: str) -> str:
    """Add terms to a sum of lanes, those of a part of the index across them where squares are turned round."""
    if across is None:
        loops = {x: body.loops.plain(x) for x in body.plan.sums}
        term, order = body.term(row, body.at(strips, loops)), (*loops.values(), strips.strip, *strips.inside)
        return body.assign(entry, flattened_sum((entry, term)), order, [after])
    known, filled = turned_squares(body, row, strips, across) if across.whole else ({}, [])
    term = body.term(row, body.at(strips, {body.plan.square: across.position}), known)
    order = (strips.strip, across.strip, *across.inside, *strips.inside)
    return body.assign(entry, flattened_sum((entry, term)), order, [after, *filled])


def _folded_sum(body: StreamBody, name: str, update: str, row: int) -> tuple[Any, str]:
    """The sum of accumulators, and the instruction that it has to wait for."""
    if body.plan.by_items:
        (item,) = body.fixed(body.inside)
        return Reduction(SumReductionOperation(), (item,), body.entry(name, ())), update
    if body.plan.width == 1:
        return Sum(tuple(body.entry(name, (k,)) for k in range(body.plan.accumulators))), update
    lanes, (lane,) = body.array("lanes", (body.plan.width,), row), body.fixed({"lane": body.plan.width})
    parts = range(body.plan.accumulators) if "part" in body.inside else [None]
    entries = [body.entry(name, (lane,) if part is None else (part, lane)) for part in parts]
    insn = body.assign(body.entry(lanes, (lane,)), flattened_sum(tuple(entries)), (lane,), [update])
    return Sum(tuple(body.entry(lanes, (k,)) for k in range(body.plan.width))), insn


def _summands(body: StreamBody) -> list[tuple[tuple[str, ...], list[dict[str, Any]]]]:
    """The loops of the sums other than along the lane, and where the terms are that are added up in them at once."""
    *others, last = body.plan.sums
    loops = {x: body.loops.plain(x) for x in others}
    at = {x: Variable(loop) for x, loop in loops.items()}
    count = body.plan.accumulation
    found = []
    whole, left = body.loops.whole(last, count), body.loops.left(last, count)
    if whole:
        places = [at | {last: flattened_sum((whole.position, k))} for k in range(count)]
        found.append(((*loops.values(), whole.strip), places))
    if left:
        found.append(((*loops.values(), left.strip, *left.inside), [at | {last: left.position}]))
    return found


def _kept_shape(body: StreamBody, strips: LoopStrips) -> tuple[int, ...]:
    """The accumulators of a group for strips of the lane."""
    width = body.plan.width
    if body.plan.by_items:
        return ()
    if not strips.whole:
        return (width,)
    count = body.plan.block_tile.get(body.plan.lane, body.loops.lengths[body.plan.lane])
    return (-(-count // width), *body.inside.values())


def _lane_accumulator(body: StreamBody, name: str, strips: LoopStrips) -> Any:
    """The accumulator of a position along the lane."""
    if body.plan.by_items:
        return body.entry(name, ())
    if not strips.whole:
        return body.entry(name, strips.inside)
    strip = Variable(strips.strip)
    if body.plan.lane in body.plan.block_tile:
        first = body.plan.block_tile[body.plan.lane] // body.plan.width
        strip = flattened_sum((strip, flattened_product((-first, Variable(body.loops.groups[body.plan.lane])))))
    return Subscript(Variable(name), (strip, *map(Variable, strips.inside)))
