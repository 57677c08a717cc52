"""Schedules as text: an order of contraction is a program of this language, and a recorded chain one with remarks.

    ; @block_contraction 1 {"items":64,...}
    log {ca[e], (db)c to (db)a[e]} 1.0, %A, %B, 0.0, %tmp0

A remark in front of instructions says which space makes the kernel of a step, of which version, by which configuration;
``; @step`` leaves the choice to feinsum.  All instructions up to the next remark are one step.  Without remarks,
every instruction is one.  Marks say which indices the kernel treats as one, and which it takes one value at a time of.

Arrays of numpy have their last index the fastest, so their indices are in reverse here; a text that has them in the same
order, as :func:`feinsum.plan` prints unless it is told otherwise, is understood, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final, NoReturn

from feinsum.canonicalization import canonicalize_einsum
from feinsum.contraction import ContractionSchedule, ContractionStep, fused_schedule, step_einsums
from feinsum.database import TuningRecord
from feinsum.devices import DeviceProfile
from feinsum.einsum import BatchedEinsum
from feinsum.errors import LanguageError, SubscriptError
from feinsum.languages.diagnostics import Note, broken_rule
from feinsum.languages.immediate.function_plan import FunctionPlan, PlannedContraction, TensorTerm
from feinsum.languages.immediate.kernels import plan_function
from feinsum.languages.immediate.marks import Marks, marks_of
from feinsum.languages.immediate.raising import joined_consumer
from feinsum.languages.immediate.resolved import Fence
from feinsum.languages.immediate.schedule_writer import ScheduleWriter
from feinsum.languages.immediate.syntax import ImmediateFunction
from feinsum.languages.program import Program
from feinsum.languages.source import SourceText
from feinsum.registry import find_space
from feinsum.space import Instance, Missed
from feinsum.space.chain import STEPS, read_chain, schedule_of_links
from feinsum.subscripts import Subscripts

_REMARK: Final = re.compile(r"^[ \t]*;[ \t]*@(\w+)(?:[ \t]+(\d+)[ \t]+(\{.*\}))?[ \t]*$", re.M)
_STEP: Final = "step"


@dataclass(frozen=True)
class KernelRemark:
    """The content of a remark: a configuration of a space, which makes the kernel of a step."""

    space: str
    version: int
    configuration: Mapping[str, Any]

    def __str__(self) -> str:
        return f"@{self.space} {self.version} {json.dumps(dict(self.configuration), sort_keys=True, separators=(',', ':'))}"


@dataclass(frozen=True)
class Schedule:
    """An order of contraction, and the kernel and the marks of each step where these are known.

    :ivar steps: in the letters and the order of operands of the einsum.
    :ivar marks: the marks of each step; empty if it has none.
    """

    steps: ContractionSchedule
    kernels: tuple[KernelRemark | None, ...]
    marks: tuple[Marks, ...] = ()

    def __post_init__(self) -> None:
        if not self.marks:
            object.__setattr__(self, "marks", (Marks(),) * len(self.kernels))


def known_schedule(
    e: BatchedEinsum,
    kernel: KernelRemark,
    profile: DeviceProfile | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Schedule:
    """The schedule of an einsum that a configuration implies, in the letters of the einsum.

    A chain has a kernel for each step; a kernel that does everything at once is one step.

    :param profile: that of the device it is for; without it, the marks of its indices are unknown.
    :param sizes: lengths of long axes.
    :raises TransformError, SubscriptError: if it is of a space that is not there, or does not apply.
    """
    plain = _known_steps(e, kernel)
    if profile is None:
        return plain
    whole = Instance.at(e, sizes, profile)
    if len(plain.kernels) == 1:
        return replace(plain, marks=(_known_marks(whole, kernel),))
    steps = step_einsums(e, plain.steps)
    return replace(
        plain,
        marks=tuple(
            _known_marks(Instance.at(step, step.sizes_from(whole.lengths), profile), own) if own else Marks()
            for step, own in zip(steps, plain.kernels, strict=True)
        ),
    )


def _known_marks(here: Instance, kernel: KernelRemark) -> Marks:
    """The marks of the indices of a step by a configuration of a known space."""
    found = find_space(kernel.space)
    with Missed(found):
        return marks_of(here, found, kernel.configuration) or Marks()
    return Marks()


def _known_steps(e: BatchedEinsum, kernel: KernelRemark) -> Schedule:
    if set(kernel.configuration) != {STEPS}:
        return Schedule(fused_schedule(e), (kernel,))
    canonical = canonicalize_einsum(e)
    roles = find_space(kernel.space).roles(canonical.einsum)
    if roles is None:
        raise SubscriptError(f"space '{kernel.space}' does not apply to '{e}'")
    links = read_chain(kernel.configuration[STEPS])
    steps = schedule_of_links(links, roles.apply(canonical.einsum).indexing)
    given = roles.of_given(canonical.renaming)
    kernels = tuple(KernelRemark(link.space, link.version, link.configuration) for link in links)
    return Schedule(steps.rename(given.indices, given.reverse.operands), kernels)


def recorded_schedule(
    e: BatchedEinsum,
    record: TuningRecord,
    profile: DeviceProfile | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Schedule:
    """The schedule of a record of an einsum; see :func:`known_schedule`."""
    return known_schedule(e, KernelRemark(record.space, record.space_version, record.configuration), profile, sizes)


def write_schedule(
    e: BatchedEinsum, schedule: Schedule, sizes: Mapping[str, int] | None = None, name: str = "schedule"
) -> str:
    """The text of a schedule, which :func:`read_schedule` reads back.

    A step of several operands, or one that sums over an index of a single operand, is written as several instructions
    below one remark.

    :param sizes: lengths of long axes, for types have none that is open.
    :raises SubscriptError, DTypeError: if the language has no words for it: diagonals, several outputs, complex numbers.
    """
    _require_plain(e)
    schedule.steps.check(e.indexing)
    writer = ScheduleWriter(e, e.resolve(sizes))
    whole = zip(schedule.steps.steps, schedule.kernels, schedule.marks, strict=True)
    for number, (step, kernel, marks) in enumerate(whole):
        writer.step(step, str(kernel or f"@{_STEP}"), marks, is_last=number == len(schedule.steps.steps) - 1)
    return writer.text(name)


def read_schedule(p: Program, e: BatchedEinsum, function: str | None = None) -> Schedule:
    """The schedule that a program says for an einsum.

    :raises LanguageError: at the instruction that does not fit.
    :raises SubscriptError: if the program computes something else.
    """
    _require_plain(e)
    chosen: ImmediateFunction = p.function(function)
    plan = plan_function(chosen, "general")
    reader = _ScheduleReader(p.source, e, plan)
    try:
        return reader.read(step=-1)
    except LanguageError:
        try:
            return reader.read(step=1)
        except LanguageError:
            pass
        raise


def _require_plain(e: BatchedEinsum) -> None:
    if e.b > 1 or any(len(entry) > 1 for row in e.args for entry in row):
        raise SubscriptError(
            f"'{e.subscripts}' has several outputs, or several arrays in an operand; schedules have one each"
        )


class _ScheduleReader:
    """Steps of contractions whose letters are local to each."""

    def __init__(self, source: SourceText, e: BatchedEinsum, plan: FunctionPlan) -> None:
        self._source, self._e, self._plan = source, e, plan
        self._batch = " "
        self._remarks = [(source.text.count("\n", 0, m.start()) + 1, m) for m in _REMARK.finditer(source.text)]

    def read(self, step: int) -> Schedule:
        """The schedule, of arrays whose indices are in reverse (-1) or not (1)."""
        groups = self._groups()
        terms = {k: letters[::step] for k, letters in enumerate(self._e.indexing.inputs)}
        names: dict[str, list[int]] = {}
        for k, (a,) in enumerate(self._e.args[0]):
            names.setdefault(a.name, []).append(k)
        made: dict[object, int] = {}
        self._batch = self._e.indexing.output[::step][-1:] if self._plan.is_batched else " "
        steps: list[ContractionStep] = []
        marks: list[Marks] = []
        for number, (contraction, _) in enumerate(groups):
            taken = {k for step_ in steps for k in step_.operands}
            able = [self._operands(contraction, term, names, made, taken) for term in contraction.terms]
            operands, letters = self._letters(contraction, able, terms)
            batch = self._batch if any(self._batch in terms[k] for k in operands) else ""
            output = "".join(letters[x] for x in contraction.result.letters) + batch
            if number == len(groups) - 1:
                self._check_output(contraction, output[::step])
            inputs = tuple(terms[k][::step] for k in operands)
            steps.append(ContractionStep(operands, Subscripts(inputs, output[::step])))
            fused = dict.fromkeys("".join(letters[x] for x in wish.letters[::step]) for wish in contraction.groups)
            looped = sorted({letters[wish.letters] for wish in contraction.loops})
            marks.append(Marks(tuple(fused), "".join(looped)))
            made[contraction.result.root] = self._e.n + number
            terms[self._e.n + number] = output
        schedule = ContractionSchedule(tuple(steps))
        try:
            schedule.check(self._e.indexing)
        except SubscriptError as error:
            self._refuse(groups[-1][0], f"this is not '{self._e.subscripts}': {error}")
        return Schedule(schedule, tuple(kernel for _, kernel in groups), tuple(marks))

    def _groups(self) -> list[tuple[PlannedContraction, KernelRemark | None]]:
        """The instructions of each step as one contraction."""
        found: list[tuple[list[PlannedContraction], int | None]] = []
        for unit in self._plan.units:
            if isinstance(unit, Fence):
                continue
            if not isinstance(unit, PlannedContraction):
                raise SubscriptError("a schedule has no loops; the kernels of its steps have them")
            if unit.alpha != 1 or unit.beta != 0:
                self._refuse(unit, "a step of a schedule has alpha = 1 and beta = 0")
            line = self._source.place(unit.sources[0].span).line
            remark = max((k for k, (at, _) in enumerate(self._remarks) if at < line), default=None)
            if found and remark is not None and remark == found[-1][1]:
                found[-1][0].append(unit)
            else:
                found.append(([unit], remark))
        if not found:
            raise SubscriptError("the program has no instruction, so it is no schedule")
        return [
            (self._together(group), None if remark is None else _kernel_of_remark(self._remarks[remark][1]))
            for group, remark in found
        ]

    def _together(self, group: list[PlannedContraction]) -> PlannedContraction:
        """One contraction of several, each of which but the last is read by one that follows."""
        left = list(group)
        while len(left) > 1:
            first = left.pop(0)
            readers = [k for k, c in enumerate(left) for term in c.terms if term.root is first.result.root]
            if len(readers) != 1:
                self._refuse(
                    first, "the result of an instruction is read once, in its own step, unless it is the last there"
                )
            left[readers[0]] = joined_consumer(first, left[readers[0]])
        return left[0]

    def _operands(
        self,
        contraction: PlannedContraction,
        term: TensorTerm,
        names: Mapping[str, Sequence[int]],
        made: Mapping[object, int],
        taken: Collection[int],
    ) -> list[int]:
        """Operand k of the einsum, of which an array may be several, or n + s for the result of step s."""
        name = term.root.group or term.root.name
        if not term.is_whole:
            self._refuse(contraction, f"a schedule takes whole tensors, and this is a part of %{name}")
        if term.root in made:
            return [made[term.root]]
        if term.root.kind == "alloca" or name not in names:
            self._refuse(contraction, f"%{name} is no operand of '{self._e.subscripts}', which has {', '.join(names)}")
        left = [k for k in names[name] if k not in taken]
        if not left:
            self._refuse(contraction, f"%{name} is read more often than it is an operand of '{self._e.subscripts}'")
        return left

    def _letters(
        self, contraction: PlannedContraction, able: Sequence[Sequence[int]], terms: Mapping[int, str]
    ) -> tuple[tuple[int, ...], dict[str, str]]:
        """Which operands these are, and the index of the einsum that each letter is; work-items have no letter."""
        choices = [operands for operands in product(*able) if len(set(operands)) == len(operands)]
        found = [(operands, self._matched(contraction, operands, terms)) for operands in choices]
        for operands, letters in found:
            if not isinstance(letters, str):
                return operands, letters
        reason = found[0][1] if found else "one operand of the einsum is read twice"
        return self._refuse(contraction, str(reason))

    def _matched(
        self, contraction: PlannedContraction, operands: Sequence[int], terms: Mapping[int, str]
    ) -> dict[str, str] | str:
        """The index of the einsum that each letter is, if the terms are these operands; or why they are not."""
        letters: dict[str, str] = {}
        for k, term in zip(operands, contraction.terms, strict=True):
            whole = terms[k].removesuffix(self._batch) if term.root.kind != "argument" else terms[k]
            if len(whole) != len(term.letters):
                return f"{{{term.letters}}} has {len(term.letters)} indices, and '{whole}' {len(whole)}"
            for own, letter in zip(term.letters, whole, strict=True):
                if letters.setdefault(own, letter) != letter:
                    return f"index '{own}' is both '{letters[own]}' and '{letter}' of the einsum"
        return "one index of the einsum has two letters here" if len(set(letters.values())) < len(letters) else letters

    def _check_output(self, contraction: PlannedContraction, found: str) -> None:
        wanted = self._e.indexing.output
        if contraction.result.root.kind == "alloca" or found != wanted:
            self._refuse(contraction, f"the last step gives '{found}', and the einsum '{wanted}'")

    def _refuse(self, contraction: PlannedContraction, message: str) -> NoReturn:
        hint = "print a schedule by `feinsum plan --order C`, or one that is recorded by `feinsum query --as log`"
        raise broken_rule(self._source, "schedule", contraction.sources[0].span, message, [Note(hint)])


def _kernel_of_remark(remark: re.Match[str]) -> KernelRemark | None:
    name, version, configuration = remark.groups()
    if version is None:
        if name != _STEP:
            raise SubscriptError(f"the remark '{remark.group().strip()}' has no version and no configuration of @{name}")
        return None
    try:
        data = json.loads(configuration)
    except (ValueError, RecursionError) as error:
        raise SubscriptError(f"the configuration of @{name} is no JSON: {error}") from None
    return KernelRemark(name, int(version), data)
