"""The reference of an epilogue of sums, and the bound on the error of a correct kernel.

With the sum known within ``γ_K Σ |a| |b|`` (:mod:`feinsum.validate.reference`) and all else exactly, interval arithmetic
gives the bound of ω: for reals :mod:`feinsum.validate.intervals`, for complex numbers
:mod:`feinsum.validate.disks`; integers are exact.  For ``alpha*v + beta*out`` that is ``|alpha| γ_K Σ |a| |b|`` and three
roundings, of ``alpha*v``, of ``beta*out`` and of their sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from feinsum.elementwise import FUNCTIONS
from feinsum.epilogue import Epilogue, computed_in, tree
from feinsum.validate.disks import Disk, DiskArithmetic
from feinsum.validate.intervals import Interval, IntervalArithmetic

Values = np.ndarray[Any, Any]


@dataclass(frozen=True)
class EpilogueInputs:
    """The values that an epilogue reads besides the sum.

    :ivar present: the content of the output before; None if it is not read.
    :ivar arrays: the arrays, by name.
    :ivar scalars: the numbers given at the call, by name.
    """

    present: Values | None
    arrays: Mapping[str, Values]
    scalars: Mapping[str, Any]


def finished_value(
    epilogue: Epilogue,
    dtype: np.dtype[Any],
    sums: Sequence[Values],
    bounds: Sequence[Values],
    at: tuple[Values, ...],
    known: EpilogueInputs,
) -> tuple[Values, Values]:
    """The value of the epilogue for sums, and the bound of its error.

    :param dtype: the type of the output.
    :param sums: the sums at chosen positions of the output, in a wider type: of its row, or of all.
    :param bounds: how far from them those of a correct kernel may be.
    :param at: the positions along each axis of the output.
    """
    with np.errstate(all="ignore"):
        if dtype.kind in "iu":
            wide = computed_in(dtype)
            whole = [row.astype(wide) for row in sums]
            evaluation = _EpilogueEvaluator(dtype, wide, whole, at, known, np.asarray, _integers)
            return _whole_values(evaluation.rec(epilogue.expression), sums[0]).astype(dtype), bounds[0]
        kind: Any = Disk if dtype.kind == "c" else Interval
        arithmetic: Any = DiskArithmetic(dtype) if dtype.kind == "c" else IntervalArithmetic(dtype)
        start = [kind.around(row, bound) for row, bound in zip(sums, bounds, strict=True)]
        evaluation = _EpilogueEvaluator(dtype, sums[0].dtype, start, at, known, kind.exact, arithmetic.apply)
        found = evaluation.rec(epilogue.expression)
        # Where a sum is infinite or no number, what becomes of it may depend on the order of evaluation.
        finite = np.logical_and.reduce([np.isfinite(row) for row in sums])
        return _whole_values(found.mid, sums[0]), np.where(finite, _whole_values(found.bound, sums[0]), np.inf)


def _whole_values(values: Any, like: Values) -> Values:
    return np.broadcast_to(np.asarray(values), like.shape)


@dataclass(frozen=True)
class _EpilogueEvaluator:
    """Walks an expression.

    :ivar wide: the type of the reference.
    :ivar exact: makes a value, as `apply` takes it, of numbers that are known exactly.
    :ivar apply: works out an operator or function.
    """

    dtype: np.dtype[Any]
    wide: np.dtype[Any]
    sums: Sequence[Any]
    at: tuple[Values, ...]
    known: EpilogueInputs
    exact: Callable[[Any], Any]
    apply: Callable[[str, list[Any]], Any]

    def rec(self, node: tree.Node) -> Any:
        match node:
            case tree.Sum():
                return self.sums[node.row or 0]
            case tree.Present():
                return self._exactly(_at_axes(self.known.present, tuple(range(len(self.at))), self.at))
            case tree.Read():
                return self._exactly(_at_axes(self.known.arrays[node.array.name], node.axes, self.at))
            case tree.EpilogueScalar():
                return self._exactly(self.known.scalars[node.name])
            case tree.EpilogueNumber():
                # As the kernel has it: rounded to the type of the output.
                return self._exactly(self.dtype.type(node.value))
        return self._call(node)

    def _exactly(self, values: Any) -> Any:
        return self.exact(np.asarray(values).astype(self.dtype).astype(self.wide))

    def _call(self, node: tree.EpilogueCall) -> Any:
        factor = tree.vanishing_factor(node)
        if factor is not None:
            value = self.rec(factor)
            if np.all(getattr(value, "mid", value) == 0):
                return self._exactly(0)
        return self.apply(node.function, [self.rec(argument) for argument in node.arguments])


def _at_axes(values: Any, axes: tuple[int, ...], at: tuple[Values, ...]) -> Values:
    """Entries of an array at chosen positions of the output, with an axis for each of the output's."""
    rank = len(at)
    index = tuple(at[k].reshape([-1 if axis == k else 1 for axis in range(rank)]) for k in axes)
    return np.asarray(values)[index] if index else np.asarray(values)


def _integers(name: str, arguments: list[Any]) -> Any:
    """An operator of integers, which wrap around as those of C do."""
    return FUNCTIONS[name].evaluate(*arguments)
