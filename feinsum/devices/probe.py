"""The probe of devices: each is listed, then made to build and run kernels, in processes that may crash or hang.

The answer is kept on disk under a key of drivers, versions and hardware, so that only the first process asks.  Processes
that start together wait for it: a GPU whose driver 16 of them asked from cold gave none of them an answer in two minutes.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import importlib.metadata
import json
import logging
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from feinsum._version import __version__
from feinsum.devices import host
from feinsum.devices.icd import VARIABLE, bundled_libraries, find_libraries, vendors_directory
from feinsum.devices.json_store import cache_directory, locked, read_json, unwritable, write_json
from feinsum.devices.opencl import Address
from feinsum.devices.profile import DeviceProfile, unknown_profile
from feinsum.devices.vendors.runtimes import RUNTIMES
from feinsum.ending import signal_group, submit
from feinsum.errors import DeviceError

logger = logging.getLogger(__name__)

TIMEOUT_VARIABLE = "FEINSUM_PROBE_TIMEOUT"
"""The environment variable with the seconds that trying a device may take."""
_FORMAT = 4
_TIME_LIMIT_S = 60.0
"""For one question; a driver that starts from cold on a network file system takes ten seconds."""
_FAILURE_REMEMBERED_S = 3600.0
_AT_ONCE = 4
_PATIENCE = 4
"""How many times the limit of a question a process waits for what another one asks."""
_PAUSE_S = 0.05
_DRIVER_SETTINGS = (
    *("LD_LIBRARY_PATH", "LD_PRELOAD", "OCL_ICD_", "OPENCL_"),  # the linker, loaders and their layers
    *(beginning for runtime in RUNTIMES for beginning in runtime.settings),
)
"""Beginnings of the environment variables that change which devices there are, or what they can do."""


@dataclass(frozen=True)
class Finding:
    """One device as probed; `why` is empty if it is usable.  A driver without devices has no address."""

    profile: DeviceProfile
    address: Address | None
    why: str

    def to_dict(self) -> dict[str, Any]:
        """This finding in the types of JSON."""
        address = None if self.address is None else self.address.to_dict()
        return {"profile": self.profile.to_dict(), "address": address, "why": self.why}


@dataclass(frozen=True)
class Probe:
    """The drivers that can be opened together without harm, and the findings about their devices.

    :ivar complete: whether the devices that work answered all questions.
    :ivar lasting: whether drivers caused all failures; a full disk or a damaged file is no property of a device.
    :ivar idle: the libraries that have no device.
    """

    libraries: tuple[str, ...]
    findings: tuple[Finding, ...]
    complete: bool = True
    lasting: bool = True
    idle: tuple[str, ...] = ()


def probe(refresh: bool = False) -> Probe:
    """Probe every device, or recall what was found before.

    A device that did not work, or did not answer all, is tried again after an hour, or at once with `refresh`; what failed
    for another reason than its driver is not remembered.  The environment variable ``FEINSUM_PROBE_TIMEOUT`` says how many
    seconds one question to a driver may take (60).

    :raises DeviceError: if drivers cannot be asked, as nothing can be written.
    """
    libraries = find_libraries()
    path = cache_directory() / "devices" / f"{_fingerprint(libraries)}.json"
    known = None if refresh else _recalled(read_json(path))
    if known is not None:
        return known
    with locked(path.with_suffix(".probing"), _PATIENCE * _probe_limit_s(os.environ.get(TIMEOUT_VARIABLE)), _PAUSE_S):
        known = None if refresh else _recalled(read_json(path))
        if known is None:
            logger.info("probing the devices of %s", ", ".join(libraries) or "no driver")
        return known or _remembered_probe(path, _probed_libraries(libraries))


def _remembered_probe(path: Path, fresh: Probe) -> Probe:
    """A probe, which is stored unless it failed for want of room."""
    if not fresh.lasting:
        return fresh
    failed = not fresh.complete or any(finding.why for finding in fresh.findings)
    until = time.time() + _FAILURE_REMEMBERED_S if failed else None
    findings = [finding.to_dict() for finding in fresh.findings]
    libraries, idle = list(fresh.libraries), list(fresh.idle)
    write_json(path, {"libraries": libraries, "findings": findings, "idle": idle, "until": until})
    return fresh


def _recalled(data: Any) -> Probe | None:
    """The probe that was stored, None if it is damaged or too old."""
    try:
        if data["until"] is not None and not time.time() < data["until"]:
            return None
        findings = tuple(
            Finding(
                DeviceProfile.from_dict(item["profile"]),
                None if item["address"] is None else Address.from_dict(item["address"]),
                str(item["why"]),
            )
            for item in data["findings"]
        )
        libraries, idle = (tuple(str(name) for name in data[key]) for key in ("libraries", "idle"))
        return Probe(libraries, findings, idle=idle)
    except (TypeError, KeyError, IndexError, DeviceError):
        return None


def _probed_libraries(libraries: tuple[str, ...]) -> Probe:
    libraries, listed, idle, broken, lasting = _openable_libraries(libraries)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = _map_in_pool(pool, lambda item: _ask_worker("check", [item["address"]], libraries), listed)
        found = [
            Finding(DeviceProfile.from_dict(item["profile"]), Address.from_dict(item["address"]), answer.error)
            for item, answer in zip(listed, answers, strict=True)
        ]
        findings, complete = _with_vendors_limits(found, libraries, pool)
    drivers = [Finding(unknown_profile(library), None, why) for library, why in broken.items()]
    lasting &= all(answer.driver for answer in answers)
    return Probe(libraries, (*findings, *drivers), complete, lasting, tuple(idle))


def _openable_libraries(
    libraries: tuple[str, ...],
) -> tuple[tuple[str, ...], list[dict[str, Any]], list[str], dict[str, str], bool]:
    """The libraries that can be opened together, their devices, those of them that have none, the other libraries with what
    is wrong, and whether all that went wrong was drivers.

    All at once in the good case; else one after the other, so that the one that crashes or hangs gives itself away.
    """
    answer = _ask_worker("list", [libraries], libraries)
    if answer.error and not libraries:
        return (), [], [], {next(iter(bundled_libraries()), "OpenCL"): answer.error}, answer.driver
    if not answer.error:
        broken: dict[str, str] = answer.value["broken"]
        kept = tuple(name for name in libraries if name not in broken)
        return kept, answer.value["devices"], answer.value["idle"], broken, True
    kept = ()
    devices: list[dict[str, Any]] = []
    idle: list[str] = []
    broken = {}
    lasting = True
    for library in libraries:
        together = (*kept, library)
        answer = _ask_worker("list", [together], together)
        lasting &= answer.driver
        if answer.error or library in answer.value["broken"]:
            broken[library] = answer.error or answer.value["broken"][library]
        else:
            kept, devices, idle = together, answer.value["devices"], answer.value["idle"]
    return kept, devices, idle, broken, lasting


def _with_vendors_limits(
    findings: list[Finding], libraries: tuple[str, ...], pool: ThreadPoolExecutor
) -> tuple[list[Finding], bool]:
    """`findings` with the capabilities that only trials show, once for each model, and whether every trial was answered."""
    from feinsum.devices.vendors.known_vendors import vendor_of

    models = {
        finding.profile.id: (finding, vendor)
        for finding in findings
        if not finding.why and (vendor := vendor_of(finding.profile)) is not None
    }
    completed: dict[str, dict[str, Any]] = {}
    complete = True
    for name, (finding, vendor) in models.items():
        profile = finding.profile
        address = finding.address.to_dict() if finding.address else None
        units, instructions = vendor.promised(profile)
        names = (*units, *instructions)
        questions: list[tuple[str, list[Any]]] = [("static-local", [address])]
        questions += [("feature", [address, feature]) for feature in names]
        static, *answers = _ask_all(questions, libraries, pool)
        complete &= not any(answer.error for answer in (static, *answers))
        working = {feature for feature, answer in zip(names, answers, strict=True) if answer.value is True}
        completed[name] = {
            "static_local_memory_bytes": static.value or profile.local_memory_bytes,
            "matrix_units": tuple(unit for unit in units if unit in working),
            "instructions": tuple(instruction for instruction in instructions if instruction in working),
        }
    return [replace(f, profile=replace(f.profile, **completed.get(f.profile.id, {}))) for f in findings], complete


def _ask_all(
    questions: Sequence[tuple[str, list[Any]]], libraries: Sequence[str], pool: ThreadPoolExecutor
) -> list[_ProbeAnswer]:
    """Answers to all questions, asked together; a question that a machine starting from cold left unanswered is asked
    again, alone."""

    def ask(question: tuple[str, list[Any]]) -> _ProbeAnswer:
        return _ask_worker(question[0], question[1], libraries)

    together = _map_in_pool(pool, ask, questions)
    return [ask(question) if first.error else first for question, first in zip(questions, together, strict=True)]


def _map_in_pool(pool: ThreadPoolExecutor, ask: Callable[[Any], _ProbeAnswer], items: Sequence[Any]) -> list[_ProbeAnswer]:
    return [answer.result() for answer in [submit(pool, ask, item) for item in items]]


@dataclass(frozen=True)
class _ProbeAnswer:
    """The answer of a worker; `driver` says whether an error is the driver's."""

    value: Any
    error: str
    driver: bool = True


