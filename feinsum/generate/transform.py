"""`transform`: the best known transformation, applied to the user's own loopy kernel."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any

from feinsum.apart import TimedStep, is_overdue, run_in_thread
from feinsum.build.kernel_builder import KernelJob
from feinsum.candidates.ladder import candidates
from feinsum.canonicalization import canonicalize_einsum
from feinsum.compile.codegen import generate_program, is_for_opencl, silenced, type_limits
from feinsum.compile.executable import build_executable
from feinsum.compile.realize import finishing_items
from feinsum.database import Database, open_stores
from feinsum.devices import Device
from feinsum.devices import device as choose_device
from feinsum.effects import deprecations_paused
from feinsum.errors import SpaceError, TransformError, reason
from feinsum.generate import expected_sizes
from feinsum.match import (
    Match,
    convert_operands,
    fence,
    isolate,
    leave_together,
    match_einsum,
    part_match,
    set_aside,
    sign_lengths,
    without_others,
)
from feinsum.match.domain import evaluate_lengths
from feinsum.rewrites import launch_rest
from feinsum.space import Instance

if TYPE_CHECKING:
    import loopy as lp

logger = logging.getLogger(__name__)

_SAID = 400
"""Characters of a reason in the log."""


@dataclass(frozen=True)
class _Route:
    """A way to a transformed kernel: the kernel that a space is given, and the completion of the kernel that it returns.

    :ivar fenced: the kernel, in which barriers are between a match and the rest.
    :ivar apart: whether a launch of its own applies epilogues to sums that the space leaves in memory.
    """

    fenced: lp.TranslationUnit
    match: Match
    apart: bool

    @cached_property
    def start(self) -> tuple[lp.TranslationUnit, Match]:
        """The kernel whose matched instructions have loops and rules of their own, and the match in it."""
        t_unit, match = self.fenced, self.match
        if not self.apart and not match.combines:
            t_unit = set_aside(t_unit, match)
        else:
            t_unit, match = part_match(t_unit, match)
            if not self.apart:
                t_unit, match = leave_together(t_unit, self.match, match)
            elif match.kernel_name not in t_unit.entrypoints:
                raise TransformError(
                    f"'{match.kernel_name}' is called by others, so it cannot have a launch for an epilogue"
                )
            else:
                t_unit = fence(t_unit, match)
        t_unit, match = isolate(t_unit, match)
        return convert_operands(t_unit, match), match

    def end(self, t_unit: lp.TranslationUnit, device: Device) -> lp.TranslationUnit:
        """The kernel with its epilogues."""
        if not self.apart:
            return t_unit
        return launch_rest(t_unit, self.match, self.match.axes, items=finishing_items(device.profile))


def _routes(fenced: lp.TranslationUnit, match: Match) -> list[_Route]:
    """The ways for a match: its epilogues where sums are stored, or else in a launch of their own."""
    return [_Route(fenced, match, apart) for apart in ((False, True) if match.makes_more else (False,))]


def _failure(device: Device, t_unit: lp.TranslationUnit) -> TransformError | None:
    """The reason why a kernel does not build; None if it does."""
    try:
        build_executable(device.context, generate_program(silenced(t_unit)))
    except TransformError as error:
        return error
    return None


def transform(
    t_unit: lp.TranslationUnit,
    device: Device | str | Any = None,
    kernel_name: str | None = None,
    insn_match: Any = None,
    database: Database | str | os.PathLike[str] | None = None,
    *,
    sizes: Mapping[str, int] | None = None,
    epilogues: bool = False,
) -> lp.TranslationUnit:
    """Apply the best known transformation to some instructions of a loopy kernel and leave the rest of it alone.

    The transformation moves operands, which are substitution rules, without looking inside them; those of a narrower type
    than the result are converted to it.  Other instructions are kept apart by global barriers, which are added where there
    are none: instructions that the einsum depends on run before it, the rest after, in loops of their own where a loop
    would cross a barrier.

    The kernel that is returned has been built on `device`; a transformation with which it does not build is passed over.
    If the rest of the kernel does not build here, whatever the transformation, the einsum alone is built instead.

    Value arguments that are lengths become ``int32``, or ``int64`` where they have 64 bits, whatever integers they are.

    :param t_unit: a kernel that follows the grammar of :func:`feinsum.match_einsum`.
    :param insn_match: the instructions, as loopy's ``within`` takes them; None for all.
    :param sizes: lengths expected of parameters of the kernel, on which long axes depend.
    :param epilogues: whether instructions may store functions of their sums, as for :func:`feinsum.match_einsum`; the
        transformation is that of the sums, and the functions are applied where these are stored, or, after a transformation
        that cannot, by a launch of their own.
    :raises MatchError: if the instructions do not form a batched einsum; the message says why.
    :raises ShapeError: if `sizes` names a parameter that no long axis depends on.
    :raises TransformError: if no transformation applies, or other instructions cannot be kept apart.
    """
    return run_in_thread(_transform, t_unit, choose_device(device), kernel_name, insn_match, database, sizes, epilogues)


def _transform(
    t_unit: lp.TranslationUnit,
    chosen: Device,
    kernel_name: str | None,
    insn_match: Any,
    database: Database | str | os.PathLike[str] | None,
    sizes: Mapping[str, int] | None,
    epilogues: bool,
) -> lp.TranslationUnit:
    given = t_unit
    match_einsum(t_unit, kernel_name, insn_match, epilogues=epilogues)  # its reasons name what was given
    t_unit = sign_lengths(t_unit)
    match = match_einsum(t_unit, kernel_name, insn_match, epilogues=epilogues)
    launchers = _routes(fence(t_unit, match), match)
    # A record of the sums serves their epilogues; if these make one output, the space has to have all sums together.
    e = replace(match.einsum, epilogues=match.epilogues if match.combines else ())
    canonical = canonicalize_einsum(e)
    expected = expected_sizes(e, evaluate_lengths(match.axes, sizes or {}))
    here = Instance.of_canonical(canonical, canonical.renaming.lengths(e.resolve(expected)), chosen.profile)
    job = KernelJob(canonical, here.lengths, chosen)
    unproved = given_builds = None
    for choice, route in product(candidates(here, open_stores(database, tolerant=True)), launchers):
        problem = choice.space.problem(e, expected, chosen.profile)
        subject = ("transformation", choice.space.name, canonical.key)
        if is_overdue(subject):
            continue
        made = False
        try:
            key = job.key(choice.origin, choice.space, False, "transformation")
            question = TimedStep(subject, f"transforming '{match.kernel_name}' by '{choice.space.name}'")
            with deprecations_paused, question, job.trying(key, choice.origin):
                start, own = route.start
                transformed = route.end(choice.space.transform(start, own, choice.configuration, problem), chosen)
                transformed, made = type_limits(transformed, match.kernel_name), True
                unproved = unproved or transformed
                if not is_for_opencl(t_unit):
                    return transformed  # this device says nothing of it
                if (failure := _failure(chosen, transformed)) is not None:
                    given_builds = _failure(chosen, given) is None if given_builds is None else given_builds
                    if given_builds:
                        raise failure
                    alone = choice.space.transform(without_others(start, own), own, choice.configuration, problem)
                    if (failure := _failure(chosen, alone)) is not None:
                        raise failure
            return transformed
        except MemoryError:
            raise
        except Exception as error:  # whatever a space makes us do
            # A kernel may have what a space refuses, such as operands behind index arrays; the rest are faults.
            is_fault = made or isinstance(error, SpaceError) or not isinstance(error, TransformError)
            level = logging.WARNING if is_fault and route is launchers[-1] else logging.INFO
            why = " ".join(reason(error).split())[:_SAID]  # compilers list every candidate of an overloaded function
            logger.log(level, "%s %s is passed over: %s", choice.space.name, dict(choice.configuration), why)
    if unproved is not None:
        return unproved  # what keeps every kernel from being built here may not do so where the compiler builds it
    raise TransformError(f"no transformation applies to '{e.subscripts}' in kernel '{match.kernel_name}'")
