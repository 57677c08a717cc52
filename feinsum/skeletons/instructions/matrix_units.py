"""Matrix products on matrix units: ``D = A B + D`` by a sub-group of 32, every lane its share.

The units are data of :mod:`feinsum.devices.vendors`, and their text is the preamble of a callable of loopy.  Skeletons are
written for units whose fragments are a row of those of 16 rows, 8 columns and 4 steps of the sum (:data:`FRAGMENTS`): with
g = lane / 4 and t = lane mod 4, a lane holds in register i

    A[g + 8 (i mod 2), t + 4 (i div 2)]     B[t + 4 i, g]     D[g + 8 (i div 2), 2 t + i mod 2]

So the longer shapes are the shortest one in a row, and only their number of registers differs.

Units for float32 may keep fewer bits of A and B than it has, and round sums towards zero.  So each number is split,
``a = a' + a"`` with a' its first bits (those of A rounded) and a" the rest; ``A" B' + A' B" + A' B'`` is summed from zero
for every step of the unit, or for those of a tile, and then added to D by the ordinary adder, which rounds correctly.
:meth:`~feinsum.devices.vendors.units.MatrixUnit.error` and :meth:`~feinsum.devices.vendors.units.MatrixUnit.tile_error`
bound the loss.
Infinities, NaN and the largest numbers give what IEEE 754 asks.  The rest of a number below 2^-113 has fewer bits than a',
so that its products are as exact as the unit's own in the worst case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import loopy as lp
import numpy as np
from constantdict import constantdict
from loopy.kernel.instruction import CallInstruction, CInstruction
from loopy.types import NumpyType
from pymbolic.primitives import Call, FloorDiv, Remainder, Variable

from feinsum.devices.vendors.known_vendors import matrix_units
from feinsum.devices.vendors.units import FragmentLayout, LayoutDigit, MatrixUnit, UnitTile
from feinsum.devices.vendors.vendor import Vendor
from feinsum.errors import TransformError

ROWS, COLUMNS, DEPTH = 16, 8, 4
"""Rows of A, columns of B, and the depth of one step, in a fragment."""
SUB_GROUP = 32
"""Lanes that share the fragments."""
FRAGMENTS = UnitTile(
    ROWS,
    COLUMNS,
    DEPTH,
    a=FragmentLayout((LayoutDigit(4, 0, 1), LayoutDigit(8, 1, 0)), (LayoutDigit(2, 8, 0),)),
    b=FragmentLayout((LayoutDigit(4, 1, 0), LayoutDigit(8, 0, 1))),
    d=FragmentLayout((LayoutDigit(4, 0, 2), LayoutDigit(8, 1, 0)), (LayoutDigit(2, 0, 1), LayoutDigit(2, 8, 0))),
)
"""The places that :func:`row_of` and the functions after it compute."""


def fragment_unit(name: str) -> MatrixUnit:
    """The unit of a name, for float64 or, by splitting, for float32.

    :raises TransformError: if its fragments are not a row of :data:`FRAGMENTS`.
    """
    unit = matrix_units().get(name)
    if unit is None:
        raise TransformError(f"there is no matrix unit '{name}'")
    if unit.tile != FRAGMENTS:
        raise TransformError(
            f"the fragments of matrix unit '{name}' do not have {ROWS} rows, or lie otherwise in the lanes"
        )
    return unit


def register_matrix_unit(t_unit: lp.TranslationUnit, unit: MatrixUnit, *kinds: str) -> lp.TranslationUnit:
    """Let kernels of `t_unit` call functions of a matrix unit, by default those of :func:`multiply_accumulate`."""
    for name in dict.fromkeys(unit.called(kind) for kind in kinds or ("", "summed")):
        if name not in t_unit.callables_table:
            t_unit = lp.register_callable(t_unit, name, _UnitFunction(name))
    return t_unit


def multiply_accumulate(
    unit: MatrixUnit,
    accumulators: tuple[Any, ...],
    a: tuple[Any, ...],
    b: tuple[Any, ...],
    *,
    summed: bool = False,
    **kwargs: Any,
) -> CallInstruction:
    """The instruction by which a sub-group adds A B to D.

    Before::

        for m in range(16), n in range(8), k in range(4):
            d[m, n] = d[m, n] + A(m, k) * B(k, n)

    After, the lanes of a sub-group together and each with its fragments::

        d[0, 0], d[0, 1], d[1, 0], d[1, 1] = feinsum_mma_m16n8k4(d[0, 0], d[0, 1], d[1, 0], d[1, 1], a[0], a[1], b[0])

    All 32 lanes have to arrive, so no predicate may depend on the lane.

    :param accumulators: the references to D, in the order of registers, as are those to A and B.
    :param summed: whether the unit adds products of split numbers to D; else the ordinary adder does.
    :param kwargs: what every instruction of loopy takes.

    ``mma`` of CUDA and CUTLASS; ``tensorize`` in TVM.
    """
    call = Call(Variable(unit.called("summed" if summed else "")), (*accumulators, *a, *b))
    return CallInstruction(accumulators, call, **kwargs)


def synchronize_sub_group(vendor: Vendor, **kwargs: Any) -> CInstruction:
    """The instruction after which the lanes of a sub-group see what the others wrote to local memory."""
    return CInstruction((), vendor.sub_group_barrier, **kwargs)


def begin_late(vendor: Vendor, nanoseconds: int, sub_group: Any, **kwargs: Any) -> CInstruction:
    """The instruction by which every further sub-group of a scheduler waits so long, more or less, before it goes on."""
    late = nanoseconds * FloorDiv(sub_group, vendor.schedulers)
    return CInstruction((("late", late),), vendor.pause("late"), **kwargs)


def row_of(lane: Any, half: Any) -> Any:
    """The row of A, and of D, in half 0 or 1 of a lane's registers."""
    return FloorDiv(lane, 4) + 8 * half


