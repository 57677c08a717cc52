"""Spaces for einsums of several steps, whose configurations may be chains: a configuration of some space for each step.

A chain ``{"steps": text}`` is put together of what is known about the steps (:mod:`feinsum.candidates.composed`); the text
says all that its kernel is made of (:mod:`feinsum.space.chain`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from feinsum.contraction import ContractionSchedule, step_einsums
from feinsum.cost import Work, in_turn
from feinsum.einsum import BatchedEinsum
from feinsum.errors import FeinsumError, TransformError
from feinsum.interrupts import load_module
from feinsum.space.chain import STEPS, Link, read_chain, schedule_of_links, write_chain
from feinsum.space.instance import Instance
from feinsum.space.problem import Configuration, Problem, Value
from feinsum.space.space import Part, TransformSpace

if TYPE_CHECKING:
    import loopy as lp

    from feinsum.match import Match


@dataclass(frozen=True)
class ChainSpace(TransformSpace):
    """A space some of whose configurations are chains; declared by ``space(..., kind=ChainSpace, orders=...)``.

    :ivar orders: the orders of contraction for which there may be chains, best guess first: a function of the problem.
    :ivar step_spaces: the spaces whose configurations the steps may have, beside those of this one.
    """

    orders: Callable[[Problem], Iterable[ContractionSchedule]] = field(default=lambda problem: (), repr=False)
    step_spaces: tuple[TransformSpace, ...] = field(default=(), repr=False)

    def is_chain(self, configuration: Configuration) -> bool:
        return set(configuration) == {STEPS}

    def schedules(self, problem: Problem) -> tuple[ContractionSchedule, ...]:
        return tuple(self.orders(problem))

    @property
    def spaces_of_steps(self) -> tuple[TransformSpace, ...]:
        """The spaces whose configurations the steps of a chain may have."""
        return (self, *self.step_spaces)

    def chain(
        self, schedule: ContractionSchedule, kernels: Sequence[tuple[TransformSpace, Configuration]]
    ) -> dict[str, Value]:
        """The configuration that is the chain of these configurations of these spaces, one for each step."""
        links = [
            Link(step.operands, step.indexing.output, s.name, s.version, configuration)
            for step, (s, configuration) in zip(schedule.steps, kernels, strict=True)
        ]
        return {STEPS: write_chain(links)}

    def parts(self, problem: Problem, configuration: Configuration) -> tuple[Part, ...]:
        """The steps of a configuration that is a chain; none of another one.

        :raises TransformError, SubscriptError: if it is no chain for this problem; the message says why.
        """
        if not self.is_chain(configuration):
            return ()
        links = read_chain(configuration[STEPS])
        einsums = step_einsums(problem.einsum, schedule_of_links(links, problem.einsum.indexing))
        return tuple(self._part(problem, s, e, link) for s, (e, link) in enumerate(zip(einsums, links, strict=True)))

    def completed(self, configuration: Configuration) -> Configuration:
        return configuration if self.is_chain(configuration) else super().completed(configuration)

    def refusal(self, problem: Problem, configuration: Configuration) -> str | None:
        if not self.is_chain(configuration):
            return super().refusal(problem, configuration)
        try:
            parts = self.parts(problem, configuration)
        except FeinsumError as error:
            return str(error)
        for number, part in enumerate(parts):
            reason = part.space.refusal(part.problem, part.configuration)
            if reason is not None:
                return f"step {number} of the chain, '{part.einsum.indexing}': '{part.space.name}' refuses it: {reason}"
        return None

    def work(self, problem: Problem, configuration: Configuration) -> Work:
        if parts := self.parts(problem, configuration):
            return in_turn([part.space.work(part.problem, part.configuration) for part in parts])
        return super().work(problem, configuration)

    def fused(self, problem: Problem, configuration: Configuration) -> tuple[str, ...]:
        """The groups of indices that are treated as one; none for a chain, whose steps have their own."""
        return () if self.is_chain(configuration) else super().fused(problem, configuration)

    def divided(self, problem: Problem, configuration: Configuration) -> Mapping[str, str] | None:
        """The indices that any step of a chain divides."""
        if not self.is_chain(configuration):
            return super().divided(problem, configuration)
        found: dict[str, str] = {}
        for part in self.parts(problem, configuration):
            roles = part.space.roles(part.einsum)
            own = part.space.divided(part.problem, part.configuration)
            if own is None or roles is None:
                return None
            found |= {roles.indices[x]: f"{how}, in step '{part.einsum.indexing}'" for x, how in own.items()}
        return found

    def apply(
        self, t_unit: lp.TranslationUnit, match: Match, problem: Problem, configuration: Configuration
    ) -> lp.TranslationUnit:
        """Call the transformation; or contract along a chain, and let the space of each step transform that."""
        if not self.is_chain(configuration):
            return super().apply(t_unit, match, problem, configuration)
        schedule = schedule_of_links(read_chain(configuration[STEPS]), match.einsum.indexing)
        t_unit, matches = load_module("feinsum.rewrites").contract_in_steps(t_unit, match, schedule)
        for step, part in zip(matches, self.parts(problem, configuration), strict=True):
            own = part.space.problem(step.einsum, step.einsum.sizes_from(problem.sizes), problem.device)
            t_unit = part.space.transform(t_unit, step, part.configuration, own)
        return t_unit

    def _part(self, problem: Problem, number: int, e: BatchedEinsum, link: Link) -> Part:
        found = {s.name: s for s in self.spaces_of_steps}.get(link.space)
        where = f"step {number} of the chain, '{e.indexing}'"
        if found is None:
            raise TransformError(f"{where} wants space '{link.space}'; '{self.name}' has no steps of that")
        if found.version != link.version:
            raise TransformError(
                f"{where} wants version {link.version} of '{found.name}', which has version {found.version}"
            )
        if found.is_chain(link.configuration):
            raise TransformError(f"{where} is a chain itself")
        if found.roles(e) is None:
            raise TransformError(f"{where} is nothing that space '{found.name}' applies to")
        return Part(Instance.at(e, e.sizes_from(problem.sizes), problem.device), found, link.configuration)
