"""The device on which operators compute with arrays in the memory of the host."""

from __future__ import annotations

import os
from functools import lru_cache

from feinsum.devices import Device, device
from feinsum.devices.device_choice import VARIABLE
from feinsum.errors import DeviceError


def host_device() -> Device:
    """The device that ``FEINSUM_DEVICE`` names; else the processor, where the arrays are; else the best.

    :raises DeviceError: if there is none.
    """
    return _host_device(os.environ.get(VARIABLE))


@lru_cache(maxsize=4)
def _host_device(word: str | None) -> Device:
    try:
        return device(word or "cpu")
    except DeviceError:
        if word:
            raise
        return device()
