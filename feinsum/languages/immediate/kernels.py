"""Kernels: functions of the immediate language made ready for a device; what :func:`feinsum.build` returns for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from feinsum.errors import ValidationError
from feinsum.languages.diagnostics import Findings
from feinsum.languages.immediate.arguments import bind, check_apart, instances, require_one_library, written_arrays
from feinsum.languages.immediate.memory import lay_out, numbers
from feinsum.languages.immediate.notation import Notation
from feinsum.languages.immediate.plan import Contraction, Plan, Repeat, as_written
from feinsum.languages.immediate.printing import show_instruction
from feinsum.languages.immediate.raising import raised
from feinsum.languages.immediate.reading import Reading
from feinsum.languages.immediate.resolve import resolve
from feinsum.languages.immediate.running import Runner, Settings
from feinsum.languages.immediate.syntax import Function
from feinsum.languages.source import Source

if TYPE_CHECKING:
    from feinsum.devices import Device

SCHEDULES = ("free", "written")
"""Whether instructions are raised to larger einsums."""


def plan_of(function: Function, schedule: str = "free") -> Plan:
    """What a function does: one einsum for each instruction if the schedule is ``"written"``, else as few as can be."""
    if schedule not in SCHEDULES:
        raise ValidationError(f"schedule is {schedule!r}; it is one of {', '.join(map(repr, SCHEDULES))}")
    notation = Notation(Findings(Source("")), strict=False)
    plan = as_written(resolve(Reading(function, frozenset()), notation))
    return raised(plan) if schedule == "free" else plan


class ImmediateKernel:
    """A function of the immediate language on a device; made by :func:`feinsum.build`.

    :ivar plan: the einsums that it was raised to.
    """

    def __init__(self, function: Function, source: Source, plan: Plan, settings: Settings) -> None:
        self.function, self.source, self.plan, self.device = function, source, plan, settings.device
        self._runner = Runner(settings, plan.is_batched)
        self._remarks: dict[str, str] = {}

    def __call__(
        self, *, count: int | None = None, queue: Any = None, wait_for: Sequence[Any] | None = None, **arguments: Any
    ) -> Any:
        """Execute the function for each work-item; arguments that are written are updated in place.

        :param arguments: by name: all numpy arrays, or all pyopencl arrays; a group has one axis more in front, and one of
            pointers may be a list of arrays or ``(pool, offsets)``.
        :param count: how many items there are; by default as many as the shortest group has.
        :param queue: for pyopencl arrays, the queue to use.
        :param wait_for: events of pyopencl to wait for.
        :returns: what is written: one array, or a tuple in order of declaration.
        :raises ValidationError: if an argument does not fit, before anything runs.
        """
        bound = bind(self.function, arguments)
        library = require_one_library(bound)
        check_apart(self.function, bound)
        items = instances(self.function, bound, count)
        for event in wait_for or ():
            event.wait()
        memory = lay_out(self.plan, bound, items)
        if items:
            self._runner.run(
                self.plan.units, memory, numbers(self.plan, bound), items, queue if library == "pyopencl" else None
            )
        for finish in memory.later:
            finish()
        self._remarks = memory.remarks
        return written_arrays(bound)

    def explain(self) -> str:
        """For each einsum what it computes, which instructions it does, which kernel does it, and what was not obeyed.

        Kernels are made at the first call, when it is known how arrays lie in memory.
        """
        lines = [f"@{self.function.name} on {self.device}"]
        lines += self._lines(self.plan.units, "")
        lines += [f"  copied    {remark}" for remark in self._remarks.values()]
        return "\n".join(lines)

    def _lines(self, units: Sequence[Any], margin: str) -> list[str]:
        lines: list[str] = []
        for unit in units:
            if isinstance(unit, Repeat):
                lines.append(
                    f"{margin}for %{unit.variable.name} = {unit.variable.start} to {unit.variable.stop}, by the host"
                )
                lines += self._lines(unit.body, margin + "  ")
            elif isinstance(unit, Contraction):
                lines += [margin + line for line in self._contraction(unit)]
        return lines

    def _contraction(self, unit: Contraction) -> list[str]:
        places = sorted({self.source.place(update.span).line for update in unit.sources if update.span.end})
        where = f"lines {', '.join(map(str, places))}: " if len(places) > 1 else f"line {places[0]}: " if places else ""
        beta = "" if unit.beta == 0 else " + C" if unit.beta == 1 else f" + {unit.beta!r} C"
        factor = "" if unit.alpha == 1 else f"{unit.alpha!r} "
        lines = [f"{where}C := {factor}{unit.text}{beta}"]
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
            lines += [f"  ignored   {remark}" for remark in launch.remarks]
        return lines or ["  no kernel yet"]


def build(
    function: Function,
    source: Source,
    device: Device,
    *,
    database: Any = None,
    sizes: Mapping[str, int] | None = None,
    tune: str = "never",
    route: str = "auto",
    schedule: str = "free",
) -> ImmediateKernel:
    """See :func:`feinsum.build`.

    :param schedule: ``"free"`` raises instructions to larger einsums, ``"written"`` launches each of them.
    """
    if route not in ("auto", "einsum"):
        raise ValidationError(f"route is {route!r}; programs of the immediate language are einsums, so leave it out")
    plan = plan_of(function, schedule)
    return ImmediateKernel(function, source, plan, Settings(device, database, sizes, tune))
