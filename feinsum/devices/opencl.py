"""The few calls of pyopencl that every user of a device needs: find it again, build for it, wait for it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING

from feinsum.ending import after_fork, submit
from feinsum.errors import DeviceError
from feinsum.interrupts import load_module

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    import pyopencl as cl

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Address:
    """Where a device stands among those of the loader; valid in every process that opens the same drivers."""

    platform: str
    version: str
    name: str
    driver: str
    index: int

    def to_dict(self) -> dict[str, str | int]:
        """This address in the types of JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: object) -> Address:
        """The address that :meth:`to_dict` wrote.

        :raises DeviceError: if it is not one.
        """
        kinds = {"str": str, "int": int}
        if isinstance(data, Mapping) and all(type(data.get(f.name)) is kinds[str(f.type)] for f in fields(cls)):
            return cls(**{f.name: data[f.name] for f in fields(cls)})
        raise DeviceError(f"{data!r} is not the address of a device; probe the devices again")


def enumerate_devices() -> Iterator[tuple[Address, cl.Device]]:
    """Every device that this process sees."""
    load_module("pyopencl")
    import pyopencl as cl

    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        _log.info("no OpenCL platform: %s", error)
        return
    for platform in platforms:
        try:
            devices = platform.get_devices()
        except cl.Error as error:
            _log.info("platform %s has no devices: %s", platform.name, error)
            continue
        for index, device in enumerate(devices):
            yield Address(platform.name, platform.version, device.name, device.driver_version, index), device


def locate(address: Address) -> cl.Device | None:
    """The device at `address`, or None if this process does not see it."""
    return next((device for found, device in enumerate_devices() if found == address), None)


def driver_error() -> type[Exception]:
    """The exception that pyopencl raises where a driver fails, for an ``except`` clause."""
    import pyopencl as cl

    error: type[Exception] = cl.Error
    return error


def build_program(context: cl.Context, source: str, options: Sequence[str] = ()) -> cl.Program:
    """Build `source` afresh, with the compiler's remarks in the log of this module rather than in warnings.

    The device's vendor may add options on which the text of its instructions relies.

    :raises pyopencl.RuntimeError: if it does not build.
    """
    import pyopencl as cl

    return submit(
        _compiler(), _build_quietly, cl._cl._Program(context, source), (*options, *_vendors_options(context))
    ).result()


def _vendors_options(context: cl.Context) -> tuple[str, ...]:
    """The options that vendors need of the compiler of a context's first device."""
    from feinsum.devices.vendors import known_vendors

    return tuple(option for vendor in known_vendors.VENDORS for option in vendor.build_options(context.devices[0]))


def build_binary(context: cl.Context, binary: bytes) -> cl.Program:
    """Build machine code that the same driver made for the one device of `context`.

    :raises pyopencl.Error: if the driver refuses it.
    """
    import pyopencl as cl

    return _build_quietly(cl._cl._Program(context, context.devices, [binary]))


@lru_cache(maxsize=1)
def _compiler() -> ThreadPoolExecutor:
    """The one thread that compiles: Intel's compiler takes 70 ms more for the first program of each thread."""
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(1, "feinsum-compiler")


after_fork(_compiler.cache_clear)


@lru_cache(maxsize=16)
def wake_compiler(context: cl.Context) -> Future[None]:
    """Have the driver load its compiler while what is to be built is still being written; once for each context.

    pyopencl holds no lock of Python's as it builds.  A driver that cannot do it says so when it builds in earnest.
    """
    import pyopencl as cl

    def work() -> None:
        with contextlib.suppress(cl.Error, AttributeError):
            program = cl._cl._Program(context, "__kernel void wake(__global float *x) { x[get_global_id(0)] = 1; }")
            program._build(options=b"", devices=None)

    return submit(_compiler(), work)


def _build_quietly(program: cl._cl._Program, options: Sequence[str] = ()) -> cl.Program:
    """Build what ``cl.Program`` wraps: that warns of every non-empty build log, and PoCL always has one.

    Filters of warnings are those of all threads, so they are left alone.
    """
    import pyopencl as cl

    text, _ = cl.Program._process_build_options(program.get_info(cl.program_info.CONTEXT), list(options))
    refused = None
    try:
        program._build(options=text, devices=None)
    except cl.Error as error:
        refused = error
    for device in program.get_info(cl.program_info.DEVICES):
        remarks = (program.get_build_info(device, cl.program_build_info.LOG) or "").strip()
        if refused is not None:
            message = f"{refused}\n\nBuild on {device}:\n\n{remarks}\n(options: {text.decode()})"
            raise cl.RuntimeError(cl._cl._ErrorRecord(msg=message, code=refused.code, routine=refused.routine))
        if remarks:
            _log.debug("building for %s: %s", device.name, remarks)
    return cl.Program(program)
