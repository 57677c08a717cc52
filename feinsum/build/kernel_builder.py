"""Executables of an einsum on a device, from the disk cache or else built, and proved where a proof is due."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from feinsum.apart import TimedStep, is_overdue, limit_s
from feinsum.build.cache import kernel_cache, make_key
from feinsum.build.fingerprint import code_fingerprint
from feinsum.candidates.origin import Origin
from feinsum.canonicalization import CanonicalEinsum
from feinsum.compile.executable import Executable, build_executable
from feinsum.compile.kernel_program import KernelProgram
from feinsum.devices import Device
from feinsum.einsum import BatchedEinsum
from feinsum.ending import calling
from feinsum.errors import FeinsumError, TransformError, ValidationError
from feinsum.registry import file_digests
from feinsum.space import Instance
from feinsum.space.attempts import Attempt, attempt

if TYPE_CHECKING:
    from feinsum.space import TransformSpace
    from feinsum.tune.trial import Outcome
    from feinsum.validate import Workload

logger = logging.getLogger(__name__)


def nonempty(e: BatchedEinsum) -> BatchedEinsum:
    """The einsum that a kernel of `e` is made for: empty axes get length 1, as nothing is launched for them."""
    empty = {letter: 1 for letter, axis in e.index_sizes.items() if axis == 0}
    return e.with_sizes(empty) if empty else e


@dataclass(frozen=True)
class KernelJob:
    """The einsum, lengths and device that a kernel is wanted for.

    :ivar lengths: the length expected of each index of the canonical einsum.
    :ivar looped: the indices of it that kernels are to loop over, sorted.
    """

    canonical: CanonicalEinsum
    lengths: Mapping[str, int]
    device: Device
    looped: str = ""

    @property
    def instance(self) -> Instance:
        """The instance for which configurations are compared."""
        return Instance.of_canonical(self.canonical, self.lengths, self.device.profile)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """All facts that decide the kernel, save the configuration."""
        profile = self.device.profile
        return {
            "einsum": self.canonical.key,
            "lengths": dict(self.lengths),
            "device": profile.id,
            "driver": profile.driver,
            "profile": json.dumps(profile.to_dict(), sort_keys=True),
            "code": code_fingerprint(),
            "files": file_digests(),
        }

    def key(self, origin: Origin, space: TransformSpace, wide: bool, kind: str = "program") -> str:
        """The name of the cache's entry for one configuration.

        :param kind: what the entry is.
        """
        # The function is named too: another in its place, as tests and debuggers put there, is another space.
        function = f"{space.function.__module__}.{space.function.__qualname__}"
        own = {"space": (origin.space, origin.version, function), "configuration": dict(origin.configuration), "wide": wide}
        return make_key(kind, self.facts | own)

    def make(self, origin: Origin, *, wide: bool = False, check: bool = False) -> tuple[Executable, str]:
        """An executable, and the name of its entry in the cache.

        :param wide: whether it indexes with 64 bits even if the lengths expected do not need it.
        :param check: whether it is to be compared with the reference, unless that was done before.
        :raises FeinsumError: if the configuration does not apply, generates no code, does not build, or is wrong.
        """
        key = self.key(origin, self.find_space(origin), wide)
        found = self.load(key, check)
        if found is not None:
            return found, key
        with self.kernel_build(origin, wide=wide) as kernel_build:
            kernel_build.write()
            kernel_build.build()
            if check:
                kernel_build.prove(self.proofs)
            kernel_build.keep()
            return kernel_build.executable, key

    @contextlib.contextmanager
    def kernel_build(self, origin: Origin, *, wide: bool = False) -> Iterator[KernelBuild]:
        """Around the making of a kernel step by step: an end of the process in between is noted.

        :raises ValidationError: if the space took too long for this einsum, or if a process died making the kernel, and so
            did another that tried it then.
        """
        space = self.find_space(origin)
        key = self.key(origin, space, wide)
        if is_overdue(subject := ("kernel", space.name, self.canonical.key)):
            raise ValidationError(f"space '{space.name}' took too long to make a kernel for this einsum")
        with self.trying(key, origin):
            yield KernelBuild(self, origin, space, wide, key, subject)

    @contextlib.contextmanager
    def trying(self, key: str, origin: Origin) -> Iterator[None]:
        """Around what a configuration may kill the process in.

        :param key: of the note.
        :raises ValidationError: if a process died in it, and so did another that tried the configuration then.
        """
        cache = kernel_cache()
        with attempt(cache.directory if cache.limit_bytes else None, key) as noted:
            if noted.died:
                self._clear(noted, origin)
            yield

    def _clear(self, noted: Attempt, origin: Origin) -> None:
        """Try a kernel at which a process died in another one, unless that was done before, and keep the verdict.

        :raises ValidationError: if the kernel is not to be tried here.
        """
        noted.stays = True
        if not noted.verdict:
            outcome = self._try_apart(origin)
            if outcome is None:
                noted.stays = False
                return
            said = f"a process died making this kernel, and another, started to see why, says: {outcome.message}"
            if outcome.status in ("timeout", "interrupted"):  # which may be others' fault
                raise ValidationError(said)
            noted.verdict = said
        raise ValidationError(noted.verdict)

    def _try_apart(self, origin: Origin) -> Outcome | None:
        """Build and prove a configuration in a process of its own, as tuning does; None if it is right."""
        from feinsum.tune.trial import Outcome, Trial
        from feinsum.tune.worker import Worker

        trial = Trial(
            self.canonical.key,
            self.lengths,
            self.device.profile.id,
            origin.space,
            origin.version,
            dict(origin.configuration),
        )
        worker = Worker("build", self.device.profile.id)
        try:
            built = worker.build(trial, limit_s())
            return built if isinstance(built, Outcome) else worker.prove(trial, built, limit_s())
        finally:
            worker.close()

    def load(self, key: str, check: bool = False) -> Executable | None:
        """The executable of an entry of the cache; None if there is none.

        :param check: whether only one that was compared with the reference will do.
        """
        entry = kernel_cache().get(key)
        if entry is None or (check and entry.data.get("checked") is not True):
            return None
        try:
            return build_executable(self.device.context, KernelProgram.from_json(entry.data.get("program")), entry.binary)
        except FeinsumError as error:
            logger.info("the entry %s of the cache is of no use: %s", key, error)
            return None

    @staticmethod
    def find_space(origin: Origin) -> TransformSpace:
        """The space of a configuration.

        :raises TransformError: if it is gone or has another version by now.
        """
        from feinsum.registry import find_space

        space = find_space(origin.space)
        if space.version != origin.version:
            raise TransformError(
                f"the kernel was made by version {origin.version} of space '{origin.space}', which now has version"
                f" {space.version}; generate it again"
            )
        return space

    @property
    def proofs(self) -> list[Workload]:
        """The cases for which a kernel has to be right, at lengths that divide nothing where there are long axes."""
        from feinsum.validate import short_proof

        with calling:
            return short_proof(self.canonical.einsum, self.lengths, self.device.queue)

    def check(self, executable: Executable) -> None:
        """Compare an executable with the reference.

        :raises ValidationError: if it is wrong.
        """
        prove_executable(executable, self.proofs)


class KernelBuild:
    """The making of one kernel: its source, its machine code, and its proof.

    :ivar key: the name of its entry in the cache.
    :ivar executable: what was built.
    """

    executable: Executable

    def __init__(
        self, job: KernelJob, origin: Origin, space: TransformSpace, wide: bool, key: str, subject: Hashable
    ) -> None:
        self._job, self._origin, self._space, self._wide = job, origin, space, wide
        self.key, self._subject = key, subject
        self._program: KernelProgram | None = None
        self._proved = False

    def _question(self, step: str) -> TimedStep:
        what = f"{self._space.name} {dict(self._origin.configuration)}"
        task = f"{step} the kernel of {what} for '{self._job.canonical.einsum.subscripts}'"
        logger.info("%s", task)
        return TimedStep(self._subject, task)

    def write(self) -> None:
        """Write the source; not to be done by two threads at a time.

        :raises FeinsumError: if the configuration does not apply, or generates no code.
        """
        from feinsum.compile.realize import realize

        e, profile = self._job.canonical.einsum, self._job.device.profile
        # What an exact record tells of was generated, and run, with indices as wide as its lengths need.
        proved = self._origin.rung == "exact" and not self._wide
        sizes, configuration = e.sizes_from(self._job.lengths), self._origin.configuration
        with self._question("writing"):
            self._program = realize(e, sizes, self._space, configuration, profile, wide=self._wide, proved=proved)

    def build(self) -> None:
        """Compile the source, which several threads may do at the same time.

        :raises TransformError: if it does not build.
        """
        assert self._program is not None, "the source is written first"
        with self._question("building"):
            self.executable = build_executable(self._job.device.context, self._program)

    def prove(self, proofs: Sequence[Workload]) -> None:
        """Compare what was built with the references of some cases.

        :raises ValidationError: if it is wrong.
        """
        with self._question("proving"):
            prove_executable(self.executable, proofs)
        self._proved = True

    def keep(self) -> None:
        """Keep what was built in the cache."""
        data = {"program": self.executable.program.to_json(), "checked": self._proved}
        kernel_cache().put(self.key, data, self.executable.binary)


def prove_executable(executable: Executable, proofs: Sequence[Workload]) -> None:
    """Compare an executable with the references of some cases.

    :raises ValidationError: if it is wrong.
    """
    for workload in proofs:
        with calling:
            verdict = workload.check(executable)
        if not verdict.ok:
            raise ValidationError(verdict.message)
