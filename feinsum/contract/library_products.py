"""Steps that are matrix products, computed by numpy's BLAS: ``abc,acd->abd`` is ``matmul(a, b)``.

An index of a product of two operands is one of four: of both and of the result (the stack), of the first and the result
(rows), of the second and the result (columns), or of both and summed.  Operands whose axes are not in that order are looked
at in another order where that is possible without a copy, and copied where it is not, which counts as part of the step.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from feinsum.contract.contraction_plan import Shape
from feinsum.devices.matmul_rates import DTYPES, product_rates
from feinsum.einsum import Array, einsum

logger = logging.getLogger(__name__)

_PROVED_WITH = (5, 3, 7, 2, 4)
"""Lengths at which numpy's product is compared with the reference."""


@dataclass(frozen=True)
class LibraryProduct:
    """An einsum of two operands as :func:`numpy.matmul`.

    :ivar subscripts: what it computes.
    :ivar swapped: whether the second operand has the rows: the result is stored with its columns before its rows.
    :ivar stack, rows, columns, summed: the indices of each kind.
    """

    subscripts: str
    swapped: bool
    stack: str
    rows: str
    columns: str
    summed: str

    @property
    def terms(self) -> tuple[str, str, str]:
        """The indices of the operand with the rows, of that with the columns, and of the result."""
        inputs, _, result = self.subscripts.partition("->")
        first, second = inputs.split(",")
        return (second, first, result) if self.swapped else (first, second, result)

    def seconds(self, lengths: Mapping[str, int], dtype: Any, converted: Sequence[bool] = (False, False)) -> float:
        """The time that it is expected to take on this machine, copies included.

        :param converted: which operands, as given, have to be converted to `dtype`.
        """
        left, right, result = self.terms
        conversions = converted[::-1] if self.swapped else converted
        again = [
            conversions[0] or not _is_view(left, (self.rows, self.summed)),
            conversions[1] or not _is_view(right, (self.summed, self.columns)),
            result != self.stack + self.rows + self.columns,
        ]
        copied = sum(_count_elements(term, lengths) for term, is_copied in zip(self.terms, again, strict=True) if is_copied)
        stack, rows, columns, summed = (
            _count_elements(letters, lengths) for letters in (self.stack, self.rows, self.columns, self.summed)
        )
        return product_rates().seconds(stack, rows, columns, summed, dtype, copied * np.dtype(dtype).itemsize)

    def prepared(self, lengths: Mapping[str, int]) -> PreparedProduct:
        """The product prepared for known lengths."""
        left, right, result = self.terms
        stack = tuple(lengths[x] for x in self.stack)
        rows, columns, summed = (_count_elements(letters, lengths) for letters in (self.rows, self.columns, self.summed))
        order = self.stack + self.rows + self.columns
        return PreparedProduct(
            self.swapped,
            _MatrixStack.of(left, self.stack + self.rows + self.summed, (*stack, rows, summed), lengths),
            _MatrixStack.of(right, self.stack + self.summed + self.columns, (*stack, summed, columns), lengths),
            (*stack, rows, columns),
            tuple(lengths[x] for x in order),
            None if order == result else tuple(order.index(x) for x in result),
        )


@dataclass(frozen=True)
class _MatrixStack:
    """The view of an operand as a stack of matrices: its axes in another order, and some of them merged.

    :ivar as_is: whether it is the stack already.
    """

    axes: tuple[int, ...] | None
    shape: Shape
    as_is: bool

    @staticmethod
    def of(term: str, order: str, shape: Shape, lengths: Mapping[str, int]) -> _MatrixStack:
        axes = None if term == order else tuple(term.index(x) for x in order)
        return _MatrixStack(axes, shape, axes is None and shape == tuple(lengths[x] for x in term))

    def __call__(self, value: Any) -> Any:
        """The stack, each matrix with one axis whose elements are neighbours."""
        if self.as_is:
            return value
        if self.axes is not None:
            value = value.transpose(self.axes)
        value = value.reshape(self.shape)
        if value.itemsize in value.strides[-2:] or 1 in self.shape[-2:]:
            return value
        return np.ascontiguousarray(value)


