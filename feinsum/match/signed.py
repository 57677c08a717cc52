"""Lengths in signed integers of 32 or 64 bits: ``E - 64*g - 1 >= 0`` fails past the end, as ``uint E`` would not let it.

loopy writes the bounds of loops with the types that arguments have, and C turns an int beside an unsigned one into that.
Beside a narrow one, loopy takes numbers for as narrow, so ``E + 7`` overflows.  A pass that signs lengths is what compilers
call index type legalization.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import islpy as isl
import loopy as lp
import numpy as np
from loopy.kernel.data import ArrayArg
from loopy.symbolic import IdentityMapper, TypeCast, get_dependencies
from loopy.types import NumpyType

from feinsum.match.expression_uses import find_uses
from feinsum.match.host_target import with_host_integers

_INT, _LONG = (NumpyType(np.dtype(name)) for name in ("int32", "int64"))


def sign_lengths(t_unit: lp.TranslationUnit) -> lp.TranslationUnit:
    """The kernels with signed lengths, as wide as they were and of 32 bits at least, and indices as wide as the widest.

    Callers pass the same numbers by the same names; what does not fit is refused at the call.  Where a length is a value,
    as in ``y[e] = u[e]/E``, it is converted to the type that it had.
    """
    kernels = [clbl.subkernel for clbl in t_unit.callables_table.values() if isinstance(clbl, lp.CallableKernel)]
    retyped = False
    for kernel in kernels:
        # A kernel that is called, or calls others, gets lengths by any integer.
        lengths = _find_length_names(kernel) if len(kernels) == 1 else kernel.arg_dict.keys()
        signed = _sign_lengths(kernel, [a for a in kernel.args if _is_integer_expression(a) and a.name in lengths])
        if signed is not kernel:
            t_unit, retyped = t_unit.with_kernel(signed), retyped or signed.args != kernel.args
    return with_host_integers(t_unit) if retyped else t_unit


def _sign_lengths(kernel: lp.LoopKernel, lengths: list[lp.ValueArg]) -> lp.LoopKernel:
    types = {a.name: _signed_type(a.dtype) for a in lengths}
    declared = {a.name: a.dtype for a in lengths if a.dtype != types[a.name]}
    # OpenCL C has no min of a long and an int, as in min(e, E - 1).
    wide = max((_signed_type(kernel.index_dtype), *types.values()), key=lambda dtype: dtype.itemsize)
    if kernel.index_dtype != wide:
        kernel = kernel.copy(index_dtype=wide)
    if not declared:
        return kernel
    cast = _AsDeclared(declared, kernel.substitutions)
    rules = {name: rule.copy(expression=cast(rule.expression)) for name, rule in kernel.substitutions.items()}
    return kernel.copy(
        args=[a.copy(dtype=types[a.name]) if a.name in declared else a for a in kernel.args],
        substitutions=rules,
        instructions=[_with_values(insn, cast) for insn in kernel.instructions],
    )


def _is_integer_expression(a: Any) -> bool:
    return isinstance(a, lp.ValueArg) and isinstance(a.dtype, NumpyType) and a.dtype.numpy_dtype.kind in "iu"


def _signed_type(dtype: Any) -> NumpyType:
    return _LONG if dtype.itemsize > _INT.itemsize else _INT


def _find_length_names(kernel: lp.LoopKernel) -> frozenset[str]:
    """The names in bounds of loops, and in shapes, strides and offsets of arrays."""
    names = {name for domain in kernel.domains for name in domain.get_var_dict(isl.dim_type.param)}
    arrays = [a for a in kernel.args if isinstance(a, ArrayArg)]
    for array in (*arrays, *kernel.temporary_variables.values()):
        shape = array.shape if isinstance(array.shape, tuple) else ()
        strides = (getattr(tag, "stride", None) for tag in array.dim_tags or ())
        for place in (*shape, *strides, getattr(array, "offset", None)):
            if place is not None and place is not lp.auto:
                names |= get_dependencies(place)
    return frozenset(names)


def _with_values(insn: Any, cast: _AsDeclared) -> Any:
    """Sums keep what is around them, an epilogue, which converts its scalars itself."""
    if not isinstance(insn, lp.Assignment) or find_uses(insn.expression).reductions:
        return insn
    return insn.copy(expression=cast(insn.expression))


class _AsDeclared(IdentityMapper):  # type: ignore[misc]  # loopy's mappers are not typed for strict checking
    """``E*u[E - 1]`` -> ``cast(uint32, E)*u[E - 1]``: indices and comparisons are right as signed numbers."""

    def __init__(self, declared: Mapping[str, NumpyType], rules: Mapping[str, Any]) -> None:
        super().__init__()
        self._declared, self._rules = declared, rules

    def map_variable(self, expr: Any) -> Any:
        dtype = self._declared.get(expr.name)
        return expr if dtype is None else TypeCast(dtype, expr)

    def map_call(self, expr: Any) -> Any:
        return expr if expr.function.name in self._rules else super().map_call(expr)

    def map_subscript(self, expr: Any) -> Any:
        return expr

    map_comparison = map_sub_array_ref = map_linear_subscript = map_subscript
