"""Running: compiled functions on devices, called with arrays of numpy or pyopencl."""

from __future__ import annotations

from typing import Any

from feinsum.devices import Device
from feinsum.languages.source import Source
from feinsum.languages.tensor.ir import Function
from feinsum.languages.tensor.running.kernel import GeneralKernel


def make(
    function: Function, source: Source, device: Device, *, database: Any, sizes: Any, tune: str, route: str, check: bool
) -> Any:
    """What runs a function by a route; see :func:`feinsum.build`."""
    return GeneralKernel(function, source, device, check)
