"""A device's profile from the answers of its driver, completed by the operating system where drivers are silent."""

from __future__ import annotations

import ctypes
import os
import re
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from feinsum.devices.host import Processor, processor
from feinsum.devices.naming import cpu_model, device_id, gpu_model, runtime_name, slug
from feinsum.devices.profile import DeviceProfile
from feinsum.devices.vendors import known_vendors
from feinsum.devices.vendors.runtimes import runtime_of

if TYPE_CHECKING:
    import pyopencl as cl

_SUB_GROUP_SIZES_INTEL = 0x4108


def read_profile(device: cl.Device) -> DeviceProfile:
    """The profile of `device` without running anything on it: no static local memory, no vendor's instructions yet."""
    platform = device.platform
    kind = _device_kind(device)
    runtime = runtime_name(platform.name)
    host = processor()
    host = host.compiled_for(os.environ.get(runtime_of(runtime).target_variable, ""))
    is_cpu = kind == "cpu"
    model = cpu_model(device.name, host) if is_cpu else gpu_model(_marketing_name(device))
    profile = DeviceProfile(
        id=device_id(kind, runtime, model, device.max_compute_units),
        architecture=host.architecture if is_cpu else _accelerator_architecture(device),
        name=device.name.strip(),
        platform=platform.name.strip(),
        vendor=device.vendor.strip(),
        kind=kind,
        driver=f"{device.driver_version.strip()}; {platform.version.strip()}",
        opencl_version=_opencl_version(device.version),
        compute_units=device.max_compute_units,
        max_work_group_size=device.max_work_group_size,
        max_work_item_sizes=tuple(device.max_work_item_sizes),
        local_memory_bytes=device.local_mem_size,
        local_memory_is_dedicated=_has_dedicated_local_memory(device),
        static_local_memory_bytes=device.local_mem_size,
        global_memory_bytes=device.global_mem_size,
        max_allocation_bytes=device.max_mem_alloc_size,
        cache_bytes=_cache_bytes(device, host if is_cpu else None),
        cacheline_bytes=device.global_mem_cacheline_size,
        simd_bytes=host.vector_bytes if is_cpu else 0,
        sub_group_sizes=_sub_group_sizes(device),
        fp64=bool(_ask_driver(device, "double_fp_config")),
        fp16="cl_khr_fp16" in device.extensions.split(),
        host_unified_memory=bool(_ask_driver(device, "host_unified_memory")),
        extensions=tuple(sorted(set(device.extensions.split()))),
        vector_registers=host.vector_registers if is_cpu else 0,
        core_cache_bytes=host.core_cache_bytes if is_cpu else 0,
    )
    for vendor in known_vendors.VENDORS:
        profile = replace(profile, **vendor.facts(device))
    return profile


def _ask_driver(device: cl.Device, attribute: str) -> Any:
    """The answer of the driver, None if it does not know the question."""
    import pyopencl as cl

    with suppress(cl.Error, AttributeError):
        return getattr(device, attribute)
    return None


def _device_kind(device: cl.Device) -> str:
    import pyopencl as cl

    kinds = ((cl.device_type.GPU, "gpu"), (cl.device_type.CPU, "cpu"))
    return next((kind for bit, kind in kinds if device.type & bit), "accelerator")


def _marketing_name(device: cl.Device) -> str:
    """AMD's driver calls its devices by their instruction set, and has the name of the board elsewhere."""
    return str(_ask_driver(device, "board_name_amd") or device.name).strip()


def _has_dedicated_local_memory(device: cl.Device) -> bool:
    import pyopencl as cl

    return bool(device.local_mem_type == cl.device_local_mem_type.LOCAL)


def _opencl_version(text: str) -> str:
    """``"3.0"`` of ``"OpenCL 3.0 CUDA"``, the form that the standard prescribes."""
    match = re.match(r"OpenCL (\d+\.\d+)", text)
    return match[1] if match else ""


def _accelerator_architecture(device: cl.Device) -> str:
    gfx = re.match(r"gfx\w+", device.name)
    return f"amd-{gfx[0]}" if gfx else f"{slug(device.vendor)}-{_device_kind(device)}"


def _sub_group_sizes(device: cl.Device) -> tuple[int, ...]:
    width = _ask_driver(device, "wavefront_width_amd")
    return (width,) if width else _required_sub_group_sizes(device)


def _required_sub_group_sizes(device: cl.Device) -> tuple[int, ...]:
    """Sizes of cl_intel_required_subgroup_size, a question that pyopencl has no name for."""
    import pyopencl as cl

    if "cl_intel_required_subgroup_size" not in device.extensions.split():
        return ()
    # The extension module of pyopencl is linked to the loader, so that the loader's functions are found through it.
    get_device_info = ctypes.CDLL(cl._cl.__file__).clGetDeviceInfo
    sizes = (ctypes.c_size_t * 16)()
    used = ctypes.c_size_t()
    status = get_device_info(
        ctypes.c_void_p(device.int_ptr),
        ctypes.c_uint(_SUB_GROUP_SIZES_INTEL),
        ctypes.c_size_t(ctypes.sizeof(sizes)),
        sizes,
        ctypes.byref(used),
    )
    return tuple(sizes[: used.value // ctypes.sizeof(ctypes.c_size_t)]) if status == 0 else ()


def _cache_bytes(device: cl.Device, host: Processor | None) -> int:
    """The bytes of the last-level cache, as Intel's CPU runtime reports the second level."""
    if host is not None:
        return host.last_level_cache_of(device.max_compute_units) or device.global_mem_cache_size
    return int(device.global_mem_cache_size)
