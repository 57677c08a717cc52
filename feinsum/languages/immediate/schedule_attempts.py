"""Attempts: a schedule in a text, as configurations that a tuner tries before all others.

A step whose kernel the schedule names has that kernel; another one has the best known kernel that makes of its indices what
the marks of the step say, or the one that misses the fewest of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from feinsum.build.looping import divided_indices, searched
from feinsum.candidates.ladder import candidates
from feinsum.canonicalization import canonicalize_einsum
from feinsum.contraction import step_einsums
from feinsum.database import Stores
from feinsum.devices import DeviceProfile
from feinsum.einsum import BatchedEinsum
from feinsum.errors import TransformError
from feinsum.languages.immediate.marks import Marks, marks_of
from feinsum.languages.immediate.schedules import KernelRemark, Schedule
from feinsum.registry import find_space, matching_spaces
from feinsum.space import ChainSpace, Configuration, Instance, TransformSpace


@dataclass(frozen=True)
class Attempts:
    """The configurations to try.

    :ivar configurations: of spaces, by their names.
    :ivar remarks: marks that no kernel of a step obeys, and why.
    """

    configurations: tuple[tuple[str, Configuration], ...]
    remarks: tuple[str, ...] = ()


def attempts(
    e: BatchedEinsum, schedule: Schedule, profile: DeviceProfile, stores: Stores, sizes: Mapping[str, int] | None = None
) -> Attempts:
    """The configurations that a schedule says for an einsum.

    :param sizes: lengths of long axes.
    :raises TransformError: if a kernel that the schedule names cannot be had; with the reason.
    """
    canonical = canonicalize_einsum(e)
    here = Instance.of_canonical(canonical, canonical.renaming.lengths(e.resolve(sizes)), profile)
    if len(schedule.kernels) == 1:
        (kernel,) = schedule.kernels
        if kernel is None:
            return Attempts(())
        return Attempts(((kernel.space, _accepted(here, _space_of_kernel(kernel), kernel)),))
    found: list[tuple[str, Configuration]] = []
    remarks: list[str] = []
    errors: list[str] = []
    for space in matching_spaces(here.einsum):
        roles = space.roles(here.einsum)
        if not isinstance(space, ChainSpace) or roles is None:
            continue
        given = roles.of_given(canonical.renaming)
        try:
            chain, missed = _chain_of_kernels(space, here, schedule, given.reverse.indices, given.operands, stores)
        except TransformError as error:
            errors.append(str(error))
            continue
        found.append((space.name, chain))
        remarks += missed
    if not found:
        raise TransformError("; ".join(errors) or f"no space has chains for '{e.subscripts}'")
    return Attempts(tuple(found), tuple(dict.fromkeys(remarks)))


def _chain_of_kernels(
    space: ChainSpace,
    here: Instance,
    schedule: Schedule,
    letters: Mapping[str, str],
    operands: Sequence[int],
    stores: Stores,
) -> tuple[Configuration, list[str]]:
    """The chain of a space, and what it does not obey, in the letters of the einsum that was given."""
    problem = here.problem(space)
    own = schedule.steps.rename(letters, operands)
    back = {ours: theirs for theirs, ours in letters.items()}
    kernels: list[tuple[TransformSpace, Configuration]] = []
    remarks: list[str] = []
    wanted = zip(step_einsums(problem.einsum, own), schedule.kernels, schedule.marks, strict=True)
    for number, (e, kernel, marks) in enumerate(wanted):
        at = Instance.at(e, e.sizes_from(problem.sizes), problem.device)
        able = [s for s in space.spaces_of_steps if s.roles(e) is not None]
        if kernel is not None:
            if kernel.space not in {s.name for s in able}:
                raise TransformError(f"step {number}, '{e.indexing}': '{space.name}' has no steps of '{kernel.space}'")
            chosen = _space_of_kernel(kernel)
            kernels.append((chosen, _accepted(at, chosen, kernel)))
            continue
        wish = Marks(
            tuple("".join(letters[x] for x in group) for group in marks.fused),
            "".join(letters[x] for x in marks.looped),
        )
        chosen, configuration = _best_kernel(at, able, wish, stores)
        kernels.append((chosen, configuration))
        where = f"step {number}, '{e.indexing.rename(back)}'"
        remarks += [f"{where}: {reason}" for reason in _missed(at, chosen, configuration, wish, back)]
    chain = space.chain(own, kernels)
    reason = space.refusal(problem, chain)
    if reason is not None:
        raise TransformError(reason)
    return chain, remarks


def _space_of_kernel(kernel: KernelRemark) -> TransformSpace:
    found = find_space(kernel.space)
    if found.version != kernel.version:
        raise TransformError(f"the schedule names version {kernel.version} of '{found.name}', which has {found.version}")
    return found


def _accepted(here: Instance, space: TransformSpace, kernel: KernelRemark) -> Configuration:
    """The configuration of a kernel that a schedule names."""
    reason = None if space.roles(here.einsum) else f"'{space.name}' does not apply to '{here.einsum.subscripts}'"
    reason = reason or space.refusal(here.problem(space), kernel.configuration)
    if reason is not None:
        raise TransformError(f"the kernel {kernel} of the schedule is refused: {reason}")
    return kernel.configuration


def _best_kernel(
    at: Instance, able: Sequence[TransformSpace], wish: Marks, stores: Stores
) -> tuple[TransformSpace, Configuration]:
    """The first kernel that obeys the most marks."""
    found: list[tuple[int, TransformSpace, Configuration]] = []
    for space, configuration in _known_kernels(at, able, wish, stores):
        missed = len(wish.missed(marks_of(at, space, configuration))) if wish else 0
        found.append((missed, space, configuration))
        if missed == 0:
            break
    if not found:
        raise TransformError(f"no space has a kernel for step '{at.einsum.indexing}'")
    return min(found, key=lambda one: one[0])[1:]


def _known_kernels(
    at: Instance, able: Sequence[TransformSpace], wish: Marks, stores: Stores
) -> Iterator[tuple[TransformSpace, Configuration]]:
    """Kernels for a step, those of the ladder first."""
    names = {s.name for s in able}
    for choice in candidates(at, stores):
        if choice.space.name in names and not choice.space.is_chain(choice.configuration):
            yield choice.space, choice.configuration
    if wish:
        for choice in searched(at, wish.looped, able):
            yield choice.space, choice.configuration


def _missed(
    at: Instance, space: TransformSpace, configuration: Configuration, wish: Marks, back: Mapping[str, str]
) -> list[str]:
    """Marks that a kernel does not obey, and why."""
    how: Mapping[str, Any] | None = divided_indices(at, space, configuration)
    own = marks_of(at, space, configuration)
    told = []
    for mark in wish.missed(own):
        written = "".join(back.get(x, x) for x in mark)
        if mark.startswith("("):
            why = "they are not one index in it"
        elif how is None:
            why = f"'{space.name}' does not say what it divides"
        else:
            why = str(how[mark[1]])
        told.append(f"{written} is not obeyed by the kernel of {space.name}: {why}")
    return told
