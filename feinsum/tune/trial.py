"""Trials, which run inside worker processes: one configuration of a space, built, proved and timed."""

from __future__ import annotations

import base64
import importlib
import json
import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache
from typing import Any

from feinsum.compile.kernel_program import KernelProgram
from feinsum.errors import FeinsumError, SpaceError, TransformError
from feinsum.tune.memory_limit import limit_memory
from feinsum.tune.subject import Subject, subject_of


@dataclass(frozen=True)
class Trial:
    """One configuration to try, as plain data.

    :ivar key: of the subject.
    :ivar sizes: its lengths.
    :ivar device: the id of a device profile.
    """

    key: str
    sizes: Mapping[str, int]
    device: str
    space: str
    version: int
    configuration: Mapping[str, Any]
    seed: int = 0

    def to_json(self) -> dict[str, Any]:
        return {f.name: _plain_data(getattr(self, f.name)) for f in fields(self)}

    @cached_property
    def id(self) -> str:
        """A text that no other trial has."""
        return json.dumps(self.to_json(), sort_keys=True)


def _plain_data(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


@dataclass(frozen=True)
class Outcome:
    """The outcome of a trial: a status of :class:`~feinsum.database.TuningRecord`, a message, samples in seconds.

    A trial that was "interrupted" is no record: others killed the process that did it, or the run has ended.

    :ivar tainted: whether the process that measured it may have lost its integrity.
    """

    status: str
    message: str = ""
    samples_s: tuple[float, ...] = ()
    tainted: bool = False

    @property
    def median_s(self) -> float | None:
        from statistics import median

        return median(self.samples_s) if self.status == "ok" else None


@dataclass(frozen=True)
class CompiledTrial:
    """A program and its machine code, on the way from the process that compiled it to the one that times it."""

    program: KernelProgram
    binary: bytes = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        return {"program": self.program.to_json(), "binary": base64.b64encode(self.binary).decode()}

    @staticmethod
    def from_json(data: Any) -> CompiledTrial:
        return CompiledTrial(KernelProgram.from_json(data["program"]), base64.b64decode(data["binary"]))


def prepare(word: str, builds: bool) -> None:
    """Load the modules that the first trial needs, the device, and loopy where trials are built; then limit the memory.

    :param word: for the device on which the trials for its id are done from now on.
    """
    device = _device_of_word(word)
    _prepared[device.id] = device
    _ = device.context
    if builds:
        importlib.import_module("feinsum.compile.realize")
    if device.profile.kind == "cpu":  # the driver of a GPU reserves more than there is
        limit_memory()


def build_trial(trial: Trial) -> CompiledTrial | Outcome:
    """Transform and compile; an outcome means that this failed."""
    from feinsum.compile.executable import build_executable

    device = _device_of_word(trial.device)
    try:
        program = _subject_of_trial(trial).program(trial.space, trial.version, trial.configuration, device.profile)
    except SpaceError as error:
        return Outcome("compile-failed", str(error))
    except FeinsumError as error:
        return Outcome("refused", str(error))
    try:
        executable = build_executable(device.context, program)
    except TransformError as error:
        return Outcome("compile-failed", str(error))
    return CompiledTrial(executable.program, executable.binary)


def prove_trial(trial: Trial, built: CompiledTrial) -> Outcome | None:
    """Prove that a variant is right, unless this process did so lately; an outcome means that it is not."""
    from feinsum.compile.executable import build_executable
    from feinsum.devices.opencl import driver_error

    if trial.id in _proved:
        _proved.move_to_end(trial.id)
        return None
    try:
        executable = build_executable(_device_of_word(trial.device).context, built.program, built.binary)
        for case in _bench_of(trial).cases:
            verdict = case.check(executable)
            if not verdict.ok:
                return Outcome("wrong", verdict.message, tainted=verdict.escaped)
    except TransformError as error:
        return Outcome("compile-failed", str(error))
    except (driver_error(), MemoryError) as error:
        return _launch_failure(error)
    _proved[trial.id] = executable
    if len(_proved) > _PROVED:
        _proved.popitem(last=False)
    return None


def time_trial(trial: Trial, give_up_s: float = math.inf, seconds: float = 0.3) -> Outcome:
    """Time a variant that this process has proved, and compare the results of the timed runs.

    See :func:`feinsum.timing.time_executable`.
    """
    from feinsum.devices.opencl import driver_error
    from feinsum.timing import time_executable

    executable = _proved.get(trial.id)
    if executable is None:
        return Outcome("launch-failed", "the process that proved it is gone")
    device, bench = _device_of_word(trial.device), _bench_of(trial)
    try:
        rotation, lengths = bench.rotation, bench.cases[-1].parameters
        rotation.begin(executable)
        timing = time_executable(executable, device.queue, rotation, lengths, seconds=seconds, give_up_s=give_up_s)
        verdict = rotation.check(executable)
    except (driver_error(), MemoryError) as error:
        return _launch_failure(error)
    if not verdict.ok:
        del _proved[trial.id]
        return Outcome("wrong", verdict.message, tainted=verdict.escaped)
    return Outcome("ok", samples_s=timing.samples_s)


def _launch_failure(error: Exception) -> Outcome:
    """The outcome of a launch that the driver refused; if it found no memory, the next call may hang."""
    return Outcome("launch-failed", f"{type(error).__name__}: {error}", tainted=isinstance(error, MemoryError))


_PROVED = 12
"""Proved variants that a process keeps: those of a final, which are timed in turns."""
_proved: OrderedDict[str, Any] = OrderedDict()
"""Executables by the id of their trial, least recently used first."""


def _subject_of_trial(trial: Trial) -> Subject:
    return _cached_subject(trial.key, tuple(sorted(trial.sizes.items())))


@lru_cache(maxsize=64)
def _cached_subject(key: str, sizes: tuple[tuple[str, int], ...]) -> Subject:
    return subject_of(key, dict(sizes))


_prepared: dict[str, Any] = {}
"""The device that this process has, of several equal ones, by its id."""


def _device_of_word(word: str) -> Any:
    return _prepared.get(word) or _trial_device_choice(word)


@lru_cache(maxsize=8)
def _trial_device_choice(word: str) -> Any:
    from feinsum.devices import device

    return device(word)


@dataclass
class _Bench:
    """The cases and buffers with which all variants of one subject are checked and timed."""

    device: Any
    cases: list[Any]

    @cached_property
    def rotation(self) -> Any:
        """Sets of buffers to time with, enough to defeat the cache of the device."""
        from feinsum.validate import Rotation

        return Rotation.make(self.cases[-1], self.device.profile)


def _bench_of(trial: Trial) -> _Bench:
    return _cached_bench(trial.key, tuple(sorted(trial.sizes.items())), trial.device, trial.seed)


@lru_cache(maxsize=1)
def _cached_bench(key: str, sizes: tuple[tuple[str, int], ...], device_id: str, seed: int) -> _Bench:
    device = _device_of_word(device_id)
    return _Bench(device, list(_cached_subject(key, sizes).proof(device, seed)))
