"""Matrix products of float32 on units for split numbers that sum by themselves: ``D = Σ A' B' + Σ (A" B' + A' B")``.

As in :mod:`.matrix_units`, numbers are split, ``a = a' + a"`` with a' of as many bits as the unit takes.
Where a sum is short for the bound of float32, the unit may add the products of one step to those of the step before,
although it rounds towards zero: then the ordinary adder is left with one sum at the end.  B is split as it is read, or once
for all products, which takes two instructions less for each number and reads twice as much.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import loopy as lp
import numpy as np
from constantdict import constantdict
from loopy.kernel.instruction import CallInstruction
from loopy.types import NumpyType
from pymbolic.primitives import Call, Variable

from feinsum.devices.vendors import MatrixUnit, matrix_units
from feinsum.errors import TransformError

SUMS = ("apart", "whole", "split")
"""How the steps of a sum are added: by the ordinary adder, apart; or by the unit, with B whole or split in local memory."""
_FLOAT = NumpyType(np.dtype(np.float32))


def register_summing_unit(t_unit: lp.TranslationUnit, unit: MatrixUnit, kind: str) -> lp.TranslationUnit:
    """Let kernels of `t_unit` call :func:`multiply_and_sum` and :func:`first_bits`."""
    for function in (_FirstBits(unit.split_names[0]), _MultiplyAndSum(_function_name(unit, kind))):
        if function.name not in t_unit.callables_table:
            t_unit = lp.register_callable(t_unit, function.name, function)
    return t_unit


def first_bits(unit: MatrixUnit, number: Any) -> Any:
    """The number next to a number of float32 that the unit multiplies exactly."""
    return Call(Variable(unit.split_names[0]), (number,))


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
    return CallInstruction(outputs, Call(Variable(_function_name(unit, kind)), (*outputs, *a, *b)), **kwargs)


def summing_definition(unit: MatrixUnit, kind: str) -> str:
    """The OpenCL C function behind :func:`multiply_and_sum`; D comes back as its value and through pointers."""
    na, nb, nd = unit.registers
    of_b = (("high_b", nb), ("low_b", nb)) if kind == "split" else (("b", nb),)
    inputs = [f"float {x}{i}" for x, count in (("sum", nd), ("rest", nd), ("a", na), *of_b) for i in range(count)]
    outputs = [f"float *r{i}" for i in range(1, 2 * nd)]
    first = unit.split_names[0]
    split = [f"float high_a{i} = {first}(a{i}), low_a{i} = a{i} - high_a{i};" for i in range(na)]
    if kind == "whole":
        # Rounding B too would take an instruction more, each time it is read.
        highs = [unit.first_bits(f"b{i}", rounded=False) for i in range(nb)]
        split += [f"float high_b{i} = {high}, low_b{i} = b{i} - high_b{i};" for i, high in enumerate(highs)]
    terms = (("rest", "low_a", "high_b"), ("sum", "high_a", "high_b"), ("rest", "high_a", "low_b"))
    products = [unit.statement(d, a, b) for d, a, b in terms]
    stores = [*(f"*r{i} = sum{i};" for i in range(1, nd)), *(f"*r{nd + i} = rest{i};" for i in range(nd))]
    lines = "\n  ".join([*split, *products, " ".join(stores), "return sum0;"])
    return f"static inline float {_function_name(unit, kind)}({', '.join(inputs + outputs)})\n{{\n  {lines}\n}}"


def first_bits_definition(unit: MatrixUnit) -> str:
    """The OpenCL C function behind :func:`first_bits`."""
    return f"static inline float {unit.split_names[0]}(float x)\n{{\n  return {unit.first_bits('x', rounded=True)};\n}}"


def _function_name(unit: MatrixUnit, kind: str) -> str:
    return unit.split_names[1] + ("_split" if kind == "split" else "")


def _unit_and_kind(name: str) -> tuple[MatrixUnit, str]:
    units = (unit for unit in matrix_units().values() if unit.splits)
    return next((unit, kind) for unit in units for kind in SUMS[1:] if _function_name(unit, kind) == name)


def _preambles(unit: MatrixUnit) -> Iterator[tuple[str, str]]:
    yield from ((f"40_{name}", text) for name, text in unit.helpers.items())
    yield f"50_{unit.split_names[0]}", first_bits_definition(unit)


class _FirstBits(lp.ScalarCallable):  # type: ignore[misc]
    """The first bits of a number as loopy sees them."""

    def with_types(self, arg_id_to_dtype: Mapping[Any, Any], clbl_inf_ctx: Any) -> tuple[Any, Any]:
        return self.copy(name_in_target=self.name, arg_id_to_dtype=constantdict({0: _FLOAT, -1: _FLOAT})), clbl_inf_ctx

    def generate_preambles(self, target: Any) -> Iterator[tuple[str, str]]:
        yield from _preambles(next(unit for unit in matrix_units().values() if unit.split_names[0] == self.name))


class _MultiplyAndSum(lp.ScalarCallable):  # type: ignore[misc]
    """A step of a sum as loopy sees it: the sums, the corrections, A and B in; the sums and the corrections out."""

    def with_types(self, arg_id_to_dtype: Mapping[Any, Any], clbl_inf_ctx: Any) -> tuple[Any, Any]:
        unit, kind = _unit_and_kind(self.name)
        na, nb, nd = unit.registers
        ids = [*range(2 * nd + na + (2 if kind == "split" else 1) * nb), *range(-2 * nd, 0)]
        return self.copy(name_in_target=self.name, arg_id_to_dtype=constantdict(dict.fromkeys(ids, _FLOAT))), clbl_inf_ctx

    def generate_preambles(self, target: Any) -> Iterator[tuple[str, str]]:
        unit, kind = _unit_and_kind(self.name)
        yield from _preambles(unit)
        yield f"60_{self.name}", summing_definition(unit, kind)
