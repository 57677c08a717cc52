"""Squares of numbers that are turned round in registers: operands that are read across their rows, on CPUs.

t[k] = A(j + k, i ... i + 7)  for k < 8;  turn t round;  out(i + k, j ... j + 7) = t[k] * ...

Vectors of eight rows are loaded as they lie, and log2(8) steps exchange halves, quarters and single numbers of pairs of
them.  So memory is read and written in whole vectors, and no number by itself.  After J. O. Eklundh, "A fast computer
method for matrix transposing", IEEE Transactions on Computers C-21 (1972).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import loopy as lp
from pymbolic.primitives import Call, Subscript, Variable

from feinsum.rewrites.reads import with_rules
from feinsum.rewrites.vectors.access import NAMES, at_lane, row_of_subscript
from feinsum.skeletons.streaming.body import StreamBody
from feinsum.skeletons.streaming.strips import LoopStrips

_LANE, _ACROSS = "_lane_of_square", "_across_square"


def parts_across(body: StreamBody, strips: LoopStrips) -> Sequence[LoopStrips | None]:
    """Whole strips of the index along the rows of transposed operands, and the remainder; one None for all strips if no
    operand is transposed."""
    letter, width = body.plan.square, body.plan.width
    if not letter or not strips.whole:
        return [None]
    parts = (body.loops.whole(letter, width, {"place": width}), body.loops.left(letter, width))
    return [part for part in parts if part is not None]


def turned_squares(body: StreamBody, row: int, lanes: LoopStrips, across: LoopStrips) -> tuple[dict[int, Any], list[str]]:
    """Turn the operands round that are read across their rows, where strips of the lane and of these rows make a square.

    :return: operand -> its value at a place of the square; and the instructions that fill squares.
    """
    plan, found, filled = body.plan, dict[int, Any](), list[str]()
    at = body.at(None) | {plan.lane: Variable(_LANE), plan.square: Variable(_ACROSS)}
    for operand, letters in enumerate(body.match.einsum.indexing.inputs):
        if letters[-1:] != plan.square or plan.lane not in letters:
            continue
        call = Call(Variable(body.match.rules[row][operand]), tuple(at[x] for x in letters))
        placed = _placed(body.draft.kernel, call, {_LANE: _first_strip(lanes), _ACROSS: _first_strip(across)})
        if placed is None or placed[0].dtype.numpy_dtype != body.match.einsum.dtypes[row]:
            continue
        array, first, step = placed
        name, text = turn_function(NAMES[array.dtype.numpy_dtype.name], plan.width)
        square = body.array("square", (plan.width, plan.width), row)
        place, distance = map(body.draft.fresh, ("first", "step"))  # several squares stand side by side
        fill = partial(
            lp.CInstruction,
            ((place, first), (distance, step)),
            f"{name}({array.name} + {place}, {distance}, {square});",
            read_variables=frozenset([array.name]),
            assignees=(Subscript(Variable(square), (0, 0)),),
        )
        loops = [*body.loops.groups.values(), *body.outer.values(), lanes.strip, across.strip]
        filled.append(body.draft.add(fill, f"turn_{array.name}", loops, body.after))
        found[operand] = body.entry(square, (across.inside[-1], lanes.inside[-1]))
        body.functions[name] = text
    return found, filled


def _first_strip(strips: LoopStrips) -> Any:
    """Where a whole strip begins."""
    return at_lane(strips.position, strips.inside[-1], 0)


def _placed(kernel: lp.LoopKernel, call: Call, first: Mapping[str, Any]) -> tuple[Any, Any, Any] | None:
    """The array that a rule reads, where a square of it begins, and the distance of its rows; None unless it is an array
    of real numbers, and those of a row are neighbours in memory."""
    read = with_rules(kernel, call)
    if not isinstance(read, Subscript):
        return None
    array = kernel.arg_dict.get(read.aggregate.name)
    if array is None or array.dtype.numpy_dtype.name not in NAMES:
        return None
    down, along = (row_of_subscript(array, read, name) for name in (_LANE, _ACROSS))
    if down is None or along is None or along.stride != 1 or down.last is not None or along.last is not None:
        return None
    offset = along.offset
    for name, value in first.items():
        offset = at_lane(offset, name, value)
    return array, offset + first[_ACROSS], down.stride


def turn_function(scalar: str, width: int) -> tuple[str, str]:
    """The name and the OpenCL C of a function that loads a square and turns it round.

    It takes a pointer to the first number, the distance of rows, and as many vectors as there are numbers in one.
    """
    name, vector = f"feinsum_turn_{scalar}{width}", f"{scalar}{width}"
    lines = [f"{vector} r{k} = vload{width}(0, from + {k} * step);" for k in range(width)]
    half = width // 2
    while half:
        for k in (k for k in range(width) if not k & half):
            low = ", ".join(str(c if not c & half else c - half + width) for c in range(width))
            high = ", ".join(str(c + half if not c & half else c + width) for c in range(width))
            lines += [
                f"{vector} s{k}_{half} = __builtin_shufflevector(r{k}, r{k + half}, {low});",
                f"r{k + half} = __builtin_shufflevector(r{k}, r{k + half}, {high});",
                f"r{k} = s{k}_{half};",
            ]
        half //= 2
    lines += [f"to[{k}] = r{k};" for k in range(width)]
    body = "\n  ".join(lines)
    return name, f"static inline void {name}(__global {scalar} const *from, long step, {vector} *to)\n{{\n  {body}\n}}\n"
