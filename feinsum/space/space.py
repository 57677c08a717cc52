"""Transform spaces: named, versioned families of loopy transformations with parameters.

A space is a function in the folder of its family::

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

A space on a skeleton has a *plan* instead of a constraint: the function that makes the skeleton's plan of a configuration,
or raises the reason why there is none.  The transformation then takes the plan, and the meaning of every parameter stands
at the plan's fields (:mod:`feinsum.parameters`)::

    @space(pattern="e,ij,ej->ei", version=2, parameters=choices, plan=plan_of_mass)
    def dg_mass_mma(t_unit, match, problem, plan):
        ...
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import product
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, get_type_hints

from feinsum.apart import remembered
from feinsum.contraction import ContractionSchedule
from feinsum.cost import Work
from feinsum.einsum import BatchedEinsum
from feinsum.errors import FeinsumError, SpaceError, TransformError, is_shortage, told
from feinsum.interrupts import load_module
from feinsum.parameters import PlanParameter, described_parameters
from feinsum.space.instance import Instance
from feinsum.space.problem import Choices, Configuration, Problem, Value
from feinsum.space.roles import Roles, canonical_roles, find_loose_roles, find_roles
from feinsum.subscripts import Subscripts, parse_subscripts

if TYPE_CHECKING:
    import loopy as lp

    from feinsum.devices import DeviceProfile
    from feinsum.match import Match

Transform = Callable[..., "lp.TranslationUnit"]

_PATIENCE_S = 2.0
"""Seconds of the processor in which a default is looked for: a space may refuse 10³⁰ configurations."""


@dataclass(frozen=True)
class Part:
    """One step of a chain.

    :ivar instance: what it computes, in the letters of the problem that the chain solves.
    """

    instance: Instance
    space: TransformSpace
    configuration: Configuration

    @property
    def einsum(self) -> BatchedEinsum:
        return self.instance.einsum

    @remembered
    def problem(self) -> Problem:
        """The problem that the space of the step is asked about."""
        return self.instance.problem(self.space)


@dataclass(frozen=True)
class TransformSpace:
    """A family of transformations for the einsums of a pattern; made by the decorator :func:`space`.

    :ivar name: the name by which records refer to it.
    :ivar version: raised whenever the kernels change.
    :ivar patterns: subscripts with letters in common roles, or a predicate of batched einsums.
    :ivar function: the transformation, see :meth:`transform`.
    :ivar choices: makes the choices of every parameter for a problem, see :meth:`parameters`.
    :ivar constraint: says why a configuration is refused, see :meth:`refusal`.
    :ivar rank: spaces of higher rank are asked first; subscripts outrank predicates, which outrank the generic space.
    :ivar estimate: returns the work of a configuration, for the cost model; None if the space does not say.
    :ivar implied: the values that parameters have in configurations recorded before they existed: parameter -> value.
    :ivar plan: makes the plan of the skeleton that the space stands on; None if it is written with moves.
    :ivar epilogues: whether its kernels make functions of sums where these are stored, see :meth:`transform`; elsewhere
        another launch does (:func:`feinsum.rewrites.finish_apart`).  Problems are without epilogues in any case.
    :ivar divides: of a space that is written with moves, what :meth:`divided` says; of others the plan may say it.
    :ivar longest: an index letter of the patterns, whose axes then may stand in any order; where an einsum matches several
        parts so, that in which this index is longest.
    :ivar combines: whether they also do where one output is made of all rows; or of which configurations, where only some
        have the sums of all rows together.
    :ivar ruled: parameters whose first choice follows from what the hardware needs, so that it goes elsewhere even where a
        record is older than the parameter; see :func:`feinsum.candidates.transfer.adapt`.
    :ivar open: parameters of which the choices are the most promising values among many: records may have others.
    """

    name: str
    version: int
    patterns: tuple[Subscripts, ...] | Callable[[BatchedEinsum], bool]
    function: Transform = field(repr=False)
    choices: Callable[[Problem], Choices] = field(repr=False)
    constraint: Callable[[Problem, Configuration], str | None] = field(repr=False)
    rank: int = 0
    estimate: Callable[[Problem, Configuration], Work] | None = field(default=None, repr=False)
    implied: Mapping[str, Value] = field(default_factory=dict, repr=False)
    plan: Callable[[Problem, Configuration], Any] | None = field(default=None, repr=False)
    epilogues: bool = False
    divides: Callable[[Problem, Configuration], Mapping[str, str]] | None = field(default=None, repr=False)
    combines: bool | Callable[[Configuration], bool] = False
    longest: str | None = None
    ruled: tuple[str, ...] = ()
    open: tuple[str, ...] = ()

    def finishes(self, e: BatchedEinsum, configuration: Configuration) -> bool:
        """Whether the kernel of a configuration applies the epilogues of an einsum where it stores its sums."""
        if not e.combines:
            return self.epilogues
        return self.combines(self.completed(configuration)) if callable(self.combines) else self.combines

    @property
    def description(self) -> str:
        """The docstring of the transformation: formula, division of work, memory placement."""
        return (self.function.__doc__ or "").strip()

    @cached_property
    def code(self) -> str:
        """The module and the name of its function, and its version."""
        return f"{self.function.__module__}.{self.function.__qualname__}@{self.version}"

    @cached_property
    def described(self) -> Mapping[str, tuple[PlanParameter, ...]]:
        """The meanings of each parameter, from the fields of the plan; empty for a space that is written with moves."""
        return described_parameters(get_type_hints(self.plan)["return"]) if self.plan else {}

    def roles(self, e: BatchedEinsum) -> Roles | None:
        """How `e` matches the pattern of this space; None if it does not."""
        e = e.bare
        if callable(self.patterns):
            return canonical_roles(e) if self.patterns(e) else None
        exact = [roles for pattern in self.patterns if (roles := find_roles(pattern, e.indexing))]
        if self.longest is None:
            return next(iter(exact), None)
        longest, length = self.longest, partial(_length_of_index, e)
        loose = (
            roles.with_longest(longest, e.indexing, length)
            for pattern in self.patterns
            for roles in find_loose_roles(pattern, e.indexing)
        )
        return max((*exact, *loose), key=lambda roles: length(roles.indices[longest]), default=None)

    def problem(self, e: BatchedEinsum, sizes: Mapping[str, int] | None, device: DeviceProfile) -> Problem:
        """The problem in the letters of the pattern.

        :param sizes: lengths of the long axes of `e`, as for :meth:`BatchedEinsum.resolve`.
        :raises TransformError: if `e` does not match the pattern.
        """
        lengths, e = e.resolve(sizes), e.bare
        roles = self._require_roles(e)
        return Problem(roles.apply(e), {letter: lengths[own] for letter, own in roles.indices.items()}, device)

    def parameters(self, problem: Problem) -> dict[str, tuple[Value, ...]]:
        """The choices of every parameter for this problem, best guess first, without repetition."""
        return {name: tuple(dict.fromkeys(values)) for name, values in self.choices(problem).items()}

    def is_chain(self, configuration: Configuration) -> bool:
        """Whether a configuration is a chain of configurations of other spaces; see :class:`ChainSpace`."""
        return False

    def parts(self, problem: Problem, configuration: Configuration) -> tuple[Part, ...]:
        """The steps of a configuration that is a chain; none of another one."""
        return ()

    def schedules(self, problem: Problem) -> tuple[ContractionSchedule, ...]:
        """The orders of contraction for which there may be chains, best guess first."""
        return ()

    def completed(self, configuration: Configuration) -> Configuration:
        """A configuration with every parameter, those included that it was recorded before.

        So a parameter can join a space without a new version, and records keep their worth, where one of its values means
        the kernels that there were before.
        """
        missing = self.implied.keys() - configuration.keys()
        return {**configuration, **{name: self.implied[name] for name in missing}} if missing else configuration

    def refusal(self, problem: Problem, configuration: Configuration) -> str | None:
        """Why `configuration` is no point of the space for this problem; None if it is one."""
        configuration, parameters = self.completed(configuration), self.parameters(problem)
        if set(configuration) != set(parameters):
            return f"its parameters are {sorted(configuration)}, not {sorted(parameters)}"
        for name, values in parameters.items():
            # JSON tells 1, 1.0 and true apart, and so do the kernels made with them.
            if name in self.open and type(configuration[name]) is type(values[0]):
                continue
            if not any(type(configuration[name]) is type(value) and configuration[name] == value for value in values):
                return f"{name} is {configuration[name]!r}, not one of {list(values)}"
        return self.constraint(problem, configuration)

    def configurations(
        self, problem: Problem, wanted: Mapping[str, Value] = MappingProxyType({}), *, seconds: float = math.inf
    ) -> Iterator[dict[str, Value]]:
        """Every accepted configuration with the values that are wanted, those made of best guesses first.

        :param seconds: of the processor, after which the next one that is refused is the last that is looked at.
        """
        end = time.thread_time() + seconds
        parameters = self.parameters(problem)
        parameters |= {name: tuple(x for x in parameters[name] if x == value) for name, value in wanted.items()}
        for values in product(*parameters.values()):
            configuration = dict(zip(parameters, values, strict=True))
            if self.constraint(problem, configuration) is None:
                yield configuration
            elif time.thread_time() > end:
                return

    def require(self, problem: Problem, configuration: Configuration) -> None:
        """:raises TransformError: if a configuration is refused."""
        reason = self.refusal(problem, configuration)
        if reason is not None:
            raise TransformError(f"space '{self.name}' refuses {dict(configuration)}: {reason}")

    def default(self, problem: Problem) -> dict[str, Value]:
        """The first accepted configuration: what a performance engineer would try first.

        :raises TransformError: if no configuration is accepted on this device, or none is found in two seconds.
        """
        for configuration in self.configurations(problem, seconds=_PATIENCE_S):
            return configuration
        raise TransformError(f"space '{self.name}' has no configuration for '{problem.einsum}' on {problem.device.name}")

    def work(self, problem: Problem, configuration: Configuration) -> Work:
        """The work that an accepted configuration makes the device do, for the cost model.

        Without an estimate of the space: the fewest operations and bytes with which the einsum can be evaluated.
        """
        if self.estimate is not None:
            return self.estimate(problem, self.completed(configuration))
        return Work(flops=problem.einsum.flops(problem.lengths), bytes=problem.least_bytes)

    def divided(self, problem: Problem, configuration: Configuration) -> Mapping[str, str] | None:
        """The indices of which an accepted configuration takes several values at a time, and how; it loops over all others.

        None if the space does not say.
        """
        whole = self.completed(configuration)
        if self.divides is not None:
            return self.divides(problem, whole)
        return getattr(self.plan(problem, whole), "divided", None) if self.plan else None

    def fused(self, problem: Problem, configuration: Configuration) -> tuple[str, ...]:
        """The groups of indices that an accepted configuration treats as one, as they lie in memory, outer ones first."""
        plan = self.plan(problem, self.completed(configuration)) if self.plan else None
        return tuple(getattr(plan, "fused", ()))

    def transform(
        self, t_unit: lp.TranslationUnit, match: Match, configuration: Configuration, problem: Problem
    ) -> lp.TranslationUnit:
        """Apply one configuration to the instructions of a match, in a kernel that may hold others.

        The epilogue of a match is set aside, and applied where the transformed kernel stores the sums.

        :raises TransformError: if the configuration is refused or a rewrite's preconditions do not hold, or if the match
            makes something of its sums and the space is not one for that.
        :raises SpaceError: if the transformation raises anything else, or returns anything but the kernel with the same
            arguments, which is a fault of the space.
        """
        self.require(problem, configuration)
        t_unit = load_module("feinsum.match").sign_lengths(t_unit)
        if match.makes_more:
            return self._finished(t_unit, match, configuration, problem)
        return self._transformed(t_unit, match, configuration, problem)

    def _finished(
        self, t_unit: lp.TranslationUnit, match: Match, configuration: Configuration, problem: Problem
    ) -> lp.TranslationUnit:
        """The transformation of the sums, and what the match makes of them."""
        if not (self.combines if match.together else self.epilogues):
            raise TransformError(f"space '{self.name}' stores sums as they are, and '{match}' makes something of them")
        bare = load_module("feinsum.match").set_aside(t_unit, match)
        others = t_unit[match.kernel_name].id_to_insn.keys() - set(match.insn_ids)
        return load_module("feinsum.rewrites").finish(self._transformed(bare, match, configuration, problem), match, others)

    def _transformed(
        self, t_unit: lp.TranslationUnit, match: Match, configuration: Configuration, problem: Problem
    ) -> lp.TranslationUnit:
        roles = self._require_roles(match.einsum)
        letters = {own: letter for letter, own in roles.indices.items()}
        try:
            result = self.apply(t_unit, match.relabel(letters, roles.operands), problem, configuration)
        except FeinsumError:
            raise
        except load_module("loopy.diagnostic").ExpressionNotAffineError as error:
            # Constraints judge einsums, which do not say that a rule reads through an index array.
            raise TransformError(f"space '{self.name}' takes no operand read through an index array: {error}") from error
        except Exception as error:  # a bug of a space is a miss, never the end of a program
            if is_shortage(error):
                raise
            raise SpaceError(f"space '{self.name}' fails on {dict(configuration)}: {told(error)}") from error
        if (reason := load_module("feinsum.match").why_another(result, t_unit, match)) is not None:
            raise SpaceError(
                f"space '{self.name}' returns {reason} for {dict(configuration)}; return the given kernel, changed"
            )
        return result

    def apply(
        self, t_unit: lp.TranslationUnit, match: Match, problem: Problem, configuration: Configuration
    ) -> lp.TranslationUnit:
        """Call the transformation with an accepted configuration, or with the plan of it.

        :param match: in the letters and the operand order of the pattern.
        """
        whole = self.completed(configuration)
        if self.plan is None:
            return self.function(t_unit, match, problem, **whole)
        return self.function(t_unit, match, problem, self.plan(problem, whole))

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
    implied: Mapping[str, Value] | None = None,
    plan: Callable[[Problem, Configuration], Any] | None = None,
    epilogues: bool = False,
    divides: Callable[[Problem, Configuration], Mapping[str, str]] | None = None,
    combines: bool | Callable[[Configuration], bool] = False,
    longest: str | None = None,
    ruled: tuple[str, ...] = (),
    open: tuple[str, ...] = (),
    kind: type[TransformSpace] = TransformSpace,
    **more: Any,
) -> Callable[[Transform], TransformSpace]:
    """Declare the transform space whose transformation is the decorated function.

    :param pattern: subscripts, several in which equal letters have equal roles, or a predicate of batched einsums.
    :param version: a positive integer, raised whenever the kernels change.
    :param parameters: the choices of each parameter, best guess first; or a function of the :class:`Problem`.
    :param constraint: a function of problem and configuration that says why a configuration is refused, or None.
    :param estimate: a function of problem and accepted configuration that counts the :class:`feinsum.cost.Work`; without
        it the cost model goes by the values of the parameters alone.
    :param name: the name that records know; by default that of the function.
    :param rank: see :class:`TransformSpace`; by default 2 for subscripts and 1 for a predicate.
    :param implied: what records mean that are older than a parameter: see :meth:`TransformSpace.completed`.
    :param plan: a function of problem and configuration that makes the plan of a skeleton, or raises a
        :class:`~feinsum.errors.TransformError` that says why there is none; instead of `constraint`.  Its return type names
        the plan's class.  The transformation is called with the plan in place of the parameters.
    :param epilogues: whether kernels make functions of sums where these are stored; see :meth:`TransformSpace.transform`.
    :param divides: a function of problem and configuration that says of which indices several values are taken at a time,
        and how; the plan of a skeleton may have it as its attribute `divided`.  See :meth:`TransformSpace.divided`.
    :param combines: whether they also make one output of the sums of several rows; or of which configurations that is so.
    :param longest: an index letter of the subscripts, if their axes may stand in any order; see :class:`TransformSpace`.
    :param ruled: parameters whose first choice is a rule of hardware; see :class:`TransformSpace`.
    :param open: parameters that may have values which are not among the choices; see :class:`TransformSpace`.
    :param kind: :class:`TransformSpace`, or a class of its own with `more` fields, such as :class:`ChainSpace`.
    """
    if plan is not None and constraint is not None:
        raise TransformError("a space with a plan has no constraint beside it: what has no plan is refused")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise TransformError(f"the version of a space is a positive integer, not {version!r}")
    patterns: Any = pattern
    if not callable(pattern):
        texts = (pattern,) if isinstance(pattern, str) else tuple(pattern)
        patterns = tuple(parse_subscripts(text) for text in texts)

    def declare(function: Transform) -> TransformSpace:
        return kind(
            name=name or function.__name__,
            version=version,
            patterns=patterns,
            function=function,
            choices=parameters if callable(parameters) else lambda _: parameters,
            constraint=constraint or _refusal_of(plan),
            rank=rank if rank is not None else (1 if callable(pattern) else 2),
            estimate=estimate,
            implied=dict(implied or {}),
            plan=plan,
            epilogues=epilogues,
            divides=divides,
            combines=combines,
            longest=longest,
            ruled=ruled,
            open=open,
            **more,
        )

    return declare


def _length_of_index(e: BatchedEinsum, letter: str) -> float:
    """The length of an index; that of a long axis is infinite."""
    length = e.index_sizes[letter]
    return math.inf if isinstance(length, str) else length


def _refusal_of(plan: Callable[[Problem, Configuration], Any] | None) -> Callable[[Problem, Configuration], str | None]:
    """The constraint of a space: that its plan, if it has one, can be made."""

    def constraint(problem: Problem, configuration: Configuration) -> str | None:
        if plan is not None:
            try:
                plan(problem, configuration)
            except TransformError as refused:
                return str(refused)
        return None

    return constraint
