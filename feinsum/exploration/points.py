"""Points of a transform space as code: the loopy kernel and the OpenCL C of a configuration, and the difference of two."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from feinsum.apart import remembered
from feinsum.compile.kernel_program import KernelProgram
from feinsum.einsum import BatchedEinsum
from feinsum.errors import FeinsumError
from feinsum.report.code import highlighted, line_by_line, unified
from feinsum.report.figures import duration, listed
from feinsum.report.html import details, display_block, element, facts, side_by_side_parts, table
from feinsum.space import Problem, TransformSpace

if TYPE_CHECKING:
    import loopy as lp

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""loopy colours its kernels for terminals."""


@dataclass(frozen=True)
class KernelCode:
    """A loopy kernel and the OpenCL C that is generated of it, which a notebook shows side by side.

    :ivar t_unit: the kernel.
    :ivar title: the heading; may be empty.
    """

    t_unit: lp.TranslationUnit = field(repr=False)
    title: str = ""

    @remembered
    def program(self) -> KernelProgram:
        """Source, arguments and launches.

        :raises TransformError: if loopy generates no code.
        """
        from feinsum.compile.codegen import generate_program

        return generate_program(self.t_unit)

    @property
    def source(self) -> str:
        """The OpenCL C source."""
        return self.program.source

    @property
    def loopy_text(self) -> str:
        """The kernel as loopy prints it, without colours."""
        return _COLOURS.sub("", str(self.t_unit))

    def __str__(self) -> str:
        return f"{self.loopy_text}\n{self.source}"

    def _repr_html_(self) -> str:
        columns = {"loopy": highlighted(self.loopy_text, "loopy"), "OpenCL C": highlighted(self.source, "opencl")}
        return display_block(side_by_side_parts(**columns), title=self.title)


@dataclass(frozen=True)
class SpacePoint:
    """One configuration of a space for an einsum; its code is generated when it is asked for.

    :ivar einsum: the einsum.
    :ivar sizes: the lengths expected of the long axes.
    :ivar space: the space.
    :ivar problem: the problem that the space is asked about, which names the device.
    :ivar configuration: the value of each parameter.
    """

    einsum: BatchedEinsum
    sizes: Mapping[str, int]
    space: TransformSpace
    problem: Problem = field(repr=False)
    configuration: Mapping[str, Any]

    @remembered
    def refusal(self) -> str | None:
        """Why the configuration is no point of the space; None if it is one."""
        return self.space.refusal(self.problem, self.configuration)

    @remembered
    def t_unit(self) -> lp.TranslationUnit:
        """The transformed loopy kernel.

        :raises TransformError: if the space refuses the configuration.
        """
        from feinsum.compile.realize import transformed

        return transformed(self.einsum, self.sizes, self.space, self.configuration, self.problem.device)

    @remembered
    def code(self) -> KernelCode:
        """The transformed loopy kernel with its OpenCL C.

        :raises TransformError: if the space refuses the configuration.
        """
        return KernelCode(self.t_unit, str(self))

    def __str__(self) -> str:
        return f"{self.space.name}: {listed(self.configuration)}"

    def _repr_html_(self) -> str:
        try:
            return self.code._repr_html_()
        except FeinsumError as error:
            return display_block(element("p", str(error)), title=str(self))


@dataclass(frozen=True)
class Comparison:
    """Two configurations of one space, and the difference of their kernels.

    :ivar first: the one that changes are counted from.
    :ivar second: the other one.
    :ivar times_s: the best recorded time of each; None where there is none.
    """

    first: SpacePoint
    second: SpacePoint
    times_s: tuple[float | None, float | None] = (None, None)

    @property
    def changes(self) -> dict[str, tuple[Any, Any]]:
        """The parameters that differ, with both choices."""
        ours, theirs = self.first.configuration, self.second.configuration
        return {
            name: (ours.get(name), theirs.get(name)) for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)
        }

    @property
    def summary(self) -> str:
        """The parameters that differ, as text."""
        return ", ".join(f"{name}: {a} -> {b}" for name, (a, b) in self.changes.items()) or "the same configuration"

    def __str__(self) -> str:
        """The difference of the OpenCL sources, in the form of ``diff -u``."""
        names = listed({n: a for n, (a, _) in self.changes.items()}), listed({n: b for n, (_, b) in self.changes.items()})
        return unified(self.first.code.source, self.second.code.source, names)

    def _repr_html_(self) -> str:
        rows = [[name, a, b] for name, (a, b) in self.changes.items()]
        if any(self.times_s):
            rows.append(["recorded time", *(duration(t) if t else "none" for t in self.times_s)])
        try:
            opencl = line_by_line(self.first.code.source, self.second.code.source)
            loopy = line_by_line(self.first.code.loopy_text, self.second.code.loopy_text)
        except FeinsumError as error:
            return display_block(facts({"differs": self.summary}), element("p", str(error)))
        parts = details("OpenCL C, line by line", opencl, shown=True), details("loopy, line by line", loopy)
        return display_block(
            table(["parameter", "first", "second"], rows, text=["parameter"]), *parts, title=self.first.space.name
        )
