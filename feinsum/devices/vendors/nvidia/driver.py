"""Facts about a device that OpenCL has no query for: from NVIDIA's OpenCL driver, and from CUDA's about its cache."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyopencl as cl

_L2_CACHE_SIZE = 38
_REGISTERS_PER_WORK_ITEM = 255
"""The most registers of a work-item, from compute capability 3.5 on: the instruction set has eight bits for a register."""


def _ask(device: cl.Device, question: str) -> Any:
    """The driver's answer; None for devices of other makers."""
    import pyopencl as cl

    with suppress(cl.Error, AttributeError):
        return getattr(device, question)
    return None


def compute_capability(device: cl.Device) -> tuple[int, int] | None:
    """Major and minor number; None for devices of other makers."""
    capability = (_ask(device, "compute_capability_major_nv"), _ask(device, "compute_capability_minor_nv"))
    return None if None in capability else capability


def facts(device: cl.Device) -> Mapping[str, Any]:
    """Fields of a profile; see :meth:`feinsum.devices.vendors.vendor.Vendor.facts`."""
    capability = compute_capability(device)
    if capability is None:
        return {}
    found = {
        "compute_capability": capability,
        "architecture": "nvidia-sm" + "".join(map(str, capability)),
        "max_registers_per_work_item": _REGISTERS_PER_WORK_ITEM if capability >= (3, 5) else None,
        "registers_per_compute_unit": _ask(device, "registers_per_block_nv"),
        "sub_group_sizes": tuple(filter(None, [_ask(device, "warp_size_nv")])),
        "cache_bytes": _second_level_bytes(device.name),
    }
    return {field: value for field, value in found.items() if value}


def _second_level_bytes(name: str) -> int:
    """The bytes of the second-level cache of the CUDA device `name`, as OpenCL reports the first level; 0 if unknown."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count, value, text = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(256)
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    for ordinal in range(count.value):
        handle = ctypes.c_int()
        if cuda.cuDeviceGet(ctypes.byref(handle), ordinal) != 0 or cuda.cuDeviceGetName(text, 256, handle) != 0:
            continue
        if text.value.decode(errors="replace") != name:
            continue
        if cuda.cuDeviceGetAttribute(ctypes.byref(value), _L2_CACHE_SIZE, handle) == 0:
            return value.value
    return 0
