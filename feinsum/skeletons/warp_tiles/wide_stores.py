"""Accesses of several elements at once, in rows that lie one after the other in memory: ``x[begin + columns m + n]``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import loopy as lp
from loopy.kernel.array import FixedStrideArrayDimTag
from loopy.kernel.instruction import CInstruction
from loopy.symbolic import CoefficientCollector
from pymbolic.primitives import Comparison, Product, Remainder, Subscript, Sum, Variable

from feinsum.errors import TransformError
from feinsum.rewrites.vectors.access import NAMES


@dataclass(frozen=True)
class RowPlaces:
    """Where rows are in an array: number n of row m is at ``begin + columns m + n``.

    :ivar begin: depends on other loops; :ivar steps: what each of these adds to it.
    """

    array: str
    scalar: str
    begin: Any
    steps: tuple[Any, ...]

    def are_aligned(self, numbers: int) -> bool:
        """Whether every row m = 0 begins at a multiple of so many numbers, whatever the lengths."""
        return all(_is_multiple(step, numbers) for step in self.steps)

    def alignment(self, numbers: int) -> list[Any]:
        """The conditions on lengths under which it does."""
        open_ = [step for step in self.steps if not _is_multiple(step, numbers)]
        return [Comparison(Remainder(step, numbers), "==", 0) for step in open_]


def rows_in_memory(
    kernel: lp.LoopKernel,
    element: Subscript,
    m: str,
    n: str,
    columns: int,
    others: Collection[str] = (),
    inner: Mapping[str, int] | None = None,
) -> RowPlaces:
    """The rows of which loops m and n make an element of an array, among other loops.

    :param inner: loops within those of n, and their lengths: a row has `columns` times as many numbers then.
    :raises TransformError: if they do not lie one after the other from the beginning of a buffer.
    """
    array = kernel.arg_dict.get(element.aggregate.name)
    tags = getattr(array, "dim_tags", ())
    if array is None or not all(isinstance(tag, FixedStrideArrayDimTag) for tag in tags) or array.offset != 0:
        raise TransformError(
            f"'{element}' is no part of an array from its beginning, which wide accesses take to be aligned"
        )
    indices = ((tag.stride, index) for tag, index in zip(tags, element.index_tuple, strict=True))
    # The collector takes no products with zero.
    place = sum((stride * index for stride, index in indices if not (isinstance(index, int) and index == 0)), 0)
    within = inner or {}
    coefficients = dict(CoefficientCollector([m, n, *others, *within])(place))
    lengths, steps = [columns, *within.values()], [coefficients.pop(Variable(x), 0) for x in (m, n, *within)]
    if steps != [prod(lengths[k:]) for k in range(len(steps))]:
        raise TransformError(f"rows of {columns} numbers do not lie one after the other where '{element}' is")
    begin = sum((step if loop == 1 else step * loop for loop, step in coefficients.items()), 0)
    return RowPlaces(array.name, NAMES[array.dtype.numpy_dtype.name], begin, tuple(coefficients.values()))


def wide_store(rows: RowPlaces, assignee: Any, to: Any, numbers: int, source: str, **kwargs: Any) -> CInstruction:
    """The instruction ``out[to:to + numbers] = source``, where `to` is a multiple of `numbers`.

    :param assignee: one of the numbers that it writes, by which loopy orders instructions.
    :param source: a vector as an expression of C, in terms of ``from`` if `kwargs` have an ``origin``.

    ``vectorize`` of a store in Halide and TVM.
    """
    origin = kwargs.pop("origin", None)
    places = (("to", to), *((("from", origin),) if origin is not None else ()))
    code = f"*(__global {rows.scalar}{numbers} *) ({rows.array} + to) = {source};"
    return CInstruction(places, code, assignees=(assignee,), **kwargs)


def _is_multiple(value: Any, of: int) -> bool:
    """Whether an expression of whole numbers is a multiple of a number by its form."""
    if isinstance(value, int):
        return value % of == 0
    parts: Collection[Any] = getattr(value, "children", ())
    if isinstance(value, Product):
        return any(_is_multiple(part, of) for part in parts)
    return isinstance(value, Sum) and all(_is_multiple(part, of) for part in parts)
