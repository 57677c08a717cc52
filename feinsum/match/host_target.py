"""A target whose host code computes with Python's integers, whatever kind of integer the caller passes.

The code that loopy writes for the host computes ``(E + 63) // 64`` groups.  With a ``numpy.int8`` of 100 that overflows,
though the kernel before its transformation took such a length.
"""

from __future__ import annotations

from typing import Any

import loopy as lp
from loopy.target.pyopencl import PyOpenCLPythonASTBuilder
from loopy.target.python import ExpressionToPythonMapper


def with_host_integers(t_unit: lp.TranslationUnit) -> lp.TranslationUnit:
    """The kernels for such a target, if they are for loopy's own; kernels for other targets stay as they are."""
    if type(t_unit.target) is not lp.PyOpenCLTarget:
        return t_unit
    target = _HostIntegers(**{name: getattr(t_unit.target, name) for name in _OPTIONS})
    return t_unit.copy(target=target)


_OPTIONS = ("pyopencl_module_name", "atomics_flavor", "use_int8_for_bool", "limit_arg_size_nbytes", "pointer_size_nbytes")


class _HostIntegers(lp.PyOpenCLTarget):  # type: ignore[misc]
    def get_host_ast_builder(self) -> _HostAstBuilder:
        return _HostAstBuilder(self)


class _HostAstBuilder(PyOpenCLPythonASTBuilder):  # type: ignore[misc]
    def get_expression_to_code_mapper(self, codegen_state: Any) -> _ToPython:
        """Loopy's mapper, except for lengths."""
        return _ToPython(codegen_state)


class _ToPython(ExpressionToPythonMapper):  # type: ignore[misc]
    def map_variable(self, expr: Any, enclosing_prec: int) -> str:
        """``int(E)`` for E."""
        return f"int({super().map_variable(expr, enclosing_prec)})"
