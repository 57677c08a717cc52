"""Transform spaces: named, versioned families of loopy transformations with parameters.

A space is a function in the file of its family::

    @space(
        pattern="xre,rij,ej->xei",
        version=1,
        parameters=lambda p: {"elements": (16, 32, 64), "unroll": (True, False)},
        constraint=lambda p, c: p.exceeds(work_items=c["elements"]),
    )
    def dg_gradient(t_unit, match, problem, *, elements, unroll):
        ...
        return t_unit

Its *parameters* name the choices, best guess first; its *constraint* says why a configuration is refused, before
anything is lowered; an *estimate* may count the work that a configuration means, for the cost model; the function
applies one configuration.  A configuration is a plain mapping that JSON can hold.

A space for einsums of several steps may name *schedules* and the *step spaces* that can make kernels of the steps.  It then
has configurations of another kind, too: ``{"steps": text}``, a chain of configurations of those spaces (see
:mod:`feinsum.space.chain`), put together of what is known about the steps (:mod:`feinsum.candidates.composed`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any

from feinsum.contraction import ContractionSchedule, step_einsums
from feinsum.cost import Work, in_turn
from feinsum.einsum import BatchedEinsum
from feinsum.errors import FeinsumError, SpaceError, TransformError
from feinsum.space.chain import STEPS, Link, read_chain, schedule_of, write_chain
from feinsum.space.roles import Roles, canonical_roles, find_roles
from feinsum.subscripts import Subscripts, parse_subscripts

if TYPE_CHECKING:
    import loopy as lp

    from feinsum.devices import DeviceProfile
    from feinsum.match import Match

Value = int | float | str | bool
Configuration = Mapping[str, Any]
"""One point of a space: parameter -> a value that JSON can hold."""
Choices = Mapping[str, Sequence[Value]]


@dataclass(frozen=True)
class Problem:
    """What a space is asked about: an einsum in the letters of its pattern, the lengths expected, and the device.

    :ivar einsum: the batched einsum.
    :ivar sizes: the length of every index, long axes at the lengths expected in use.
    :ivar device: what the device can do; a space knows no other hardware numbers.
    """

    einsum: BatchedEinsum
    sizes: Mapping[str, int]
    device: DeviceProfile

    @cached_property
    def itemsize(self) -> int:
        """Bytes of the widest number involved."""
        return max(dtype.itemsize for dtype in (*self.einsum.dtypes, *(a.dtype for a in self.einsum.arrays)))

    @cached_property
    def lengths(self) -> dict[str, int]:
        """The lengths expected of the long axes, as :meth:`BatchedEinsum.resolve` takes them."""
        return self.einsum.sizes_from(self.sizes)

    def count(self, letters: str) -> int:
        """The number of points spanned by some indices."""
        return math.prod(self.sizes[letter] for letter in letters)

    def is_long(self, letter: str) -> bool:
        """Whether the length of an index is unknown until the kernel is called."""
        return not isinstance(self.einsum.index_sizes[letter], int)

    def exceeds(self, *, work_items: int | tuple[int, ...] = 1, local_bytes: int = 0, private_bytes: int = 0) -> str | None:
        """Why the device cannot hold a work-group of this kind, or None: the one check against its limits.

        :param work_items: work-items of a group, along each axis if a tuple.
        :param local_bytes: local memory of a group.
        :param private_bytes: private memory of a work-item that has to stay in registers to be worth it.
        """
        axes = (work_items,) if isinstance(work_items, int) else work_items
        if math.prod(axes) > self.device.max_work_group_size:
            return f"{math.prod(axes)} work-items exceed the {self.device.max_work_group_size} of a work-group"
        for axis, (items, most) in enumerate(zip(axes, self.device.max_work_item_sizes, strict=False)):
            if items > most:
                return f"{items} work-items exceed the {most} along axis {axis}"
        most = max(self.device.local_memory_bytes, self.device.static_local_memory_bytes)
        if local_bytes > most:
            return f"{local_bytes} bytes of local memory exceed the {most} there are"
        registers = self.device.max_registers_per_work_item
        if registers is not None and private_bytes > 4 * registers:
            return f"{private_bytes} bytes of a work-item exceed the {4 * registers} that stay in registers"
        return None


Transform = Callable[..., "lp.TranslationUnit"]
Schedules = Callable[[Problem], Iterable[ContractionSchedule]]


@dataclass(frozen=True)
class Part:
    """One step of a chain.

    :ivar einsum: what it computes, in the letters of the problem that the chain solves.
    :ivar problem: what its space is asked about.
    """

    einsum: BatchedEinsum
    space: TransformSpace
    configuration: Configuration
    problem: Problem


@dataclass(frozen=True)
class TransformSpace:
    """A family of transformations for the einsums of a pattern; made by the decorator :func:`space`.

    :ivar name: what records know it by.
    :ivar version: raised whenever the kernels change.
    :ivar patterns: subscripts with letters in common roles, or a predicate of batched einsums.
    :ivar function: the transformation, see :meth:`transform`.
    :ivar choices: makes the choices of every parameter for a problem, see :meth:`parameters`.
    :ivar constraint: says why a configuration is refused, see :meth:`refusal`.
    :ivar rank: spaces of higher rank are asked first; subscripts outrank predicates, which outrank the generic space.
    :ivar estimate: says what work a configuration does, for the cost model; None if nobody wrote that down.
    :ivar schedules: the orders of contraction for which there may be chains, best guess first; None if there are none.
    :ivar implied: what a configuration means that was recorded before a parameter existed: parameter -> value.
    :ivar step_spaces: the spaces whose configurations the steps of a chain may have, beside those of this one.
    """

    name: str
    version: int
    patterns: tuple[Subscripts, ...] | Callable[[BatchedEinsum], bool]
    function: Transform = field(repr=False)
    choices: Callable[[Problem], Choices] = field(repr=False)
    constraint: Callable[[Problem, Configuration], str | None] = field(repr=False)
    rank: int = 0
    estimate: Callable[[Problem, Configuration], Work] | None = field(default=None, repr=False)
    schedules: Schedules | None = field(default=None, repr=False)
    step_spaces: tuple[TransformSpace, ...] = field(default=(), repr=False)
    implied: Mapping[str, Value] = field(default_factory=dict, repr=False)

    @property
    def description(self) -> str:
        """The docstring of the transformation: formula, division of work, memory placement."""
        return (self.function.__doc__ or "").strip()

    def roles(self, e: BatchedEinsum) -> Roles | None:
        """How `e` plays the pattern of this space; None if it does not."""
        if callable(self.patterns):
            return canonical_roles(e) if self.patterns(e) else None
        return next(filter(None, (find_roles(pattern, e.indexing) for pattern in self.patterns)), None)

    def problem(self, e: BatchedEinsum, sizes: Mapping[str, int] | None, device: DeviceProfile) -> Problem:
        """The problem in the letters of the pattern.

        :param sizes: lengths of the long axes of `e`, as for :meth:`BatchedEinsum.resolve`.
        :raises TransformError: if `e` does not play the pattern.
        """
        roles = self._require_roles(e)
        lengths = e.resolve(sizes)
        return Problem(roles.apply(e), {letter: lengths[own] for letter, own in roles.indices.items()}, device)

    def parameters(self, problem: Problem) -> dict[str, tuple[Value, ...]]:
        """The choices of every parameter for this problem, best guess first, without repetition."""
        return {name: tuple(dict.fromkeys(values)) for name, values in self.choices(problem).items()}

    def is_chain(self, configuration: Configuration) -> bool:
        """Whether a configuration is a chain of configurations of other spaces."""
        return self.schedules is not None and set(configuration) == {STEPS}

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
        einsums = step_einsums(problem.einsum, schedule_of(links, problem.einsum.indexing))
        return tuple(self._part(problem, s, e, link) for s, (e, link) in enumerate(zip(einsums, links, strict=True)))

    def _part(self, problem: Problem, number: int, e: BatchedEinsum, link: Link) -> Part:
        found = {s.name: s for s in (self, *self.step_spaces)}.get(link.space)
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
        own = found.problem(e, e.sizes_from(problem.sizes), problem.device)
        return Part(e, found, link.configuration, own)

    def _refusal_of_chain(self, problem: Problem, configuration: Configuration) -> str | None:
        try:
            parts = self.parts(problem, configuration)
        except FeinsumError as error:
            return str(error)
        for number, part in enumerate(parts):
            reason = part.space.refusal(part.problem, part.configuration)
            if reason is not None:
                return f"step {number} of the chain, '{part.einsum.indexing}': '{part.space.name}' refuses it: {reason}"
        return None

    def completed(self, configuration: Configuration) -> Configuration:
        """A configuration with every parameter, those included that it was recorded before.

        So a parameter can join a space without a new version, and records keep their worth, where one of its values means
        the kernels that there were before.
        """
        missing = () if self.is_chain(configuration) else self.implied.keys() - configuration.keys()
        return {**configuration, **{name: self.implied[name] for name in missing}} if missing else configuration

    def refusal(self, problem: Problem, configuration: Configuration) -> str | None:
        """Why `configuration` is no point of the space for this problem; None if it is one."""
        if self.is_chain(configuration):
            return self._refusal_of_chain(problem, configuration)
        configuration, parameters = self.completed(configuration), self.parameters(problem)
        if set(configuration) != set(parameters):
            return f"its parameters are {sorted(configuration)}, not {sorted(parameters)}"
        for name, values in parameters.items():
            # JSON tells 1, 1.0 and true apart, and so do the kernels made with them.
            if not any(type(configuration[name]) is type(value) and configuration[name] == value for value in values):
                return f"{name} is {configuration[name]!r}, not one of {list(values)}"
        return self.constraint(problem, configuration)

    def configurations(self, problem: Problem) -> Iterator[dict[str, Value]]:
        """Every accepted configuration, those made of best guesses first."""
        parameters = self.parameters(problem)
        for values in product(*parameters.values()):
            configuration = dict(zip(parameters, values, strict=True))
            if self.constraint(problem, configuration) is None:
                yield configuration

    def default(self, problem: Problem) -> dict[str, Value]:
        """The first accepted configuration: what a performance engineer would try first.

        :raises TransformError: if no configuration is accepted on this device.
        """
        for configuration in self.configurations(problem):
            return configuration
        raise TransformError(f"space '{self.name}' has no configuration for '{problem.einsum}' on {problem.device.name}")

    def work(self, problem: Problem, configuration: Configuration) -> Work:
        """What an accepted configuration makes the device do, for the cost model.

        Where the space does not say: the fewest operations and bytes with which the einsum can be evaluated.
        """
        if parts := self.parts(problem, configuration):
            return in_turn([part.space.work(part.problem, part.configuration) for part in parts])
        if self.estimate is not None:
            return self.estimate(problem, self.completed(configuration))
        return Work(flops=problem.einsum.flops(problem.lengths), bytes=problem.einsum.min_bytes(problem.lengths))

    def transform(
        self, t_unit: lp.TranslationUnit, match: Match, configuration: Configuration, problem: Problem
    ) -> lp.TranslationUnit:
        """Apply one configuration to the instructions of a match, in a kernel that may hold others.

        :raises TransformError: if the configuration is refused or a rewrite's preconditions do not hold.
        :raises SpaceError: if the transformation raises anything else or returns nothing, which is a fault of the space.
        """
        reason = self.refusal(problem, configuration)
        if reason is not None:
            raise TransformError(f"space '{self.name}' refuses {dict(configuration)}: {reason}")
        roles = self._require_roles(match.einsum)
        letters = {own: letter for letter, own in roles.indices.items()}
        try:
            own = match.relabel(letters, roles.operands)
            result = self.function(t_unit, own, problem, **self.completed(configuration))
        except FeinsumError:
            raise
        except Exception as error:  # a bug of a space is a miss, never the end of a program
            raise SpaceError(
                f"space '{self.name}' fails on {dict(configuration)}: {type(error).__name__}: {error}"
            ) from error
        if result is None:
            raise SpaceError(
                f"space '{self.name}' returns nothing for {dict(configuration)}; it returns the kernel it made"
            )
        return result

    def _repr_html_(self) -> str:
        from feinsum.report.displays import space_html

        return space_html(self)

    def _require_roles(self, e: BatchedEinsum) -> Roles:
        roles = self.roles(e)
        if roles is None:
            raise TransformError(f"space '{self.name}' does not apply to '{e.subscripts}'")
        return roles


def space(
    *,
    pattern: str | Sequence[str] | Callable[[BatchedEinsum], bool],
    version: int,
    parameters: Choices | Callable[[Problem], Choices],
    constraint: Callable[[Problem, Configuration], str | None] | None = None,
    estimate: Callable[[Problem, Configuration], Work] | None = None,
    name: str | None = None,
    rank: int | None = None,
    schedules: Schedules | None = None,
    step_spaces: Sequence[TransformSpace] = (),
    implied: Mapping[str, Value] | None = None,
) -> Callable[[Transform], TransformSpace]:
    """Declare the transform space whose transformation is the decorated function.

    :param pattern: subscripts, several in which equal letters play equal roles, or a predicate of batched einsums.
    :param version: a positive integer, raised whenever the kernels change.
    :param parameters: the choices of each parameter, best guess first; or a function of the :class:`Problem`.
    :param constraint: a function of problem and configuration that says why a configuration is refused, or None.
    :param estimate: a function of problem and accepted configuration that counts the :class:`feinsum.cost.Work`; without
        it the cost model goes by the values of the parameters alone.
    :param name: the name that records know; by default that of the function.
    :param rank: see :class:`TransformSpace`; by default 2 for subscripts and 1 for a predicate.
    :param schedules: a function of the problem that gives the orders of contraction in which a chain of einsums, each with
        records of its own, may solve it, best guess first.  The function then has a parameter ``steps``, the text of a
        chain, and no other one where that is given; :meth:`TransformSpace.parts` reads it.
    :param step_spaces: the spaces that may make kernels for the steps, beside the one declared.
    :param implied: what records mean that are older than a parameter: see :meth:`TransformSpace.completed`.
    """
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise TransformError(f"the version of a space is a positive integer, not {version!r}")
    patterns: Any = pattern
    if not callable(pattern):
        texts = (pattern,) if isinstance(pattern, str) else tuple(pattern)
        patterns = tuple(parse_subscripts(text) for text in texts)

    def declare(function: Transform) -> TransformSpace:
        return TransformSpace(
            name=name or function.__name__,
            version=version,
            patterns=patterns,
            function=function,
            choices=parameters if callable(parameters) else lambda _: parameters,
            constraint=constraint or (lambda problem, configuration: None),
            rank=rank if rank is not None else (1 if callable(pattern) else 2),
            estimate=estimate,
            schedules=schedules,
            step_spaces=tuple(step_spaces),
            implied=dict(implied or {}),
        )

    return declare
