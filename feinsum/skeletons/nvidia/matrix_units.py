"""Matrix products on the matrix units of NVIDIA devices: ``D = A B + D`` by a sub-group of 32, every lane its share.

The units are reached through inline PTX, ``mma.sync.aligned.m16n8k{4,8,16}.row.col.f64.f64.f64.f64`` for float64 and
``mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32`` for float32, as a callable of loopy with a preamble.  A lane holds
*fragments*; with g = lane / 4 and t = lane mod 4, register i of a lane is

    A[g + 8 (i mod 2), t + 4 (i div 2)]     B[t + 4 i, g]     D[g + 8 (i div 2), 2 t + i mod 2]

after the PTX ISA, section "Warp-level matrix instructions for mma", figures of .m16n8k4, .m16n8k8 and .m16n8k16 with
``.f64`` and of .m16n8k8 with ``.tf32``.  So the longer shapes are the shortest one in a row, and only their number of
registers differs.

The units for float32 keep 11 significant bits of A and B, and round sums towards zero.  So each number is split,
``a = a' + a"`` with a' its first 11 bits (those of A rounded) and a" the rest; ``A" B' + A' B" + A' B'`` is summed from
zero for every 8 indices, or for those of a tile, and then added to D by the ordinary adder, which rounds correctly: H.
Ootomo and R. Yokota, "Recovering single precision accuracy from Tensor Cores while surpassing the FP32 theoretical peak
performance", IJHPCA 36 (2022), section 3.  :func:`feinsum.devices.ptx.split_error` and
:func:`~feinsum.devices.ptx.tile_error` bound the loss.  Infinities, NaN and the largest numbers give what IEEE 754
asks (:data:`~feinsum.devices.ptx.BOUNDED`).  The rest of a number below 2^-113 has fewer than 11 bits, so that its products
are as exact as those of TF32 in the worst case.
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

from feinsum.devices.ptx import (
    BOUNDED,
    BOUNDED_NAME,
    MATRIX_UNITS,
    SCHEDULERS,
    MatrixUnit,
    matrix_unit,
    product_function,
    product_name,
)
from feinsum.errors import TransformError

ROWS, COLUMNS, DEPTH = 16, 8, 4
"""Rows of A, columns of B, and the depth of one step, in a fragment."""
SUMMED = (False, True)
"""Who adds products of split numbers: the ordinary adder, or the unit."""


def fragment_unit(name: str) -> MatrixUnit:
    """The unit of a name, for float64 or, by splitting, for float32.

    :raises TransformError: if its fragments do not have 16 rows.
    """
    try:
        unit = matrix_unit(name)
    except StopIteration:
        raise TransformError(f"there is no matrix unit '{name}'") from None
    if unit.m != ROWS:
        raise TransformError(f"matrix unit '{name}' has no fragments of {ROWS} rows")
    return unit


def register_matrix_unit(t_unit: lp.TranslationUnit, unit: MatrixUnit) -> lp.TranslationUnit:
    """Let kernels of `t_unit` call a matrix unit: see :func:`multiply_accumulate`."""
    for name in dict.fromkeys(product_name(unit, summed=summed) for summed in SUMMED):
        if name not in t_unit.callables_table:
            t_unit = lp.register_callable(t_unit, name, _MultiplyAccumulate(name))
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
    call = Call(Variable(product_name(unit, summed=summed)), (*accumulators, *a, *b))
    return CallInstruction(accumulators, call, **kwargs)


def synchronize_sub_group(**kwargs: Any) -> CInstruction:
    """The instruction after which the lanes of a sub-group see what the others wrote to local memory."""
    return CInstruction((), 'asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");', **kwargs)


def begin_late(nanoseconds: int, sub_group: Any, **kwargs: Any) -> CInstruction:
    """The instruction by which every further sub-group of a scheduler waits so long, more or less, before it goes on."""
    late = nanoseconds * FloorDiv(sub_group, SCHEDULERS)
    return CInstruction((("late", late),), 'asm volatile("nanosleep.u32 %0;" :: "r"(late) : "memory");', **kwargs)


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


class _MultiplyAccumulate(lp.ScalarCallable):  # type: ignore[misc]
    """A matrix unit as loopy sees it: four numbers of D, those of A and of B in; four numbers of D out."""

    def with_types(self, arg_id_to_dtype: Mapping[Any, Any], clbl_inf_ctx: Any) -> tuple[Any, Any]:
        unit, _ = self._unit
        number = NumpyType(fragment_dtype(unit))
        ids = [*range(sum(unit.registers)), *range(-unit.registers[2], 0)]
        if any(dtype is not None and dtype != number for dtype in arg_id_to_dtype.values()):
            raise TransformError(f"'{self.name}' multiplies {number} and got {set(map(str, arg_id_to_dtype.values()))}")
        return self.copy(name_in_target=self.name, arg_id_to_dtype=constantdict(dict.fromkeys(ids, number))), clbl_inf_ctx

    def generate_preambles(self, target: Any) -> Iterator[tuple[str, str]]:
        unit, summed = self._unit
        if unit.dtype == "float":
            yield f"40_{BOUNDED_NAME}", BOUNDED
        yield f"60_{self.name}", product_function(unit, summed=summed)

    @property
    def _unit(self) -> tuple[MatrixUnit, bool]:
        return next((u, summed) for u in _units() for summed in SUMMED if product_name(u, summed=summed) == self.name)


def _units() -> tuple[MatrixUnit, ...]:
    return tuple(unit for unit in MATRIX_UNITS if unit.m == ROWS)


def fragment_dtype(unit: MatrixUnit) -> np.dtype[Any]:
    """The type of the registers of A, B and D."""
    return np.dtype(np.float64 if unit.dtype == "double" else np.float32)