@lru_cache(maxsize=8)
def _probe_limit_s(text: str | None) -> float:
    if not text:
        return _TIME_LIMIT_S
    with contextlib.suppress(ValueError):
        if 0 < float(text) < math.inf:
            return float(text)
    logger.warning("%s=%r is not a number of seconds; using the default, %g", TIMEOUT_VARIABLE, text, _TIME_LIMIT_S)
    return _TIME_LIMIT_S


def _ask_worker(task: str, arguments: Sequence[Any], libraries: Sequence[str]) -> _ProbeAnswer:
    """Let :mod:`feinsum.devices.probe_worker` do `task` in a process that sees `libraries` only.

    A driver that finds no room for its files fails in its own words, so the room is looked at wherever one fails.
    """
    try:
        answer = _answered(task, arguments, libraries)
    except OSError as error:
        raise DeviceError(f"drivers cannot be asked, as files cannot be written: {error.strerror}") from error
    full = unwritable() if answer.error else ""
    return _ProbeAnswer(None, f"{full} ({answer.error})", driver=False) if full else answer


def _answered(task: str, arguments: Sequence[Any], libraries: Sequence[str]) -> _ProbeAnswer:
    limit_s = _probe_limit_s(os.environ.get(TIMEOUT_VARIABLE))
    with tempfile.TemporaryDirectory(prefix="feinsum-probe-", ignore_cleanup_errors=True) as directory:
        file, log = Path(directory, "answer.json"), Path(directory, "log")
        command = [sys.executable, "-P", "-W", "ignore", "-m", "feinsum.devices.probe_worker"]
        path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
        with log.open("wb") as stream:
            process = subprocess.Popen(
                [*command, task, json.dumps(arguments), str(file)],
                cwd=directory,
                env={**os.environ, VARIABLE: str(vendors_directory(libraries)), "PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stream,
                start_new_session=True,
            )
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return _ProbeAnswer(None, f"the driver gave no answer within {limit_s:g} s")
        finally:
            _kill(process)
        answer = read_json(file)
        if isinstance(answer, dict):
            return _ProbeAnswer(answer.get("value"), answer.get("error", ""), answer.get("driver", True))
        return _ProbeAnswer(None, _last_words(process.returncode, log))


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the process with all it started; one that hangs inside the kernel is left behind."""
    if process.returncode is not None:
        return
    signal_group(process, "SIGKILL")
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)


def _last_words(status: int, log: Path) -> str:
    if status < 0:
        return f"the driver crashed ({signal.Signals(-status).name})"
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f"the driver ended the process with status {status}" + (f": {lines[-1][:200]}" if lines else "")


def _fingerprint(libraries: tuple[str, ...]) -> str:
    """A key that changes with anything that may change what a probe finds."""
    facts = [
        _FORMAT,
        __version__,
        _pyopencl_version(),
        [(library, _stamp(library), _stamp(os.path.dirname(library))) for library in (*libraries, *bundled_libraries())],
        {name: value for name, value in os.environ.items() if name.startswith(_DRIVER_SETTINGS) and name != VARIABLE},
        repr(replace(host.processor(), flags=frozenset())),
        sorted(host.processor().flags),
        host.processors_allowed(),
        sorted(path for runtime in RUNTIMES for pattern in runtime.nodes for path in glob.glob(pattern)),
        [_file_text(runtime.version_file) for runtime in RUNTIMES if runtime.version_file],
    ]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:24]


def _pyopencl_version() -> str:
    """Without importing it; empty if it is not installed as a package."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version("pyopencl")
    return ""


def _file_text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _stamp(path: str) -> int:
    """When the file, or the one it links to, was last changed; 0 if there is none."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0
