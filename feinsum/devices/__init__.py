"""The OpenCL devices of this machine: found without configuration, probed, described, measured and chosen.

Profiles and peaks are the only hardware numbers that the rest of feinsum knows; pyopencl is loaded when a device is used.
"""

from __future__ import annotations

from feinsum.devices.device_choice import describe_devices, device, devices
from feinsum.devices.handle import Device, measure_peaks
from feinsum.devices.opencl import build_program
from feinsum.devices.peaks import Peaks
from feinsum.devices.profile import DeviceProfile

__all__ = ["Device", "DeviceProfile", "Peaks", "build_program", "describe_devices", "device", "devices", "measure_peaks"]
