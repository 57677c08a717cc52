"""One question about OpenCL, answered in a process of its own: ``python -m feinsum.devices.probe_worker TASK ARGUMENTS
FILE``.

A driver may crash or hang; then only this process does.  The answer is JSON in FILE, since drivers print as they like:

    {"value": ...}                  what was asked
    {"error": ..., "driver": true}  the driver failed
    {"error": ..., "driver": false} something else did, such as a disk that is full, of which drivers know nothing
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feinsum.devices import device_checks
from feinsum.devices.icd import bundled_libraries, platforms_of
from feinsum.devices.inquiry import read_profile
from feinsum.devices.opencl import Address, enumerate_devices, locate
from feinsum.ending import leave_no_core
from feinsum.errors import DeviceError

if TYPE_CHECKING:
    import pyopencl as cl


def list_devices(libraries: list[str]) -> dict[str, Any]:
    """Libraries that cannot be opened, with the linker's reason, addresses and profiles of all devices, and libraries that
    have none."""
    broken: dict[str, str] = {}
    platforms: dict[str, set[int]] = {}
    for library in dict.fromkeys((*libraries, *bundled_libraries())):
        try:
            opened = ctypes.CDLL(library)
        except OSError as error:
            broken[library] = f"it cannot be opened: {error}"
        else:
            platforms[library] = platforms_of(opened)
    listed = list(enumerate_devices())
    devices = [{"address": address.to_dict(), "profile": read_profile(device).to_dict()} for address, device in listed]
    busy = {device.platform.int_ptr for _, device in listed}
    # A loader that wraps platforms leaves their owners unknown.
    traced = busy <= set().union(*platforms.values())
    idle = [library for library in libraries if traced and library in platforms and not busy & platforms[library]]
    return {
        "broken": {library: broken[library] for library in libraries if library in broken},
        "devices": devices,
        "idle": idle,
    }


def _located(address: Mapping[str, Any]) -> cl.Device:
    device = locate(Address.from_dict(address))
    if device is None:
        raise DeviceError("it is listed in one process and not in the next")
    return device


def check_device_works(address: Mapping[str, Any]) -> None:
    """Do nothing, if the device works.

    :raises DeviceError: if it does not.
    """
    why = device_checks.why_unusable(_located(address))
    if why:
        raise DeviceError(why)


TASKS: dict[str, Callable[..., Any]] = {
    "list": list_devices,
    "check": check_device_works,
    "static-local": lambda address: device_checks.static_local_memory_bytes(_located(address)),
    "feature": lambda address, name: device_checks.feature_works(_located(address), name),
}


def run_task(task: str, arguments: str, file: str) -> None:
    """Write the answer to `file`."""
    leave_no_core()  # a driver that crashes is expected here
    try:
        answer = {"value": TASKS[task](*json.loads(arguments))}
    except Exception as error:  # whatever the failure is, it belongs in the answer
        name, text = type(error).__name__, device_checks.most_telling_line(error)
        known = isinstance(error, DeviceError)
        driver = known or type(error).__module__.partition(".")[0] == "pyopencl"
        answer = {"error": text if known else f"{name}: {text}", "driver": driver}
    Path(file).write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    run_task(*sys.argv[1:])
