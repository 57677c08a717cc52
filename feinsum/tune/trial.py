"""A trial: one configuration of a space, built, proved and timed.  What runs inside a worker process."""

from __future__ import annotations

import base64
import importlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from feinsum.canonicalization import parse_key
from feinsum.compile.program import Program
from feinsum.einsum import BatchedEinsum
from feinsum.errors import FeinsumError, SpaceError, TransformError
from feinsum.registry import find_space


@dataclass(frozen=True)
class Trial:
    """What to try, as plain data.

    :ivar einsum_key: the canonical key of the einsum.
    :ivar sizes: the length of each index of the canonical einsum.
    :ivar device: the id of a device profile.
    """

    einsum_key: str
    sizes: Mapping[str, int]
    device: str
    space: str
    version: int
    configuration: Mapping[str, Any]
    seed: int = 0

    def to_json(self) -> dict[str, Any]:
        return {name: dict(value) if isinstance(value, Mapping) else value for name, value in vars(self).items()}


@dataclass(frozen=True)
class Outcome:
    """What became of a trial: a status of :class:`~feinsum.database.TuningRecord`, a message, samples in seconds.

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
class Built:
    """A program and its machine code, on the way from the process that compiled it to the one that times it."""

    program: Program
    binary: bytes = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        return {"program": self.program.to_json(), "binary": base64.b64encode(self.binary).decode()}

    @staticmethod
    def from_json(data: Any) -> Built:
        return Built(Program.from_json(data["program"]), base64.b64decode(data["binary"]))


def prepare(device_id: str, builds: bool) -> None:
    """Load what the first trial would load: the device, and loopy where trials are built."""
    _ = _device(device_id).context
    if builds:
        importlib.import_module("feinsum.compile.realize")


def build_trial(trial: Trial) -> Built | Outcome:
    """Transform and compile; an outcome means that this failed."""
    from feinsum.compile.codegen import generate_program
    from feinsum.compile.executable import build
    from feinsum.compile.realize import transformed

    e, sizes = _einsum(trial.einsum_key), dict(trial.sizes)
    device = _device(trial.device)
    space = find_space(trial.space)
    if space.version != trial.version:
        return Outcome("refused", f"space '{trial.space}' has version {space.version}, not {trial.version}")
    try:
        t_unit = transformed(e, e.sizes_from(sizes), space, trial.configuration, device.profile)
    except SpaceError as error:
        return Outcome("compile-failed", str(error))
    except FeinsumError as error:
        return Outcome("refused", str(error))
    try:
        executable = build(device.context, generate_program(t_unit))
    except TransformError as error:
        return Outcome("compile-failed", str(error))
    return Built(executable.program, executable.binary)


def measure_trial(trial: Trial, built: Built, give_up_s: float = math.inf, seconds: float = 0.3) -> Outcome:
    """Prove and time; see :func:`feinsum.timing.time_executable` for `give_up_s` and `seconds`."""
    from feinsum.compile.executable import build
    from feinsum.devices.opencl import driver_error
    from feinsum.timing import buffer_sets_needed, time_executable

    device = _device(trial.device)
    try:
        executable = build(device.context, built.program, built.binary)
        bench = _bench(trial.einsum_key, tuple(sorted(trial.sizes.items())), trial.device, trial.seed)
        for workload in bench.workloads:
            verdict = workload.check(executable)
            if not verdict.ok:
                return Outcome("wrong", verdict.message, tainted=verdict.escaped)
        main = bench.workloads[-1]
        free = min(device.profile.global_memory_bytes // 4, 4 << 30)
        wanted = buffer_sets_needed(main.nbytes, device.profile.cache_bytes, free)
        while len(bench.buffer_sets) < wanted:
            bench.buffer_sets.append({**(main.upload() if bench.buffer_sets else main.inputs), **main.outputs()})
        scratch = executable.scratch(device.context, main.parameters)
        sets = [{**buffers, **scratch} for buffers in bench.buffer_sets]
        timing = time_executable(executable, device.queue, sets, main.parameters, seconds=seconds, give_up_s=give_up_s)
    except TransformError as error:
        return Outcome("compile-failed", str(error))
    except (driver_error(), MemoryError) as error:
        return Outcome("launch-failed", f"{type(error).__name__}: {error}")
    return Outcome("ok", samples_s=timing.samples_s)


@lru_cache(maxsize=64)
def _einsum(key: str) -> BatchedEinsum:
    return parse_key(key)


@lru_cache(maxsize=8)
def _device(device_id: str) -> Any:
    from feinsum.devices import device

    return device(device_id)


@dataclass
class _Bench:
    """What all variants of one einsum are checked and timed with."""

    workloads: list[Any]
    buffer_sets: list[dict[str, Any]] = field(default_factory=list)


@lru_cache(maxsize=1)
def _bench(key: str, sizes: tuple[tuple[str, int], ...], device_id: str, seed: int) -> _Bench:
    from feinsum.validate import Workload, odd_lengths

    e, lengths, queue = _einsum(key), dict(sizes), _device(device_id).queue
    return _Bench([Workload(e, at, queue, seed) for at in (*odd_lengths(e, lengths), lengths)])
