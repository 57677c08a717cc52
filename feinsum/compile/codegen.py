"""From a transformed loopy kernel to a :class:`KernelProgram`: OpenCL C source and launch geometry."""

from __future__ import annotations

from typing import Any

import loopy as lp
import numpy as np
from loopy.kernel.data import LocalInameTag, VectorizeTag
from loopy.kernel.tools import get_subkernel_to_insn_id_map, get_subkernels
from loopy.schedule import EnterLoop, LeaveLoop, RunInstruction
from loopy.schedule.tools import get_subkernel_arg_info
from loopy.symbolic import IdentityMapper, get_dependencies
from loopy.types import NumpyType
from pymbolic.primitives import FloorDiv, Max, Min, Product, Remainder, Sum, Variable

from feinsum.compile.detours import detours_paused
from feinsum.compile.kernel_program import Extent, KernelArgument, KernelLaunch, KernelProgram
from feinsum.compile.ordered import any_order_paused
from feinsum.effects import Pause, deprecations_paused
from feinsum.errors import TransformError, told
from feinsum.lower.epilogue_expressions import GivenAtCall
from feinsum.lower.same_bytes import without_copies

_cache_unused = Pause(lambda: bool(lp.CACHING_ENABLED), lp.set_caching_enabled)
"""loopy keeps every kernel on disk, without a bound; ours are kept elsewhere, and most are tried once."""


def generate_program(t_unit: lp.TranslationUnit, *, proved: bool = False) -> KernelProgram:
    """Generate the source and the launches of the entry point of a translation unit.

    :param proved: whether the same code was generated before, and proved to stay within its arrays: loopy then omits that
        proof, which takes a tenth of its time.
    :raises TransformError: if loopy cannot schedule the kernel or generate code for it; the message is loopy's.
    """
    try:
        with _cache_unused, any_order_paused, deprecations_paused, detours_paused():
            return _generate_code(_without_bounds_check(t_unit) if proved else t_unit)
    except (TransformError, MemoryError):
        raise
    except Exception as error:  # loopy raises LoopyError, RuntimeError, NotImplementedError, isl errors, ...
        raise TransformError(f"loopy generates no code: {told(error)}") from error


def _generate_code(t_unit: lp.TranslationUnit) -> KernelProgram:
    linearized = _linearize(type_limits(t_unit, t_unit.default_entrypoint.name))
    kernel = linearized.default_entrypoint
    source = lp.generate_code_v2(linearized).device_code()
    insn_ids = get_subkernel_to_insn_id_map(kernel)
    launches = []
    passed: dict[str, None] = {}
    needed, stands_for = without_copies(kernel, {name: insn_ids[name] for name in get_subkernels(kernel)})
    for name in needed:
        info = get_subkernel_arg_info(kernel, name)
        groups, group_size = kernel.get_grid_sizes_for_insn_ids_as_exprs(
            insn_ids[name], linearized.callables_table, return_dict=False
        )
        names = tuple(stands_for.get(x, x) for x in (*info.passed_arg_names, *info.passed_temporaries))
        passed.update(dict.fromkeys(names))
        launches.append(KernelLaunch(name, names, _grid(groups), tuple(int(size) for size in group_size) or (1,)))
    return KernelProgram(
        source, tuple(_kernel_argument(kernel, name) for name in _needed_arguments(kernel, passed)), tuple(launches)
    )


def _without_bounds_check(t_unit: lp.TranslationUnit) -> lp.TranslationUnit:
    return lp.set_options(t_unit, enforce_array_accesses_within_bounds="no_check")


def silenced(t_unit: lp.TranslationUnit) -> lp.TranslationUnit:
    """The same kernels, with loopy's warnings about them silenced."""
    for kernel in [own.subkernel for own in t_unit.callables_table.values() if isinstance(own, lp.CallableKernel)]:
        t_unit = t_unit.with_kernel(kernel.copy(silenced_warnings=frozenset({"*"})))
    return t_unit


def is_for_opencl(t_unit: lp.TranslationUnit) -> bool:
    """Whether the code of a translation unit is OpenCL C."""
    return isinstance(t_unit.target, lp.OpenCLTarget)


def type_limits(t_unit: lp.TranslationUnit, name: str) -> lp.TranslationUnit:
    """Where indices have 64 bits, widen all arguments of ``min`` to them, since OpenCL C has no ``min`` of a long and an
    int.

    :param name: of the kernel.
    """
    kernel = t_unit[name]
    if kernel.index_dtype.itemsize < 8:
        return t_unit
    scalars = (a for a in kernel.args if isinstance(a, lp.ValueArg) and isinstance(a.dtype, NumpyType))
    mapper = _TypedLimits(frozenset(a.name for a in scalars if a.dtype.numpy_dtype.kind in "iu" and a.dtype.itemsize < 8))
    rules = {name: rule.copy(expression=mapper(rule.expression)) for name, rule in kernel.substitutions.items()}
    instructions = [insn.with_transformed_expressions(mapper) for insn in kernel.instructions]
    return t_unit.with_kernel(kernel.copy(instructions=instructions, substitutions=rules))


