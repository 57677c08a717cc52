"""Kernels: functions of the immediate language made ready for a device; what :func:`feinsum.build` returns for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from feinsum.compile.sequence import queue_and_events
from feinsum.errors import ValidationError
from feinsum.languages.calling.arguments import refuse_keywords
from feinsum.languages.calling.protocols import BuildRequest, ProgramCall
from feinsum.languages.diagnostics import Findings
from feinsum.languages.immediate.arguments import bind_parameters, instances, signature
from feinsum.languages.immediate.function_plan import (
    FunctionPlan,
    IndexMark,
    PlannedContraction,
    PlannedLoop,
    Unit,
    as_written,
)
from feinsum.languages.immediate.memory import arguments_in, lay_out, tensors_of_units
from feinsum.languages.immediate.notation import ImmediateNotation
from feinsum.languages.immediate.printing import show_instruction
from feinsum.languages.immediate.raising import raised
from feinsum.languages.immediate.reading import Reading
from feinsum.languages.immediate.repeated import Repeated
from feinsum.languages.immediate.resolve import resolve_names
from feinsum.languages.immediate.running import UnitRunner
from feinsum.languages.immediate.syntax import ImmediateFunction
from feinsum.languages.source import SourceText


def plan_function(function: ImmediateFunction, route: str = "auto") -> FunctionPlan:
    """The plan of a function: one einsum for each instruction on the route ``"general"``, else as few as can be."""
    notation = ImmediateNotation(Findings(SourceText("")), strict=False)
    plan = as_written(resolve_names(Reading(function, frozenset()), notation))
    return plan if route == "general" else raised(plan)


class ImmediateKernel:
    """A function on a device, behind :class:`feinsum.Built`.

    :ivar plan: the einsums that it was raised to.
    """

    sizes: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, function: ImmediateFunction, source: SourceText, request: BuildRequest) -> None:
        self.function, self._source, self._device = function, source, request.device
        self.route = "general" if request.route == "general" else "einsum"
        self.plan = plan_function(function, request.route)
        self._runner = UnitRunner(request, self.plan.is_batched)
        self._signature, self._roots, self._numbers = (
            signature(function),
            tensors_of_units(self.plan.units),
            arguments_in(self.plan),
        )
        self._remarks: dict[str, str] = {}
        self._repeated = Repeated()

    def call(self, call: ProgramCall) -> Any:
        """Execute the function for each work-item; see :class:`feinsum.Built`.

        A group has one axis more in front; one of pointers may be a list of arrays or ``(pool, offsets)``.
        """
        arguments, count, queue, wait_for, _ = call
        if not wait_for and (done := self._repeated.enqueue(arguments, count, queue, self._device.context)) is not None:
            return done
        bound = bind_parameters(self._signature, arguments)
        items = instances(self.function, bound, count)
        _, events = queue_and_events(self._device, queue, wait_for)
        for event in events:
            event.wait()
        memory = lay_out(self._roots, bound, items)
        on_device = not isinstance(memory.sample, np.ndarray)
        if items:
            values = {v: one.value for v in self._numbers for one in bound if one.parameter.name.text == v.name}
            self._runner.run(self.plan.units, memory, values, items, queue if on_device else None)
        for finish in memory.later:
            finish()
        self._remarks = memory.remarks
        if on_device:
            self._repeated.learn(arguments, count, self.plan, memory, self._runner, items)
        return self._signature.written_among(arguments)

    @property
    def source(self) -> str:
        """The OpenCL C sources of the kernels that were called so far."""
        kernels = [launch.kernel for known in self._runner.launches.values() for launch in known.values()]
        if not kernels:
            raise ValidationError("kernels are made at the first call, when it is known how arrays lie in memory")
        return "\n".join(kernel.source for kernel in kernels)

    def ir(self, name: str | None = None) -> str:
        """The einsums, ``"written"`` or ``"raised"``; by default those that are launched.

        :raises ValidationError: if it is neither.
        """
        if name not in (None, "written", "raised"):
            raise ValidationError(f"there is no pass {name!r}; there are 'written' and 'raised'")
        plan = self.plan if name is None else plan_function(self.function, "general" if name == "written" else "auto")
        return "".join(f"{line}\n" for line in outline(plan.units))

    def explain(self) -> str:
        """For each einsum what it computes, which instructions it does, which kernel does it, and what was not obeyed.

        Kernels are made at the first call, when it is known how arrays lie in memory.
        """
        lines = [f"@{self.function.name} on {self._device}"]
        lines += self._lines(self.plan.units, "")
        lines += [f"  copied    {remark}" for remark in self._remarks.values()]
        return "\n".join(lines)

    def _lines(self, units: Sequence[Any], margin: str) -> list[str]:
        lines: list[str] = []
        for unit in units:
            if isinstance(unit, PlannedLoop):
                lines.append(
                    f"{margin}for %{unit.variable.name} = {unit.variable.start} to {unit.variable.stop}, by the host"
                )
                lines += self._lines(unit.body, margin + "  ")
            elif isinstance(unit, PlannedContraction):
                lines += [margin + line for line in self._contraction(unit)]
        return lines

    def _contraction(self, unit: PlannedContraction) -> list[str]:
        places = sorted({self._source.place(update.span).line for update in unit.sources if update.span.end})
        where = f"lines {', '.join(map(str, places))}: " if len(places) > 1 else f"line {places[0]}: " if places else ""
        lines = [f"{where}{formula(unit)}"]
        if len(unit.sources) == 1:
            lines.append(f"  written   {show_instruction(unit.sources[0]).splitlines()[0]}")
        else:
            lines.append(f"  raised    from {len(unit.sources)} instructions")
        if unit.folded:
            lines.append(f"  folded    loops, as {', '.join(unit.folded)}")
        launches = self._runner.launches.get(unit, {})
        for launch in launches.values():
            lines += launch.kernel.explain().splitlines()
            if not launch.is_direct:
                lines.append("  behind it alpha, beta and the place of the result are done in a launch of their own")
            lines += [self._wish(*wish) for wish in launch.wishes]
        return lines if launches or unit.alpha == 0 else [*lines, "  no kernel yet: it is made at the first call"]

    def _wish(self, wish: IndexMark, why: str) -> str:
        """A line on a mark: whether it was obeyed, and if not, why."""
        span = wish.mark.span
        where = f" of line {self._source.place(span).line}" if span.end else ""
        return f"  {'ignored' if why else 'obeyed '}   {wish.mark}{where}{': ' if why else ''}{why}"


def formula(unit: PlannedContraction) -> str:
    """The formula of a contraction, in the indices of the language."""
    beta = "" if unit.beta == 0 else " + C" if unit.beta == 1 else f" + {unit.beta!r} C"
    factor = "" if unit.alpha == 1 else f"{unit.alpha!r} "
    return f"C := {factor}{unit.text}{beta}"


def outline(units: Sequence[Unit], margin: str = "") -> Iterator[str]:
    """A line for each einsum, loop and barrier."""
    for unit in units:
        if isinstance(unit, PlannedContraction):
            yield f"{margin}{formula(unit)}"
        elif isinstance(unit, PlannedLoop):
            yield f"{margin}for %{unit.variable.name} = {unit.variable.start} to {unit.variable.stop}"
            yield from outline(unit.body, margin + "    ")
        else:
            yield f"{margin}barrier"


def build_immediate(function: ImmediateFunction, source: SourceText, request: BuildRequest) -> ImmediateKernel:
    """See :func:`feinsum.build`.

    :raises ValidationError: if indices are to be checked.
    """
    refuse_keywords({"check": request.check}, "indices are checked before a kernel runs")
    return ImmediateKernel(function, source, request)
