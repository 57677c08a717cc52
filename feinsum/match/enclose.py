"""A loop around a kernel: a compiler's kernel of one element becomes a kernel of many.

    for j: b[j] = 2*c[j]        ──▶        for e: for j: b[e, j] = 2*c[e, j]

JAX calls this vmap, and vectorizes it; here the loop is sequential.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import islpy as isl
import loopy as lp
import numpy as np
from loopy.kernel.array import FixedStrideArrayDimTag
from loopy.kernel.data import ArrayArg
from loopy.symbolic import IdentityMapper
from pymbolic import parse
from pymbolic.primitives import Subscript, Variable

from feinsum.errors import MatchError
from feinsum.match.domain import Length, find_parameters, write_cube
from feinsum.match.kernel_source import SourceKernel
from feinsum.match.signed import sign_lengths


def add_loop(
    t_unit: lp.TranslationUnit, iname: str, length: Length, arrays: Collection[str], kernel_name: str | None = None
) -> lp.TranslationUnit:
    """Put a loop around all of a kernel; `arrays`, which differ from iteration to iteration, get an axis for it in front.

    Form compilers write the kernel of one cell.  With its loop over cells, ``add_loop(t_unit, "e", "E", ["A", "coords"])``,
    :func:`feinsum.extract_operands` can see einsums over all cells in it.

    Tables, which are temporaries with initial values, go to global memory, and other local temporaries to private
    memory: the iterations are independent, each the work of one work-item, until a transformation divides them.

    :param iname: the name of the loop, which the kernel must not have.
    :param length: how often the loop runs: a number, or an affine expression of value arguments (``"E"``); those that the
        kernel lacks are added, as 32-bit integers; others are signed as by :func:`feinsum.transform`.
    :param arrays: arguments ``(i, j, ...)`` of the kernel, contiguous, that become ``(length, i, j, ...)``.  All that the
        kernel writes must be among them.
    :raises MatchError: if a name is taken or not there, the kernel has barriers, or an array is not contiguous, is read
        behind a substitution rule, or is written and not among `arrays`.
    """
    source = SourceKernel.of(t_unit, kernel_name)
    _check_new_loop(source, iname, arrays)
    kernel = source.kernel
    arguments = [_with_axis(arg, length) if arg.name in arrays else arg for arg in kernel.args]
    known = {arg.name for arg in arguments}
    arguments += [lp.ValueArg(name, np.int32) for name in sorted(find_parameters(length)) if name not in known]
    put = _InLoop(frozenset(arrays), iname)
    instructions = [
        insn.with_transformed_expressions(put).copy(within_inames=insn.within_inames | {iname})
        for insn in kernel.instructions
    ]
    temporaries = {name: _in_own_memory(variable) for name, variable in kernel.temporary_variables.items()}
    cube = isl.BasicSet(write_cube({iname: length}))
    changed = kernel.copy(
        args=arguments, instructions=instructions, temporary_variables=temporaries, domains=[cube, *kernel.domains]
    )
    return sign_lengths(t_unit.with_kernel(changed))


def _check_new_loop(source: SourceKernel, iname: str, arrays: Collection[str]) -> None:
    kernel = source.kernel
    if isinstance(arrays, str):
        raise MatchError(f"arrays is the text '{arrays}'; give the names of arrays, for example ['{arrays}']")
    if iname in kernel.all_variable_names() | source.inames:
        raise MatchError(f"kernel '{kernel.name}' has a '{iname}' already; choose another name for the loop")
    for name in arrays:
        arg = kernel.arg_dict.get(name)
        if not isinstance(arg, ArrayArg):
            raise MatchError(f"kernel '{kernel.name}' has no array argument '{name}'; it has {sorted(kernel.arg_dict)}")
        if any(name in source.rule(rule).reads for rule in kernel.substitutions):
            raise MatchError(f"'{name}' is read behind a substitution rule; expand it with loopy.expand_subst")
    kept = sorted(name for name in kernel.get_written_variables() & kernel.arg_dict.keys() if name not in arrays)
    if kept:
        raise MatchError(f"kernel '{kernel.name}' writes '{kept[0]}' in each iteration of '{iname}'; name it in arrays")
    if any(isinstance(insn, lp.BarrierInstruction) for insn in kernel.instructions):
        raise MatchError(f"kernel '{kernel.name}' has barriers, which cannot stand in the loop '{iname}'")


def _with_axis(arg: Any, length: Length) -> Any:
    """An argument with one more axis in front."""
    shape = arg.shape
    strides: list[int] = []
    if not isinstance(shape, tuple):
        raise MatchError(f"the shape of '{arg.name}' is not known; give it one")
    for axis in reversed(shape):
        strides.insert(0, strides[0] * shape[len(shape) - len(strides)] if strides else 1)
        if not isinstance(axis, (int, np.integer)):
            raise MatchError(f"'{arg.name}' has an axis of length {axis}; the kernel of one iteration has fixed shapes")
    tags = arg.dim_tags or ()
    found = [tag.stride if isinstance(tag, FixedStrideArrayDimTag) else None for tag in tags]
    if found != strides:
        raise MatchError(f"'{arg.name}' has strides {found}, not {strides}; arrays that get an axis are contiguous")
    longer = (parse(str(length)) if isinstance(length, str) else length, *shape)
    apart = (math.prod(shape), *strides)
    return lp.GlobalArg(arg.name, arg.dtype, shape=longer, strides=apart, is_input=arg.is_input, is_output=arg.is_output)


def _in_own_memory(variable: Any) -> Any:
    """A temporary where each work-item has its own; a table where all see it."""
    if variable.initializer is not None:
        return variable.copy(address_space=lp.AddressSpace.GLOBAL)
    local = variable.address_space == lp.AddressSpace.LOCAL
    return variable.copy(address_space=lp.AddressSpace.PRIVATE) if local else variable


class _InLoop(IdentityMapper[[]]):  # type: ignore[misc]  # loopy's mappers are not typed for strict checking
    def __init__(self, arrays: frozenset[str], iname: str) -> None:
        super().__init__()
        self._arrays, self._iname = arrays, Variable(iname)

    def map_subscript(self, expr: Any) -> Any:
        index = tuple(map(self.rec, expr.index_tuple))
        if expr.aggregate.name in self._arrays:
            index = (self._iname, *index)
        return Subscript(expr.aggregate, index)

    def map_variable(self, expr: Any) -> Any:
        return Subscript(expr, (self._iname,)) if expr.name in self._arrays else expr
