"""The profile of a device: the limits that transform spaces may rely on, as plain data that outlives driver and process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from feinsum.devices.vendors.runtimes import runtime_of
from feinsum.errors import DeviceError

KINDS = ("gpu", "accelerator", "cpu", "unknown")
_USUAL_LINE_BYTES = 64
_USUAL_CORE_CACHE_BYTES = 1 << 20
_USUAL_FIRST_CACHE_BYTES = 48 << 10
"""Values of present processors, where the system does not tell."""


@dataclass(frozen=True)
class DeviceProfile:
    """Identity and limits of one OpenCL device, as its driver reports them and our probes confirm.

    Two devices of one model under one runtime have equal ids, and so share records; the driver is not part of the id.

    :param id: kind, runtime, model and compute units: ``"cpu:intel:amd-epyc-9654:96cu"``, ``"gpu:nvidia:h200:132cu"``.
    :param architecture: the name of its family: ``"x86-64-amd-f26-avx512"``, ``"nvidia-sm90"``.
    :param name: what the driver calls it.
    :param platform: the runtime's name of itself.
    :param vendor: who made it, as the driver says; PoCL says Intel of every x86 CPU.
    :param kind: ``"cpu"``, ``"gpu"``, ``"accelerator"``, or ``"unknown"`` for a driver that does not get so far.
    :param driver: versions of driver and platform.
    :param opencl_version: as the driver says: ``"OpenCL 3.0 CUDA"``.
    :param compute_units: cores of a CPU, multiprocessors of a GPU of NVIDIA.
    :param max_work_group_size: the most work-items of a work-group.
    :param max_work_item_sizes: the most work-items of a work-group along each axis.
    :param local_memory_bytes: the bytes that a work-group may use in ``__local`` arguments.
    :param local_memory_is_dedicated: false where ``__local`` is ordinary memory, as on CPUs.
    :param static_local_memory_bytes: the same in ``__local`` arrays of the kernel's own; more on NVIDIA devices.
    :param global_memory_bytes: the memory of the device.
    :param max_allocation_bytes: the most that one buffer may have.
    :param cache_bytes: the last-level cache; 0 if unknown.
    :param cacheline_bytes: a line of the cache; 0 if unknown.
    :param simd_bytes: the width of a vector register of a CPU; 0 elsewhere.
    :param sub_group_sizes: the sizes that the compiler may choose; empty if the driver does not say.
    :param fp64: whether it computes in float64.
    :param fp16: whether it computes in float16.
    :param host_unified_memory: whether device and host share their memory.
    :param extensions: names of OpenCL extensions, sorted.
    :param compute_capability: of NVIDIA devices.
    :param matrix_units: matrix products of sub-groups that its vendor's instructions compute, e.g. ``"fp64-mma-m16n8k16"``.
    :param instructions: other instructions of its vendor that work, e.g. ``"shfl-sync"``, ``"cp-async-16"``.
    :param registers_per_compute_unit: 32-bit registers that the work-groups of one compute unit share.
    :param max_registers_per_work_item: above it the compiler spills.
    :param vector_registers: of a core of a CPU; 0 if unknown or elsewhere.
    :param core_cache_bytes: the cache that is a core's own, its second level; 0 if unknown or elsewhere.
    """

    id: str
    architecture: str
    name: str
    platform: str
    vendor: str
    kind: str
    driver: str
    opencl_version: str
    compute_units: int
    max_work_group_size: int
    max_work_item_sizes: tuple[int, ...]
    local_memory_bytes: int
    local_memory_is_dedicated: bool
    static_local_memory_bytes: int
    global_memory_bytes: int
    max_allocation_bytes: int
    cache_bytes: int
    cacheline_bytes: int
    simd_bytes: int
    sub_group_sizes: tuple[int, ...]
    fp64: bool
    fp16: bool
    host_unified_memory: bool
    extensions: tuple[str, ...]
    compute_capability: tuple[int, ...] | None = None
    matrix_units: tuple[str, ...] = ()
    instructions: tuple[str, ...] = ()
    registers_per_compute_unit: int | None = None
    max_registers_per_work_item: int | None = None
    vector_registers: int = 0
    core_cache_bytes: int = 0

    @property
    def runtime(self) -> str:
        """The normalised name of the runtime, the second part of :attr:`id`."""
        return self.id.split(":")[1]

    @property
    def has_clang_builtins(self) -> bool:
        """Whether kernels may store past the caches and ask for memory before they need it."""
        return runtime_of(self.runtime).has_clang_builtins

    @property
    def broken_barriers(self) -> str:
        """Why the compiler cannot be trusted with barriers in branches; empty if it can."""
        return runtime_of(self.runtime).broken_barriers

    @property
    def line_bytes(self) -> int:
        """The length of a cache line, or the usual one where it is unknown."""
        return self.cacheline_bytes or _USUAL_LINE_BYTES

    @property
    def first_cache_bytes(self) -> int:
        """The first level of a core's cache; no driver says what it has."""
        return _USUAL_FIRST_CACHE_BYTES

    @property
    def own_cache_bytes(self) -> int:
        """The cache that is a core's own, or the usual one where it is unknown."""
        return self.core_cache_bytes or _USUAL_CORE_CACHE_BYTES

    @property
    def vectors(self) -> int:
        """The vector registers of a core, or those of its instruction set where they are unknown."""
        return self.vector_registers or (32 if self.simd_bytes == 64 else 16)

    def local_bytes_of(self, groups: int, each: int) -> int:
        """Local memory that some groups of a compute unit take of what one group may have, what is reserved counted."""
        from feinsum.devices.vendors.known_vendors import vendor_of

        vendor = vendor_of(self)
        reserved = vendor.reserved_local_bytes if vendor is not None else 0
        return groups * (each + reserved) - reserved

    def _repr_html_(self) -> str:
        from feinsum.report.displays import profile_html

        return profile_html(self)

    def to_dict(self) -> dict[str, Any]:
        """This profile in the types of JSON."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    def to_json(self) -> str:
        """This profile as one line of JSON; :meth:`from_json` is the inverse."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_dict(cls, data: object) -> DeviceProfile:
        """The profile that :meth:`to_dict` wrote; fields of a newer version are ignored.

        :raises DeviceError: naming the field that is missing or of another type.
        """
        if not isinstance(data, Mapping):
            raise DeviceError(f"a device profile is a JSON object, not {type(data).__name__}")
        missing = [field.name for field in fields(cls) if field.default is MISSING and field.name not in data]
        if missing:
            raise DeviceError(f"a device profile without {', '.join(map(repr, missing))}; probe the device again")
        hints = get_type_hints(cls)
        present = [field.name for field in fields(cls) if field.name in data]
        profile = cls(**{name: _decoded_value(name, data[name], hints[name]) for name in present})
        if profile.kind not in KINDS or profile.id.count(":") < 2:
            raise DeviceError(f"a device profile with kind {profile.kind!r} and id {profile.id!r}; probe the device again")
        return profile

    @classmethod
    def from_json(cls, text: str) -> DeviceProfile:
        """The profile that :meth:`to_json` wrote.

        :raises DeviceError: if `text` is no such JSON.
        """
        try:
            return cls.from_dict(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise DeviceError(f"a device profile that is not JSON: {error}") from error


def unknown_profile(library: str) -> DeviceProfile:
    """A profile for a driver whose devices cannot be listed, so that it can be reported beside the others."""
    name = library.rpartition("/")[2]
    return DeviceProfile(
        id=f"unknown:driver:{name.lower()}",
        architecture="unknown",
        name=name,
        platform=library,
        vendor="",
        kind="unknown",
        driver="",
        opencl_version="",
        compute_units=0,
        max_work_group_size=0,
        max_work_item_sizes=(),
        local_memory_bytes=0,
        local_memory_is_dedicated=False,
        static_local_memory_bytes=0,
        global_memory_bytes=0,
        max_allocation_bytes=0,
        cache_bytes=0,
        cacheline_bytes=0,
        simd_bytes=0,
        sub_group_sizes=(),
        fp64=False,
        fp16=False,
        host_unified_memory=False,
        extensions=(),
    )


def _decoded_value(name: str, value: object, hint: Any) -> Any:
    """`value` of JSON as the type `hint`: str, bool, int, ``tuple[T, ...]`` or one of these or None."""
    if isinstance(hint, UnionType):
        return None if value is None else _decoded_value(name, value, get_args(hint)[0])
    if get_origin(hint) is tuple and isinstance(value, list):
        return tuple(_decoded_value(name, item, get_args(hint)[0]) for item in value)
    if type(value) is hint:
        return value
    raise DeviceError(f"a device profile whose {name!r} is {value!r}, which is not {hint}; probe the device again")
