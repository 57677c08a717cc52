"""A task: one einsum at one set of lengths on one device, and what its trials and records have in common."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from feinsum.canonicalization import CanonicalEinsum, canonicalize_einsum
from feinsum.database import TuningRecord
from feinsum.devices import Device, DeviceProfile
from feinsum.einsum import BatchedEinsum
from feinsum.errors import ShapeError
from feinsum.space import Instance, Problem, TransformSpace
from feinsum.timing import PROTOCOL
from feinsum.tune.trial import Outcome, Trial
from feinsum.tune.versions import library_versions


@dataclass(frozen=True)
class Task:
    """What a tuning run is about; made by :func:`make_task`.

    :ivar sizes: the length of each index of the canonical einsum.
    :ivar pattern_sizes: the length of each index of its pattern.
    :ivar seed: of the search.
    :ivar proof_seed: of the inputs, and of a length at which variants are proved; records keep it.
    """

    canonical: CanonicalEinsum
    sizes: Mapping[str, int]
    pattern_sizes: Mapping[str, int]
    profile: DeviceProfile
    seed: int
    proof_seed: int

    @property
    def instance(self) -> Instance:
        """What configurations are compared for."""
        return Instance.of_canonical(self.canonical, self.sizes, self.profile)

    def problem(self, space: TransformSpace) -> Problem:
        """What a space is asked about."""
        return self.instance.problem(space)

    def trial(self, space: TransformSpace, configuration: Mapping[str, Any]) -> Trial:
        """The trial of one configuration."""
        return Trial(
            self.canonical.key, self.sizes, self.profile.id, space.name, space.version, dict(configuration), self.proof_seed
        )

    def record(self, trial: Trial, outcome: Outcome, protocol: int = PROTOCOL) -> TuningRecord:
        """What is remembered of a trial."""
        e = self.canonical.einsum
        lengths = e.sizes_from(self.sizes)
        return TuningRecord(
            einsum_key=self.canonical.key,
            pattern_key=self.canonical.pattern.key,
            sizes=self.sizes,
            pattern_sizes=self.pattern_sizes,
            device=self.profile.id,
            architecture=self.profile.architecture,
            driver=self.profile.driver,
            space=trial.space,
            space_version=trial.version,
            configuration=trial.configuration,
            status=outcome.status,
            message=outcome.message,
            flops=e.flops(lengths),
            bytes=e.min_bytes(lengths),
            protocol=protocol,
            samples_s=outcome.samples_s,
            versions=library_versions(),
            seed=self.proof_seed,
        )


def draw_seed() -> int:
    """A seed that nobody foresees, short enough to be typed."""
    return secrets.randbelow(1 << 32)


def make_task(
    e: BatchedEinsum,
    sizes: Mapping[str, int] | None,
    device: Device | DeviceProfile,
    seed: int | None = None,
) -> Task:
    """The task of tuning `e` at these sizes.

    :param seed: of the search and of the proofs; None is 0 for the search, and draws one for the proofs.
    :raises ShapeError: if a long axis has no length, or any axis is empty.
    """
    lengths = e.resolve(sizes)
    for letter, length in lengths.items():
        if length == 0:
            raise ShapeError(f"index '{letter}' of '{e.subscripts}' is empty, so there is nothing to tune")
    canonical = canonicalize_einsum(e)
    profile = device.profile if isinstance(device, Device) else device
    return Task(
        canonical,
        canonical.renaming.lengths(lengths),
        canonical.pattern.renaming.lengths(lengths),
        profile,
        seed or 0,
        draw_seed() if seed is None else seed,
    )
