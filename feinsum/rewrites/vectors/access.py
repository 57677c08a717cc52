"""Loads and stores of OpenCL vectors, as statements of C: whole vectors where they fit, single elements where not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from loopy.kernel.array import FixedStrideArrayDimTag
from loopy.symbolic import CoefficientCollector, SubstitutionMapper, get_dependencies
from pymbolic.mapper.substitutor import make_subst_func
from pymbolic.primitives import Comparison, FloorDiv, Min, Product, Remainder, Subscript, Sum, Variable, flattened_sum

from feinsum.errors import TransformError

NAMES = {"float32": "float", "float64": "double"}


@dataclass(frozen=True)
class MemoryRow:
    """Numbers of an array along a lane: number l is at ``offset + stride * l``, for l up to `last` if that is given."""

    offset: Any
    stride: Any
    last: Any = None


def row_of_subscript(array: Any, subscript: Subscript, lane: str) -> MemoryRow | None:
    """The row that a subscript runs through along a lane; None if it does not go evenly through memory.

    The lane is along one axis, ``X[e, 8 b + l]``, or along all digits of a position, ``X[x // 16, x % 16]``.

    :raises TransformError: if the array has no plain strides.
    """
    offset: Any = array.offset
    digits: list[tuple[_PositionDigit, Any]] = []
    for entry, tag in zip(subscript.index_tuple, array.dim_tags, strict=True):
        if not isinstance(tag, FixedStrideArrayDimTag):
            raise TransformError(f"'{array.name}' is no array of plain strides, so its vectors cannot be addressed")
        if lane in get_dependencies(entry):
            digits.append((_digit(entry), tag.stride))
        else:
            offset = offset + entry * tag.stride
    digits.sort(key=lambda found: found[0].step)
    if not digits or not _is_whole_position([digit for digit, _ in digits]):
        return None
    position, stride = digits[0][0].position, digits[0][1]
    if len(digits) > 1 and any(other != stride * digit.step for digit, other in digits):
        return None
    last = None
    if isinstance(position, Min) and len(position.children) == 2 and lane not in get_dependencies(position.children[1]):
        position, end = position.children
        last = end - at_lane(position, lane, 0)
    if not _is_one_step(position, lane):
        return None
    return MemoryRow(offset + at_lane(position, lane, 0) * stride, stride, last)


@dataclass(frozen=True)
class _PositionDigit:
    """``position // step % base``; without a base if that is None."""

    position: Any
    step: int
    base: int | None


def _digit(entry: Any) -> _PositionDigit:
    base = None
    step = 1
    if isinstance(entry, Remainder) and isinstance(entry.denominator, int):
        entry, base = entry.numerator, entry.denominator
    if isinstance(entry, FloorDiv) and isinstance(entry.denominator, int):
        entry, step = entry.numerator, entry.denominator
    return _PositionDigit(entry, step, base)


def _is_whole_position(digits: Sequence[_PositionDigit]) -> bool:
    """Whether digits, the lowest first, make up one position, so that ``position = sum of step * digit``."""
    step = 1
    for digit in digits:
        if digit.position != digits[0].position or digit.step != step or (digit.base is None) != (digit is digits[-1]):
            return False
        step *= digit.base or 1
    return True


def common_divisor(expression: Any) -> int:
    """A divisor of whatever value an expression of whole numbers has: 4 for ``8*e - 4*(e // 2)``; 0 for zero."""
    if isinstance(expression, int):
        return abs(expression)
    if isinstance(expression, Sum):
        return math.gcd(*map(common_divisor, expression.children))
    if isinstance(expression, Product):
        return math.prod(map(common_divisor, expression.children))
    if isinstance(expression, Min):
        return math.gcd(*map(common_divisor, expression.children))
    if isinstance(expression, Remainder):
        return math.gcd(common_divisor(expression.numerator), common_divisor(expression.denominator))
    return 1


def at_lane(expression: Any, lane: str, value: Any) -> Any:
    """An expression with a value in place of a lane."""
    return SubstitutionMapper(make_subst_func({lane: value}))(expression)


def _is_one_step(entry: Any, lane: str) -> bool:
    """Whether an expression grows by one from lane to lane."""
    terms = entry.children if isinstance(entry, Sum) else (entry,)
    moving = [term for term in terms if lane in get_dependencies(term)]
    try:
        found = [CoefficientCollector([lane])(term).get(Variable(lane), 0) for term in moving]
    except NotImplementedError:  # within a limit
        return False
    return bool(flattened_sum(found) == 1)


def load_code(
    scalar: str,
    width: int,
    count: int | None,
    source: str,
    kept: str,
    *,
    in_row: bool,
    number: str | None = None,
    aligned: bool = False,
) -> str:
    """C that fills vector `at` of `kept` from the numbers of `source` at ``first``, ``first + step``, ..., then zeros.

    :param count: how many numbers there are; None where ``room`` tells at run time how many before the last repeats.
    :param in_row: whether ``step`` is 1.
    :param number: the type of the numbers of `source` where it is another one, from which they are converted.
    :param aligned: whether ``first`` is a multiple of `width`, of which compilers are to make one load.
    """
    vector = f"{scalar}{width}"
    convert = f"convert_{scalar}" if number not in (None, scalar) else ""
    if in_row and count == width and aligned:
        vectors = f"*(__global {number or scalar}{width} const *) ({source} + first)"
        return f"{kept}[at] = {f'{convert}{width}({vectors})' if convert else vectors};"
    if in_row and count == width:
        return f"{kept}[at] = {_neighbour_loads(source, width, 'first', convert)};"
    if count is not None and in_row:
        found = [
            _neighbour_loads(source, size, f"first + {start + k * size}", convert)
            for size, n, start in store_pieces(count, width)
            for k in range(n)
        ]
        return f"{kept}[at] = ({vector}) ({', '.join(found + ['0'] * (width - count))});"
    if count is None:
        terms = [f"{source}[first + min({lane}, (int) room - 1) * step]" for lane in range(width)]
    else:
        terms = [f"{source}[first + {lane} * step]" for lane in range(count)] + ["0"] * (width - count)
    assembled = f"{kept}[at] = ({vector}) ({', '.join(terms)});"
    if count is None and in_row:
        whole = f"{kept}[at] = {_neighbour_loads(source, width, 'first', convert)};"
        return f"if (room >= {width}) {whole}\nelse if (room > 0) {assembled}\nelse {kept}[at] = ({vector}) 0;"
    if count is None:
        whole = ", ".join(f"{source}[first + {lane} * step]" for lane in range(width))
        return f"if (room >= {width}) {kept}[at] = ({vector}) ({whole});\nelse {assembled}"
    return assembled


def _neighbour_loads(source: str, size: int, at: str, convert: str) -> str:
    """C for so many neighbours from a place on, converted as vectors are; C converts single numbers by itself."""
    if size == 1:
        return f"{source}[{at}]"
    return f"{convert}{size}(vload{size}(0, {source} + {at}))" if convert else f"vload{size}(0, {source} + {at})"


def store_code(
    scalar: str, size: int, kept: str, target: str, *, streaming: bool, guarded: bool, aligned: bool = False
) -> str:
    """C that writes the numbers of `kept` from number `at` on to `target` at `to`.

    :param guarded: whether only ``room`` of them, if so many, may be written.
    :param aligned: whether ``to`` is a multiple of `size`, of which compilers are to make one store.
    """
    numbers = f"(({scalar} const *) {kept})"
    if size == 1:
        return f"{'if (room > 0) ' if guarded else ''}{target}[to] = {numbers}[at];"
    vector = f"*({scalar}{size} const *) ({numbers} + at)"
    whole = f"vstore{size}({vector}, 0, {target} + to);"
    if aligned:
        whole = f"*(__global {scalar}{size} *) ({target} + to) = {vector};"
    if streaming:
        whole = f"__builtin_nontemporal_store({vector}, (__global {scalar}{size} *) ({target} + to));"
    if not guarded:
        return whole
    return f"if (room >= {size}) {whole}\nelse for (int l = 0; l < (int) room; ++l) {target}[to + l] = {numbers}[at + l];"


def room_under(predicates: frozenset[Any], lane: str) -> tuple[frozenset[Any], Any]:
    """The predicates without a lane, and how many lanes from 0 on satisfy the rest: None if no predicate has the lane.

    :raises TransformError: if a predicate with the lane is not ``position < length``.
    """
    room: Any = None
    for predicate in predicates:
        if lane not in get_dependencies(predicate):
            continue
        begin = at_lane(predicate.left, lane, 0) if isinstance(predicate, Comparison) else None
        if begin is None or predicate.operator != "<" or not _is_one_step(predicate.left, lane) or room is not None:
            raise TransformError(f"'{predicate}' does not bound lane '{lane}' from above, so its vectors cannot be stored")
        room = predicate.right - begin
    return frozenset(p for p in predicates if lane not in get_dependencies(p)), room


def store_pieces(length: int, width: int) -> list[tuple[int, int, int]]:
    """(numbers of a store, how many of them, where the first begins), covering the length."""
    found, start, size = [], 0, width
    while start < length:
        count = (length - start) // size
        if count:
            found.append((size, count, start))
            start += count * size
        size //= 2
    return found
