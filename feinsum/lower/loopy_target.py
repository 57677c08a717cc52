"""The target of kernels that only feinsum reads: PyOpenCL's without loopy's random numbers, complex copies in parts, and
constants of their type.

loopy examines every function that a target knows; for those of Random123 it loads mako and pygments and renders templates:
27 ms of a first kernel, though no einsum needs random numbers.

Intel's compiler (2026.2) drops the condition of ``if (-1 + -16 * gid(0) + -1 * lid(0) + n >= 0) out[i] = x[j];`` for some
lanes where the numbers are structures of two doubles, as complex numbers are, so that it writes beyond the last one.  It
keeps the condition where numbers are made of their parts.

loopy 2025.2 writes the ``uint`` 0 as ``0ul``, and what is computed with it has 64 bits: ``0ul + x - y < z`` is false where
``x - y`` is below zero, though numbers of 32 bits wrap around.  Two ``ulong`` that are compared it takes for ``double``, as
their difference is one by numpy's rules, and writes constants of 64 bits as ``double``, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import Any

import loopy as lp
import numpy as np
from loopy.schedule import EnterLoop, LeaveLoop
from loopy.symbolic import Literal
from loopy.target.opencl import OpenCLCallable, OpenCLCASTBuilder
from loopy.target.pyopencl import ExpressionToPyOpenCLCExpressionMapper, PyOpenCLCASTBuilder, get_pyopencl_callables
from pymbolic.primitives import Subscript

from feinsum.epilogue.vector_functions import ERF, own_functions

_DEEP = 12
"""Where so many loops are nested none is unrolled.  Compilers unroll loops of length 2 from the inside out, level by level:
Intel's 2026.2 took 0.6 s for 18 of them instead of 0.1, for a kernel that is as fast."""


class QuietTarget(lp.PyOpenCLTarget):  # type: ignore[misc]
    """Generates the code that :class:`loopy.PyOpenCLTarget` does."""

    def get_device_ast_builder(self) -> _AstBuilder:
        return _AstBuilder(self)


class _AstBuilder(PyOpenCLCASTBuilder):  # type: ignore[misc]
    @property
    def known_callables(self) -> dict[str, Any]:
        """The functions of OpenCL C and pyopencl."""
        known = {**OpenCLCASTBuilder(self.target).known_callables, **get_pyopencl_callables()}
        return {**known, "erf": _Erf(name="erf")}

    def get_expression_to_c_expression_mapper(self, codegen_state: Any) -> _ToC:
        """Loopy's mapper, except for constants of 32 and 64 bits without a sign."""
        return _ToC(codegen_state)

    def emit_sequential_loop(self, codegen_state: Any, *args: Any) -> Any:
        """Loopy's loop; where very many are nested, compilers shall not unroll it."""
        *loop, hints = args
        if not hints and _nesting_depth(codegen_state.kernel.linearization) >= _DEEP:
            hints = [self.emit_unroll_hint(1)]
        return super().emit_sequential_loop(codegen_state, *loop, hints)

    def emit_assignment(self, codegen_state: Any, insn: Any) -> Any:
        """Loopy's statement, except that a complex number which is copied to memory is made of its parts."""
        code = super().emit_assignment(codegen_state, insn)
        if not isinstance(insn.expression, Subscript) or not isinstance(insn.assignee, Subscript):
            return code
        names = insn.assignee.aggregate.name, insn.expression.aggregate.name
        dtypes = [codegen_state.kernel.get_var_descriptor(name).dtype.numpy_dtype for name in names]
        if dtypes[0] not in _MAKERS or dtypes[0] != dtypes[1] or insn.atomicity:
            return code
        return type(code)(code.lvalue, f"{_MAKERS[dtypes[0]]}({code.rvalue}.real, {code.rvalue}.imag)")


def _nesting_depth(items: Iterable[Any]) -> int:
    """How many loops are nested at most."""
    steps = (isinstance(item, EnterLoop) - isinstance(item, LeaveLoop) for item in items)
    return max(accumulate(steps), default=0)


class _ToC(ExpressionToPyOpenCLCExpressionMapper):  # type: ignore[misc]
    def map_constant(self, expr: Any, type_context: Any) -> Any:
        if isinstance(expr, np.uint32 | np.uint64):
            return Literal(f"{int(expr)}{'u' if isinstance(expr, np.uint32) else 'ul'}")
        return super().map_constant(expr, type_context)


class _Erf(OpenCLCallable):  # type: ignore[misc]
    """The error function; that of float32 is our own, which has no branches."""

    def with_types(self, arg_id_to_dtype: Any, clbl_inf_ctx: Any) -> Any:
        """The types of the argument and the result, and the name in C."""
        known, context = super().with_types(arg_id_to_dtype, clbl_inf_ctx)
        if known.name_in_target is not None and known.arg_id_to_dtype[0].numpy_dtype == np.float32:
            known = known.copy(name_in_target=ERF)
        return known, context

    def generate_preambles(self, target: Any) -> Any:
        """The definition of our own."""
        if self.name_in_target == ERF:
            yield from ((f"70_{name}", text) for name, text in own_functions(f"{ERF}("))


_MAKERS = {np.dtype(np.complex64): "cfloat_new", np.dtype(np.complex128): "cdouble_new"}
"""The functions that make a complex number of its parts."""
