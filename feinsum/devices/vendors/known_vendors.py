"""The vendors that feinsum knows; no module outside their room names a maker's instructions.

A vendor is an object that follows :class:`Vendor`, in a module of its own, and is listed in :data:`VENDORS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from feinsum.devices.vendors.nvidia import NVIDIA
from feinsum.devices.vendors.units import MatrixUnit
from feinsum.devices.vendors.vendor import AsyncCopies, Shuffles, Vendor

if TYPE_CHECKING:
    from feinsum.devices.profile import DeviceProfile

VENDORS: tuple[Vendor, ...] = (NVIDIA,)


def vendor_of(profile: DeviceProfile) -> Vendor | None:
    """The vendor of a device; None if it adds nothing to OpenCL that feinsum knows."""
    return next((vendor for vendor in VENDORS if vendor.runtime == profile.runtime), None)


def vendor_with(unit: MatrixUnit) -> Vendor:
    """The vendor that has a unit."""
    return next(vendor for vendor in VENDORS if unit in vendor.matrix_units)


def matrix_units() -> Mapping[str, MatrixUnit]:
    """The units of all vendors, by name."""
    return {unit.name: unit for vendor in VENDORS for unit in vendor.matrix_units}


def copies_of(profile: DeviceProfile) -> AsyncCopies | None:
    """The asynchronous copies that a device has by its profile; None if it has none."""
    vendor = vendor_of(profile)
    return vendor.copies if vendor and vendor.copies and vendor.copies.name in profile.instructions else None


def shuffles_of(profile: DeviceProfile) -> Shuffles | None:
    """The exchange between lanes that a device has by its profile; None if it has none."""
    vendor = vendor_of(profile)
    return vendor.shuffles if vendor and vendor.shuffles and vendor.shuffles.name in profile.instructions else None
