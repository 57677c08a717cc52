"""Kernels in files: `save` writes everything that a process needs to run one without loopy, `load` reads it."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from feinsum._version import __version__
from feinsum.build.cache import CacheEntry, decode, encode
from feinsum.build.kernel_builder import KernelJob, nonempty
from feinsum.candidates.origin import Origin
from feinsum.canonicalization import canonicalize_einsum
from feinsum.compile.executable import Executable, build_executable
from feinsum.compile.kernel_program import KernelProgram
from feinsum.devices import device as choose_device
from feinsum.einsum import BatchedEinsum, array, batched_einsum
from feinsum.epilogue import parse_epilogue
from feinsum.errors import DeviceError, FeinsumError, ValidationError
from feinsum.kernel.kernel import Kernel

_FORMAT = "feinsum kernel 1"


def saved_bytes(e: BatchedEinsum, job: KernelJob, origin: Origin, executable: Executable) -> bytes:
    """The bytes that :meth:`Kernel.save` writes."""
    data = {
        "format": _FORMAT,
        "version": __version__,
        "einsum": einsum_data(e),
        "key": job.canonical.key,
        "lengths": dict(job.lengths),
        "device": job.device.profile.id,
        "driver": job.device.profile.driver,
        "origin": origin.to_json(),
        "program": executable.program.to_json(),
    }
    return encode(data, executable.binary)


def load(path: str | os.PathLike[str], device: Any = None, *, prove: bool = True) -> Kernel:
    """Read a kernel that :meth:`feinsum.Kernel.save` wrote; nothing is looked up and loopy is not needed.

    The file holds source and machine code, which the device runs with the rights of this process: load only what you would
    run.  The proof below finds mistakes, not malice.

    :param device: see :func:`feinsum.device`; by default the one that the kernel was made for, if it is there.  On another
        device the source is compiled again.  What was the best there may not be here.
    :param prove: whether the results are compared with the reference once, as those of :func:`feinsum.generate` are.
    :raises ValidationError: if the file holds no kernel, or one that is wrong, or one of another version of feinsum that
        names things otherwise.
    :raises DeviceError: if there is no usable device, or its work-groups are too small.
    """
    kernel = restored(Path(path).read_bytes(), device, os.fspath(path))
    if prove:
        try:
            kernel.prove()
        except ValidationError as error:
            raise ValidationError(f"{os.fspath(path)} holds a kernel that is wrong: {error}") from None
    return kernel


def restored(stored: bytes, device: Any, name: str = "what was pickled") -> Kernel:
    """The kernel of a file's bytes, as it was when it was stored.

    :param name: what to call them in errors.
    :raises ValidationError, DeviceError: see :func:`load`.
    """
    entry = decode(stored)
    if entry is None or entry.data.get("format") != _FORMAT:
        raise ValidationError(f"{name} holds no kernel; write one with Kernel.save")
    try:
        return _restored(entry, device)
    except DeviceError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, FeinsumError) as error:
        raise ValidationError(f"{name} holds no kernel that can be used: {error}") from None


def _restored(entry: CacheEntry, device: Any) -> Kernel:
    data = entry.data
    e = einsum_from(data["einsum"])
    canonical = canonicalize_einsum(nonempty(e))
    if canonical.key != data["key"]:
        raise ValidationError(f"feinsum {data['version']} gave its arrays other names; generate it again")
    chosen = choose_device(data["device"] if device is None else device)
    profile, program = chosen.profile, KernelProgram.from_json(data["program"])
    largest = max(math.prod(launch.group_size) for launch in program.launches)
    if largest > profile.max_work_group_size:
        raise DeviceError(f"the kernel has work-groups of {largest}, {chosen} at most {profile.max_work_group_size}")
    same = (data["device"], data["driver"]) == (profile.id, profile.driver)
    executable = build_executable(chosen.context, program, entry.binary if same else None)
    lengths = {str(letter): int(length) for letter, length in data["lengths"].items()}
    return Kernel(e, KernelJob(canonical, lengths, chosen), Origin.from_json(data["origin"]), executable)


def einsum_data(e: BatchedEinsum) -> dict[str, Any]:
    """A batched einsum as plain data; an anonymous long axis is null."""
    then = {"epilogues": [own and own.text(e.indexing.output) for own in e.epilogues]} if e.epilogues else {}
    return {
        "subscripts": e.subscripts,
        "arrays": {a.name: [[None if x == math.inf else x for x in a.shape], a.dtype.name] for a in e.arrays},
        "rows": [[[a.name for a in entry] for entry in row] for row in e.args],
        **then,
    }


def einsum_from(data: Mapping[str, Any]) -> BatchedEinsum:
    """The batched einsum that :func:`einsum_data` described."""
    arrays = {
        name: array(name, [math.inf if x is None else x for x in shape], dtype)
        for name, (shape, dtype) in data["arrays"].items()
    }
    rows = [[tuple(arrays[name] for name in entry) for entry in row] for row in data["rows"]]
    e = batched_einsum(data["subscripts"], rows)
    texts = data.get("epilogues")
    if texts is None:
        return e
    output, several = e.indexing.output, e.b if len(texts) == 1 else 1
    return replace(e, epilogues=tuple(text and parse_epilogue(text, output, arrays, several) for text in texts))
