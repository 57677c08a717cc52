"""Compositions: chains of configurations, each chosen by a record of its step or by the cost model.

    out[b,o] = Σ_ij x[b,i] W[o,i,j] y[b,j]        step 0: bi,oij->boj, recorded        step 1: boj,bj->bo, guessed

A step is an einsum like any other, known by its canonical form, so records of it from anywhere count here.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from feinsum.apart import remembered
from feinsum.candidates.predicted import SECONDS, top_predictions, unlike_each_other
from feinsum.candidates.records import Inquiry, Question, time_at
from feinsum.candidates.transfer import adapt
from feinsum.contraction import ContractionSchedule, step_einsums
from feinsum.database import TuningRecord
from feinsum.einsum import BatchedEinsum
from feinsum.errors import FeinsumError
from feinsum.space import ChainSpace, Configuration, Instance, Missed, Problem, TransformSpace

logger = logging.getLogger(__name__)

MOST_CHAINS = 2
"""Chains of a space that are worth a try, and differ in the order of axes of partial results."""
_LOOKED_AT = 120
"""Configurations that the cost model is asked about for a step without records."""


@dataclass(frozen=True)
class StepOrigin:
    """Where the kernel of a step comes from; plain data.

    :ivar subscripts: of the step, in the letters of the einsum that the chain computes.
    :ivar kind: of :data:`feinsum.candidates.records.KINDS`, or ``"cost model"`` if nothing is recorded.
    :ivar record: the evidence for it.
    :ivar passed_over: the evidence for other kernels, and why they were not taken; empty if there was none.
    """

    subscripts: str
    kind: str
    record: TuningRecord | None = None
    passed_over: str = ""

    def rename(self, letters: Mapping[str, str]) -> StepOrigin:
        """The same origin with other index letters."""
        table = str.maketrans(dict(letters))
        return replace(self, subscripts=self.subscripts.translate(table))

    def to_json(self) -> dict[str, Any]:
        """Plain data for :func:`json.dumps`."""
        return {**vars(self), "record": self.record and self.record.to_dict()}

    @staticmethod
    def from_json(data: Any) -> StepOrigin:
        """The inverse of :meth:`to_json`.

        :raises KeyError, TypeError, DatabaseError: if `data` is not of that form.
        """
        record = None if data["record"] is None else TuningRecord.from_dict(data["record"])
        return StepOrigin(str(data["subscripts"]), str(data["kind"]), record, str(data["passed_over"]))


@dataclass(frozen=True)
class Composition:
    """A configuration that is a chain, with the time that its steps take together, in seconds.

    :ivar is_cached: whether caches hold each partial result, on a device where one launch has no better place for it.
    """

    space: TransformSpace
    configuration: Configuration
    origins: tuple[StepOrigin, ...]
    expected_s: float
    is_cached: bool

    @property
    def rung(self) -> str:
        """The rung of the ladder: ``"steps"``, or ``"cost model"`` where nothing is recorded."""
        return "steps" if any(origin.record for origin in self.origins) else "cost model"


@dataclass(frozen=True)
class _StepKernel:
    """The kernel that was chosen for a step."""

    space: TransformSpace
    configuration: Configuration
    origin: StepOrigin
    expected_s: float


def compositions(
    space: TransformSpace, problem: Problem, inquiry: Inquiry, asked: Sequence[ContractionSchedule] = ()
) -> Iterator[Composition]:
    """The chains of a space for a problem in which at least one step has a record.

    A step without records has the configuration that the cost model expects to be the fastest.

    :param asked: orders of contraction wanted in any case, in the letters of the problem: they come first, and need
        no record.
    """
    for schedule, steps in _every_order(space, problem, inquiry, asked):
        if schedule in asked or any(step.recorded for step in steps):
            with suppress(FeinsumError):
                yield _composed(space, schedule, steps)


def best_chains(space: TransformSpace, problem: Problem, inquiry: Inquiry) -> list[Composition]:
    """The chains of a space that are expected to be the fastest: some that differ in the order of axes of partial results,
    and the best of them with another kernel for the step that is expected to take longest, if nothing is recorded of it.
    Those of the cost model alone, if no step has a record."""
    every = list(_every_order(space, problem, inquiry))
    recorded = [(schedule, steps) for schedule, steps in every if any(step.recorded for step in steps)]
    found = []
    for schedule, steps in recorded or every:
        with suppress(FeinsumError):
            found.append((_composed(space, schedule, steps), schedule, steps))
    found.sort(key=lambda each: each[0].expected_s)
    others = []
    for _, schedule, steps in found[:1]:
        longest = max(steps, key=lambda step: step.kernel.expected_s)
        if longest.other is not None:
            others.append(_composed(space, schedule, steps, longest))
    return [*(made for made, *_ in found[:MOST_CHAINS]), *others]


def _every_order(
    space: TransformSpace, problem: Problem, inquiry: Inquiry, asked: Sequence[ContractionSchedule] = ()
) -> Iterator[tuple[ContractionSchedule, list[_OpenStep]]]:
    """The orders of contraction of a space, and their steps; the same einsum is the same step."""
    if not isinstance(space, ChainSpace):
        return
    found: dict[BatchedEinsum, _OpenStep] = {}
    for schedule in dict.fromkeys((*asked, *steps_of(space, problem))):
        try:
            for e in (steps := step_einsums(problem.einsum, schedule)):
                if e not in found:
                    found[e] = _OpenStep(space, e, problem, inquiry)
        except FeinsumError as error:
            logger.info("no chain of '%s' for '%s': %s", space.name, problem.einsum, error)
            continue
        yield schedule, [found[e] for e in steps]


def _composed(
    space: TransformSpace, schedule: ContractionSchedule, steps: Sequence[_OpenStep], changed: _OpenStep | None = None
) -> Composition:
    """The chain of the best kernels of steps.

    :param changed: a step that has its other kernel.
    :raises FeinsumError: if no space has one for some step.
    """
    assert isinstance(space, ChainSpace)
    kernels = [(step.other if step is changed else None) or step.kernel for step in steps]
    chain = space.chain(schedule, [(kernel.space, kernel.configuration) for kernel in kernels])
    expected_s = sum(kernel.expected_s for kernel in kernels)
    is_cached = all(step.keeps_result_in_cache for step in steps[:-1])
    return Composition(space, chain, tuple(kernel.origin for kernel in kernels), expected_s, is_cached)


def steps_of(space: TransformSpace, problem: Problem) -> tuple[ContractionSchedule, ...]:
    """The orders of contraction for which a space has chains; none if it fails when asked."""
    with Missed(space, "for its steps"):
        return space.schedules(problem)
    return ()


def origins(
    space: TransformSpace, problem: Problem, configuration: Configuration, inquiry: Inquiry
) -> tuple[StepOrigin, ...]:
    """The evidence that the stores have for the steps of a given chain."""
    found = []
    for part in space.parts(problem, configuration):
        asked = inquiry.precedents(Question.of(part.instance, [part.space]))
        same = ((kind, r) for kind, r in asked if r.space == part.space.name and r.configuration == part.configuration)
        kind, record = next(same, ("no record", None))
        found.append(StepOrigin(str(part.einsum.indexing), kind, record))
    return tuple(found)


class _OpenStep:
    """A step that looks for a kernel."""

    def __init__(self, space: ChainSpace, e: BatchedEinsum, problem: Problem, inquiry: Inquiry) -> None:
        self._e, self._here, self._inquiry = e, Instance.at(e, e.sizes_from(problem.sizes), problem.device), inquiry
        self._able = {s.name: s for s in space.spaces_of_steps if s.roles(e) is not None}
        self._passed_over: list[str] = []

    @property
    def keeps_result_in_cache(self) -> bool:
        """Whether the last cache holds the result, on a device without local memory of its own."""
        here = self._here
        entries = math.prod(here.lengths[x] for x in here.einsum.indexing.output)
        nbytes = entries * sum(dtype.itemsize for dtype in here.einsum.row_dtypes)
        return not here.profile.local_memory_is_dedicated and nbytes <= here.profile.cache_bytes

    @remembered
    def recorded(self) -> _StepKernel | None:
        """The kernel of the best record whose configuration its space accepts."""
        if not self._able:
            return None
        for kind, record in self._inquiry.precedents(Question.of(self._here, self._able.values())):
            s = self._able[record.space]
            found = adapt(record, self._here, s) or record.configuration
            reason = _refusal_of_space(s, self._here, found)
            if reason is None:
                t = time_at(record, found, self._here, s)
                return _StepKernel(s, found, self._origin(kind, record), t)
            self._passed_over.append(f"record {record.id}: {reason}")
        return None

    @property
    def kernel(self) -> _StepKernel:
        """The recorded kernel, or else the one expected to be the fastest.

        :raises FeinsumError: if no space has one.
        """
        if self.recorded is not None:
            return self.recorded
        if not self._guesses:
            logger.info("no space has a kernel for step '%s'", self._e.indexing)
            raise FeinsumError(f"no space has a kernel for step '{self._e.indexing}'")
        return self._guesses[0]

    @property
    def other(self) -> _StepKernel | None:
        """Another guess, which differs from the first; None if there is none, or it is not needed."""
        return self._guesses[1] if self.recorded is None and len(self._guesses) > 1 else None

    @remembered
    def _guesses(self) -> list[_StepKernel]:
        found = top_predictions(
            self._here, tuple(self._able.values()), looked_at=_LOOKED_AT, seconds=SECONDS, share=math.inf
        )
        origin = self._origin("cost model")
        return [_StepKernel(f.space, f.configuration, origin, f.expected_s) for f in unlike_each_other(found, 2)]

    def _origin(self, kind: str, record: TuningRecord | None = None) -> StepOrigin:
        return StepOrigin(str(self._e.indexing), kind, record, "; ".join(self._passed_over))


def _refusal_of_space(space: TransformSpace, here: Instance, configuration: Mapping[str, Any]) -> str | None:
    with Missed(space) as missed:
        return space.refusal(here.problem(space), configuration)
    return f"{type(missed.error).__name__}: {missed.error}"