class _TypedLimits(IdentityMapper):  # type: ignore[misc]
    """``min(x, 8)`` -> ``min(x, 8l)``, and ``min(x, n - 1)`` -> ``min(x, n - 1l)`` where n is narrow.

    A sum, since loopy finds no bounds of what is cast.
    """

    def __init__(self, narrow: frozenset[str]) -> None:
        super().__init__()
        self._narrow = narrow

    def map_min(self, expr: Any) -> Any:
        return type(expr)(tuple(self._typed(self.rec(child)) for child in expr.children))

    def _typed(self, child: Any) -> Any:
        if isinstance(child, int):
            return np.int64(child)
        if not get_dependencies(child) & self._narrow:
            return child
        terms = child.children if isinstance(child, Sum) else (child, 0)
        return Sum(tuple(np.int64(term) if isinstance(term, int) else term for term in terms))

    map_max = map_min


def _linearize(t_unit: lp.TranslationUnit) -> lp.TranslationUnit:
    """Order the instructions of a kernel, each with its vector lanes directly around it.

    loopy 2025.2 has a fast scheduler that knows no vector loops and an old one that takes minutes for a few loop nests. A
    lane is no loop, so the fast scheduler is shown a work-item, and the lane is put in afterwards.
    """
    name = t_unit.default_entrypoint.name
    kernel = t_unit[name]
    lanes = {iname for iname in kernel.inames if kernel.iname_tags_of_type(iname, VectorizeTag)}
    if not lanes or kernel.linearization is not None:
        return lp.linearize(lp.preprocess_program(t_unit))
    used = {tag.axis for iname in kernel.inames for tag in kernel.iname_tags_of_type(iname, LocalInameTag)}
    axis = next(axis for axis in range(3) if axis not in used)
    shown = lp.linearize(lp.preprocess_program(t_unit.with_kernel(_retag(kernel, lanes, LocalInameTag(axis)))))
    order = []
    for item in shown[name].linearization:
        inside = sorted(lanes & shown[name].id_to_insn[item.insn_id].within_inames) if _runs_of_schedule(item) else []
        order += [*(EnterLoop(iname=iname) for iname in inside), item, *(LeaveLoop(iname=iname) for iname in inside)]
    return shown.with_kernel(_retag(shown[name], lanes, VectorizeTag()).copy(linearization=order))


def _runs_of_schedule(item: Any) -> bool:
    return isinstance(item, RunInstruction)


def _retag(kernel: lp.LoopKernel, inames: set[str], tag: Any) -> lp.LoopKernel:
    changed = {name: kernel.inames[name].copy(tags=frozenset([tag])) for name in inames}
    return kernel.copy(inames={**kernel.inames, **changed})


def _needed_arguments(kernel: lp.LoopKernel, passed: dict[str, None]) -> list[str]:
    """Every argument of the kernel, then the temporaries in global memory that launches share."""
    return [*kernel.arg_dict, *(name for name in passed if name in kernel.temporary_variables)]


def _kernel_argument(kernel: lp.LoopKernel, name: str) -> KernelArgument:
    if name in kernel.temporary_variables:
        variable, kind = kernel.temporary_variables[name], "scratch"
    else:
        variable = kernel.arg_dict[name]
        if isinstance(variable, lp.ValueArg):
            kind = "scalar" if variable.tags_of_type(GivenAtCall) else "length"
            return KernelArgument(name, kind, np.dtype(variable.dtype.numpy_dtype).name, ())
        kind = "output" if variable.is_output else "input"
    return KernelArgument(name, kind, np.dtype(variable.dtype.numpy_dtype).name, tuple(map(to_extent, variable.shape)))


def _grid(groups: tuple[Any, ...]) -> tuple[Extent, ...]:
    return tuple(map(to_extent, groups)) or (1,)


def to_extent(expression: Any) -> Extent:
    """A length in loopy's terms as plain data.

    :raises TransformError: for anything but sums, products, quotients, remainders, minima and maxima of parameters.
    """
    if isinstance(expression, (int, np.integer)):
        return int(expression)
    if isinstance(expression, Variable):
        return str(expression.name)
    if isinstance(expression, Product):
        first, *rest = map(to_extent, expression.children)
        for factor in rest:
            first = ("*", first, factor)
        return first
    for kind, operator in ((Sum, "+"), (Min, "min"), (Max, "max")):
        if isinstance(expression, kind):
            return (operator, *map(to_extent, expression.children))
    for kind, operator in ((FloorDiv, "//"), (Remainder, "%")):
        if isinstance(expression, kind):
            return (operator, to_extent(expression.numerator), to_extent(expression.denominator))
    raise TransformError(f"'{expression}' is no length that a launch can compute")