@dataclass(frozen=True)
class PreparedProduct:
    """A product of arrays of certain lengths.

    :ivar left, right: the views of the operand with the rows and of that with the columns.
    :ivar shape: that of the result as a stack of matrices.
    :ivar axes_shape: the same with an axis for each index.
    :ivar order: the axes of the result; None if they are in this order.
    """

    swapped: bool
    left: _MatrixStack
    right: _MatrixStack
    shape: Shape
    axes_shape: Shape
    order: tuple[int, ...] | None

    @property
    def is_plain(self) -> bool:
        """Whether it is :func:`numpy.matmul` of the operands as they are."""
        return self.left.as_is and self.right.as_is and self.order is None and self.shape == self.axes_shape

    def __call__(self, first: Any, second: Any, out: Any = None) -> Any:
        """The result of C-contiguous arrays in the axes of the subscripts, C-contiguous too.

        :param out: an array for it.
        """
        a, b = (self.left(second), self.right(first)) if self.swapped else (self.left(first), self.right(second))
        if self.order is None:
            if out is None:
                found = np.matmul(a, b)
                return found if self.shape == self.axes_shape else found.reshape(self.axes_shape)
            np.matmul(a, b, out=out.reshape(self.shape))
            return out
        found = np.matmul(a, b).reshape(self.axes_shape).transpose(self.order)
        if out is None:
            return np.ascontiguousarray(found)
        out[...] = found
        return out


@lru_cache(maxsize=1024)
def find_product(subscripts: str, dtype: np.dtype[Any]) -> LibraryProduct | None:
    """The product that an einsum is, if numpy has a BLAS for the type and was right about it; else None.

    >>> find_product("ab,bc->ac", np.dtype("float64"))
    LibraryProduct(subscripts='ab,bc->ac', swapped=False, stack='', rows='a', columns='c', summed='b')
    >>> find_product("ab,ab->ab", np.dtype("float64")) is None
    True
    """
    found = _recognized(subscripts) if dtype.name in DTYPES else None
    return found if found is not None and _is_right(found, dtype) else None


def _recognized(subscripts: str) -> LibraryProduct | None:
    inputs, _, result = subscripts.partition("->")
    terms = inputs.split(",")
    if len(terms) != 2 or any(len(set(term)) != len(term) for term in terms):
        return None
    first, second = terms
    alone = set(first) ^ set(second)
    summed = [x for x in first if x in second and x not in result]
    if not summed or alone - set(result):
        return None
    stack = "".join(x for x in result if x in first and x in second)
    mine = "".join(x for x in result if x in alone and x in first)
    theirs = "".join(x for x in result if x in alone and x in second)
    if stack and not mine and not theirs:
        return None  # sums of elementwise products, which no BLAS has
    swapped = bool(mine and theirs) and result.index(theirs[0]) < result.index(mine[0])
    rows, columns = (theirs, mine) if swapped else (mine, theirs)
    return LibraryProduct(subscripts, swapped, stack, rows, columns, "".join(summed))


def _is_right(product: LibraryProduct, dtype: np.dtype[Any]) -> bool:
    """Whether numpy's product agrees with the reference in higher precision within the bound of roundoff."""
    from feinsum.validate.reference import random_inputs, references

    letters = dict.fromkeys(x for term in product.terms for x in term)
    lengths = {x: _PROVED_WITH[k % len(_PROVED_WITH)] for k, x in enumerate(letters)}
    inputs = product.subscripts.partition("->")[0].split(",")
    arrays = [Array(f"a{k}", tuple(lengths[x] for x in term), dtype) for k, term in enumerate(inputs)]
    e = einsum(product.subscripts, *arrays)
    given = random_inputs(e, lengths, 0)
    [reference] = references(e, lengths, given, 0)
    found = product.prepared(lengths)(*(given[a.name] for a in arrays))
    found = found[np.ix_(*reference.at)] if reference.at else found
    right = bool((abs(found.astype(reference.expected.dtype) - reference.expected) <= reference.bound).all())
    if not right:
        logger.warning("numpy's product for '%s' in %s is wrong; kernels take its place", product.subscripts, dtype)
    return right


def _count_elements(letters: str, lengths: Mapping[str, int]) -> int:
    return math.prod(lengths[x] for x in letters)


def _is_view(term: str, groups: tuple[str, str]) -> bool:
    """Whether a C-contiguous operand can be looked at as a stack of matrices that a BLAS takes, without a copy."""
    together = all(term.index(y) == term.index(x) + 1 for group in groups for x, y in pairwise(group))
    return together and term[-1:] in [group[-1:] for group in groups if group]
