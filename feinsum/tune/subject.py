"""Subjects of tuning: einsums and programs.  Tasks, trials and proofs use this protocol, and need not tell one from the
other.

A subject has a key, by which records know it and from which a worker process makes it again, and lengths.  It says which
spaces it has, makes a kernel of a configuration, and makes the cases that every kernel has to be right for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from feinsum.canonicalization import CanonicalEinsum, canonicalize_einsum, parse_key
from feinsum.einsum import BatchedEinsum, require_einsum
from feinsum.errors import ShapeError
from feinsum.registry import find_space, matching_spaces
from feinsum.space import Configuration, Instance, TransformSpace

if TYPE_CHECKING:
    from feinsum.compile.kernel_program import KernelProgram
    from feinsum.devices import Device, DeviceProfile
    from feinsum.validate.case import Case

KINDS: Final = {"p1|": "feinsum.languages.declarative.tuning"}
"""Prefixes of keys of subjects that are no einsums, each with the module whose ``subject_of`` makes them again."""


class Subject(Protocol):
    """A subject of tuning at given lengths."""

    @property
    def key(self) -> str:
        """The key by which records refer to it, whatever its lengths."""

    @property
    def pattern_key(self) -> str:
        """The key that it shares with similar subjects."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """The lengths, by their names in `key`."""

    @property
    def pattern_sizes(self) -> Mapping[str, int]:
        """The lengths, by their names in `pattern_key`."""

    @property
    def flops(self) -> int:
        """Operations of one evaluation."""

    @property
    def bytes(self) -> int:
        """Bytes that one evaluation must move at least."""

    @property
    def name(self) -> str:
        """A word or two for it."""

    @property
    def dtype(self) -> Any:
        """The element type of its results."""

    @property
    def letters(self) -> Mapping[str, str]:
        """The user's letters, by those in which configurations are written."""

    def command(self, sizes: Mapping[str, int], *options: str) -> str:
        """The command that tunes it."""

    def __str__(self) -> str:
        """The description of the subject, in a line."""

    def subject(self, sizes: Mapping[str, int] | None) -> Subject:
        """Itself: its lengths are known."""

    def spaces(self) -> Sequence[TransformSpace]:
        """The spaces of its configurations."""

    def problem(self, space: TransformSpace, profile: DeviceProfile) -> Any:
        """The problem that a space is asked about."""

    def instance(self, profile: DeviceProfile) -> Instance | None:
        """The einsum that it is, for chains, similar records and the cost model; None for other subjects."""

    def program(self, space: str, version: int, configuration: Configuration, profile: DeviceProfile) -> KernelProgram:
        """The kernel of a configuration.

        :raises SpaceError: if the space fails.
        :raises FeinsumError: if the configuration is refused.
        """

    def proof(self, device: Device, seed: int) -> Sequence[Case]:
        """The cases for which a kernel has to be right, the fastest to try first; the last one is to be timed."""


@runtime_checkable
class Tunable(Protocol):
    """An object that becomes a subject once its lengths are known: a program, for instance, or a subject itself."""

    def subject(self, sizes: Mapping[str, int] | None) -> Subject:
        """The subject.

        :raises FeinsumError: if a length is missing, or there is nothing to tune.
        """


@dataclass(frozen=True)
class EinsumSubject:
    """A batched einsum.

    :ivar key: its canonical key.
    :ivar sizes: the length of each index of the canonical einsum.
    :ivar given: the canonical form with the names that the user gave; None in a worker process, which knows the key alone.
    """

    key: str
    sizes: Mapping[str, int]
    given: CanonicalEinsum | None = None

    @cached_property
    def canonical(self) -> CanonicalEinsum:
        """The canonical form."""
        return self.given or canonicalize_einsum(self.einsum)

    @cached_property
    def einsum(self) -> BatchedEinsum:
        """The canonical einsum."""
        return self.given.einsum if self.given else parse_key(self.key)

    @property
    def pattern_key(self) -> str:
        return self.canonical.pattern.key

    @cached_property
    def pattern_sizes(self) -> Mapping[str, int]:
        own = self.canonical.renaming.inverse.lengths(self.sizes)
        return self.canonical.pattern.renaming.lengths(own)

    @property
    def flops(self) -> int:
        return self.einsum.flops(self.einsum.sizes_from(self.sizes))

    @property
    def bytes(self) -> int:
        return self.einsum.min_bytes(self.einsum.sizes_from(self.sizes))

    @property
    def name(self) -> str:
        return self.canonical.given.subscripts

    @property
    def dtype(self) -> Any:
        return self.einsum.dtype

    @property
    def letters(self) -> Mapping[str, str]:
        return self.canonical.renaming.inverse.indices

    def command(self, sizes: Mapping[str, int], *options: str) -> str:
        from feinsum.report.commands import command

        return command("tune", self.canonical.given, sizes, *options)

    def __str__(self) -> str:
        return str(self.canonical.given)

    def subject(self, sizes: Mapping[str, int] | None) -> EinsumSubject:
        """Itself: its lengths are known."""
        return self

    def spaces(self) -> Sequence[TransformSpace]:
        return matching_spaces(self.einsum)

    def problem(self, space: TransformSpace, profile: DeviceProfile) -> Any:
        return self.instance(profile).problem(space)

    def instance(self, profile: DeviceProfile) -> Instance:
        return Instance.of_canonical(self.canonical, self.sizes, profile)

    def program(self, space: str, version: int, configuration: Configuration, profile: DeviceProfile) -> KernelProgram:
        from feinsum.compile.codegen import generate_program
        from feinsum.compile.realize import transformed
        from feinsum.errors import SpaceError, TransformError

        found = find_space(space)
        if found.version != version:
            raise TransformError(f"space '{space}' has version {found.version}, not {version}")
        t_unit = transformed(self.einsum, self.einsum.sizes_from(self.sizes), found, configuration, profile)
        try:
            return generate_program(t_unit)
        except TransformError as error:
            raise SpaceError(str(error)) from error

    def proof(self, device: Device, seed: int) -> Sequence[Case]:
        from feinsum.validate import proof

        return proof(self.einsum, dict(self.sizes), device.queue, seed)


def nonempty_lengths(e: BatchedEinsum, sizes: Mapping[str, int] | None, verb: str) -> dict[str, int]:
    """The length of every index.

    :param verb: what is to be done with the einsum.
    :raises ShapeError: if a long axis has no length, or any axis is empty.
    """
    require_einsum(e)
    lengths = e.resolve(sizes)
    for letter, length in lengths.items():
        if length == 0:
            raise ShapeError(f"index '{letter}' of '{e.subscripts}' is empty, so there is nothing to {verb}")
    return lengths


def make_subject(what: BatchedEinsum | Tunable, sizes: Mapping[str, int] | None) -> Subject:
    """The subject that an einsum is at these lengths of its long axes, or a program at these of its own.

    :raises ShapeError: if a long axis has no length, or any axis is empty.
    """
    if not isinstance(what, BatchedEinsum) and isinstance(what, Tunable):
        return what.subject(sizes)
    lengths = nonempty_lengths(what, sizes, "tune")
    canonical = canonicalize_einsum(what)
    return EinsumSubject(canonical.key, canonical.renaming.lengths(lengths), canonical)


def subject_of(key: str, sizes: Mapping[str, int]) -> Subject:
    """The subject that a trial is of."""
    for beginning, module in KINDS.items():
        if key.startswith(beginning):
            found: Subject = import_module(module).subject_of(key, sizes)
            return found
    return EinsumSubject(key, sizes)
