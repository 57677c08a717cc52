"""Matrix products of float32 on units for split numbers that sum by themselves: ``D = Σ A' B' + Σ (A" B' + A' B")``.

As in :mod:`.matrix_units`, numbers are split, ``a = a' + a"`` with a' of as many bits as the unit takes.
Where a sum is short for the bound of float32, the unit may add the products of one step to those of the step before,
although it rounds towards zero: then the ordinary adder is left with one sum at the end.  B is split as it is read, or once
for all products, which takes two instructions less for each number and reads twice as much.
"""

from __future__ import annotations

from typing import Any

from loopy.kernel.instruction import CallInstruction
from pymbolic.primitives import Call, Variable

from feinsum.devices.vendors.units import MatrixUnit
from feinsum.errors import TransformError

SUMS = ("apart", "whole", "split")
"""How the steps of a sum are added: by the ordinary adder, apart; or by the unit, with B whole or split in local memory."""


def first_bits(unit: MatrixUnit, number: Any) -> Any:
    """The number next to a number of float32 that the unit multiplies exactly."""
    return Call(Variable(unit.called("bits")), (number,))


def multiply_and_sum(
    unit: MatrixUnit,
    kind: str,
    sums: tuple[Any, ...],
    corrections: tuple[Any, ...],
    a: tuple[Any, ...],
    b: tuple[Any, ...],
    **kwargs: Any,
) -> CallInstruction:
    """The instruction by which a sub-group adds A B to ``D = sums + corrections``.

    Before::

        for m in range(16), n in range(8), k in range(8):
            d[m, n] = d[m, n] + A(m, k) * B(k, n)

    After, the lanes of a sub-group together and each with its fragments, see
    :func:`feinsum.skeletons.instructions.matrix_units.multiply_accumulate`::

        sums[...], corrections[...] = feinsum_summing_mma_m16n8k8(sums[...], corrections[...], a[...], b[...])

    :param kind: how B lies in local memory: "whole" or "split".
    :param b: the references to B; where it is split, to the first bits of each register and then to the rests.
    :raises TransformError: if there is no such kind, or the unit splits no numbers.
    """
    if kind not in SUMS[1:] or not unit.splits:
        raise TransformError(f"matrix unit '{unit.name}' does not sum by itself with a matrix that is '{kind}'")
    outputs = (*sums, *corrections)
    return CallInstruction(outputs, Call(Variable(unit.called(kind)), (*outputs, *a, *b)), **kwargs)
