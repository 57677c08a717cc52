"""A task: one subject, at its lengths, on one device, with the facts that its trials and records share."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from feinsum.database import TuningRecord
from feinsum.devices import Device, DeviceProfile
from feinsum.einsum import BatchedEinsum
from feinsum.space import Instance, TransformSpace
from feinsum.timing import PROTOCOL
from feinsum.tune.subject import Subject, Tunable, make_subject
from feinsum.tune.trial import Outcome, Trial
from feinsum.tune.versions import library_versions


@dataclass(frozen=True)
class Task:
    """The task of a tuning run; made by :func:`make_task`.

    :ivar subject: the einsum or program to tune, at its lengths.
    :ivar seed: of the search.
    :ivar proof_seed: of the inputs, and of a length at which variants are proved; records keep it.
    """

    subject: Subject
    profile: DeviceProfile
    seed: int
    proof_seed: int

    @property
    def sizes(self) -> Mapping[str, int]:
        """The lengths, as records have them."""
        return self.subject.sizes

    @property
    def instance(self) -> Instance | None:
        """The einsum that is tuned, on this device; None if it is none."""
        return self.subject.instance(self.profile)

    def problem(self, space: TransformSpace) -> Any:
        """The problem that a space is asked about."""
        return self.subject.problem(space, self.profile)

    def trial(self, space: TransformSpace, configuration: Mapping[str, Any]) -> Trial:
        """The trial of one configuration."""
        return Trial(
            self.subject.key, self.sizes, self.profile.id, space.name, space.version, dict(configuration), self.proof_seed
        )

    def record(self, trial: Trial, outcome: Outcome, protocol: int = PROTOCOL) -> TuningRecord:
        """The record of a trial."""
        return TuningRecord(
            einsum_key=self.subject.key,
            pattern_key=self.subject.pattern_key,
            sizes=self.subject.sizes,
            pattern_sizes=self.subject.pattern_sizes,
            device=self.profile.id,
            architecture=self.profile.architecture,
            driver=self.profile.driver,
            space=trial.space,
            space_version=trial.version,
            configuration=trial.configuration,
            status=outcome.status,
            message=outcome.message,
            flops=self.subject.flops,
            bytes=self.subject.bytes,
            protocol=protocol,
            samples_s=outcome.samples_s,
            versions=library_versions(),
            seed=self.proof_seed,
        )


def draw_seed() -> int:
    """An unforeseeable seed, short enough to be typed."""
    return secrets.randbelow(1 << 32)


def make_task(
    what: BatchedEinsum | Tunable,
    sizes: Mapping[str, int] | None,
    device: Device | DeviceProfile,
    seed: int | None = None,
) -> Task:
    """The task of tuning an einsum, or a program, at these sizes.

    :param seed: of the search and of the proofs; None is 0 for the search, and draws one for the proofs.
    :raises ShapeError: if a long axis has no length, or any axis is empty.
    """
    profile = device.profile if isinstance(device, Device) else device
    return Task(make_subject(what, sizes), profile, seed or 0, draw_seed() if seed is None else seed)