def depth_of(lane: Any, step: Any) -> Any:
    """The index of the sum that a lane holds, of A and of B, in a step."""
    return Remainder(lane, 4) + DEPTH * step


def column_of(lane: Any, number: Any) -> Any:
    """The column of the matrix that number 0 or 1 of D in a lane's registers belongs to.

    The unit leaves neighbours, its columns 2 t and 2 t + 1, in one lane.  Columns of B are dealt to it such that they
    are columns t and t + 4 of the matrix: then four lanes write four neighbours at once.
    """
    return Remainder(lane, 4) + 4 * number


def column_of_b(lane: Any) -> Any:
    """The column of the matrix that a lane holds of B, dealt as :func:`column_of` says."""
    return FloorDiv(lane, 8) + 4 * Remainder(FloorDiv(lane, 4), 2)


class _UnitFunction(lp.ScalarCallable):  # type: ignore[misc]
    """A function of a matrix unit as loopy sees it: numbers of the type of its registers in and out."""

    def with_types(self, arg_id_to_dtype: Mapping[Any, Any], clbl_inf_ctx: Any) -> tuple[Any, Any]:
        unit, kind = self._unit
        number, (inputs, results) = NumpyType(fragment_dtype(unit)), unit.arguments(kind)
        ids = [*range(len(inputs)), *range(-len(results), 0)]
        if any(dtype is not None and dtype != number for dtype in arg_id_to_dtype.values()):
            raise TransformError(f"'{self.name}' multiplies {number} and got {set(map(str, arg_id_to_dtype.values()))}")
        return self.copy(name_in_target=self.name, arg_id_to_dtype=constantdict(dict.fromkeys(ids, number))), clbl_inf_ctx

    def generate_preambles(self, target: Any) -> Iterator[tuple[str, str]]:
        unit, kind = self._unit
        yield from ((f"40_{name}", text) for name, text in unit.helpers.items())
        if kind in ("bits", "whole", "split"):
            yield f"50_{unit.called('bits')}", unit.function("bits")
        if kind != "bits":
            yield f"60_{self.name}", unit.function(kind)

    @property
    def _unit(self) -> tuple[MatrixUnit, str]:
        return next((u, kind) for u in matrix_units().values() for kind in u.kinds if u.called(kind) == self.name)


def fragment_dtype(unit: MatrixUnit) -> np.dtype[Any]:
    """The type of the registers of A, B and D."""
    return np.dtype(unit.number)
