"""Instances: an einsum of certain lengths on a device, for which configurations are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from feinsum.canonicalization import CanonicalEinsum, canonicalize_einsum
from feinsum.einsum import BatchedEinsum
from feinsum.space.problem import Problem

if TYPE_CHECKING:
    from feinsum.devices import DeviceProfile
    from feinsum.space.space import TransformSpace


@dataclass(frozen=True)
class Instance:
    """An einsum of certain lengths on a device; made by :meth:`at` or :meth:`of_canonical`.

    :ivar einsum: in any letters; a step of a chain has those of the chain.
    :ivar lengths: the length of every index, long axes at the lengths expected in use.
    :ivar profile: what the device can do.
    :ivar known: the canonical form whose representative `einsum` is; None where it is written otherwise.
    """

    einsum: BatchedEinsum
    lengths: Mapping[str, int]
    profile: DeviceProfile
    known: CanonicalEinsum | None = None

    @staticmethod
    def at(e: BatchedEinsum, sizes: Mapping[str, int] | None, profile: DeviceProfile) -> Instance:
        """The instance of an einsum with `sizes` of its long axes, as :meth:`BatchedEinsum.resolve` takes them."""
        return Instance(e, e.resolve(sizes), profile)

    @staticmethod
    def of_canonical(canonical: CanonicalEinsum, lengths: Mapping[str, int], profile: DeviceProfile) -> Instance:
        """The instance of a canonical einsum with the length of each of its indices."""
        return Instance(canonical.einsum, lengths, profile, canonical)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The lengths of the long axes, as :meth:`BatchedEinsum.resolve` takes them."""
        return self.einsum.sizes_from(self.lengths)

    @property
    def canonical(self) -> CanonicalEinsum:
        """The canonical form of the einsum."""
        return self.known or canonicalize_einsum(self.einsum)

    @property
    def canonical_lengths(self) -> Mapping[str, int]:
        """The length of each index of the canonical form."""
        return self.lengths if self.known else self.canonical.renaming.lengths(self.lengths)

    @property
    def pattern_lengths(self) -> Mapping[str, int]:
        """The length of each index of the pattern."""
        given = self.known.renaming.inverse.lengths(self.lengths) if self.known else self.lengths
        return self.canonical.pattern.renaming.lengths(given)

    @property
    def bare(self) -> Instance:
        """The instance without epilogues."""
        if not self.einsum.epilogues:
            return self
        return Instance(self.einsum.bare, self.lengths, self.profile, self.known.bare if self.known else None)

    def problem(self, space: TransformSpace) -> Problem:
        """The problem that a space is asked about.

        :raises TransformError: if the einsum does not match its pattern.
        """
        return space.problem(self.einsum, self.sizes, self.profile)
