"""The target of kernels that only feinsum reads: PyOpenCL's, without loopy's random numbers.

loopy looks through every function that a target knows; for those of Random123 it loads mako and pygments and renders
templates: 27 ms of a first kernel, in which no einsum has a random number.
"""

from __future__ import annotations

from typing import Any

import loopy as lp
from loopy.target.opencl import OpenCLCASTBuilder
from loopy.target.pyopencl import PyOpenCLCASTBuilder, get_pyopencl_callables


class QuietTarget(lp.PyOpenCLTarget):  # type: ignore[misc]
    """Generates the code that :class:`loopy.PyOpenCLTarget` does."""

    def get_device_ast_builder(self) -> _Builder:
        return _Builder(self)


class _Builder(PyOpenCLCASTBuilder):  # type: ignore[misc]
    @property
    def known_callables(self) -> dict[str, Any]:
        """What OpenCL C and pyopencl have."""
        return {**OpenCLCASTBuilder(self.target).known_callables, **get_pyopencl_callables()}
