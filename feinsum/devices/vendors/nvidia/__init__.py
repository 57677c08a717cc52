"""NVIDIA: matrix units, asynchronous copies and exchange between lanes of its GPUs, and what its driver says of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from feinsum.devices.vendors.nvidia import driver
from feinsum.devices.vendors.nvidia.instructions import CP_ASYNC, SHFL_SYNC
from feinsum.devices.vendors.nvidia.mma import HALF_UNITS, MATRIX_UNITS, SUB_GROUP
from feinsum.devices.vendors.units import MatrixUnit
from feinsum.devices.vendors.vendor import AsyncCopies, Shuffles

if TYPE_CHECKING:
    import pyopencl as cl

    from feinsum.devices.profile import DeviceProfile

INSTRUCTIONS = {SHFL_SYNC.name: (7, 0), CP_ASYNC.name: (8, 0), **{unit.name: unit.since for unit in HALF_UNITS}}
"""The instructions that profiles list, and the compute capability that introduced each."""


class Nvidia:
    """See :class:`feinsum.devices.vendors.vendor.Vendor`; the numbers are those of compute capability 8.0 and later (CUDA
    C++ Programming Guide, features of compute capabilities)."""

    runtime = "nvidia"
    sub_group_sizes: tuple[int, ...] = (SUB_GROUP,)
    schedulers = 4
    reserved_local_bytes = 1024
    matrix_units: tuple[MatrixUnit, ...] = (*MATRIX_UNITS, *HALF_UNITS)
    copies: AsyncCopies | None = CP_ASYNC
    shuffles: Shuffles | None = SHFL_SYNC
    sub_group_barrier = 'asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");'

    def pause(self, nanoseconds: str) -> str:
        return f'asm volatile("nanosleep.u32 %0;" :: "r"({nanoseconds}) : "memory");'

    def hide(self, name: str, size: int) -> str:
        return f'asm volatile("" : "+{"l" if size == 8 else "r"}"({name}));'

    def facts(self, device: cl.Device) -> Mapping[str, Any]:
        return driver.facts(device)

    def build_options(self, device: cl.Device) -> tuple[str, ...]:
        """``FEINSUM_COMPUTE_CAPABILITY``, 90 for a compute capability of 9.0."""
        capability = driver.compute_capability(device)
        return () if capability is None else (f"-DFEINSUM_COMPUTE_CAPABILITY={10 * capability[0] + capability[1]}",)

    def promised(self, profile: DeviceProfile) -> tuple[tuple[str, ...], tuple[str, ...]]:
        capability = profile.compute_capability or ()
        units = tuple(unit.name for unit in MATRIX_UNITS if capability >= unit.since)
        return units, tuple(name for name, since in INSTRUCTIONS.items() if capability >= since)


NVIDIA = Nvidia()
